//! What happens to a conversation, one event at a time.

use super::message::{MessageOrigin, MessageText, SaidMessage, SaidWords};
use super::question::PersonAnswer;
use super::run::{AgentSession, Run, RunEnd, RunWait};
use super::state::{Around, Conversation, IssueWords, SandboxStanding};
use crate::sabotage::{Bug, on};
use crate::types::{AgentName, AgentQuestion, MessageId, RunId, RunState, SessionId, Timestamp};

/// How many messages can wait for one run.
pub const WAITING_MAX: u32 = 100;
/// How often a run goes on by itself without progress in between.
const INTERRUPTIONS_MAX: u32 = 3;

/// Ids for what a step may begin.
#[derive(Clone, Copy, Debug)]
pub struct FreshIds {
    /// Of a message.
    pub message: MessageId,
    /// Of a run.
    pub run: RunId,
    /// Of a session.
    pub session: SessionId,
}

/// Something that is said, with what tells words of the issue's own text apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SayAsk {
    /// The id that it was given before it was first tried; `None` if it is given one now.
    pub id: Option<MessageId>,
    /// What is said.
    pub words: SaidWords,
    /// Which words of the issue's own text these are, if they are that.
    pub issue_words: Option<IssueWords>,
    /// Whether it is a follow-up on GitHub: the same one is said once.
    pub is_follow_up: bool,
    /// The commit whose check failed, if that is what is said.
    pub failed_commit: Option<String>,
}

impl SayAsk {
    /// Words that are neither the issue's own text nor a follow-up.
    pub const fn of(words: SaidWords) -> Self {
        Self { id: None, words, issue_words: None, is_follow_up: false, failed_commit: None }
    }
}

/// What the worker of runs reports or people ask of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// Nothing stands in the way any more of a run with so many messages: may its process be started?
    Begin(RunId, u32),
    /// It waits for this, for the reason given.
    Waits(RunId, RunWait, String),
    /// Something came of this attempt.
    Progressed(RunId, u32),
    /// The agent chose this session for this attempt.
    InSession(RunId, u32, SessionId),
    /// The process of this attempt ended like this.
    Ended(RunId, u32, RunEnd),
    /// It is to end, for this reason: the run of this id, or the one in progress.
    Cancel(Option<RunId>, String),
    /// The agent of this attempt asks a person, and waits for the answer.
    Asks(RunId, u32, Box<AgentQuestion>),
    /// A person answers the question that the run of this id waits with.
    Answer(RunId, PersonAnswer),
    /// A run that ended without success is to be tried again.
    Retry(Option<RunId>),
}

/// The answer to a message or a [`RunEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunReply {
    /// The message was taken in, for this run.
    Said(MessageId, Box<Run>),
    /// These words were taken in before.
    Heard,
    /// The run's process may be started, with this session.
    Begun(Box<Run>, AgentSession),
    /// The run is like this now.
    Is(Box<Run>),
    /// Nothing was changed.
    Refused(RunRefusal),
}

/// Why nothing was changed; for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    /// The sandbox's template has no agent, and the message names none.
    #[error(
        "the sandbox's template has no agent; set `agent` in [templates.NAME], or name one with agentId"
    )]
    NoAgent,
    /// GitHub deleted the issue, and with it what was said.
    #[error("the issue was deleted on GitHub, so nothing can be said to its agent")]
    IssueDeleted,
    /// As many messages wait as can.
    #[error("{WAITING_MAX} messages wait for the next run already; try again when it has begun")]
    QueueFull,
    /// The checks of as many commits in a row failed as the agent is given.
    #[error(
        "the checks of {} commits in a row failed; the agent is given no more until a person says something",
        Conversation::FAILED_COMMITS_MAX
    )]
    ChecksGoOnFailing,
    /// There is no such run in progress.
    #[error("there is no such run in progress")]
    NotInProgress,
    /// A message joined the run that was not there when it was looked at.
    #[error("a message joined the run since; it is verified again")]
    MessageJoined,
    /// No process may be started now, for this reason. The run is ordered again when that changes.
    #[error("the run cannot begin now: {0}")]
    NotNow(&'static str),
    /// No process may be started while this hold is on.
    #[error("the run cannot begin now: {0}")]
    Held(String),
    /// The question was answered before.
    #[error("{0}")]
    Answered(String),
    /// The run waits for no answer to such a question.
    #[error("the run waits for no answer to the question {0:?}")]
    NotAsked(String),
    /// There is no run that ended without success.
    #[error("there is no run that ended without success, so there is nothing to retry")]
    NothingToRetry,
}

