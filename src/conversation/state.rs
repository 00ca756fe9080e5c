//! What is durable of a conversation beside its messages and its former runs, and what it is given of
//! the sandbox.

use super::message::{MessageOrigin, SaidMessage};
use super::run::{AgentSession, Run};
use crate::types::{
    AgentName, AgentStanding, MessageId, QuestionAnswer, RunId, RunState, SandboxId, Timestamp,
};

/// What is durable of one home's conversation beside its messages and its former runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The agent's session; `None` before the first run began.
    pub session: Option<AgentSession>,
    /// The run in progress, or the last one that ended.
    pub run: Option<Run>,
    /// The run that collects messages while another one is in progress.
    pub next: Option<Run>,
    /// The latest words that were the issue's own text.
    pub issue_words: Option<IssueWords>,
    /// Reviews, comments and checks that were said last: several deliveries bring the same. At most
    /// [`Self::HEARD_MAX`].
    pub heard: Vec<MessageOrigin>,
    /// The commits of which a failed check was said since a person last said something. At most
    /// [`Self::FAILED_COMMITS_MAX`].
    pub failed_commits: Vec<String>,
    /// The messages that callers said last, each with its run: a caller whose answer was lost says the same
    /// again. At most [`Self::TRIED_MAX`].
    pub tried: Vec<(MessageId, RunId)>,
}

/// Which words of the issue's own text were said last: several deliveries bring the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssueWords {
    /// How new they were.
    pub as_of: Timestamp,
    /// A digest of title and text.
    pub digest: u64,
}

/// The sandbox, as far as runs are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// Its id; `None` if there is none.
    pub sandbox: Option<SandboxId>,
    /// Whether a run can go on in it.
    pub standing: SandboxStanding,
    /// Whether it is known to be down, so that none of its processes is left. One that is being stopped or
    /// deleted, or that failed, may turn out to be up.
    pub is_down: bool,
    /// The agent that its template has.
    pub agent: Option<AgentName>,
}

impl Around {
    /// Whether the process of a run may still be there: one that is interrupted was not seen to lose it.
    pub(super) fn may_have_process_of(&self, run: &Run) -> bool {
        let had_one = run.state.has_process() || run.state == RunState::Interrupted;
        had_one && self.sandbox.is_some() && self.sandbox == run.sandbox && !self.is_down
    }
}

/// Whether runs can go on in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxStanding {
    /// It is up.
    Up,
    /// It is on its way up, or waits until it may be started, for this reason.
    Coming(String),
    /// It is down, and may be started for a run.
    Down,
    /// It failed, for this reason, and waits for a person or for its provider.
    Failed(String),
    /// A person stopped it, and starts it again.
    StoppedByPerson,
    /// Its work is over, for this reason: the issue was closed, or the sandbox is deleted.
    Over(String),
}

/// What the worker of runs has to do for a home. The same order comes with each change until it is
/// carried out, also after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrder {
    /// Which run.
    pub run: RunId,
    /// In which sandbox, which is up.
    pub sandbox: SandboxId,
    /// When the last message that it answers was taken in.
    pub said_at: Timestamp,
    /// How many messages it answers.
    pub messages: u32,
    /// What.
    pub kind: RunOrderKind,
    /// How people answered last what the run's agent asked.
    pub answer: Option<QuestionAnswer>,
}

/// What is to be done for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOrderKind {
    /// Begin its next attempt, after so many, as soon as nothing stands in the way.
    Begin(u32),
    /// Follow the process of this attempt.
    Follow(u32),
    /// End the process of this attempt.
    End(u32),
}

impl Conversation {
    /// How many reviews, comments and checks are remembered.
    pub const HEARD_MAX: usize = 200;
    /// For how many commits in a row the agent is given failed checks.
    pub const FAILED_COMMITS_MAX: usize = 3;
    /// How many messages of callers are remembered.
    pub const TRIED_MAX: usize = 20;

