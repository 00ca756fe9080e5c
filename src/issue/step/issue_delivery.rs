//! What GitHub's deliveries lead to. The payload's times decide, not the order of arrival: each fact
//! has a watermark, and older news never overwrites newer data of that fact; each act takes its place
//! among those that are known ([`acts`](crate::issue::acts)).

use crate::issue::acts::{ActKind, Verdict, of_change};
use crate::issue::commit::{DeliveryResult, Reply};
use crate::issue::event::{Command, DeliveryEffect, IssueDelivery, News, SandboxAsk, TriggerKind};
use crate::issue::state::{Dated, Facts, IssueState, StoppedBy};
use crate::types::{Alias, Cause, Phase, Timestamp, Wanted};

use super::transition::Transition;

impl Transition<'_> {
    /// Takes in a delivery: what it says first, then what it may do.
    pub fn issue_delivery(
        &mut self,
        mut issue_delivery: IssueDelivery,
        claims: Vec<Alias>,
        place_elsewhere: bool,
    ) {
        self.cause = Cause::Delivery(issue_delivery.delivery.clone()).to_string();
        self.issue.facts.not_beyond(self.now());
        let facts_before = self.issue.facts.clone();
        let mut before = self.verdict();
        self.aliases = claims;
        self.follow_transfer(&issue_delivery);
        let from_left =
            self.issue.facts.left_repositories.contains(&issue_delivery.news.repository_id);
        self.learn(&issue_delivery, place_elsewhere || from_left);
        if issue_delivery.installation.is_some() {
            self.issue.facts.installation_id = issue_delivery.installation;
        }
        let counted_before = issue_delivery.comment.is_some_and(|comment| !self.count(comment));
        let mut result = match issue_delivery.effect {
            DeliveryEffect::Trigger(_) | DeliveryEffect::Command(_) if counted_before => {
                ignored("the command of this comment was carried out before")
            }
            DeliveryEffect::Trigger(kind) => self.triggered(kind, &issue_delivery, &mut before),
            DeliveryEffect::Stop(why) => self.stop_by_issue(why, &issue_delivery),
            DeliveryEffect::Delete if from_left => {
                ignored("the issue was transferred, not deleted; its sandbox stays")
            }
            DeliveryEffect::Delete => {
                self.issue.facts.deleted = true;
                self.delete("the issue was deleted on GitHub");
                applied("the issue is deleted; its sandbox goes with it")
            }
            DeliveryEffect::Update => self.update(&issue_delivery.action, &facts_before),
            DeliveryEffect::Activity if self.issue.state.record().is_some() => {
                applied("counts as activity")
            }
            DeliveryEffect::Activity => ignored("the issue has no sandbox and this is no trigger"),
            DeliveryEffect::FollowUp { .. } => self.follow_up(&mut issue_delivery),
            DeliveryEffect::Command(command) => {
                self.commented(command, issue_delivery.acted_at, before)
            }
            DeliveryEffect::Status => applied(self.status()),
            DeliveryEffect::Publish { .. } => self.published(),
            DeliveryEffect::Note(ref note) => self.note(note),
        };
        self.follow(before, self.why_now(&issue_delivery.effect));
        if result.applied {
            self.touch();
            if let Some(words) = issue_delivery.instruction.take() {
                self.instruction = Some(words);
            }
            self.say_words(&issue_delivery, &mut result);
            self.record_words(&result.reason);
        }
        if place_elsewhere {
            result.reason.push_str("; its repository and number belong to another issue here");
        }
        if !counted_before {
            self.say_result(&issue_delivery, &result);
        }
        self.reply = Reply::Delivered(result);
    }

    /// Verification found something that people should know.
    fn note(&mut self, note: &str) -> DeliveryResult {
        self.record_entry(note.to_owned());
        applied(note)
    }

    /// News of the issue: what is said of them, by what was known before.
    fn update(&mut self, action: &str, before: &Facts) -> DeliveryResult {
        let facts = &self.issue.facts;
        if facts != before {
            let title = |facts: &Facts| facts.title.as_ref().map(|known| known.value.clone());
            return applied(updated(action, title(before) != title(facts)));
        }
        match action {
            "unlocked" => applied("the issue's conversation was unlocked"),
            _ => ignored("it has no newer data about the issue"),
        }
    }

    /// A transfer: the issue has left one repository, and may be back in one that it had left.
    fn follow_transfer(&mut self, issue_delivery: &IssueDelivery) {
        let Some(formerly) = &issue_delivery.formerly else { return };
        // A delivery may have called it deleted over there: it was transferred.
        self.issue.facts.deleted = false;
        // It is known to be there as of later: that was an older transfer, and it came back.
        let facts = &self.issue.facts;
        if facts.repository_id == Some(formerly.repository_id)
            && !places_anew(facts, issue_delivery)
        {
            return;
        }
        let left = &mut self.issue.facts.left_repositories;
        left.retain(|id| *id != issue_delivery.news.repository_id && *id != formerly.repository_id);
        if formerly.repository_id != issue_delivery.news.repository_id {
            left.push(formerly.repository_id);
        }
    }

    /// Another home, which gives way to this one, is the same issue: its newer facts count here. If
    /// a running sandbox was asked for there, it is asked for here.
    pub fn learned(&mut self, other: &Facts, asked_for: Option<Timestamp>, cause: &Cause) {
        self.cause = cause.to_string();
        let before = self.verdict();
        let facts = &mut self.issue.facts;
        let is_same_repository = facts.repository_id == other.repository_id;
        let is_placed_newer = facts.placed_as_of < other.placed_as_of;
        if is_placed_newer && !is_same_repository
            || is_same_repository && facts.named_as_of() < other.named_as_of()
        {
            facts.repository.clone_from(&other.repository);
            facts.renamed_as_of = other.renamed_as_of;
        }
        if is_placed_newer {
            facts.placed_as_of = other.placed_as_of;
            facts.repository_id = other.repository_id;
            facts.number = other.number;
            facts.url.clone_from(&other.url);
        }
        facts.left_repositories.extend(&other.left_repositories);
        let here = facts.repository_id;
        facts.left_repositories.retain(|id| Some(*id) != here);
        facts.left_repositories.sort_unstable();
        facts.left_repositories.dedup();
        facts.installation_id = facts.installation_id.or(other.installation_id);
        newer(&mut facts.title, &other.title);
        newer(&mut facts.open, &other.open);
        newer(&mut facts.labelled, &other.labelled);
        newer(&mut facts.assigned, &other.assigned);
        facts.acts.join(&other.acts);
        for comment in &other.counted_comments {
            self.count(*comment);
        }
        let after = self.verdict();
        let why = "the issue was closed or stopped under its other name";
        match (before.wanted, after.wanted) {
            (Wanted::Running, Wanted::Stopped) => self.follow(before, why),
            // A delete over there was of the sandbox over there; this one is not asked for any more.
            (Wanted::Running, Wanted::Deleted) => {
                self.stop_as(StoppedBy::Issue, why);
                self.follow_open();
            }
            (Wanted::Running | Wanted::Stopped | Wanted::Deleted, _) => self.follow_open(),
        }
        if let Some(as_of) = asked_for.filter(|_| !self.issue.is_asked_for()) {
            self.asked_elsewhere(as_of, after, other.acts.last_started().is_some());
        }
        self.reply = Reply::Accepted;
    }

    fn learn(&mut self, issue_delivery: &IssueDelivery, place_elsewhere: bool) {
        let news = &issue_delivery.news;
        let facts = &mut self.issue.facts;
        let as_of = news.as_of;
        if facts.title.as_ref().is_none_or(|known| known.as_of <= as_of) && !news.title.is_empty() {
            facts.title = Some(Dated { value: news.title.clone(), as_of });
        }
        // The newest place is the one to be found under: a repository may be renamed, an issue
        // transferred.
        if !place_elsewhere && places_anew(facts, issue_delivery) {
            let placed_as_of = facts.placed_as_of.max(Some(as_of));
            // It names the repository as before a rename that is known already.
            let is_renamed_since = facts.repository_id == Some(news.repository_id)
                && facts.renamed_as_of > placed_as_of;
            if !is_renamed_since {
                if news.url.is_some() {
                    facts.url.clone_from(&news.url);
                }
                facts.repository = Some(news.repository.clone());
                facts.renamed_as_of = None;
            }
            facts.placed_as_of = placed_as_of;
            facts.repository_id = Some(news.repository_id);
            facts.number = Some(news.number);
        }
        if let Some(open) = news.open {
            // Equal times that contradict each other: closed wins.
            let wins = |known: &Dated<bool>| known.as_of < as_of || (known.as_of == as_of && !open);
            if facts.open.as_ref().is_none_or(wins) {
                facts.open = Some(Dated { value: open, as_of });
            }
            facts.acts.shown(open, as_of, facts.open.as_ref());
        }
        let action = issue_delivery.action.as_str();
        let by_act = |value, changes: [&str; 2]| {
            if changes.contains(&action) { of_change(as_of, value) } else { as_of }
        };
        for (fact, news, changes) in [
            (&mut facts.labelled, news.labelled, ["labeled", "unlabeled"]),
            (&mut facts.assigned, news.assigned, ["assigned", "unassigned"]),
        ] {
            let Some(value) = news else { continue };
            let as_of = by_act(value, changes);
            if fact.as_ref().is_none_or(|known| known.as_of <= as_of) {
                *fact = Some(Dated { value, as_of });
            }
        }
    }

    /// Whether the issue was closed when the delivery was made.
    fn shows_closed(&self, news: &News) -> bool {
        let known = self.issue.facts.open.as_ref().map(|known| known.value);
        !news.open.or(known).unwrap_or(true)
    }

    /// What a trigger asks for. Reopening an issue that carries the trigger label is as good as putting
    /// the label on.
    fn act_of(&self, kind: TriggerKind, labelled: Option<bool>) -> ActKind {
        let known = self.issue.facts.labelled.as_ref().map(|known| known.value);
        match kind {
            TriggerKind::Reopened if labelled.or(known) != Some(true) => ActKind::Reopened,
            TriggerKind::Opened
            | TriggerKind::Label
            | TriggerKind::LabelForGood
            | TriggerKind::Command
            | TriggerKind::EditedComment
            | TriggerKind::EditedIssue
            | TriggerKind::Assigned
            | TriggerKind::Reopened
            | TriggerKind::OtherName => ActKind::Asked,
        }
    }

    /// Why a trigger is outdated by a newer fact, although what took it away has not arrived.
    fn taken_away_since(&self, kind: TriggerKind) -> Option<&'static str> {
        let facts = &self.issue.facts;
        let is_not = |known: &Option<Dated<bool>>| known.as_ref().is_some_and(|known| !known.value);
        match kind {
            TriggerKind::Label if is_not(&facts.labelled) => {
                Some("the trigger label was taken off since")
            }
            TriggerKind::Assigned if is_not(&facts.assigned) => {
                Some("the bot was unassigned since")
            }
            TriggerKind::Opened
            | TriggerKind::Label
            | TriggerKind::LabelForGood
            | TriggerKind::Command
            | TriggerKind::EditedComment
            | TriggerKind::EditedIssue
            | TriggerKind::Assigned
            | TriggerKind::Reopened
            | TriggerKind::OtherName => None,
        }
    }

    /// A trigger: it takes its place in the order.
    fn triggered(
        &mut self,
        kind: TriggerKind,
        issue_delivery: &IssueDelivery,
        before: &mut Verdict,
    ) -> DeliveryResult {
        if self.shows_closed(&issue_delivery.news) {
            return ignored("the issue is closed");
        }
        if kind == TriggerKind::OtherName {
            return self.asked_elsewhere(issue_delivery.acted_at, *before, true);
        }
        let act = self.act_of(kind, issue_delivery.news.labelled);
        let is_latest = self.acted_on_github(act, issue_delivery.acted_at);
        match self.taken_away_since(kind) {
            Some(reason) if is_latest => {
                *before = self.verdict();
                ignored(reason)
            }
            Some(_) | None => self.trigger(kind, is_latest, *before),
        }
    }

    /// Why the sandbox follows a change of the order.
    fn why_now(&self, effect: &DeliveryEffect) -> &'static str {
        let is_closed = self.issue.facts.open.as_ref().is_some_and(|known| !known.value);
        match effect {
            DeliveryEffect::Stop(why) => why,
            DeliveryEffect::Command(_) => "a comment asked for it",
            DeliveryEffect::Trigger(_)
            | DeliveryEffect::Delete
            | DeliveryEffect::Update
            | DeliveryEffect::Activity
            | DeliveryEffect::FollowUp { .. }
            | DeliveryEffect::Status
            | DeliveryEffect::Publish { .. }
            | DeliveryEffect::Note(_) => {
                if is_closed {
                    "the issue was closed"
                } else {
                    "it follows from what happened on GitHub"
                }
            }
        }
    }

    /// What a trigger comes to that has its place.
    fn trigger(&mut self, kind: TriggerKind, is_latest: bool, before: Verdict) -> DeliveryResult {
        let repository = self.issue.facts.repository.as_ref();
        let why = &kind.describe(self.context.rules, repository);
        let after = self.verdict();
        match after.wanted {
            Wanted::Running if is_latest || after != before => self.grant_or_wait(why),
            Wanted::Running => applied(format!("{why}; a newer request was carried out already")),
            Wanted::Stopped | Wanted::Deleted => ignored(self.why_not(kind)),
        }
    }

    /// A running sandbox was asked for under another name of the issue. If it is known when, that counts
    /// here by now; if the sandbox here was deleted since, it counts as a new request.
    fn asked_elsewhere(
        &mut self,
        as_of: Timestamp,
        before: Verdict,
        is_dated: bool,
    ) -> DeliveryResult {
        if self.issue.facts.open.as_ref().is_some_and(|known| !known.value) {
            return ignored("the issue is closed");
        }
        let is_latest = match self.verdict().wanted {
            Wanted::Running => true,
            Wanted::Stopped if is_dated => true,
            Wanted::Stopped | Wanted::Deleted => self.acted_on_github(ActKind::Asked, as_of),
        };
        self.trigger(TriggerKind::OtherName, is_latest, before)
    }

    /// Why a trigger starts nothing, by what is later.
    fn why_not(&self, kind: TriggerKind) -> &'static str {
        let facts = &self.issue.facts;
        let acts = &facts.acts;
        let ended = acts.stopped.max(acts.deleted);
        if facts.deleted {
            "the issue is deleted"
        } else if acts.last_started().is_none() && kind == TriggerKind::Reopened {
            "it had no sandbox and does not carry the trigger label"
        } else if facts.open.as_ref().is_some_and(|known| !known.value) {
            "the issue is closed"
        } else if ended >= acts.last_started() && ended >= acts.taken_away {
            "a person stopped or deleted it later"
        } else if let Some(reason) = self.taken_away_since(kind) {
            reason
        } else {
            "it was stopped later: the issue was closed, unlabelled or unassigned"
        }
    }

    /// Whether it was asked for since its sandbox failed. GitHub's clock and ours may differ by a
    /// second.
    fn is_asked_since_failure(&self) -> bool {
        let asked = self.issue.facts.acts.last_started();
        let failed = self.issue.state.record().map(|record| record.phase_since.unix_ms() / 1000);
        failed.zip(asked).is_some_and(|(failed, asked)| failed <= asked.unix_ms() / 1000 + 1)
    }

    /// Wants a running sandbox, and a failed one to be retried if this was asked since. If a hold or a
    /// quota forbids it now, the start is pending.
    pub fn grant_or_wait(&mut self, why: &str) -> DeliveryResult {
        let retry = self.is_asked_since_failure();
        if let Some(denial) = self.denial_to_begin(retry) {
            let reason = format!("{why}; the start waits: {}", denial.reason);
            self.pending_start(why, None);
            return applied(reason);
        }
        let (_, reason) = match retry {
            true => self.want_running_again(SandboxAsk::default(), why),
            false => self.want_running(SandboxAsk::default(), why),
        };
        applied(format!("{why}; {reason}"))
    }

    /// Counts a comment's command; false if it was counted before.
    fn count(&mut self, comment: u64) -> bool {
        let counted = &mut self.issue.facts.counted_comments;
        if counted.contains(&comment) {
            return false;
        }
        if counted.len() >= Facts::COUNTED_COMMENTS_MAX {
            counted.remove(0);
        }
        counted.push(comment);
        true
    }

    /// A comment commands the sandbox, as of when it was written; the result is put in words.
    fn commented(&mut self, command: Command, as_of: Timestamp, before: Verdict) -> DeliveryResult {
        match command {
            Command::Stop => self.ended(ActKind::Stopped, as_of, "stop"),
            Command::Delete | Command::ForceDelete => self.ended(ActKind::Deleted, as_of, "delete"),
            Command::Start => self.started(as_of, before),
            Command::Retry => self.retried(as_of),
        }
    }

    /// A comment asks to stop or delete the sandbox. What it overtook finds it later.
    fn ended(&mut self, act: ActKind, as_of: Timestamp, verb: &str) -> DeliveryResult {
        let why = "a comment asked for it";
        let had = self.issue.state.phase().is_some();
        let waited = self.issue.pending_start.is_some();
        if self.acted_on_github(act, as_of) {
            match act {
                ActKind::Deleted => self.delete(why),
                ActKind::Asked
                | ActKind::Reopened
                | ActKind::Started
                | ActKind::Stopped
                | ActKind::TakenAway
                | ActKind::Closed => self.want_stopped(StoppedBy::Person, why),
            }
        } else if self.verdict().wanted == Wanted::Running {
            return ignored(format!("a newer request than this {verb} was carried out"));
        }
        match (had, act == ActKind::Deleted) {
            (true, true) => applied("its sandbox is deleted: a comment asked for it"),
            (true, false) => applied("its sandbox is stopped: a comment asked for it"),
            (false, _) if waited => applied("its start no longer waits: a comment asked for it"),
            (false, _) => applied(format!(
                "the issue has no sandbox to {verb}; what was asked for before starts none"
            )),
        }
    }

    /// A comment asks to start the sandbox.
    fn started(&mut self, as_of: Timestamp, before: Verdict) -> DeliveryResult {
        let why = "a comment asked for it";
        let is_latest = self.acted_on_github(ActKind::Started, as_of);
        let after = self.verdict();
        let phase = self.issue.state.phase().filter(|phase| *phase != Phase::Deleting);
        match (phase, after.wanted) {
            (Some(_), _) if is_latest && self.denials(Command::Start) => self.grant_or_wait(why),
            (Some(phase), _) if is_latest => match self.command_start() {
                None => applied("its sandbox is started: a comment asked for it"),
                Some(_) => ignored(format!("its sandbox is {phase}; it cannot be started")),
            },
            (_, Wanted::Running) if is_latest || after != before => self.grant_or_wait(why),
            (_, Wanted::Running) => applied("a newer request was carried out already"),
            (_, Wanted::Stopped) => ignored("it was stopped later"),
            (_, Wanted::Deleted) => ignored("the issue has no sandbox"),
        }
    }

    /// A comment asks to try again what failed.
    fn retried(&mut self, as_of: Timestamp) -> DeliveryResult {
        let Some(phase) = self.issue.state.phase() else {
            return ignored("the issue has no sandbox");
        };
        let acts = &self.issue.facts.acts;
        let ended = acts.stopped.max(acts.taken_away).max(acts.last_closed());
        if self.verdict().wanted != Wanted::Running && ended > Some(of_change(as_of, true)) {
            return ignored("it was stopped later");
        }
        if self.denials(Command::Retry) {
            let denial = self.context.denial.as_ref().map(|denial| denial.reason.as_str());
            return ignored(format!(
                "it cannot be tried again now: {}",
                denial.unwrap_or_default()
            ));
        }
        match self.command_retry() {
            None => applied("the step that failed is tried again: a comment asked for it"),
            Some(_) => ignored(format!("its sandbox is {phase}; only a failed one is retried")),
        }
    }

    /// A comment asks to publish the work, which an effect does.
    fn published(&self) -> DeliveryResult {
        if self.context.rules.github.is_none() {
            return ignored("publishing needs credentials for GitHub in [github]");
        }
        match self.issue.state.record() {
            Some(_) => applied("its work is published: a comment asked for it"),
            None => ignored("the issue has no sandbox"),
        }
    }

    fn status(&self) -> String {
        match (self.issue.state.record(), self.issue.state.phase()) {
            (Some(record), Some(phase)) => format!("its sandbox is {phase}: {}", record.reason),
            _ => "the issue has no sandbox".to_owned(),
        }
    }

    /// The issue was closed, or its trigger was taken away.
    fn stop_by_issue(
        &mut self,
        why: &'static str,
        issue_delivery: &IssueDelivery,
    ) -> DeliveryResult {
        let is_close = issue_delivery.action == "closed";
        let act = if is_close { ActKind::Closed } else { ActKind::TakenAway };
        if self.acted_on_github(act, issue_delivery.acted_at) {
            self.want_stopped(StoppedBy::Issue, why);
        } else if self.verdict().wanted == Wanted::Running {
            return ignored("newer data about the issue contradicts it");
        }
        match self.issue.state {
            IssueState::Absent => applied(format!("{why}; there is no sandbox to stop")),
            IssueState::Creating { .. }
            | IssueState::Running { .. }
            | IssueState::Stopping { .. }
            | IssueState::Stopped { .. }
            | IssueState::Starting { .. }
            | IssueState::Failed { .. }
            | IssueState::Deleting { .. } => applied(format!("{why}; its sandbox is stopped")),
        }
    }
}

