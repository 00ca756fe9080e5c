//! What GitHub has of what the server wrote on issues, and the writing calls that are under way.
//!
//! A call that is done takes effect within [`LANDS_MS_MAX`] of its arrival, whether its client still
//! waits or not: two calls of unknown outcome may take effect in either order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;

use super::counts::Happening;
use super::world::{SimEffect, WorldState};
use crate::github::api::{
    CommitState, GitHubAccount, GitHubComment, GitHubError, GitHubPull, HeldReason, NewPull,
    PullState, ReactionTarget, RepositoryTarget,
};
use crate::store::checkout::CheckoutRow;
use crate::types::{IssueNumber, Timestamp};

/// Our own account at GitHub.
pub const OWN: u64 = 77;
/// The account of everybody else.
pub const STRANGER: u64 = 78;
/// How long after its arrival a call takes effect, if it does, in milliseconds.
pub const LANDS_MS_MAX: u64 = 35_000;
/// How long a client waits for an answer, in milliseconds.
const ANSWER_MS_MAX: u64 = 30_000;
/// How much older than the truth a list may be, in milliseconds.
const LAG_MS_MAX: u64 = 8_000;
/// GitHub's limits of writing calls.
const MINUTE_MAX: usize = 80;
const HOUR_MAX: usize = 500;
/// The first number of a pull request.
const FIRST_PULL: u64 = 10_000;

/// Everything on issues that deliveries do not tell.
#[derive(Default)]
pub struct SimSaid {
    pub comments: Vec<SimComment>,
    pub reactions: BTreeSet<String>,
    /// The issues that have the label.
    pub labelled: BTreeSet<u64>,
    pub statuses: BTreeMap<String, CommitState>,
    pub pulls: Vec<SimPull>,
    calls: BTreeMap<u64, SimWriteCall>,
    /// The call whose client waits.
    open: Option<u64>,
    /// The latest call that took effect, by what it replaced.
    landed: BTreeMap<String, u64>,
    /// When calls arrived within the last hour, in milliseconds of the history.
    arrived_ms: VecDeque<u64>,
    /// By the server's clock.
    pub rests_until: Option<Timestamp>,
    /// Until when GitHub cannot be reached, in milliseconds of the history.
    pub down_until_ms: u64,
    /// Until when we lack a permission, in milliseconds of the history.
    pub forbidden_until_ms: u64,
    /// What was made until then is in every list, in milliseconds of the history.
    pub fresh_ms: u64,
    /// Whether GitHub refused something for good.
    pub refused: bool,
    /// Comments that people deleted: their first lines.
    pub deleted: BTreeSet<String>,
}

/// A comment.
#[derive(Clone)]
pub struct SimComment {
    pub id: u64,
    pub issue: u64,
    pub author: u64,
    pub body: String,
    made_ms: u64,
    changed_ms: u64,
}

impl SimComment {
    /// By its first line a comment of ours is found again.
    pub fn marker(&self) -> &str {
        self.body.lines().next().unwrap_or_default()
    }
}

/// A pull request.
pub struct SimPull {
    pub number: u64,
    repository: usize,
    head: String,
    base: String,
    pub body: String,
    title: String,
    pub state: PullState,
    is_draft: bool,
    pub made_ms: u64,
}

/// What a call writes.
#[derive(Clone, Debug)]
pub enum SimWrite {
    Comment { number: IssueNumber, body: String },
    EditComment { id: u64, body: String },
    React { to: ReactionTarget },
    Label { number: IssueNumber, is_on: bool },
    OpenPull(NewPull),
    EditPull { number: IssueNumber, body: Option<String> },
    Status { commit: String, state: CommitState },
}

/// What a call that took effect is answered.
#[derive(Clone, Debug)]
pub enum SimWritten {
    Comment(GitHubComment),
    Pull(GitHubPull),
    Nothing,
}

pub type SimWriteResult = Result<SimWritten, GitHubError>;

struct SimWriteCall {
    target: RepositoryTarget,
    write: SimWrite,
    /// It takes effect until then, by the server's clock.
    until: Timestamp,
    answer: Option<oneshot::Sender<SimWriteResult>>,
    /// What is answered, whatever its effect is.
    says: Option<GitHubError>,
    result: Option<SimWriteResult>,
}

