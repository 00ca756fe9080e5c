//! What was said to agents and their runs, as durable rows, and what must be true of them at every step and
//! at rest.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::counts::Happening;
use super::store::SimStore;
use super::world::WorldState;
use crate::conversation::{Around, MessageText, Run, RunWait, SandboxStanding};
use crate::issue::Issue;
use crate::issue::step::around;
use crate::store::conversation::{ConversationStore, LastAnswers, MessageRow, RunFilter, RunRow};
use crate::store::{Page, PageAsk, StoreError, Write};
use crate::types::{AccountName, HomeId, MessageId, Phase, RunId, RunState};

/// What is durable of conversations beside the issues' states.
#[derive(Default)]
pub struct StoredTalk {
    /// In the order in which they were stored.
    pub messages: Vec<(HomeId, MessageRow)>,
    pub runs: BTreeMap<RunId, RunRow>,
    /// Homes whose messages were removed, since their issue was deleted at GitHub.
    removed: BTreeSet<HomeId>,
    last: i64,
}

impl StoredTalk {
    /// A step is durable, and what was said in it.
    pub fn record(&mut self, write: &Write) {
        let Some(issue) = &write.issue else { return };
        for message in &write.said.messages {
            self.last += 1;
            let of_delivery = matches!(message.text, MessageText::OfDelivery(_));
            let instruction = write.instruction.clone().filter(|_| of_delivery);
            let row = MessageRow { number: self.last, message: message.clone(), instruction };
            self.messages.push((issue.home, row));
        }
        for run in &write.said.runs {
            self.runs.insert(run.id, RunRow { home: issue.home, run: run.clone() });
        }
        if issue.facts.deleted {
            self.removed.insert(issue.home);
            self.messages.retain(|(home, _)| *home != issue.home);
            self.runs.retain(|_, row| row.home != issue.home);
        }
        if let Some(other) = write.names_go_to {
            let its = self.messages.iter_mut().filter(|(home, _)| *home == issue.home);
            its.for_each(|(home, _)| *home = other);
            let its = self.runs.values_mut().filter(|row| row.home == issue.home);
            its.for_each(|row| row.home = other);
        }
    }

    /// The messages that a run answers.
    pub fn messages_of(&self, run: RunId) -> impl Iterator<Item = &MessageRow> {
        self.messages.iter().map(|(_, row)| row).filter(move |row| row.message.run == run)
    }
}

/// The words of a message.
pub fn words(row: &MessageRow) -> &str {
    match (&row.message.text, &row.instruction) {
        (MessageText::Own(text), _) => text,
        (MessageText::OfDelivery(_), Some(instruction)) => &instruction.text,
        (MessageText::OfDelivery(_), None) => "",
    }
}

#[async_trait]
impl LastAnswers for SimStore {
    async fn last_answer(&self, home: HomeId) -> Result<Option<RunRow>, StoreError> {
        let is_answer = |row: &&RunRow| row.home == home && !row.run.summary.is_empty();
        self.read(|inner| inner.stored.talk.runs.values().rfind(is_answer).cloned()).await
    }
}

