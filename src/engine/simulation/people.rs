//! What people and agents do beside deliveries about issues: they comment, delete and edit comments,
//! quote our marker, lock issues, close pull requests, push; and GitHub is down or refuses us for a while.

use super::counts::Happening;
use super::driver::{SimServer, account};
use super::said::{LANDS_MS_MAX, OWN, STRANGER};
use super::store::instance;
use super::weather::SaidWeather;
use super::world::WorldState;
use crate::github::api::PullState;
use crate::github::messages::{self, MessageContext};
use crate::issue::event::{DeliveryEffect, TriggerKind};
use crate::issue::{Command, GithubEffect};
use crate::store::checkout::CheckoutRow;
use crate::types::{CheckoutState, Phase};

/// What the sentences need to know.
pub fn context() -> MessageContext {
    MessageContext { instance: instance(), public_url: None, command: "/issuebox".into() }
}

impl SimServer {
    /// A person, an agent or GitHub itself does something.
    pub fn people(&self) {
        for delivery in self.with(WorldState::people_act) {
            self.deliver(delivery);
        }
        // An agent may have pushed.
        self.engine.say_recorded();
        let unfinished = self.with(|inner| {
            let rows = inner.stored.outbox.unfinished(8).expect("it is in memory");
            let retries = !rows.is_empty() && inner.chance.permille(200);
            retries.then(|| inner.chance.pick(&rows).id.number)
        });
        if let Some(number) = unfinished {
            let engine = self.engine.clone();
            let retry = async move { engine.retry_github_effect(number).await };
            self.client(retry, |_, _| {});
        }
    }
}

impl WorldState {
    /// The numbers of the deliveries that this leads to.
    fn people_act(&mut self) -> Vec<usize> {
        let count = self.github.issues.len() as u64;
        let number = self.chance.between(1, count);
        match self.chance.below(14) {
            0 => self.comments(number, DeliveryEffect::Status),
            1 => self.comments(number, DeliveryEffect::Trigger(TriggerKind::Command)),
            2 => self.comments(number, DeliveryEffect::Command(Command::Stop)),
            3 => self.deletes_comment(),
            4 => self.edits_comment(),
            5 => self.quotes(),
            6 => self.locks(number, true).into_iter().collect(),
            7 | 8 => self.locks(number, false).into_iter().collect(),
            9 => self.closes_pull(),
            10 => {
                let until_ms = self.elapsed_ms() + self.chance.between(1_000, 1_200_000);
                self.said.down_until_ms = until_ms;
                self.note(None, || format!("GitHub is down until {until_ms} ms"));
                Vec::new()
            }
            11 => {
                let until_ms = self.elapsed_ms() + self.chance.between(1_000, 600_000);
                self.said.forbidden_until_ms = until_ms;
                self.note(None, || format!("we lack a permission until {until_ms} ms"));
                Vec::new()
            }
            _ => self.pushes(),
        }
    }

    /// A person comments, which asks for something.
    fn comments(&mut self, number: u64, effect: DeliveryEffect) -> Vec<usize> {
        let at = usize::try_from(number - 1).expect("an index");
        if self.github.issues[at].deleted {
            return Vec::new();
        }
        let comment = self.comment_is_made(number, STRANGER, "/issuebox".into());
        let news = self.news(at);
        vec![self.report(&news, "created", effect, Some(comment.id))]
    }

    fn deletes_comment(&mut self) -> Vec<usize> {
        let comments = self.said.comments.len() as u64;
        let Some(at) = usize::try_from(self.chance.below(comments)).ok().filter(|_| comments > 0)
        else {
            return Vec::new();
        };
        let comment = self.said.comments.remove(at);
        if comment.author == OWN {
            self.count(Happening::DeletedComment);
            self.said.deleted.insert(comment.marker().to_owned());
        }
        self.note(None, || format!("a person deletes comment {}", comment.id));
        Vec::new()
    }

    fn edits_comment(&mut self) -> Vec<usize> {
        let ours = self.said.comments.iter_mut().filter(|comment| comment.author == OWN);
        let mut ours: Vec<_> = ours.collect();
        let count = ours.len() as u64;
        if count > 0 {
            let at = usize::try_from(self.chance.below(count)).expect("an index");
            ours[at].body.push_str("A person's note.\n");
        }
        Vec::new()
    }

