//! Work in a sandbox: files, commands, messages, syncs. Each operation brings a stopped sandbox up.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{ConversationEvents, ExecOutput, IssueSandbox, SandboxError};
use crate::conversation::{Run, RunEvent, RunReply, SaidWords};
use crate::engine::{EngineError, Work};
use crate::hooks::HookPlace;
use crate::runs::journal::JournalReader;
use crate::sandbox::{
    Capability, ExecRequest, FileContent, FileListing, FilePart, WorkspacePath, Written,
};
use crate::store::sync::SyncRow;
use crate::sync::{SyncOrder, SyncPlace, SyncSubject, SyncWorker, Synced};
use crate::types::{HookName, SyncVersion};

/// Levels of directories in a tree.
const TREE_DEPTH: u32 = 32;

/// How deep files are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// One directory.
    List,
    /// With all that is below it, up to 32 levels.
    Tree,
}

impl IssueSandbox {
    /// Lists a directory of the workspace; `""` is the workspace itself.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn files(&mut self, path: &str, depth: Depth) -> Result<FileListing, SandboxError> {
        let path = workspace_path(path)?;
        let depth = match depth {
            Depth::List => 1,
            Depth::Tree => TREE_DEPTH,
        };
        let work = self.work(None).await?;
        Ok(self.provider.workspace.list_files(work.target, path, depth).await?)
    }

    /// Opens a file of the workspace.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn file(&mut self, path: &str) -> Result<FileContent, SandboxError> {
        let path = workspace_path(path)?;
        let work = self.work(None).await?;
        Ok(self.provider.workspace.read_file(work.target, path, FilePart::Whole).await?)
    }

    /// Writes a file of the workspace; missing directories are made.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn write_file(
        &mut self,
        path: &str,
        content: impl Into<Bytes>,
    ) -> Result<Written, SandboxError> {
        let path = workspace_path(path)?;
        if path.is_root() {
            return Err(SandboxError::invalid("path", "is the workspace itself"));
        }
        let (sender, chunks) = mpsc::channel(1);
        sender.try_send(Ok(content.into())).expect("the channel is empty");
        drop(sender);
        let work = self.work(None).await?;
        Ok(self.provider.workspace.write_file(work.target, path, chunks).await?)
    }

    /// Runs a command, without a shell, in the workspace, until it ends. Dropping the future kills it.
    ///
    /// # Errors
    /// [`SandboxError`]; a command that ends with an error is none.
    pub async fn exec<Part: Into<String>>(
        &mut self,
        command: impl IntoIterator<Item = Part>,
    ) -> Result<ExecOutput, SandboxError> {
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        if command.first().is_none_or(String::is_empty) {
            return Err(SandboxError::invalid("command", "is empty"));
        }
        let call = self.context.begin(&self.services)?;
        let work = self.work(None).await?;
        let request = ExecRequest {
            command: command.clone(),
            cwd: None,
            env: Vec::new(),
            stdin: Bytes::new().into(),
            timeout: None,
        };
        let execution = self.provider.processes.exec(work.target, request).await?;
        let logs = &self.services.logs;
        let output =
            ExecOutput::of(logs.keep(&self.sandbox.id, &call.id, &command, execution)).await;
        drop(work.at_work);
        output
    }

    /// Says something to the agent; its answer comes as events. The message is durable when this
    /// returns, and is answered whether or not the events are read.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn message(&mut self, text: &str) -> Result<ConversationEvents, SandboxError> {
        if text.trim().is_empty() {
            return Err(SandboxError::invalid("message", "is empty"));
        }
        let call = self.context.begin(&self.services)?;
        let agent = self.context.agent.clone();
        let programs = &self.services.runs.programs;
        if agent.as_ref().is_some_and(|agent| !programs.is_known(agent)) {
            let known = programs.names().join(", ");
            return Err(SandboxError::invalid("agent", format!("is unknown; there are {known}")));
        }
        let words = SaidWords::of_caller(self.context.caller.clone(), text.to_owned());
        let words = SaidWords { agent, ..words };
        let (engine, account) = (&self.services.engine, &self.context.account);
        let (home, reply) = engine.say_in(account, &self.reference(), words, call.cause).await?;
        let RunReply::Said(message, run) = reply else {
            return Err(EngineError::StoreFailed("the message was not taken in".into()).into());
        };
        let journals = std::sync::Arc::clone(&self.services.runs.journals);
        let reader = JournalReader::of_message(journals, home, message, run.id);
        Ok(ConversationEvents::new(message, run.id, reader))
    }

    /// Ends the run that the agent is at, or is about to begin.
    ///
    /// # Errors
    /// [`SandboxError`]; [`SandboxError::NoRun`] if there is none.
    pub async fn cancel(&mut self) -> Result<Run, SandboxError> {
        self.context.check()?;
        let run = self.info().await?.agent.as_ref().map(|agent| agent.run);
        let run = run.ok_or(SandboxError::NoRun)?;
        let why = format!("{} ended it", self.context.caller);
        let event = RunEvent::Cancel(Some(run), why);
        match self.services.engine.run_event(self.sandbox.home, event).await? {
            RunReply::Is(run) => Ok(*run),
            RunReply::Heard | RunReply::Begun(..) | RunReply::Said(..) | RunReply::Refused(_) => {
                Err(SandboxError::NoRun)
            }
        }
    }

    /// Carries out the steps of one of its template's hooks, in order, until one does not succeed. A
    /// template without that hook has nothing to carry out. Each step is recorded on the timeline, and
    /// what it prints in the sandbox's log.
    ///
    /// # Errors
    /// [`SandboxError`]; [`SandboxError::Hook`] names the step and its last lines.
    pub async fn run_hook(&mut self, name: HookName) -> Result<(), SandboxError> {
        let work = self.work(None).await?;
        let place = HookPlace {
            home: self.sandbox.home,
            account: self.context.account.clone(),
            provider: self.sandbox.provider.clone(),
            target: work.target,
            run: None,
            message: None,
        };
        let ended = self.services.hooks.run_asked(&place, name).await;
        drop(work.at_work);
        ended.map_err(SandboxError::Hook)
    }

    /// Stores the workspace as a new version in the object storage.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn push(&mut self) -> Result<SyncRow, SandboxError> {
        Ok(self.sync(SyncOrder::Push).await?.row)
    }

    /// Brings the workspace to a version of the object storage, or to the newest one. What the version
    /// does not have is deleted, except what `.issueboxignore` names.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn pull(&mut self, version: Option<SyncVersion>) -> Result<SyncRow, SandboxError> {
        Ok(self.sync(SyncOrder::Pull(version)).await?.row)
    }

    /// Pushes the workspace if something changed, unless its last sync ended less than `threshold` ago.
    /// Then nothing is started either.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn sync_if_stale(&mut self, threshold: Duration) -> Result<Synced, SandboxError> {
        match self.worker()?.fresh(&self.sandbox.id, threshold).await? {
            Some(row) => Ok(Synced { row, is_skipped: true }),
            None => self.sync(SyncOrder::PushIfStale(threshold)).await,
        }
    }

    async fn sync(&mut self, order: SyncOrder) -> Result<Synced, SandboxError> {
        let worker = self.worker()?.clone();
        let work = self.work(Some(Capability::Archives)).await?;
        let place = SyncPlace {
            workspace: std::sync::Arc::clone(&self.provider.workspace),
            target: work.target,
        };
        let subject =
            SyncSubject { account: self.context.account.clone(), sandbox: self.sandbox.id.clone() };
        Ok(worker.sync(subject, place, order, work.at_work).await?)
    }

    fn worker(&self) -> Result<&SyncWorker, SandboxError> {
        self.services.sync.as_ref().ok_or(SandboxError::SyncNotConfigured)
    }

    /// The sandbox, running, to work in. A stopped one is started, unless a person stopped it.
    async fn work(&mut self, needs: Option<Capability>) -> Result<Work, SandboxError> {
        if let Some(capability) = needs {
            self.provider.descriptor.require(capability)?;
        }
        let call = self.context.begin(&self.services)?;
        let (engine, at_most) = (&self.services.engine, self.services.up_within());
        let of = self.reference();
        let work = engine.work(&self.context.account, &of, true, call.cause, at_most).await;
        let work = work.map_err(|error| match error {
            EngineError::NotRunning(sandbox) => match sandbox.failure.clone() {
                Some(failure) => {
                    SandboxError::Failed { sandbox: sandbox.id.clone(), failure: Box::new(failure) }
                }
                None => EngineError::NotRunning(sandbox).into(),
            },
            error => error.into(),
        })?;
        self.sandbox = work.sandbox.clone();
        Ok(work)
    }
}

fn workspace_path(path: &str) -> Result<WorkspacePath, SandboxError> {
    WorkspacePath::parse(path.as_bytes()).map_err(|why| SandboxError::invalid("path", why))
}
