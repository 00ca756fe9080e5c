//! What GitHub's deliveries lead to. The payload's times decide, not the order of arrival: each fact
//! has a watermark, and older news never overwrites newer data of that fact.

use crate::issue::commit::{DeliveryResult, Reply};
use crate::issue::event::{Command, DeliveryEffect, IssueDelivery, News, TriggerKind};
use crate::issue::state::{Dated, Facts, IssueState, StoppedBy};
use crate::types::{Alias, Cause, Timestamp};

use super::transition::Transition;

impl Transition<'_> {
    /// Takes in a delivery: what it says first, then what it may do.
    pub fn issue_delivery(
        &mut self,
        issue_delivery: IssueDelivery,
        claims: Vec<Alias>,
        place_elsewhere: bool,
    ) {
        self.cause = Cause::Delivery(issue_delivery.delivery.clone()).to_string();
        let facts_before = self.issue.facts.clone();
        self.aliases = claims;
        self.follow_transfer(&issue_delivery);
        let from_left =
            self.issue.facts.left_repositories.contains(&issue_delivery.news.repository_id);
        self.learn(&issue_delivery.news, place_elsewhere || from_left);
        if issue_delivery.installation.is_some() {
            self.issue.facts.installation_id = issue_delivery.installation;
        }
        let learned = self.issue.facts != facts_before;
        let counted_before = issue_delivery.comment.is_some_and(|comment| !self.count(comment));
        let result = match issue_delivery.effect {
            DeliveryEffect::Trigger(_) | DeliveryEffect::Command(_) if counted_before => {
                ignored("the command of this comment was carried out before")
            }
            DeliveryEffect::Trigger(kind) => self.trigger(kind, issue_delivery.news.as_of),
            DeliveryEffect::Stop(why) => self.stop_by_issue(why, &issue_delivery),
            DeliveryEffect::Delete if from_left => {
                ignored("the issue was transferred, not deleted; its sandbox stays")
            }
            DeliveryEffect::Delete => {
                self.issue.facts.deleted = true;
                self.delete("the issue was deleted on GitHub");
                applied("the issue is deleted; its sandbox goes with it")
            }
            DeliveryEffect::Update if learned => {
                let title = |facts: &Facts| facts.title.as_ref().map(|known| known.value.clone());
                let is_renamed = title(&facts_before) != title(&self.issue.facts);
                applied(updated(&issue_delivery.action, is_renamed))
            }
            DeliveryEffect::Update => ignored("it has no newer data about the issue"),
            DeliveryEffect::Activity if self.issue.state.record().is_some() => {
                applied("counts as activity")
            }
            DeliveryEffect::Activity => ignored("the issue has no sandbox and this is no trigger"),
            DeliveryEffect::Command(command) => self.commented(command),
            DeliveryEffect::Status => applied(self.status()),
        };
        let mut result = result;
        self.follow_open(&facts_before);
        if result.applied {
            self.touch();
            self.instruction = issue_delivery.instruction;
            self.record_words(&result.reason);
        }
        if place_elsewhere {
            result.reason.push_str("; its repository and number belong to another issue here");
        }
        self.reply = Reply::Delivered(result);
    }

    /// A transfer: the issue has left one repository, and may be back in one that it had left.
    fn follow_transfer(&mut self, issue_delivery: &IssueDelivery) {
        let Some(formerly) = &issue_delivery.formerly else { return };
        // A delivery may have called it deleted over there: it was transferred.
        self.issue.facts.deleted = false;
        // It is known to be there as of later: that was an older transfer, and it came back.
        let facts = &self.issue.facts;
        if facts.placed_as_of.is_some_and(|known| known > issue_delivery.news.as_of)
            && facts.repository_id == Some(formerly.repository_id)
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
        let before = self.issue.facts.clone();
        let facts = &mut self.issue.facts;
        if facts.placed_as_of < other.placed_as_of {
            facts.placed_as_of = other.placed_as_of;
            facts.repository.clone_from(&other.repository);
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
        facts.ended_by_person_at = facts.ended_by_person_at.max(other.ended_by_person_at);
        for comment in &other.counted_comments {
            self.count(*comment);
        }
        self.follow_open(&before);
        if let Some(as_of) = asked_for.filter(|_| !self.issue.is_asked_for()) {
            self.trigger(TriggerKind::OtherName, as_of);
        }
        self.reply = Reply::Accepted;
    }

    fn learn(&mut self, news: &News, place_elsewhere: bool) {
        let facts = &mut self.issue.facts;
        let as_of = news.as_of;
        if facts.title.as_ref().is_none_or(|known| known.as_of <= as_of) && !news.title.is_empty() {
            facts.title = Some(Dated { value: news.title.clone(), as_of });
        }
        // The newest place is the one to be found under: a repository may be renamed, an issue
        // transferred.
        if !place_elsewhere && facts.placed_as_of.is_none_or(|known| known <= as_of) {
            facts.placed_as_of = Some(as_of);
            facts.repository_id = Some(news.repository_id);
            if news.url.is_some() {
                facts.url.clone_from(&news.url);
            }
            facts.repository = Some(news.repository.clone());
            facts.number = Some(news.number);
        }
        if let Some(open) = news.open {
            // Equal times that contradict each other: closed wins.
            let wins = |known: &Dated<bool>| known.as_of < as_of || (known.as_of == as_of && !open);
            if facts.open.as_ref().is_none_or(wins) {
                facts.open = Some(Dated { value: open, as_of });
            }
        }
        for (fact, news) in
            [(&mut facts.labelled, news.labelled), (&mut facts.assigned, news.assigned)]
        {
            if let Some(value) = news
                && fact.as_ref().is_none_or(|known| known.as_of <= as_of)
            {
                *fact = Some(Dated { value, as_of });
            }
        }
    }

    fn trigger(&mut self, kind: TriggerKind, as_of: Timestamp) -> DeliveryResult {
        let facts = &self.issue.facts;
        let says = |known: &Option<Dated<bool>>, value: bool| {
            known.as_ref().is_some_and(|known| known.value == value)
        };
        let had_sandbox = self.issue.generation.0 > 0;
        if facts.deleted {
            return ignored("the issue is deleted");
        }
        if says(&facts.open, false) {
            return ignored("the issue is closed");
        }
        if kind == TriggerKind::Label && says(&facts.labelled, false) {
            return ignored("the trigger label was taken off since");
        }
        if kind == TriggerKind::Assigned && says(&facts.assigned, false) {
            return ignored("the bot was unassigned since");
        }
        if kind == TriggerKind::Reopened && !had_sandbox && !says(&facts.labelled, true) {
            return ignored("it had no sandbox and does not carry the trigger label");
        }
        // GitHub's times have a resolution of one second: within the same one, the trigger counts.
        let later = |ended: Timestamp| ended.unix_ms() / 1000 > as_of.unix_ms() / 1000;
        if facts.ended_by_person_at.is_some_and(later) {
            return ignored("a person stopped or deleted it later");
        }
        // GitHub's clock and ours may differ by a second.
        let failed_before = self.issue.state.record().is_some_and(|record| {
            record.phase_since.unix_ms() / 1000 <= as_of.unix_ms() / 1000 + 1
        });
        self.grant_or_wait(&kind.describe(self.context.rules), failed_before)
    }

    /// Wants a running sandbox. If a hold or a quota forbids it now, the start is pending.
    /// `retry` says whether a failed sandbox is to be retried by that.
    fn grant_or_wait(&mut self, why: &str, retry: bool) -> DeliveryResult {
        if let Some(denial) = self.denial_to_begin(retry) {
            let reason = format!("{why}; the start waits: {}", denial.reason);
            self.pending_start(why, None);
            return applied(reason);
        }
        let (_, reason) = match retry {
            true => self.want_running_again(None, None, why),
            false => self.want_running(None, None, why),
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

    /// A comment commands the sandbox; the result is put in words.
    fn commented(&mut self, command: Command) -> DeliveryResult {
        let why = "a comment asked for it";
        let Some(phase) = self.issue.state.phase() else {
            return ignored("the issue has no sandbox");
        };
        match command {
            Command::Start if self.denials(command) => self.grant_or_wait(why, true),
            Command::Retry if self.denials(command) => {
                let denial = self.context.denial.as_ref().map(|denial| denial.reason.as_str());
                ignored(format!("it cannot be tried again now: {}", denial.unwrap_or_default()))
            }
            Command::Stop => {
                self.issue.facts.ended_by_person_at = Some(self.now());
                self.want_stopped(StoppedBy::Person, why);
                applied("its sandbox is stopped: a comment asked for it")
            }
            Command::Delete | Command::ForceDelete => {
                self.issue.facts.ended_by_person_at = Some(self.now());
                self.delete(why);
                applied("its sandbox is deleted: a comment asked for it")
            }
            Command::Start => match self.command_start() {
                None => applied("its sandbox is started: a comment asked for it"),
                Some(_) => ignored(format!("its sandbox is {phase}; it cannot be started")),
            },
            Command::Retry => match self.command_retry() {
                None => applied("the step that failed is tried again: a comment asked for it"),
                Some(_) => ignored(format!("its sandbox is {phase}; only a failed one is retried")),
            },
        }
    }

    fn status(&self) -> String {
        match (self.issue.state.record(), self.issue.state.phase()) {
            (Some(record), Some(phase)) => format!("its sandbox is {phase}: {}", record.reason),
            _ => "the issue has no sandbox".to_owned(),
        }
    }

    /// What follows when it became known that the issue is open or closed, by whatever delivery:
    /// the one that said so first may have been lost.
    fn follow_open(&mut self, before: &Facts) {
        let says = |facts: &Facts| facts.open.as_ref().map(|known| known.value);
        match (says(before), says(&self.issue.facts)) {
            (Some(false), Some(true)) => self.issue.delete_due = None,
            (Some(true), Some(false)) => {
                // Also if there is only a pending start.
                self.want_stopped(StoppedBy::Issue, "the issue was closed");
                self.delete_after_close();
            }
            (None | Some(true | false), None | Some(true | false)) => {}
        }
    }

    fn stop_by_issue(
        &mut self,
        why: &'static str,
        issue_delivery: &IssueDelivery,
    ) -> DeliveryResult {
        let facts = &self.issue.facts;
        let newer_says_otherwise = match issue_delivery.action.as_str() {
            "closed" => facts.open.as_ref().is_some_and(|known| known.value),
            "unlabeled" => facts.labelled.as_ref().is_some_and(|known| known.value),
            "unassigned" => facts.assigned.as_ref().is_some_and(|known| known.value),
            _ => false,
        };
        if newer_says_otherwise {
            return ignored("newer data about the issue contradicts it");
        }
        self.want_stopped(StoppedBy::Issue, why);
        if issue_delivery.action == "closed" {
            self.delete_after_close();
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