impl WorldState {
    /// A writing call arrives.
    pub fn begin_write(
        &mut self,
        target: &RepositoryTarget,
        write: SimWrite,
    ) -> (u64, oneshot::Receiver<SimWriteResult>) {
        let number = self.fresh();
        self.note(None, || format!("GitHub is asked ({number}) in {}: {write:?}", target.name));
        self.check_write(number);
        let (answer, received) = oneshot::channel();
        let (says, lands) = self.fate_of_write();
        let until = self.now().after(Duration::from_millis(LANDS_MS_MAX));
        let is_answered = says.is_none();
        if let Some(GitHubError::Refused { .. }) = says {
            self.said.refused = true;
        }
        let call = SimWriteCall {
            target: target.clone(),
            write,
            until,
            answer: Some(answer),
            says,
            result: None,
        };
        self.said.calls.insert(number, call);
        if lands {
            let slow = !self.weather.calm && self.chance.permille(200);
            let most_ms = if is_answered { ANSWER_MS_MAX } else { LANDS_MS_MAX };
            let pause = match (is_answered, slow) {
                (true, false) => self.chance.between(0, 900),
                (true, true) | (false, _) => self.chance.between(0, most_ms - 1_000),
            };
            self.after(pause, SimEffect::WriteLands(number));
        }
        if !is_answered {
            let pause = match self.chance.below(3) {
                0 => ANSWER_MS_MAX,
                1 => self.chance.between(0, ANSWER_MS_MAX),
                _ => self.chance.between(0, 500),
            };
            self.after(pause, SimEffect::WriteAnswered(number));
        }
        (number, received)
    }

    /// The error that the client gets, if GitHub does not answer what it did; and whether it does it.
    fn fate_of_write(&mut self) -> (Option<GitHubError>, bool) {
        if self.elapsed_ms() < self.said.down_until_ms && !self.weather.calm {
            let is_unknown = self.chance.permille(300);
            let words = "GitHub is down".to_owned();
            return match is_unknown {
                true => (Some(GitHubError::Unknown(words)), false),
                false => (Some(GitHubError::Unreachable(words)), false),
            };
        }
        let rate = self.weather.said.as_ref().map_or(0, |said| said.faults);
        if !self.weather.strikes(&mut self.chance, rate) {
            return (None, true);
        }
        match self.chance.below(20) {
            0..10 => {
                self.count(Happening::LostWrite);
                (Some(GitHubError::Unknown("the answer was lost".into())), true)
            }
            10..13 => (Some(GitHubError::Unknown("502".into())), false),
            13..15 => (Some(GitHubError::Unreachable("no route".into())), false),
            15..18 => {
                self.count(Happening::WriteLimit);
                let rest = Duration::from_secs(self.chance.between(5, 900));
                (Some(GitHubError::Limited { until: self.now().after(rest) }), false)
            }
            18 => (Some(GitHubError::Unauthorized("401".into())), false),
            _ => (Some(GitHubError::Refused { status: 422, words: "not so".into() }), false),
        }
    }

    /// A call is recorded before it is made, alone, at GitHub's pace, and never while calls rest.
    fn check_write(&mut self, number: u64) {
        if self.said.open.replace(number).is_some() {
            self.violate(None, "two writing calls at once");
        }
        if !self.stored.is_asked() {
            self.violate(None, "GitHub is asked before that is durable");
        }
        if self.said.rests_until.is_some_and(|until| self.now() < until) {
            self.violate(None, "GitHub is asked while calls rest");
        }
        let now = self.elapsed_ms();
        let arrived = &mut self.said.arrived_ms;
        arrived.push_back(now);
        while arrived.front().is_some_and(|at| now - at >= 3_600_000) {
            arrived.pop_front();
        }
        let in_minute = arrived.iter().filter(|at| now - **at < 60_000).count();
        if in_minute > MINUTE_MAX || arrived.len() > HOUR_MAX {
            self.violate(None, format!("{in_minute} writing calls in a minute"));
        }
    }

    /// The client does not wait any more.
    pub fn close_write(&mut self, number: u64) {
        self.said.open.take_if(|open| *open == number);
        if let Some(call) = self.said.calls.get_mut(&number) {
            call.answer = None;
        }
    }

    /// A crash: no client waits any more.
    pub fn crash_writes(&mut self) {
        self.said.open = None;
        // Of a rest that was not durable the next life cannot know.
        self.said.rests_until = self.stored.rests_until();
        self.said.calls.values_mut().for_each(|call| call.answer = None);
    }

