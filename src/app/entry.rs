//! What happens when a sandbox comes up: with credentials for GitHub its issue is verified and its
//! checkout is made, then the command of its template is started, with its output in the sandbox's log.
//!
//! The command is started once each time the sandbox comes up, whatever became of the checkout. It is not
//! started again when it ends; the log has its exit code. It does not keep the sandbox from being idle, and
//! it ends with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::providers::ProviderMap;
use crate::checkout::CheckoutWorker;
use crate::engine::{Change, Engine, Publisher, SandboxRef};
use crate::logs::Logs;
use crate::sandbox::{ExecRequest, Execution};
use crate::types::{AccountName, Cause, HomeId, SandboxId, Workload};
use crate::verification::IssueVerifier;

/// What the log calls an entry command, in place of a request's id.
const ENTRY: &str = "entry";

/// A sandbox that came up and has something to be done in it.
pub(super) struct Entry {
    home: HomeId,
    account: AccountName,
    sandbox: SandboxId,
    workload: Arc<Workload>,
}

/// Passes the engine's changes on, and the sandboxes that came up to [`run`].
pub(super) struct EntryPublisher {
    /// The next publisher.
    pub next: Arc<dyn Publisher>,
    /// What to start. Unbounded, because publishing must not block; its receiver only spawns.
    pub entries: mpsc::UnboundedSender<Entry>,
    /// Whether issues are verified at GitHub: then every sandbox has something to be done.
    pub verifies: bool,
}

impl Publisher for EntryPublisher {
    fn publish(&self, change: Arc<Change>) {
        if let (Some(sandbox), Some(workload)) = (&change.sandbox, &change.came_up)
            && (self.verifies || workload.git.is_some() || !workload.command.is_empty())
        {
            let entry = Entry {
                home: change.home,
                account: change.account.clone(),
                sandbox: sandbox.id.clone(),
                workload: Arc::clone(workload),
            };
            // An error means that the server ends, and the sandbox's processes with it.
            drop(self.entries.send(entry));
        }
        self.next.publish(change);
    }
}

/// What entry commands are started with.
#[derive(Clone)]
pub(super) struct EntryParts {
    /// Finds the sandbox.
    pub engine: Engine,
    /// Run the commands.
    pub providers: Arc<ProviderMap>,
    /// Keep the output.
    pub logs: Logs,
    /// Makes checkouts, if there are credentials for GitHub.
    pub checkouts: Option<CheckoutWorker>,
    /// Verifies issues, if there are credentials for GitHub.
    pub verifier: Option<Arc<IssueVerifier>>,
}

/// Makes checkouts and starts entry commands until the server ends.
pub(super) async fn run(
    mut entries: mpsc::UnboundedReceiver<Entry>,
    parts: EntryParts,
    mut ended: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            entry = entries.recv() => match entry {
                Some(entry) => drop(tokio::spawn(run_one(entry, parts.clone()))),
                None => return,
            },
            // The engine holds the other end of `entries`: only this ends both.
            _ = ended.wait_for(|ended| *ended) => return,
        }
    }
}

async fn run_one(entry: Entry, parts: EntryParts) {
    let EntryParts { engine, providers, logs, checkouts, verifier } = parts;
    let Entry { home, account, sandbox, workload } = entry;
    if let Some(verifier) = verifier
        && !verifier.before_work(home, &sandbox, |text| logs.note(&sandbox, text)).await
    {
        return;
    }
    if let (Some(checkouts), Some(git)) = (checkouts, &workload.git) {
        checkouts.ensure(home, &sandbox, git).await;
    }
    let command = workload.command.clone();
    if command.is_empty() {
        return;
    }
    let id = SandboxRef::Id(sandbox.clone());
    let started = async {
        let work = engine.work(&account, &id, false, Cause::Service("entry"), Duration::ZERO).await;
        let work = work.map_err(|error| error.to_string())?;
        let request = ExecRequest {
            command: command.clone(),
            cwd: None,
            env: Vec::new(),
            stdin: Bytes::new().into(),
            timeout: None,
        };
        let provider = providers.get(&work.sandbox.provider).ok_or("its provider is not open")?;
        let execution = provider.processes.exec(work.target.clone(), request).await;
        // From here on the sandbox may be idle, whatever the command does.
        execution.map_err(|error| error.to_string())
    };
    let started = started.await;
    drop((engine, providers));
    match started {
        Ok(execution) => {
            let Execution { mut events } = logs.keep(&sandbox, ENTRY, &command, execution);
            while events.recv().await.is_some() {}
        }
        Err(error) => {
            tracing::warn!(sandbox.id = %sandbox, error, "the template's command could not be started");
            logs.note(&sandbox, format!("the template's command could not be started: {error}"));
        }
    }
}