#[async_trait]
impl ConversationStore for SimStore {
    async fn messages(
        &self,
        home: HomeId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<MessageRow>, StoreError> {
        let is_meant = |(of, row): &&(HomeId, MessageRow)| *of == home && row.number > after;
        self.read(|inner| {
            let rows = inner.stored.talk.messages.iter().filter(is_meant).take(limit);
            rows.map(|(_, row)| row.clone()).collect()
        })
        .await
    }

    async fn newest_messages(&self, _: HomeId, _: usize) -> Result<Vec<MessageRow>, StoreError> {
        Err(StoreError::Failed("no run reads the newest messages".into()))
    }

    async fn messages_of(&self, run: RunId) -> Result<Vec<MessageRow>, StoreError> {
        self.read(|inner| inner.stored.talk.messages_of(run).cloned().collect()).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        let is_it = |(_, row): &&(HomeId, MessageRow)| row.message.id == id;
        self.read(|inner| inner.stored.talk.messages.iter().find(is_it).map(|(_, row)| row.clone()))
            .await
    }

    async fn runs_of(&self, home: HomeId, limit: usize) -> Result<Vec<RunRow>, StoreError> {
        let its = |row: &&RunRow| row.home == home;
        self.read(|inner| {
            inner.stored.talk.runs.values().filter(its).take(limit).cloned().collect()
        })
        .await
    }

    async fn run(&self, _: &AccountName, id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.read(|inner| inner.stored.talk.runs.get(&id).cloned()).await
    }

    async fn runs(
        &self,
        _: &AccountName,
        _: &RunFilter,
        _: &PageAsk,
    ) -> Result<Page<RunRow>, StoreError> {
        Err(StoreError::Failed("no run lists runs".into()))
    }
}

/// The runs that a conversation has in its state.
fn runs_of(issue: &Issue) -> impl Iterator<Item = &Run> {
    let conversation = issue.conversation.as_deref();
    conversation.into_iter().flat_map(|one| one.run.iter().chain(&one.next))
}

impl WorldState {
    /// How the sandbox of an issue stands to its runs.
    fn around(&self, issue: &Issue) -> Around {
        around(issue, &self.weather.templates()[0])
    }

    /// A step of an issue is durable: what it means for messages and runs.
    pub fn check_runs(&mut self, before: Option<&Issue>, write: &Write) {
        let Some(after) = write.issue.as_ref().filter(|_| self.weather.runs.is_some()) else {
            return;
        };
        for run in &write.said.runs {
            self.note(Some(after.home), || {
                let Run { id, state, attempt, messages, reason, .. } = run;
                format!("durable: run {id} {state} attempt {attempt} of {messages}: {reason}")
            });
        }
        if let Some(what) = self.broken_talk(before, after, write) {
            self.violate(Some(after.home), what);
        }
        if after.facts.deleted && after.conversation.is_none() {
            self.agents.forget_session(after.home);
        }
        self.count_runs(before, after, write);
    }

    fn broken_talk(&self, before: Option<&Issue>, after: &Issue, write: &Write) -> Option<String> {
        let ended: Vec<&Run> = write.said.runs.iter().collect();
        let is_known = |id: RunId| runs_of(after).chain(ended.iter().copied()).any(|r| r.id == id);
        let all = &self.stored.talk.messages;
        for message in &write.said.messages {
            if !is_known(message.run) {
                return Some(format!("message {} is for no run", message.id));
            }
            if all.iter().filter(|(_, row)| row.message.id == message.id).count() > 1 {
                return Some(format!("message {} is stored twice", message.id));
            }
        }
        for was in before.into_iter().flat_map(runs_of) {
            let is = runs_of(after).chain(ended.iter().copied()).find(|run| run.id == was.id);
            match is {
                None if was.state.is_in_progress() => {
                    return Some(format!("run {} is forgotten while it is {}", was.id, was.state));
                }
                Some(is) if is.attempt < was.attempt => {
                    return Some(format!("the attempts of run {} shrank", was.id));
                }
                Some(is) if was.attempt > 0 && is.messages != was.messages => {
                    return Some(format!("a message joins run {}, which has begun", was.id));
                }
                // A retry queues it again, and that can be cancelled.
                Some(is)
                    if !was.state.is_in_progress()
                        && is.state != was.state
                        && !matches!(is.state, RunState::Queued | RunState::Cancelled) =>
                {
                    return Some(format!("run {} had ended as {}", was.id, was.state));
                }
                _ => {}
            }
        }
        // Of a home that gave way, its words went to the other one, and with that one's.
        let mut homes = std::iter::once(after.home).chain(after.merged_into);
        let is_removed = homes.any(|home| self.stored.talk.removed.contains(&home));
        for run in runs_of(after).filter(|_| !is_removed) {
            let count = self.stored.talk.messages_of(run.id).count();
            if count != usize::try_from(run.messages).expect("there are few") {
                return Some(format!("run {} is to answer {count} messages", run.id));
            }
        }
        let run =
            after.conversation.as_ref()?.run.as_ref().filter(|run| run.state.has_process())?;
        let was_running = before.is_some_and(|issue| {
            runs_of(issue).any(|was| was.state.has_process() && was.id == run.id)
        });
        let around = self.around(after);
        // One that is cancelled is, until its sandbox is known to be down.
        let is_ending = run.state == RunState::Cancelling && !around.is_down;
        let goes_on = around.standing == SandboxStanding::Up || is_ending;
        if !goes_on || run.sandbox != around.sandbox {
            return Some(format!("run {} goes on in a sandbox that is not up", run.id));
        }
        let begins = !was_running && run.state != RunState::Cancelling;
        if begins && self.is_held(after, run.since) {
            return Some(format!("run {} begins although its issue is held", run.id));
        }
        None
    }