    /// Whether a run is in progress: then the sandbox is not idle.
    pub fn is_at_work(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.state.is_in_progress())
    }

    /// What the agent does.
    pub fn standing(&self) -> Option<AgentStanding> {
        let Run { id, state, reason, since, questions, .. } = self.run.as_ref()?;
        let (run, state, reason, since) = (*id, *state, reason.clone(), *since);
        let question = questions.open.clone();
        Some(AgentStanding { run, state, reason, since, question })
    }

    /// When something is to be done without an event from outside: a run is tried again.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.run.as_ref()?.retry_at
    }

    /// What is to be done for a run in a sandbox.
    pub fn order(&self, around: &Around) -> Option<RunOrder> {
        let run = self.run.as_ref()?;
        let sandbox = around.sandbox.clone().filter(|_| around.standing == SandboxStanding::Up)?;
        let kind = match run.state {
            RunState::Queued | RunState::Interrupted if run.retry_at.is_none() => {
                RunOrderKind::Begin(run.attempt)
            }
            RunState::Running | RunState::WaitingForPerson => RunOrderKind::Follow(run.attempt),
            RunState::Cancelling => RunOrderKind::End(run.attempt),
            RunState::Queued
            | RunState::Interrupted
            | RunState::Succeeded
            | RunState::Failed
            | RunState::OverBudget
            | RunState::Cancelled => return None,
        };
        let (said_at, messages) = (run.said_at, run.messages);
        let answer = run.questions.answered.last().cloned();
        Some(RunOrder { run: run.id, sandbox, said_at, messages, kind, answer })
    }

    /// A message of a caller, if it was said already, and its run.
    pub(super) fn tried(&self, id: MessageId) -> Option<(MessageId, RunId)> {
        self.tried.iter().find(|(known, _)| *known == id).copied()
    }

    /// A caller said something, for this run.
    pub(super) fn note_tried(&mut self, id: MessageId, run: RunId) {
        if self.tried.len() >= Self::TRIED_MAX {
            self.tried.remove(0);
        }
        self.tried.push((id, run));
    }

    /// Whether a follow-up was said already.
    pub(super) fn has_heard_of(&self, source: MessageOrigin) -> bool {
        self.heard.contains(&source)
    }

    /// Whether failed checks of so many commits in a row were said that this one is not.
    pub(super) fn has_enough_failures(&self, commit: &str) -> bool {
        let is_known = self.failed_commits.iter().any(|known| known == commit);
        !is_known && self.failed_commits.len() >= Self::FAILED_COMMITS_MAX
    }

    /// Something was said: a failed check of this commit, or by a person.
    pub(super) fn note_said(&mut self, follow_up: Option<MessageOrigin>, failed: Option<String>) {
        if let Some(source) = follow_up {
            if self.heard.len() >= Self::HEARD_MAX {
                self.heard.remove(0);
            }
            self.heard.push(source);
        }
        match failed {
            Some(commit) if !self.failed_commits.contains(&commit) => {
                self.failed_commits.push(commit);
            }
            Some(_) => {}
            None => self.failed_commits.clear(),
        }
    }

    /// Whether words that are the issue's own text were said already.
    pub(super) fn has_heard(&self, source: MessageOrigin, words: Option<IssueWords>) -> bool {
        let (MessageOrigin::Issue, Some(new), Some(known)) = (source, words, self.issue_words)
        else {
            return false;
        };
        let waits =
            self.run.as_ref().is_some_and(|run| run.attempt == 0 && run.state == RunState::Queued);
        let is_close = new.as_of.since(known.as_of) <= SAME_WORDS_WITHIN;
        new.as_of <= known.as_of || new.digest == known.digest && (waits || is_close)
    }
}

/// How far apart two deliveries of one act can be dated, such as *opened* and *labeled* of an issue that
/// was opened with its label: GitHub's times are whole seconds.
const SAME_WORDS_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// What a step changed of its issue's conversation, beside the issue's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationRows {
    /// What was said.
    pub messages: Vec<SaidMessage>,
    /// The runs that are new or changed.
    pub runs: Vec<Run>,
}

impl ConversationRows {
    /// Whether nothing changed.
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.runs.is_empty()
    }
}
