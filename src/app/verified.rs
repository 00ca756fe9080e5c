//! Verifications of issues, shared by all that begins in their sandboxes: one at a time for a sandbox.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::OnceCell;

use crate::clock::Clock;
use crate::github::task::Task;
use crate::logs::Logs;
use crate::types::{HomeId, SandboxId, Timestamp};
use crate::verification::IssueVerifier;

/// One verification, under way or over, and when it began.
struct SharedVerification {
    began_at: Timestamp,
    may_begin: OnceCell<bool>,
}

/// Verifies issues before work begins in their sandboxes; without credentials for GitHub work may begin.
#[derive(Clone)]
pub(super) struct Verifications {
    verifier: Option<Arc<IssueVerifier>>,
    logs: Logs,
    clock: Arc<dyn Clock>,
    latest: Arc<DashMap<SandboxId, Arc<SharedVerification>>>,
}

impl Verifications {
    pub fn new(verifier: Option<Arc<IssueVerifier>>, logs: Logs, clock: Arc<dyn Clock>) -> Self {
        Self { verifier, logs, clock, latest: Arc::default() }
    }

    /// Whether work may begin in a sandbox, by a verification that began at `since` or later. Waits until
    /// GitHub says so; `note` is given what people should know meanwhile.
    pub async fn may_begin(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
        since: Timestamp,
        note: &(dyn Fn(String) + Send + Sync),
    ) -> bool {
        let Some(verifier) = &self.verifier else { return true };
        let shared = self.shared(sandbox, since);
        let verify = || async {
            let note = |text: String| {
                self.logs.note(sandbox, text.clone());
                note(text);
            };
            verifier.before_work(home, sandbox, note).await
        };
        *shared.may_begin.get_or_init(verify).await
    }

    /// What an issue is about, for an agent's new session; `None` without credentials for GitHub.
    ///
    /// # Errors
    /// Why GitHub did not say, for people.
    pub async fn task(&self, home: HomeId) -> Result<Option<Task>, String> {
        match &self.verifier {
            Some(verifier) => verifier.task(home).await,
            None => Ok(None),
        }
    }

    /// The latest verification if it is new enough and does not speak against work, which may be over by
    /// now; else another one.
    fn shared(&self, sandbox: &SandboxId, since: Timestamp) -> Arc<SharedVerification> {
        let began_at = self.clock.now();
        let another = || Arc::new(SharedVerification { began_at, may_begin: OnceCell::new() });
        let mut latest = self.latest.entry(sandbox.clone()).or_insert_with(another);
        let is_good = latest.began_at >= since && latest.may_begin.get() != Some(&false);
        if !is_good {
            *latest = another();
        }
        Arc::clone(&latest)
    }

    /// A sandbox is down: what was verified of it counts no more.
    pub fn forget(&self, sandbox: &SandboxId) {
        self.latest.remove(sandbox);
    }
}