    fn count_runs(&mut self, before: Option<&Issue>, after: &Issue, write: &Write) {
        for run in &write.said.runs {
            let was = before.into_iter().flat_map(runs_of).find(|was| was.id == run.id);
            let was = was.map(|was| was.state);
            match run.state {
                _ if was == Some(run.state) => {}
                RunState::Succeeded => self.count(Happening::SucceededRun),
                RunState::Failed => self.count(Happening::FailedRun),
                RunState::Interrupted => self.count(Happening::InterruptedRun),
                RunState::Cancelled if was == Some(RunState::Cancelling) => {
                    self.count(Happening::CancelledRun);
                }
                _ => {}
            }
        }
        let collects = after.conversation.as_ref().is_some_and(|one| one.next.is_some());
        if collects {
            self.count(Happening::WaitingMessage);
        }
    }

    /// A run that is not at rest.
    pub fn restless_run(&self) -> Option<(Option<HomeId>, String)> {
        let issues = self.rows.issues.values().filter(|_| self.weather.runs.is_some());
        let mut restless = issues.filter_map(|issue| {
            let run = issue.conversation.as_ref()?.run.as_ref()?;
            let standing = self.around(issue).standing;
            let waits = match standing {
                // GitHub spoke against it: a later trigger may change that.
                SandboxStanding::Up => {
                    run.waits == RunWait::Verification && run.reason == super::runs::SPOKE_AGAINST
                }
                SandboxStanding::Coming(_)
                | SandboxStanding::Failed(_)
                | SandboxStanding::StoppedByPerson => run.waits == RunWait::Sandbox,
                SandboxStanding::Down | SandboxStanding::Over(_) => false,
            };
            let is_queued = matches!(run.state, RunState::Queued | RunState::Interrupted);
            // What becomes of a failed sandbox decides when it is cancelled.
            let ends_with_it = run.state == RunState::Cancelling && issue.state.phase() == Some(Phase::Failed);
            let rests = !run.state.is_in_progress()
                || ends_with_it
                || (is_queued && waits && run.retry_at.is_none());
            (!rests).then(|| {
                let Run { id, state, waits, reason, .. } = run;
                let what = format!("run {id} is {state}, waits for {waits:?} ({reason}) in a sandbox that is {standing:?}");
                (Some(issue.home), what)
            })
        });
        restless.next().or_else(|| self.live_agent())
    }

    /// At rest: each message is for one run, which has ended or waits.
    pub fn check_messages(&mut self) {
        let talk = &self.stored.talk;
        let lost = talk.messages.iter().find_map(|(home, row)| {
            let issue = self.rows.issues.get(home)?;
            let run = row.message.run;
            let stored = talk.runs.get(&run).map(|row| &row.run);
            let is_in_state = runs_of(issue).any(|it| it.id == run);
            let fits = stored.is_some_and(|it| is_in_state || !it.state.is_in_progress());
            (!fits).then(|| (*home, format!("message {} is lost: {stored:?}", row.message.id)))
        });
        if let Some((home, what)) = lost {
            self.violate(Some(home), what);
        }
    }
}