/// Of two versions of a fact, the newer counts.
fn newer<T: Clone>(known: &mut Option<Dated<T>>, other: &Option<Dated<T>>) {
    let is_newer = |other: &Dated<T>| known.as_ref().is_none_or(|known| known.as_of < other.as_of);
    if other.as_ref().is_some_and(is_newer) {
        known.clone_from(other);
    }
}

/// What an update came to, by what was done on GitHub.
fn updated(action: &str, is_renamed: bool) -> &'static str {
    match action {
        "edited" if is_renamed => "the issue's title was edited",
        "edited" => "the issue's text was edited",
        "transferred" => "the issue was transferred",
        _ => "the issue's data was updated",
    }
}

fn applied(reason: impl Into<String>) -> DeliveryResult {
    DeliveryResult { applied: true, reason: reason.into() }
}

fn ignored(reason: impl Into<String>) -> DeliveryResult {
    DeliveryResult { applied: false, reason: reason.into() }
}

/// Whether a delivery says where the issue is now, and not where it was. One that [counts as of its
/// receipt](crate::issue::acts::plausible) does: while our clock is too far behind GitHub's, what is
/// known may be dated later than all that arrives.
fn places_anew(facts: &Facts, issue_delivery: &IssueDelivery) -> bool {
    let as_of = issue_delivery.news.as_of;
    let is_as_of_receipt = as_of == issue_delivery.received_at;
    is_as_of_receipt || facts.placed_as_of.is_none_or(|known| known <= as_of)
}
