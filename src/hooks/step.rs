//! One step of a hook: a command in the sandbox with its environment, or something built in.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::{HookPlace, HookRunner};
use crate::sandbox::{ExecEvent, ExecRequest, Provider, WorkError};
use crate::store::StoreError;
use crate::store::checkout::CheckoutRow;
use crate::sync::{SyncError, SyncOrder, SyncPlace, SyncSubject};
use crate::types::{
    CheckoutState, HookAction, HookName, HookStep, RepositoryFile, beginning, inert, inert_lines,
};

/// How many of the last lines of a command are kept.
const LINES_MAX: usize = 20;
/// How many bytes of them.
const TAIL_LEN_MAX: usize = 2_000;
/// How much of a command's words names a step, in characters.
const LABEL_LEN_MAX: usize = 80;

/// Why a step did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StepFailure {
    /// It failed: which one, and its last lines.
    Failed(String),
    /// The sandbox went down, or cannot be reached.
    Gone(String),
}

impl StepFailure {
    /// The same of a step that is called so.
    fn of_step(self, label: &str) -> Self {
        match self {
            Self::Failed(why) => failed(label, "failed", &inert_lines(&why)),
            Self::Gone(why) => Self::Gone(format!("{label} was interrupted: {why}")),
        }
    }
}

/// What could not be read is tried again, as if the sandbox could not be reached.
fn unreadable(error: StoreError) -> StepFailure {
    StepFailure::Gone(error.to_string())
}

/// A list of steps.
#[derive(Clone, Copy)]
pub(super) enum StepList {
    /// Of a hook of the template.
    Hook(HookName),
    /// `setup` in the file of the repository.
    Setup,
}

impl StepList {
    /// What it is called where people read of its steps.
    fn title(self) -> String {
        match self {
            Self::Hook(name) => name.as_str().to_owned(),
            Self::Setup => format!("{} setup", RepositoryFile::PATH),
        }
    }

    /// What the sandbox's log calls it.
    const fn log_name(self) -> &'static str {
        match self {
            Self::Hook(name) => name.as_str(),
            Self::Setup => "setup",
        }
    }
}

/// The last bytes of what a command wrote.
#[derive(Default)]
struct OutputTail(VecDeque<u8>);

impl OutputTail {
    fn push(&mut self, bytes: &Bytes) {
        self.0.extend(bytes.iter().skip(bytes.len().saturating_sub(TAIL_LEN_MAX)));
        let surplus = self.0.len().saturating_sub(TAIL_LEN_MAX);
        self.0.drain(..surplus);
    }

    /// The last lines, without control characters; empty if it wrote nothing.
    fn lines(&mut self) -> String {
        let text = String::from_utf8_lossy(self.0.make_contiguous());
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
        inert_lines(&last.join("\n"))
    }
}

/// What a step is called in logs and on the timeline.
fn label(list: StepList, step: &HookStep, (number, of): (usize, usize)) -> String {
    let what = match &step.action {
        HookAction::Run(command) => beginning(&inert(&command.join(" ")), LABEL_LEN_MAX),
        HookAction::GitCheckout | HookAction::SyncPull | HookAction::SyncPush => {
            step.action.uses().unwrap_or_default().to_owned()
        }
    };
    format!("{} step {number} of {of} ({what})", list.title())
}

fn failed(label: &str, why: &str, lines: &str) -> StepFailure {
    StepFailure::Failed(match lines.is_empty() {
        true => format!("{label} {why}"),
        false => format!("{label} {why}:\n{lines}"),
    })
}

impl HookRunner {
    /// Runs a step, and records how it ended.
    pub(super) async fn step(
        &self,
        place: &HookPlace,
        list: StepList,
        step: &HookStep,
        place_in_hook: (usize, usize),
    ) -> Result<(), StepFailure> {
        let label = label(list, step, place_in_hook);
        let clock = &self.parts.clock;
        let began = clock.now();
        let ended = match &step.action {
            HookAction::Run(command) => {
                let log_name = format!("{}/{}", list.log_name(), place_in_hook.0);
                self.command(place, step, command, &log_name, &label).await
            }
            HookAction::GitCheckout | HookAction::SyncPull | HookAction::SyncPush => {
                let work = async {
                    let done = match step.action {
                        HookAction::GitCheckout => self.ensure_checkout(place).await,
                        HookAction::SyncPull => self.sync(place, SyncOrder::Pull(None)).await,
                        HookAction::SyncPush | HookAction::Run(_) => {
                            self.sync(place, SyncOrder::Push).await
                        }
                    };
                    done.map_err(|failure| failure.of_step(&label))
                };
                tokio::select! {
                    biased;
                    ended = work => ended,
                    () = clock.sleep_until(began.after(step.timeout)) => {
                        Err(failed(&label, &too_long(step.timeout), ""))
                    }
                }
            }
        };
        match &ended {
            Ok(()) => {
                let seconds = clock.now().since(began).as_secs_f64();
                let what = format!("{label} succeeded in {seconds:.1} s");
                self.record(place, &what, false).await;
            }
            Err(StepFailure::Failed(message) | StepFailure::Gone(message)) => {
                self.parts.logs.note(place.sandbox(), message.clone());
                self.record(place, message, true).await;
            }
        }
        ended
    }

