//! Hooks: the steps that a template has carried out in its sandboxes at certain moments.

use std::collections::BTreeMap;
use std::time::Duration;

/// The moments at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookName {
    /// After each create, and after a start that finds an empty or a stale workspace.
    ColdStart,
    /// Before a run, once for each message that it answers.
    Message,
    /// After every run, however it ended.
    StreamFinish,
    /// Before a stop and before a delete.
    Terminate,
}

impl HookName {
    /// Every one.
    pub const ALL: [Self; 4] =
        [Self::ColdStart, Self::Message, Self::StreamFinish, Self::Terminate];

    /// The key in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ColdStart => "on_cold_start",
            Self::Message => "on_message",
            Self::StreamFinish => "on_stream_finish",
            Self::Terminate => "on_terminate",
        }
    }
}

/// The hooks of a template: the steps of each, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// [`HookName::ColdStart`].
    pub on_cold_start: Vec<HookStep>,
    /// [`HookName::Message`].
    pub on_message: Vec<HookStep>,
    /// [`HookName::StreamFinish`].
    pub on_stream_finish: Vec<HookStep>,
    /// [`HookName::Terminate`].
    pub on_terminate: Vec<HookStep>,
    /// How long a stop or a delete waits for `on_terminate` and for a push before it.
    pub grace: Duration,
}

impl Hooks {
    /// The grace time if nothing is said.
    pub const GRACE_DEFAULT: Duration = Duration::from_secs(30);

    /// The steps of one hook; empty if the template has none.
    pub fn of(&self, name: HookName) -> &[HookStep] {
        match name {
            HookName::ColdStart => &self.on_cold_start,
            HookName::Message => &self.on_message,
            HookName::StreamFinish => &self.on_stream_finish,
            HookName::Terminate => &self.on_terminate,
        }
    }

    /// How long all steps of the cold start may take together.
    pub fn cold_start_time_max(&self) -> Duration {
        self.on_cold_start.iter().map(|step| step.timeout).sum()
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            on_cold_start: Vec::new(),
            on_message: Vec::new(),
            on_stream_finish: Vec::new(),
            on_terminate: Vec::new(),
            grace: Self::GRACE_DEFAULT,
        }
    }
}

/// One step of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookStep {
    /// What is done.
    pub action: HookAction,
    /// The working directory of a command; `None` for the template's own.
    pub cwd: Option<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// Added to the environment of a command.
    pub env: BTreeMap<String, String>,
}

/// What a step of a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// Runs a program with its arguments in the sandbox.
    Run(Vec<String>),
    /// Checks the repository out, unless that is done.
    GitCheckout,
    /// Brings the workspace to its newest version in the object storage.
    SyncPull,
    /// Stores the workspace as a new version.
    SyncPush,
}

impl HookAction {
    /// What `uses` can name.
    pub const BUILT_IN: [Self; 3] = [Self::GitCheckout, Self::SyncPull, Self::SyncPush];

    /// The word after `uses`; `None` for a command.
    pub const fn uses(&self) -> Option<&'static str> {
        match self {
            Self::Run(_) => None,
            Self::GitCheckout => Some("git-checkout"),
            Self::SyncPull => Some("sync-pull"),
            Self::SyncPush => Some("sync-push"),
        }
    }

    /// What `uses` means; `None` for any other word.
    pub fn built_in(word: &str) -> Option<Self> {
        Self::BUILT_IN.into_iter().find(|action| action.uses() == Some(word))
    }
}

/// When a template has the workspace pushed by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncMoments {
    /// Before each stop.
    pub on_stop: bool,
    /// Before a running sandbox is deleted.
    pub before_delete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_in_step_is_found_by_its_word() {
        for action in HookAction::BUILT_IN {
            let word = action.uses().expect("it has one");
            assert_eq!(HookAction::built_in(word), Some(action));
        }
        assert_eq!(HookAction::built_in("sync"), None);
        assert_eq!(HookAction::Run(vec!["sync-pull".into()]).uses(), None);
    }
}