    /// Until when this call takes effect, if it does.
    pub fn must_land_until(&self, call: u64) -> Option<Timestamp> {
        self.said.calls.get(&call).map(|call| call.until)
    }

    /// A writing call takes effect, or is refused for what is true by now.
    pub fn write_lands(&mut self, number: u64) {
        let Some(call) = self.said.calls.get(&number) else { return };
        let (target, write) = (call.target.clone(), call.write.clone());
        let is_answered = call.says.is_none();
        let result = self.perform_write(number, &target, write);
        self.note(None, || {
            let came = result.as_ref().map_or_else(ToString::to_string, |_| "done".into());
            format!("writing call {number} takes effect: {came}")
        });
        if is_answered {
            self.said.calls.get_mut(&number).expect("it is there").result = Some(result);
            let pause = self.chance.between(0, 900);
            self.after(pause, SimEffect::WriteAnswered(number));
        }
    }

    pub fn write_answered(&mut self, number: u64) {
        let Some(call) = self.said.calls.get_mut(&number) else { return };
        let said = call.says.clone().map(Err).or(call.result.take());
        if let (Some(answer), Some(said)) = (call.answer.take(), said) {
            if let Err(GitHubError::Limited { until }) = &said {
                let until = *until;
                self.said.rests_until = self.said.rests_until.max(Some(until));
            }
            self.note(None, || {
                let came = said.as_ref().map_or_else(ToString::to_string, |_| "done".into());
                format!("writing call {number} is answered: {came}")
            });
            // The client may be gone.
            drop(answer.send(said));
        }
    }

    fn perform_write(
        &mut self,
        call: u64,
        target: &RepositoryTarget,
        write: SimWrite,
    ) -> SimWriteResult {
        if self.elapsed_ms() < self.said.forbidden_until_ms && !self.weather.calm {
            let words = "Resource not accessible by integration".into();
            return Err(GitHubError::Held { reason: HeldReason::Permission(None), words });
        }
        match write {
            SimWrite::Comment { number, body } => {
                let issue = self.placed_unlocked(target, number)?;
                Ok(SimWritten::Comment(self.comment_is_made(issue, OWN, body)))
            }
            SimWrite::EditComment { id, body } => {
                let issue = self.issue_of_comment(target, id)?;
                self.unlocked(issue)?;
                self.replaces(call, format!("comment {id}"));
                let now = self.elapsed_ms();
                let mut comments = self.said.comments.iter_mut();
                let comment = comments.find(|comment| comment.id == id).expect("it is there");
                (comment.body, comment.changed_ms) = (body, now);
                let (author, comment) = (comment.author, comment.clone());
                if author != OWN {
                    self.violate(None, "a stranger's comment was edited");
                }
                Ok(SimWritten::Comment(shown(&comment)))
            }
            SimWrite::React { to } => {
                let issue = match to {
                    ReactionTarget::Issue(number) => self.placed(target, number)?,
                    ReactionTarget::Comment(id) => self.issue_of_comment(target, id)?,
                };
                self.unlocked(issue)?;
                self.said.reactions.insert(match to {
                    ReactionTarget::Issue(_) => format!("issue {issue}"),
                    ReactionTarget::Comment(id) => format!("comment {id}"),
                });
                Ok(SimWritten::Nothing)
            }
            SimWrite::Label { number, is_on } => {
                let issue = self.placed(target, number)?;
                // Of two homes of one issue each knows of its own calls alone.
                if self.homes_of(issue) == 1 {
                    self.replaces(call, format!("label {issue}"));
                }
                match is_on {
                    true => self.said.labelled.insert(issue),
                    false => self.said.labelled.remove(&issue),
                };
                Ok(SimWritten::Nothing)
            }
            SimWrite::OpenPull(new) => self.open_pull(target, new),
            SimWrite::EditPull { number, body } => {
                self.replaces(call, format!("pull request {number}"));
                let mut pulls = self.said.pulls.iter_mut();
                let pull = pulls.find(|pull| pull.number == number.0);
                let pull = pull.ok_or_else(|| GitHubError::NotFound("pull request".into()))?;
                pull.body = body.unwrap_or_else(|| std::mem::take(&mut pull.body));
                Ok(SimWritten::Pull(pull.shown()))
            }
            SimWrite::Status { commit, state } => {
                self.replaces(call, format!("commit {commit}"));
                self.said.statuses.insert(commit, state);
                Ok(SimWritten::Nothing)
            }
        }
    }