    pub(super) fn provider(&self, place: &HookPlace) -> Result<&Provider, String> {
        let name = &place.provider;
        self.parts.providers.get(name).ok_or_else(|| format!("the provider {name} is not open"))
    }

    async fn command(
        &self,
        place: &HookPlace,
        step: &HookStep,
        command: &[String],
        log_name: &str,
        label: &str,
    ) -> Result<(), StepFailure> {
        let gone = |why: &str| StepFailure::Gone(format!("{label} was interrupted: {why}"));
        let provider = self.provider(place).map_err(|why| gone(&why))?;
        let request = ExecRequest {
            command: command.to_vec(),
            cwd: step.cwd.clone(),
            env: self.environment(place, step).await.map_err(|error| gone(&error.to_string()))?,
            stdin: Bytes::new().into(),
            timeout: Some(step.timeout),
        };
        let execution = match provider.processes.exec(place.target.clone(), request).await {
            Ok(execution) => execution,
            Err(error @ (WorkError::NotRunning | WorkError::Broken(_))) => {
                return Err(gone(&error.to_string()));
            }
            Err(error) => return Err(failed(label, "failed", &error.to_string())),
        };
        let mut output = self.parts.logs.keep(place.sandbox(), log_name, command, execution);
        let mut tail = OutputTail::default();
        while let Some(event) = output.events.recv().await {
            match event {
                ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => tail.push(&bytes),
                ExecEvent::Exit { code: 0, timed_out: false } => return Ok(()),
                ExecEvent::Exit { timed_out: true, .. } => {
                    return Err(failed(label, &too_long(step.timeout), &tail.lines()));
                }
                ExecEvent::Exit { code, .. } => {
                    let why = format!("ended with exit code {code}");
                    return Err(failed(label, &why, &tail.lines()));
                }
            }
        }
        Err(gone("the sandbox went down"))
    }

