//! What Daytona's states mean: for the port, and for the next step of a call.

use serde::Deserialize;

use crate::sandbox::ProviderError;
use crate::types::ObjectState;

/// A sandbox's state, as far as this provider tells states apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DaytonaState {
    Creating,
    PendingBuild,
    BuildingSnapshot,
    PullingSnapshot,
    Restoring,
    Starting,
    Resuming,
    Started,
    Stopping,
    Pausing,
    Stopped,
    Paused,
    Archiving,
    Archived,
    Resizing,
    Snapshotting,
    Forking,
    Destroying,
    Destroyed,
    Error,
    BuildFailed,
    /// `unknown`, and every state that Daytona learns later.
    #[serde(other)]
    Unknown,
}

/// What Daytona is bringing a sandbox to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DesiredState {
    Started,
    Stopped,
    Paused,
    Archived,
    Destroyed,
    /// `resized`, and what Daytona learns later.
    #[serde(other)]
    Other,
}

/// The parts of a sandbox that decide on its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateFacts<'a> {
    pub state: DaytonaState,
    pub desired: Option<DesiredState>,
    pub is_recoverable: bool,
    pub reason: &'a str,
}

impl StateFacts<'_> {
    /// The port's word for it; `None` if the sandbox is gone.
    pub fn object_state(self) -> Option<ObjectState> {
        use DaytonaState as S;
        if self.state == S::Destroyed {
            return None;
        }
        if self.state == S::Destroying || self.desired == Some(DesiredState::Destroyed) {
            return Some(ObjectState::Destroying);
        }
        Some(match self.state {
            S::Creating | S::PendingBuild | S::BuildingSnapshot | S::PullingSnapshot => {
                ObjectState::Partial
            }
            // Until its processes are gone, it is not down.
            S::Started | S::Stopping | S::Pausing => ObjectState::Running,
            S::Stopped
            | S::Paused
            | S::Archiving
            | S::Archived
            | S::Restoring
            | S::Starting
            | S::Resuming => ObjectState::Stopped,
            // A start recovers it.
            S::Error if self.is_recoverable => ObjectState::Stopped,
            S::Error | S::BuildFailed => ObjectState::Error { message: self.reason.to_owned() },
            // Work of others goes on with it, or its machine does not answer: what it is meant to be.
            S::Resizing | S::Snapshotting | S::Forking | S::Unknown => match self.desired {
                Some(DesiredState::Stopped | DesiredState::Paused | DesiredState::Archived) => {
                    ObjectState::Stopped
                }
                Some(DesiredState::Started | DesiredState::Destroyed | DesiredState::Other)
                | None => ObjectState::Running,
            },
            S::Destroying | S::Destroyed => ObjectState::Destroying,
        })
    }

    /// Whether commands can run in it.
    pub fn is_up(self) -> bool {
        self.state == DaytonaState::Started && self.desired != Some(DesiredState::Destroyed)
    }

    /// Whether it changes by itself, so that Daytona refuses other changes meanwhile.
    pub const fn is_moving(self) -> bool {
        use DaytonaState as S;
        match self.state {
            S::Creating
            | S::PendingBuild
            | S::BuildingSnapshot
            | S::PullingSnapshot
            | S::Restoring
            | S::Starting
            | S::Resuming
            | S::Stopping
            | S::Pausing
            | S::Archiving
            | S::Resizing
            | S::Snapshotting
            | S::Forking
            | S::Destroying
            | S::Unknown => true,
            S::Started
            | S::Stopped
            | S::Paused
            | S::Archived
            | S::Destroyed
            | S::Error
            | S::BuildFailed => false,
        }
    }

    /// What to do next to bring it up or down.
    ///
    /// # Errors
    /// Why it cannot come there.
    pub fn next_step(self, goal: StateGoal) -> Result<NextStep, ProviderError> {
        use DaytonaState as S;
        if self.object_state() == Some(ObjectState::Destroying) {
            return Err(ProviderError::Refused("the sandbox is being destroyed".into()));
        }
        Ok(match (self.state, goal) {
            (S::Started, StateGoal::Up)
            | (S::Stopped | S::Paused | S::Archiving | S::Archived, StateGoal::Down) => {
                NextStep::Done
            }
            (S::Stopped | S::Paused | S::Archived, StateGoal::Up) => {
                NextStep::Ask(StateChange::Start)
            }
            (S::Started, StateGoal::Down) => NextStep::Ask(StateChange::Stop),
            (S::Error, StateGoal::Up) if self.is_recoverable => NextStep::Ask(StateChange::Recover),
            (S::Error, StateGoal::Down) if self.is_recoverable => NextStep::Done,
            (S::Error | S::BuildFailed, _) => {
                return Err(ProviderError::Broken(self.reason.to_owned()));
            }
            _ => NextStep::Wait,
        })
    }
}