/// A conversation while one event is put through it.
#[derive(Debug)]
pub struct ConversationStep {
    /// The conversation.
    pub conversation: Conversation,
    /// What was said.
    pub messages: Vec<SaidMessage>,
    /// Runs that ended and are not in the conversation any more.
    pub former: Vec<Run>,
    pub(super) now: Timestamp,
    fresh: FreshIds,
}

impl ConversationStep {
    /// Begins with this conversation.
    pub const fn new(conversation: Conversation, now: Timestamp, fresh: FreshIds) -> Self {
        Self { conversation, messages: Vec::new(), former: Vec::new(), now, fresh }
    }

    /// Something is said to the agent.
    pub fn say(&mut self, ask: SayAsk, default: Option<&AgentName>) -> RunReply {
        let SayAsk { id, words, issue_words, is_follow_up, failed_commit } = ask;
        if let Some((id, run)) = id.and_then(|id| self.conversation.tried(id)) {
            // Its first try was stored, and its answer lost.
            let runs = self.conversation.run.iter().chain(&self.conversation.next);
            let run = runs.into_iter().find(|known| known.id == run).cloned();
            return run.map_or(RunReply::Heard, |run| RunReply::Said(id, Box::new(run)));
        }
        let follow_up = is_follow_up.then_some(words.source);
        if self.conversation.has_heard(words.source, issue_words)
            || follow_up.is_some_and(|source| self.conversation.has_heard_of(source))
        {
            return RunReply::Heard;
        }
        if failed_commit.as_ref().is_some_and(|it| self.conversation.has_enough_failures(it)) {
            return RunReply::Refused(RunRefusal::ChecksGoOnFailing);
        }
        let Some(agent) = words.agent.or_else(|| default.cloned()) else {
            return RunReply::Refused(RunRefusal::NoAgent);
        };
        let (now, fresh) = (self.now, self.fresh);
        let collects = match &self.conversation.run {
            Some(run) if run.state == RunState::Queued && run.attempt == 0 => Place::Run,
            Some(run) if run.state.is_in_progress() => Place::Next,
            Some(_) | None => Place::Run,
        };
        let conversation = &mut self.conversation;
        let place = match collects {
            Place::Run => &mut conversation.run,
            Place::Next => &mut conversation.next,
        };
        if let Some(ended) = place.take_if(|run| !run.state.is_in_progress()) {
            self.former.push(ended);
        }
        let run = place.get_or_insert_with(|| Run::queued(fresh.run, agent.clone(), now));
        if run.messages >= WAITING_MAX {
            return RunReply::Refused(RunRefusal::QueueFull);
        }
        run.messages += 1;
        run.said_at = now;
        run.agent = agent;
        let (run, may_be_tried_again) = (run.clone(), id.is_some());
        let id = id.unwrap_or(fresh.message);
        let SaidWords { source, author, text, interrupts, .. } = words;
        self.messages.push(SaidMessage { id, run: run.id, source, author, text, at: now });
        if issue_words.is_some() {
            self.conversation.issue_words = issue_words;
        }
        self.conversation.note_said(follow_up, failed_commit);
        if may_be_tried_again {
            self.conversation.note_tried(id, run.id);
        }
        if interrupts {
            self.cancel_process("a newer message interrupts it");
        }
        RunReply::Said(id, Box::new(run))
    }

