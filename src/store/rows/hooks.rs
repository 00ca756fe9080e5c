//! The hooks of a template, as a row keeps them. Times are in milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::types::{HookAction, HookName, HookStep, Hooks};

/// The hooks that have steps, by their names in the configuration.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct HooksPart {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    steps: BTreeMap<String, Vec<HookStepPart>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grace: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct HookStepPart {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    run: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uses: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    timeout: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
}

impl HookStepPart {
    fn of(step: &HookStep) -> Self {
        let run = match &step.action {
            HookAction::Run(command) => command.clone(),
            HookAction::GitCheckout | HookAction::SyncPull | HookAction::SyncPush => Vec::new(),
        };
        Self {
            run,
            uses: step.action.uses().map(str::to_owned),
            cwd: step.cwd.clone(),
            timeout: ms(step.timeout),
            env: step.env.clone(),
        }
    }

    fn into_step(self) -> Result<HookStep, BadRow> {
        let action = match self.uses {
            None => HookAction::Run(self.run),
            Some(word) => HookAction::built_in(&word).ok_or(BadRow::UnknownWord(word))?,
        };
        let timeout = Duration::from_millis(self.timeout);
        Ok(HookStep { action, cwd: self.cwd, timeout, env: self.env })
    }
}

impl HooksPart {
    /// The part for these hooks.
    pub(super) fn of(hooks: &Hooks) -> Self {
        let with_steps = HookName::ALL.into_iter().filter(|name| !hooks.of(*name).is_empty());
        let steps = with_steps.map(|name| {
            (name.as_str().to_owned(), hooks.of(name).iter().map(HookStepPart::of).collect())
        });
        let grace = (hooks.grace != Hooks::GRACE_DEFAULT).then(|| ms(hooks.grace));
        Self { steps: steps.collect(), grace }
    }

    /// Whether there is nothing to keep.
    pub(super) fn is_default(&self) -> bool {
        self.steps.is_empty() && self.grace.is_none()
    }

    /// The hooks of this part.
    pub(super) fn into_hooks(mut self) -> Result<Hooks, BadRow> {
        let mut of = |name: HookName| {
            let steps = self.steps.remove(name.as_str()).unwrap_or_default();
            steps.into_iter().map(HookStepPart::into_step).collect::<Result<Vec<_>, _>>()
        };
        let hooks = Hooks {
            on_cold_start: of(HookName::ColdStart)?,
            on_message: of(HookName::Message)?,
            on_stream_finish: of(HookName::StreamFinish)?,
            on_terminate: of(HookName::Terminate)?,
            grace: self.grace.map_or(Hooks::GRACE_DEFAULT, Duration::from_millis),
        };
        match self.steps.into_keys().next() {
            Some(unknown) => Err(BadRow::UnknownWord(unknown)),
            None => Ok(hooks),
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_read_as_they_were_written() {
        let step = |action| HookStep {
            action,
            cwd: Some("app".into()),
            timeout: Duration::from_secs(7),
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        };
        let hooks = Hooks {
            on_cold_start: vec![
                step(HookAction::GitCheckout),
                step(HookAction::Run(vec!["a".into(), String::new()])),
            ],
            on_message: vec![step(HookAction::SyncPull)],
            on_stream_finish: vec![step(HookAction::SyncPush)],
            on_terminate: vec![step(HookAction::Run(vec!["b".into()]))],
            grace: Duration::from_millis(1_500),
        };
        for hooks in [hooks, Hooks::default()] {
            let text = serde_json::to_string(&HooksPart::of(&hooks)).expect("JSON");
            let read: HooksPart = serde_json::from_str(&text).expect("the same");
            assert_eq!(read.into_hooks().expect("known words"), hooks, "{text}");
        }
        let unknown: HooksPart =
            serde_json::from_str(r#"{"steps":{"on_tea":[]}}"#).expect("it is JSON");
        assert!(unknown.into_hooks().is_err(), "an older server must not forget a hook");
    }
}