/// Where a call brings a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateGoal {
    Up,
    Down,
}

/// What brings a sandbox nearer to its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// It is there.
    Done,
    /// Daytona must be asked.
    Ask(StateChange),
    /// Daytona is at work.
    Wait,
}

/// A change that Daytona is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateChange {
    /// Also of an archived one, which Daytona restores first.
    Start,
    Stop,
    /// Of one in a state of error, which is started again then.
    Recover,
}

impl StateChange {
    /// The last part of the call's path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Recover => "recover",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(state: &str, desired: &str, is_recoverable: bool) -> StateFacts<'static> {
        let read = |word: &str| serde_json::Value::String(word.to_owned());
        StateFacts {
            state: serde_json::from_value(read(state)).expect("any word is a state"),
            desired: (!desired.is_empty())
                .then(|| serde_json::from_value(read(desired)).expect("any word is one")),
            is_recoverable,
            reason: "why",
        }
    }

    #[test]
    fn each_state_has_its_meaning() {
        let error = Some(ObjectState::Error { message: "why".into() });
        let (running, stopped) = (Some(ObjectState::Running), Some(ObjectState::Stopped));
        let (partial, going) = (Some(ObjectState::Partial), Some(ObjectState::Destroying));
        for (state, desired, is_recoverable, meaning) in [
            ("creating", "started", false, &partial),
            ("pulling_snapshot", "started", false, &partial),
            ("started", "started", false, &running),
            ("stopping", "stopped", false, &running),
            ("stopped", "stopped", false, &stopped),
            ("starting", "started", false, &stopped),
            ("restoring", "started", false, &stopped),
            ("archived", "archived", false, &stopped),
            ("archiving", "archived", false, &stopped),
            ("error", "started", false, &error),
            ("error", "started", true, &stopped),
            ("build_failed", "started", false, &error),
            ("error", "destroyed", false, &going),
            ("started", "destroyed", false, &going),
            ("destroying", "", false, &going),
            ("destroyed", "destroyed", false, &None),
            ("unknown", "started", false, &running),
            ("unknown", "archived", false, &stopped),
            ("a_later_state", "", false, &running),
        ] {
            let found = standing(state, desired, is_recoverable).object_state();
            assert_eq!(found, *meaning, "{state}, {desired}");
        }
    }

    #[test]
    fn steps_lead_up_and_down_and_wait_while_daytona_is_at_work() {
        let ask = |change| Ok(NextStep::Ask(change));
        let broken = || Err(ProviderError::Broken("why".into()));
        for (state, is_recoverable, up, down) in [
            ("started", false, Ok(NextStep::Done), ask(StateChange::Stop)),
            ("stopped", false, ask(StateChange::Start), Ok(NextStep::Done)),
            ("archived", false, ask(StateChange::Start), Ok(NextStep::Done)),
            ("archiving", false, Ok(NextStep::Wait), Ok(NextStep::Done)),
            ("creating", false, Ok(NextStep::Wait), Ok(NextStep::Wait)),
            ("stopping", false, Ok(NextStep::Wait), Ok(NextStep::Wait)),
            ("unknown", false, Ok(NextStep::Wait), Ok(NextStep::Wait)),
            ("error", true, ask(StateChange::Recover), Ok(NextStep::Done)),
            ("error", false, broken(), broken()),
            ("build_failed", false, broken(), broken()),
        ] {
            let standing = standing(state, "", is_recoverable);
            assert_eq!(standing.next_step(StateGoal::Up), up, "{state} up");
            assert_eq!(standing.next_step(StateGoal::Down), down, "{state} down");
            assert_eq!(standing.is_up(), state == "started");
        }
        let refused = standing("destroying", "", false).next_step(StateGoal::Up);
        assert!(matches!(refused, Err(ProviderError::Refused(_))), "{refused:?}");
    }
}