    /// Takes in what the worker of runs reports or people ask.
    pub fn run_event(&mut self, event: RunEvent, around: &Around, held: Option<&str>) -> RunReply {
        match event {
            RunEvent::Begin(id, messages) => self.begin(id, messages, around, held),
            RunEvent::Waits(id, waits, reason) => {
                let Some(run) = self.waiting(id) else { return not_in_progress() };
                run.wait_for(waits, reason);
                RunReply::Is(Box::new(run.clone()))
            }
            RunEvent::Progressed(id, attempt) => {
                let Some(run) = self.of_attempt(id, attempt) else { return not_in_progress() };
                (run.interruptions, run.failures, run.failing_since) = (0, 0, None);
                RunReply::Is(Box::new(run.clone()))
            }
            RunEvent::InSession(id, attempt, session) => {
                let Some(run) = self.of_attempt(id, attempt) else { return not_in_progress() };
                let run = run.clone();
                let agent = run.agent.clone();
                self.conversation.session = Some(AgentSession { id: session, agent });
                RunReply::Is(Box::new(run))
            }
            RunEvent::Ended(id, attempt, end) => self.ended(id, attempt, end, around),
            RunEvent::Cancel(id, reason) => self.cancel(id, &reason, around),
            RunEvent::Asks(id, attempt, question) => self.asks(id, attempt, *question),
            RunEvent::Answer(id, answer) => self.answer(id, &answer),
            RunEvent::Retry(id) => self.retry(id),
        }
    }

    /// The time of a run's next try may have come.
    pub fn due(&mut self) {
        let now = self.now;
        if let Some(run) = &mut self.conversation.run
            && run.retry_at.is_some_and(|at| at <= now)
        {
            run.enter(run.state, "it is tried again", now);
        }
    }

    /// Follows what became of the sandbox. Returns whether a run needs it to be started.
    pub fn follow(&mut self, around: &Around) -> bool {
        self.follow_process(around);
        self.follow_queue(around);
        let waits = self.conversation.run.as_ref().is_some_and(|run| {
            matches!(run.state, RunState::Queued | RunState::Interrupted) && run.retry_at.is_none()
        });
        waits && around.standing == SandboxStanding::Down
    }

    /// A run with a process in a sandbox that went down, or goes down, is over or interrupted.
    fn follow_process(&mut self, around: &Around) {
        let Some(run) = self.conversation.run.as_mut().filter(|run| run.state.has_process()) else {
            return;
        };
        if around.standing == SandboxStanding::Up && around.sandbox == run.sandbox {
            return;
        }
        if run.state == RunState::Cancelling {
            if !around.may_have_process_of(run) {
                let reason = std::mem::take(&mut run.reason);
                self.end(RunState::Cancelled, reason);
            }
            return;
        }
        match &around.standing {
            SandboxStanding::Over(reason) => self.end_with_process(around, reason),
            SandboxStanding::StoppedByPerson => self.end_with_process(around, STOPPED),
            SandboxStanding::Up
            | SandboxStanding::Coming(_)
            | SandboxStanding::Down
            | SandboxStanding::Failed(_) => {
                self.interrupt(around, "its sandbox went down", "it was interrupted");
            }
        }
    }

    /// The run goes on with another process, unless that was so too often.
    fn interrupt(&mut self, around: &Around, why: &str, again: &str) {
        let now = self.now;
        let Some(run) = self.conversation.run.as_mut() else { return };
        run.interruptions += 1;
        if run.interruptions <= INTERRUPTIONS_MAX {
            return run.enter(RunState::Interrupted, format!("{why}; it goes on"), now);
        }
        let reason = format!("{again} {} times without progress", run.interruptions);
        if around.standing != SandboxStanding::Up && around.may_have_process_of(run) {
            return run.enter(RunState::Cancelling, reason, now);
        }
        self.end(RunState::Failed, reason);
    }

    /// The run is cancelled. A process that it may have ends with its sandbox: until that is known to be down
    /// the run is being cancelled, and the process is ended by itself if the sandbox turns out to be up.
    fn end_with_process(&mut self, around: &Around, reason: &str) {
        let now = self.now;
        match &mut self.conversation.run {
            Some(run) if around.may_have_process_of(run) => {
                run.enter(RunState::Cancelling, reason, now);
            }
            Some(_) | None => self.end(RunState::Cancelled, reason),
        }
    }