    fn homes_of(&self, issue: u64) -> usize {
        let homes = self.rows.issues.values();
        let its = |home: &&crate::issue::Issue| {
            home.account == super::driver::account()
                && self.github.issue_of(&home.facts.issue_id) == Some(issue)
        };
        homes.filter(its).count()
    }

    /// What a call replaces was not replaced by a later one before.
    fn replaces(&mut self, call: u64, what: String) {
        let last = self.said.landed.get(&what).copied().unwrap_or_default();
        if call < last {
            self.violate(None, format!("{what}: call {call} replaces what call {last} wrote"));
        }
        self.said.landed.insert(what, call.max(last));
    }

    /// A comment is written. Of ours there is one with each marker.
    pub fn comment_is_made(&mut self, issue: u64, author: u64, body: String) -> GitHubComment {
        let (id, now) = (self.fresh(), self.elapsed_ms());
        let comment = SimComment { id, issue, author, body, made_ms: now, changed_ms: now };
        let is_same =
            |other: &SimComment| other.author == OWN && other.marker() == comment.marker();
        if author == OWN && self.said.comments.iter().any(is_same) {
            let what = format!("a second comment of ours on issue {issue}: {}", comment.marker());
            self.violate(None, what);
        }
        let made = shown(&comment);
        self.said.comments.push(comment);
        made
    }

    fn open_pull(&mut self, target: &RepositoryTarget, new: NewPull) -> SimWriteResult {
        let repository = self.repository_of(target)?;
        let is_head = |row: &CheckoutRow| {
            row.branch.as_ref() == Some(&new.head)
                && row.remote_id == target.id
                && row.tip.is_some()
        };
        if !self.stored.checkouts.values().any(is_head) {
            self.violate(None, format!("a pull request without its branch: {}", new.head));
        }
        let mut pulls = self.said.pulls.iter().filter(|pull| pull.repository == repository);
        let is_open = |pull: &SimPull| {
            pull.state == PullState::Open && (&pull.head, &pull.base) == (&new.head, &new.base)
        };
        if pulls.any(is_open) {
            let words = format!("A pull request already exists for octo:{}.", new.head);
            return Err(GitHubError::AlreadyExists(words));
        }
        let marker = new.body.lines().next().unwrap_or_default();
        if self.said.pulls.iter().any(|pull| pull.body.lines().next() == Some(marker)) {
            self.violate(None, format!("a second pull request: {marker}"));
        }
        self.count(Happening::PullRequest);
        let pull = SimPull {
            number: FIRST_PULL + self.said.pulls.len() as u64,
            repository,
            head: new.head,
            base: new.base,
            body: new.body,
            title: new.title,
            state: PullState::Open,
            is_draft: new.draft,
            made_ms: self.elapsed_ms(),
        };
        let opened = pull.shown();
        self.said.pulls.push(pull);
        Ok(SimWritten::Pull(opened))
    }
}

// Where calls lead.
impl WorldState {
    fn repository_of(&self, target: &RepositoryTarget) -> Result<usize, GitHubError> {
        let found = self.github.repositories.iter().position(|known| Some(known.id) == target.id);
        found.ok_or_else(|| GitHubError::NotFound("repository".into()))
    }

    /// The issue with this number.
    fn placed(&self, target: &RepositoryTarget, number: IssueNumber) -> Result<u64, GitHubError> {
        let repository = self.repository_of(target)?;
        let issues = (1..).zip(&self.github.issues);
        let mut found = issues.filter(|(_, issue)| {
            let mut names = issue.names.iter();
            names.any(|name| (name.repository, name.number) == (repository, number.0))
        });
        let (at, issue) = found.next().ok_or_else(|| GitHubError::NotFound("issue".into()))?;
        if issue.deleted {
            return Err(GitHubError::Gone("This issue was deleted".into()));
        }
        let last = issue.names.last().expect("it has a name");
        if (last.repository, last.number) != (repository, number.0) {
            let repository_id = self.github.repositories[last.repository].id;
            return Err(GitHubError::Moved {
                repository_id,
                number: Some(IssueNumber(last.number)),
            });
        }
        Ok(at)
    }

    fn unlocked(&self, issue: u64) -> Result<u64, GitHubError> {
        let is_locked = self.github.issue(issue).is_some_and(|issue| issue.locked);
        let words = "Unable to create comment because issue is locked.".into();
        (!is_locked).then_some(issue).ok_or(GitHubError::Held { reason: HeldReason::Locked, words })
    }