    /// A person quotes the marker of a status comment, whether there is one or not.
    fn quotes(&mut self) -> Vec<usize> {
        let homes: Vec<_> = self.rows.issues.values().cloned().collect();
        if homes.is_empty() {
            return Vec::new();
        }
        let home = self.chance.pick(&homes).clone();
        if let Some(number) = self.github.issue_of(&home.facts.issue_id) {
            let marker = messages::status_marker(&context(), home.home);
            self.comment_is_made(number, STRANGER, format!("{marker}\nnot ours"));
            self.count(Happening::QuotedMarker);
        }
        Vec::new()
    }

    /// The conversation of an issue is locked or unlocked.
    pub fn locks(&mut self, number: u64, is_locked: bool) -> Option<usize> {
        let at = usize::try_from(number - 1).expect("an index");
        let issue = &mut self.github.issues[at];
        if issue.locked == is_locked || issue.deleted {
            return None;
        }
        issue.locked = is_locked;
        let news = self.news(at);
        let action = if is_locked { "locked" } else { "unlocked" };
        Some(self.report(&news, action, DeliveryEffect::Update, None))
    }

    fn closes_pull(&mut self) -> Vec<usize> {
        let count = self.said.pulls.len() as u64;
        let at = usize::try_from(self.chance.below(count)).expect("an index");
        let now = self.elapsed_ms();
        // An accepted race: until then an earlier call may open a second one.
        let pull = self.said.pulls.get_mut(at).filter(|pull| now - pull.made_ms > LANDS_MS_MAX);
        if let Some(pull) = pull {
            pull.state = PullState::Closed;
        }
        Vec::new()
    }

    /// An agent pushes its work.
    fn pushes(&mut self) -> Vec<usize> {
        let up = self.rows.issues.values().filter(|issue| {
            issue.state.phase() == Some(Phase::Running)
                && issue.account == account()
                && issue.facts.repository_id.is_some()
        });
        let up: Vec<_> = up.cloned().collect();
        if up.is_empty() {
            return Vec::new();
        }
        let issue = self.chance.pick(&up).clone();
        let sandbox = issue.state.record().expect("it runs").id.clone();
        let remote = issue.facts.repository.clone().expect("its id is known");
        let remote = (remote, issue.facts.repository_id);
        let (now, tip) = (self.now(), format!("{:040}", self.fresh()));
        let before = self.stored.checkouts.get(&sandbox).cloned();
        let begun = before.unwrap_or(CheckoutRow::begun(sandbox.clone(), issue.home, remote, now));
        let row = CheckoutRow {
            state: CheckoutState::Ready,
            base: Some("main".into()),
            branch: Some(format!("issuebox/{sandbox}")),
            tip: Some(tip),
            ..begun
        };
        self.note(Some(issue.home), || format!("{sandbox} pushes {:?}", row.tip));
        self.stored.checkouts.insert(sandbox.clone(), row);
        let mark = GithubEffect::SetCommitStatus { sandbox: sandbox.clone() };
        for effect in [GithubEffect::ShowPull { sandbox }, mark] {
            self.stored.outbox.record(issue.home, &effect, now).expect("it is in memory");
        }
        Vec::new()
    }

    /// No issue is locked any more: the deliveries of that.
    pub fn people_relent(&mut self) -> Vec<usize> {
        let issues = self.github.issues.len() as u64;
        (1..=issues).filter_map(|number| self.locks(number, false)).collect()
    }
}

impl WorldState {
    /// An issue is transferred: its comments may get other ids.
    pub fn renumber_comments(&mut self, at: usize) {
        if !self.weather.said.as_ref().is_some_and(|said| said.renumbers) {
            return;
        }
        let number = at as u64 + 1;
        let mut comments = std::mem::take(&mut self.said.comments);
        for comment in comments.iter_mut().filter(|comment| comment.issue == number) {
            comment.id = self.fresh();
        }
        self.said.comments = comments;
    }
}

impl SaidWeather {
    /// What the server says on issues in a history of this seed, if it says anything. Only some
    /// histories have it: the others keep what they were before there was this.
    pub fn of(seed: u64) -> Option<Self> {
        if seed % 6 != 2 {
            return None;
        }
        let mut chance = super::chance::Chance::new(seed ^ 0x5a1d);
        Some(Self {
            faults: *chance.pick(&[0, 50, 200, 400]),
            lists_lag: chance.permille(400),
            renumbers: chance.permille(500),
            people: chance.between(4, 20),
        })
    }
}