    /// Runs that wait are cancelled when the sandbox's work is over, and else say what they wait for.
    fn follow_queue(&mut self, around: &Around) {
        if let SandboxStanding::Over(reason) = &around.standing {
            for _ in 0..2 {
                let waits = self.conversation.run.as_ref().is_some_and(|run| {
                    matches!(run.state, RunState::Queued | RunState::Interrupted)
                });
                if waits {
                    self.end_with_process(around, reason);
                }
            }
            return;
        }
        let Some(run) = &mut self.conversation.run else { return };
        if !matches!(run.state, RunState::Queued | RunState::Interrupted) {
            return;
        }
        let reason = match &around.standing {
            SandboxStanding::Coming(reason) => reason.as_str(),
            SandboxStanding::Failed(reason) => reason.as_str(),
            SandboxStanding::StoppedByPerson => STOPPED,
            SandboxStanding::Down => "the sandbox is to be started",
            SandboxStanding::Up | SandboxStanding::Over(_) => {
                if run.waits == RunWait::Sandbox {
                    run.wait_for(RunWait::Nothing, "the sandbox is up");
                }
                return;
            }
        };
        if run.retry_at.is_none() {
            run.wait_for(RunWait::Sandbox, reason);
        }
    }

    fn begin(&mut self, id: RunId, messages: u32, around: &Around, held: Option<&str>) -> RunReply {
        let Some(sandbox) =
            around.sandbox.clone().filter(|_| around.standing == SandboxStanding::Up)
        else {
            return RunReply::Refused(RunRefusal::NotNow("the sandbox is not up"));
        };
        let (now, fresh) = (self.now, self.fresh);
        let Some(run) = self.waiting(id) else { return not_in_progress() };
        if run.messages != messages {
            return RunReply::Refused(RunRefusal::MessageJoined);
        }
        if let Some(reason) = held {
            run.wait_for(RunWait::Hold, reason);
            return RunReply::Refused(RunRefusal::Held(reason.to_owned()));
        }
        run.enter(RunState::Running, "", now);
        run.attempt += 1;
        run.sandbox = Some(sandbox);
        run.started_at.get_or_insert(now);
        let run = run.clone();
        let session = &mut self.conversation.session;
        let of_agent =
            session.take_if(|session| session.agent == run.agent && !on(Bug::AnotherSession));
        let new = || AgentSession { id: fresh.session, agent: run.agent.clone() };
        let session = session.insert(of_agent.unwrap_or_else(new)).clone();
        RunReply::Begun(Box::new(run), session)
    }

    fn ended(&mut self, id: RunId, attempt: u32, end: RunEnd, around: &Around) -> RunReply {
        let now = self.now;
        let Some(run) = self.of_attempt(id, attempt) else { return not_in_progress() };
        if end == RunEnd::Lost
            && run.state == RunState::Cancelling
            && around.standing != SandboxStanding::Up
            && around.may_have_process_of(run)
        {
            // It could not be seen whether it ended: what becomes of the sandbox decides.
            return self.is(id);
        }
        let cancelled_for = (run.state == RunState::Cancelling).then(|| run.reason.clone());
        let is_interrupt = matches!(end, RunEnd::Cancelled | RunEnd::Lost | RunEnd::Failed(_))
            || matches!(end, RunEnd::Unavailable(..));
        match (end, cancelled_for) {
            (_, Some(reason)) if is_interrupt => self.end(RunState::Cancelled, reason),
            (RunEnd::Succeeded(summary), _) => {
                run.summary = summary;
                self.end(RunState::Succeeded, "");
            }
            (RunEnd::OverBudget(reason), _) => self.end(RunState::OverBudget, reason),
            (RunEnd::Failed(reason), _) => self.end(RunState::Failed, reason),
            (RunEnd::Cancelled, _) => self.end(RunState::Cancelled, "its process was ended"),
            (RunEnd::Unavailable(reason, until), _) => {
                if !run.try_again(&reason, until, now) {
                    self.end(RunState::Failed, format!("{reason}; it was tried for a day"));
                }
            }
            (RunEnd::Lost, _) => {
                self.interrupt(around, "its process was lost", "its process was lost");
            }
        }
        self.is(id)
    }

