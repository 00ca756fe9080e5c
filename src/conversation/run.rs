//! Runs: executions of the agent, each for one or more messages.

use std::time::Duration;

use super::question::RunQuestions;
use crate::types::{AgentName, RunId, RunState, SandboxId, SessionId, Timestamp};

/// The first pause before a run is tried again whose model was away; it doubles.
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// The longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// For how long a run is tried again whose model stays away.
const RETRIED_FOR: Duration = Duration::from_secs(24 * 3600);

/// One execution of the agent for one or more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id, which it keeps when it goes on after an interruption or a retry.
    pub id: RunId,
    /// The agent.
    pub agent: AgentName,
    /// How many messages it answers.
    pub messages: u32,
    /// What it is.
    pub state: RunState,
    /// Why, for people; empty if there is nothing to say.
    pub reason: String,
    /// The agent's last words, for people, once it succeeded; else empty.
    pub summary: String,
    /// What it waits for, while it is queued or interrupted.
    pub waits: RunWait,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// When its first message was taken in.
    pub created_at: Timestamp,
    /// When its last message was taken in.
    pub said_at: Timestamp,
    /// When its process was first to be started.
    pub started_at: Option<Timestamp>,
    /// How often a process was started for it; an end names the attempt that it is of.
    pub attempt: u32,
    /// The sandbox of the latest attempt.
    pub sandbox: Option<SandboxId>,
    /// How often it was interrupted since it last made progress.
    pub interruptions: u32,
    /// How often it failed in a row for want of the model or the network.
    pub failures: u32,
    /// When the first of those failures was.
    pub failing_since: Option<Timestamp>,
    /// When it is tried again by itself.
    pub retry_at: Option<Timestamp>,
    /// What its agent asked people.
    pub questions: RunQuestions,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunWait {
    /// Nothing: it can begin.
    Nothing,
    /// The sandbox.
    Sandbox,
    /// The repository in it.
    Checkout,
    /// GitHub's word on the issue.
    Verification,
    /// A hold.
    Hold,
    /// A budget: a raise, or the next day.
    Budget,
    /// One of the places for runs.
    Place,
    /// The time of its next try.
    Retry,
}

impl RunWait {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Sandbox,
        Self::Checkout,
        Self::Verification,
        Self::Hold,
        Self::Budget,
        Self::Place,
        Self::Retry,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Sandbox => "sandbox",
            Self::Checkout => "checkout",
            Self::Verification => "verification",
            Self::Hold => "hold",
            Self::Budget => "budget",
            Self::Place => "place",
            Self::Retry => "retry",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wait| wait.as_str() == word)
    }
}

/// How a process of a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The agent did what it was asked; its last words.
    Succeeded(String),
    /// A budget is used up, with both amounts.
    OverBudget(String),
    /// It failed, for this reason.
    Failed(String),
    /// The model or the network was away, and nothing was decided: it is tried again by itself, not before
    /// the time for which the model asks to be left alone.
    Unavailable(String, Option<Timestamp>),
    /// The process ended because it was asked to.
    Cancelled,
    /// The process is gone, and how it ended is not known.
    Lost,
}

/// The agent's session that the runs of a conversation go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    /// Its id.
    pub id: SessionId,
    /// The agent that has it.
    pub agent: AgentName,
}

impl Run {
    /// A run that waits for its first message to be answered.
    pub(super) fn queued(id: RunId, agent: AgentName, now: Timestamp) -> Self {
        Self {
            id,
            agent,
            messages: 0,
            state: RunState::Queued,
            reason: String::new(),
            summary: String::new(),
            waits: RunWait::Nothing,
            since: now,
            created_at: now,
            said_at: now,
            started_at: None,
            attempt: 0,
            sandbox: None,
            interruptions: 0,
            failures: 0,
            failing_since: None,
            retry_at: None,
            questions: RunQuestions::default(),
        }
    }

    /// Enters a state, now.
    pub(super) fn enter(&mut self, state: RunState, reason: impl Into<String>, now: Timestamp) {
        if self.state != state {
            self.since = now;
        }
        self.state = state;
        self.reason = reason.into();
        self.waits = RunWait::Nothing;
        self.retry_at = None;
        // Only the process that asked can take an answer.
        self.questions.open = None;
    }

    /// It waits for this, for the reason given.
    pub(super) fn wait_for(&mut self, waits: RunWait, reason: impl Into<String>) {
        self.waits = waits;
        self.reason = reason.into();
    }

    /// Queues it to be tried again, later each time and not before `until`. `false` once it was for a day.
    pub(super) fn try_again(
        &mut self,
        reason: &str,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let since = *self.failing_since.get_or_insert(now);
        if now.since(since) >= RETRIED_FOR {
            return false;
        }
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        self.failures += 1;
        self.enter(RunState::Queued, "", now);
        let next = now.after(pause);
        let asked = until.map(|until| until.min(now.after(RETRIED_FOR))).filter(|at| *at > next);
        let when = asked.map_or_else(|| format!("in {} s", pause.as_secs()), |_| "then".to_owned());
        self.wait_for(RunWait::Retry, format!("{reason}; it is tried again {when}"));
        self.retry_at = Some(asked.unwrap_or(next));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for wait in RunWait::ALL {
            assert_eq!(RunWait::parse(wait.as_str()), Some(wait));
        }
        assert_eq!(RunWait::parse("coffee"), None);
    }
}
