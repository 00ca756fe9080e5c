//! What happens when a sandbox comes up: with credentials for GitHub its issue is verified and its
//! checkout is made, then the command of its template is started, with its output in the sandbox's log.
//!
//! Verification begins together with the create or the start. A checkout that was not ready when the
//! server ended is made after the start, behind a verification of its own.
//!
//! The command is started once each time the sandbox comes up, whatever became of the checkout. It is not
//! started again when it ends; the log has its exit code. It does not keep the sandbox from being idle, and
//! it ends with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::providers::ProviderMap;
use super::verified::Verifications;
use crate::checkout::{CheckoutWorker, UnfinishedCheckout};
use crate::clock::Clock;
use crate::engine::{Change, Engine, Publisher, SandboxRef};
use crate::logs::Logs;
use crate::sandbox::{ExecRequest, Execution};
use crate::types::{AccountName, Cause, HomeId, Phase, SandboxId, Workload};

/// What the log calls an entry command, in place of a request's id.
const ENTRY: &str = "entry";
/// How long a verification counts that ended before its sandbox came up.
const VERIFIED_FOR: Duration = Duration::from_secs(60);

/// A sandbox that came up and has something to be done in it.
pub(super) struct Entry {
    home: HomeId,
    account: AccountName,
    sandbox: SandboxId,
    workload: Arc<Workload>,
}

/// What a change of a sandbox has to be done for.
pub(super) enum EntryEvent {
    /// It is being created or started.
    Begun(HomeId, SandboxId),
    /// It came up.
    CameUp(Entry),
    /// It does not come up.
    Down(SandboxId),
}

/// Passes the engine's changes on, and what they mean for sandboxes that come up to [`run`].
pub(super) struct EntryPublisher {
    /// The next publisher.
    next: Arc<dyn Publisher>,
    /// What to do. Unbounded, because publishing must not block; its receiver only spawns.
    entries: mpsc::UnboundedSender<EntryEvent>,
    /// Whether issues are verified at GitHub: then every sandbox has something to be done.
    verifies: bool,
}

impl Publisher for EntryPublisher {
    fn publish(&self, change: Arc<Change>) {
        if let Some(event) = self.event_of(&change) {
            // An error means that the server ends, and the sandbox's processes with it.
            drop(self.entries.send(event));
        }
        self.next.publish(change);
    }
}

impl EntryPublisher {
    /// A publisher before this one, and what [`run`] reads.
    pub fn new(
        next: Arc<dyn Publisher>,
        verifies: bool,
    ) -> (Self, mpsc::UnboundedReceiver<EntryEvent>) {
        let (entries, receiver) = mpsc::unbounded_channel();
        (Self { next, entries, verifies }, receiver)
    }

    fn event_of(&self, change: &Change) -> Option<EntryEvent> {
        let ended = change.ended.as_ref().filter(|_| self.verifies);
        let Some(sandbox) = &change.sandbox else {
            return ended.map(|sandbox| EntryEvent::Down(sandbox.id.clone()));
        };
        let id = sandbox.id.clone();
        if let Some(workload) = &change.came_up {
            let has_work = workload.git.is_some() || !workload.command.is_empty();
            let entry = Entry {
                home: change.home,
                account: change.account.clone(),
                sandbox: id,
                workload: Arc::clone(workload),
            };
            return Some(EntryEvent::CameUp(entry)).filter(|_| self.verifies || has_work);
        }
        let event = match sandbox.phase? {
            Phase::Creating | Phase::Starting => EntryEvent::Begun(change.home, id),
            Phase::Running => return None,
            Phase::Stopping | Phase::Stopped | Phase::Failed | Phase::Deleting => {
                EntryEvent::Down(id)
            }
        };
        Some(event).filter(|_| self.verifies)
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
    pub verifications: Verifications,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl EntryParts {
    /// Whether work may begin in a sandbox, by a verification that is not older than this; waits until
    /// GitHub says so.
    async fn may_begin(&self, home: HomeId, sandbox: &SandboxId, not_older_than: Duration) -> bool {
        let since = self.clock.now().before(not_older_than);
        self.verifications.may_begin(home, sandbox, since, &|_| {}).await
    }
}

/// Makes checkouts and starts entry commands until the server ends.
pub(super) async fn run(
    mut entries: mpsc::UnboundedReceiver<EntryEvent>,
    parts: EntryParts,
    mut ended: watch::Receiver<bool>,
) {
    tokio::spawn(resume(parts.clone()));
    let mut begun: HashMap<SandboxId, JoinHandle<bool>> = HashMap::new();
    loop {
        let event = tokio::select! {
            event = entries.recv() => event,
            // The engine holds the other end of `entries`: only this ends both.
            _ = ended.wait_for(|ended| *ended) => return,
        };
        match event {
            Some(EntryEvent::Begun(home, sandbox)) => {
                let (id, parts) = (sandbox.clone(), parts.clone());
                let verify = async move { parts.may_begin(home, &id, Duration::ZERO).await };
                begun.entry(sandbox).or_insert_with(|| tokio::spawn(verify));
            }
            Some(EntryEvent::CameUp(entry)) => {
                // It goes on by itself.
                begun.remove(&entry.sandbox);
                tokio::spawn(run_one(entry, parts.clone()));
            }
            Some(EntryEvent::Down(sandbox)) => {
                parts.verifications.forget(&sandbox);
                if let Some(verification) = begun.remove(&sandbox) {
                    verification.abort();
                }
            }
            None => return,
        }
    }
}

/// Makes the checkouts that were not ready when the last server ended.
async fn resume(parts: EntryParts) {
    let Some(checkouts) = parts.checkouts.clone() else { return };
    let unfinished = match checkouts.unfinished().await {
        Ok(unfinished) => unfinished,
        Err(error) => {
            tracing::error!(%error, "cannot resume checkouts; the next start tries again");
            return;
        }
    };
    for UnfinishedCheckout { home, sandbox, git } in unfinished {
        let (parts, checkouts) = (parts.clone(), checkouts.clone());
        tokio::spawn(async move {
            if parts.may_begin(home, &sandbox, Duration::ZERO).await {
                checkouts.ensure(home, &sandbox, &git).await;
            }
        });
    }
}

async fn run_one(entry: Entry, parts: EntryParts) {
    let Entry { home, account, sandbox, workload } = entry;
    let begun_early = parts.may_begin(home, &sandbox, VERIFIED_FOR).await;
    // What spoke against it may be over by now, such as an issue that was closed and reopened.
    if !begun_early && !parts.may_begin(home, &sandbox, Duration::ZERO).await {
        return;
    }
    let EntryParts { engine, providers, logs, checkouts, .. } = parts;
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