    fn cancel(&mut self, id: Option<RunId>, reason: &str, around: &Around) -> RunReply {
        let is_it = |run: &Option<Run>| {
            run.as_ref()
                .filter(|run| run.state.is_in_progress() && id.is_none_or(|id| id == run.id))
                .map(|run| run.id)
        };
        let now = self.now;
        if let Some(id) = is_it(&self.conversation.run) {
            if !self.cancel_process(reason) {
                self.end_with_process(around, reason);
            }
            return self.is(id);
        }
        if is_it(&self.conversation.next).is_some()
            && let Some(mut next) = self.conversation.next.take()
        {
            next.enter(RunState::Cancelled, reason, now);
            self.former.push(next.clone());
            return RunReply::Is(Box::new(next));
        }
        not_in_progress()
    }

    /// Has the process of the run in progress end; false if it has none.
    fn cancel_process(&mut self, reason: &str) -> bool {
        let now = self.now;
        match &mut self.conversation.run {
            Some(run) if matches!(run.state, RunState::Running | RunState::WaitingForPerson) => {
                run.enter(RunState::Cancelling, reason, now);
                true
            }
            Some(run) => run.state == RunState::Cancelling,
            None => false,
        }
    }

    fn retry(&mut self, id: Option<RunId>) -> RunReply {
        let now = self.now;
        let run = self.conversation.run.as_mut().filter(|run| id.is_none_or(|id| id == run.id));
        let Some(run) = run else { return RunReply::Refused(RunRefusal::NothingToRetry) };
        let waits_for_retry = run.retry_at.is_some();
        if !run.state.can_be_retried() && !waits_for_retry {
            return RunReply::Refused(RunRefusal::NothingToRetry);
        }
        (run.interruptions, run.failures, run.failing_since) = (0, 0, None);
        run.enter(RunState::Queued, "it is tried again", now);
        RunReply::Is(Box::new(run.clone()))
    }

    /// The run ends; the next one takes its place.
    fn end(&mut self, state: RunState, reason: impl Into<String>) {
        let Some(run) = &mut self.conversation.run else { return };
        run.enter(state, reason, self.now);
        let next = self.conversation.next.take();
        let is_lost = state == RunState::Cancelled && on(Bug::MessagesLostByCancel);
        if let Some(next) = next.filter(|_| !is_lost)
            && let Some(ended) = self.conversation.run.replace(next)
        {
            self.former.push(ended);
        }
    }

    /// The run with this id, if it waits to begin.
    fn waiting(&mut self, id: RunId) -> Option<&mut Run> {
        let run = self.conversation.run.as_mut()?;
        let waits = matches!(run.state, RunState::Queued | RunState::Interrupted);
        (run.id == id && waits && run.retry_at.is_none()).then_some(run)
    }

    /// The run with this id, if this is the attempt that goes on.
    pub(super) fn of_attempt(&mut self, id: RunId, attempt: u32) -> Option<&mut Run> {
        let run = self.conversation.run.as_mut()?;
        (run.id == id && run.attempt == attempt && run.state.has_process()).then_some(run)
    }

    /// How a run is after the event.
    pub(super) fn is(&self, id: RunId) -> RunReply {
        let mut all = self.conversation.run.iter().chain(&self.former);
        let run = all.rfind(|run| run.id == id);
        run.map_or_else(not_in_progress, |run| RunReply::Is(Box::new(run.clone())))
    }
}

/// Which run collects messages.
enum Place {
    Run,
    Next,
}

/// Why a run ends or waits whose sandbox a person stopped.
const STOPPED: &str = "a person stopped the sandbox";

pub(super) const fn not_in_progress() -> RunReply {
    RunReply::Refused(RunRefusal::NotInProgress)
}

impl SaidWords {
    /// What a caller of the API says.
    pub fn of_caller(author: String, text: String) -> Self {
        let text = MessageText::Own(text);
        Self { source: MessageOrigin::Api, author, text, agent: None, interrupts: false }
    }
}