    fn placed_unlocked(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
    ) -> Result<u64, GitHubError> {
        self.placed(target, number).and_then(|issue| self.unlocked(issue))
    }

    fn issue_of_comment(&self, target: &RepositoryTarget, id: u64) -> Result<u64, GitHubError> {
        let repository = self.repository_of(target)?;
        let comment = self.said.comments.iter().find(|comment| comment.id == id);
        let issue = comment.map(|comment| comment.issue);
        let there = issue.and_then(|at| self.github.issue(at)).filter(|issue| {
            let name = issue.names.last().expect("it has a name");
            !issue.deleted && name.repository == repository
        });
        issue.filter(|_| there.is_some()).ok_or_else(|| GitHubError::NotFound("comment".into()))
    }
}

// Reads. Lists may lag behind.
impl WorldState {
    /// Whether a read goes wrong.
    pub fn read_at_github(&mut self) -> Result<(), GitHubError> {
        let rate = self.weather.said.as_ref().map_or(0, |said| said.faults);
        if self.elapsed_ms() < self.said.down_until_ms && !self.weather.calm {
            return Err(GitHubError::Unreachable("GitHub is down".into()));
        }
        if self.weather.strikes(&mut self.chance, rate / 3) {
            return Err(match self.chance.below(3) {
                0 => GitHubError::Unknown("503".into()),
                1 => GitHubError::Unreachable("no route".into()),
                _ => GitHubError::Unauthorized("401".into()),
            });
        }
        Ok(())
    }

    /// What was made since then is not in a list yet.
    fn listed_until_ms(&mut self) -> u64 {
        let lags = self.weather.said.as_ref().is_some_and(|said| said.lists_lag);
        let lag = if lags && !self.weather.calm { self.chance.below(LAG_MS_MAX) } else { 0 };
        let now = self.elapsed_ms();
        // A clock that stepped may make the server look sooner.
        now.saturating_sub(lag).max(self.said.fresh_ms)
    }

    pub fn read_comments(
        &mut self,
        target: &RepositoryTarget,
        number: IssueNumber,
        since: Timestamp,
    ) -> Result<Vec<GitHubComment>, GitHubError> {
        self.read_at_github()?;
        let issue = self.placed(target, number)?;
        let until = self.listed_until_ms();
        let its = |comment: &&SimComment| comment.issue == issue && comment.made_ms <= until;
        let found = self.said.comments.iter().filter(its).map(shown);
        Ok(found.filter(|comment| comment.updated_at >= since).collect())
    }

    pub fn read_comment(
        &mut self,
        target: &RepositoryTarget,
        id: u64,
    ) -> Result<GitHubComment, GitHubError> {
        self.read_at_github()?;
        self.issue_of_comment(target, id)?;
        let found = self.said.comments.iter().find(|comment| comment.id == id);
        Ok(shown(found.expect("it is there")))
    }

    pub fn read_pulls(
        &mut self,
        target: &RepositoryTarget,
        branch: &str,
    ) -> Result<Vec<GitHubPull>, GitHubError> {
        self.read_at_github()?;
        let repository = self.repository_of(target)?;
        let until = self.listed_until_ms();
        let its = |pull: &&SimPull| {
            pull.repository == repository && pull.head == branch && pull.made_ms <= until
        };
        Ok(self.said.pulls.iter().rev().filter(its).map(SimPull::shown).collect())
    }
}

fn shown(comment: &SimComment) -> GitHubComment {
    let at = |ms: u64| super::time::BEGIN.after(Duration::from_secs(ms / 1000));
    GitHubComment {
        id: comment.id,
        author: GitHubAccount { id: comment.author, login: format!("user{}", comment.author) },
        via_app: None,
        body: comment.body.clone(),
        created_at: at(comment.made_ms),
        updated_at: at(comment.changed_ms),
        html_url: format!("https://github.com/octo/comments/{}", comment.id),
    }
}

impl SimPull {
    fn shown(&self) -> GitHubPull {
        GitHubPull {
            number: IssueNumber(self.number),
            state: self.state,
            is_draft: self.is_draft,
            title: self.title.clone(),
            body: self.body.clone(),
            head_commit: "a".into(),
            base: self.base.clone(),
            author: GitHubAccount { id: OWN, login: format!("user{OWN}") },
            html_url: format!("https://github.com/octo/pull/{}", self.number),
        }
    }
}