    /// What a command is given beside the environment of its template.
    async fn environment(
        &self,
        place: &HookPlace,
        step: &HookStep,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let issue = self.parts.store.load(place.home).await?;
        let facts = issue.as_ref().map(|issue| &issue.facts);
        let session =
            issue.as_ref().and_then(|issue| issue.conversation.as_ref()?.session.as_ref());
        let own = [
            ("ISSUEBOX_ACCOUNT", Some(place.account.to_string())),
            ("ISSUEBOX_ISSUE", facts.map(|facts| facts.issue_id.to_string())),
            ("ISSUEBOX_REPOSITORY", facts.and_then(|it| Some(it.repository.as_ref()?.to_string()))),
            ("ISSUEBOX_NUMBER", facts.and_then(|facts| Some(facts.number?.to_string()))),
            ("ISSUEBOX_SANDBOX", Some(place.sandbox().to_string())),
            ("ISSUEBOX_CONVERSATION", session.map(|session| session.id.to_string())),
            ("ISSUEBOX_RUN", place.run.map(|run| run.to_string())),
            ("ISSUEBOX_MESSAGE", place.message.map(|message| message.to_string())),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let of_step = step.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        Ok(of_step.chain(own).collect())
    }

    /// Checks the repository out unless it is there: what is in the workspace then belongs to who works
    /// there.
    async fn ensure_checkout(&self, place: &HookPlace) -> Result<(), StepFailure> {
        if let Some(checkouts) = &self.parts.checkouts {
            let row = checkouts.checkout(place.sandbox()).await.map_err(unreadable)?;
            if row.is_some_and(|row| row.state == CheckoutState::Ready) {
                return Ok(());
            }
        }
        self.checkout(place).await.map(drop)
    }

    /// Checks the repository out, also if that was done before; `None` if the sandbox has none.
    pub(super) async fn checkout(
        &self,
        place: &HookPlace,
    ) -> Result<Option<CheckoutRow>, StepFailure> {
        let issue = self.parts.store.load(place.home).await.map_err(unreadable)?;
        let record = issue.as_ref().and_then(|issue| issue.state.record());
        let git = record.and_then(|record| record.template.workload.git.as_ref());
        let (Some(checkouts), Some(git)) = (&self.parts.checkouts, git) else { return Ok(None) };
        let (provider, target) = (&place.provider, &place.target);
        let row = checkouts.make(place.home, git, provider, target).await;
        match row.map_err(unreadable)? {
            Some(row) if row.state == CheckoutState::Ready => Ok(Some(row)),
            Some(row) => {
                let why = format!("the repository was not checked out: {}", row.reason);
                Err(StepFailure::Failed(why))
            }
            // Its repository is not known, or its provider has no git gateway.
            None => Ok(None),
        }
    }

    /// Pushes the workspace, or pulls its newest version. Without a version there is nothing to pull.
    async fn sync(&self, place: &HookPlace, order: SyncOrder) -> Result<(), StepFailure> {
        self.synced(place, order).await.map_err(StepFailure::Failed)
    }

    async fn synced(&self, place: &HookPlace, order: SyncOrder) -> Result<(), String> {
        let worker = self.parts.sync.as_ref().ok_or("no object storage is configured in [sync]")?;
        let workspace = std::sync::Arc::clone(&self.provider(place)?.workspace);
        let target = place.target.clone();
        let subject =
            || SyncSubject { account: place.account.clone(), sandbox: place.sandbox().clone() };
        let place = SyncPlace { workspace, target };
        match worker.sync_while_awaited(subject(), place, order).await {
            Ok(_row) => {}
            Err(SyncError::NoVersion) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        if order != SyncOrder::Push {
            return Ok(());
        }
        let stored = worker.tree(subject(), None).await.map_err(|error| error.to_string())?;
        let Some(path) = stored.left_out().first() else { return Ok(()) };
        let (count, path) = (stored.left_out().len(), String::from_utf8_lossy(path));
        Err(format!("{count} files or directories could not be read, such as {path:?}"))
    }

    /// Pushes the workspace of a sandbox that is about to be stopped or deleted.
    pub(super) async fn push_before_end(&self, place: &HookPlace) {
        let (what, is_failure) = match self.synced(place, SyncOrder::Push).await {
            Ok(()) => ("the workspace was pushed".to_owned(), false),
            Err(why) => (format!("the workspace was not pushed: {}", inert_lines(&why)), true),
        };
        if is_failure {
            self.parts.logs.note(place.sandbox(), what.clone());
        }
        self.record(place, &what, is_failure).await;
    }
}

fn too_long(timeout: Duration) -> String {
    format!("took longer than {} s", timeout.as_secs())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn step(action: HookAction) -> HookStep {
        HookStep { action, cwd: None, timeout: Duration::from_secs(1), env: BTreeMap::new() }
    }

    #[test]
    fn a_step_is_called_by_its_hook_its_place_and_its_words() {
        let run = step(HookAction::Run(vec!["sh".into(), "-c".into(), "a\u{1b}[2J".into()]));
        let called = label(StepList::Hook(HookName::ColdStart), &run, (1, 2));
        assert_eq!(called, "on_cold_start step 1 of 2 (sh -c a\\u{1b}[2J)");
        let called = label(StepList::Setup, &run, (1, 2));
        assert!(called.starts_with(".github/issuebox.toml setup step 1 of 2 (sh"), "{called}");
        let long = step(HookAction::Run(vec!["x".repeat(100)]));
        assert!(label(StepList::Hook(HookName::Message), &long, (1, 1)).ends_with("x…)"));
        let push = label(StepList::Hook(HookName::Terminate), &step(HookAction::SyncPush), (2, 2));
        assert_eq!(push, "on_terminate step 2 of 2 (sync-push)");
    }

    #[test]
    fn a_failure_ends_with_the_last_lines() {
        let mut tail = OutputTail::default();
        for number in 0..1_000 {
            tail.push(&Bytes::from(format!("line {number}\n")));
        }
        tail.push(&Bytes::from_static(b"no such\xff package\n\n"));
        let lines = tail.lines();
        assert_eq!(lines.lines().count(), LINES_MAX);
        assert!(lines.starts_with("line 981\n"), "{lines}");
        let StepFailure::Failed(message) = failed("step", "ended with exit code 1", &lines) else {
            panic!("it failed")
        };
        assert!(message.starts_with("step ended with exit code 1:\nline"), "{message}");
        assert!(message.ends_with("line 999\nno such\u{fffd} package"), "{message}");
        assert_eq!(failed("step", "failed", ""), StepFailure::Failed("step failed".into()));
        tail.push(&Bytes::from(vec![b'x'; 10_000]));
        assert_eq!(tail.lines().len(), TAIL_LEN_MAX, "its memory is bounded");
    }
}
