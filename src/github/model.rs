//! An in-memory GitHub on the loopback interface, for tests and for `issuebox demo`.
//!
//! [`GithubModel::start`] serves the REST and GraphQL operations that the server uses, git over HTTP,
//! webhooks, and the pages that make an App of a manifest and log people in. A test drives it through the handle: it makes repositories and issues, acts as people
//! do, orders faults, and reads the record of calls. `fixtures/github/` has the part of GitHub's own
//! description of its interfaces to which requests and answers are held.
//!
//! # Guarantees
//! It listens on 127.0.0.1 only and connects to nothing but the address that [`HookDoor::Open`] names.
//! It knows nothing of the rest of this program. Dropping the handle ends it and removes its files.
//! What a client must not do, such as two writing calls at once, is in [`GithubModel::violations`].

mod acts;
mod auth;
mod changes;
#[cfg(test)]
mod description;
mod faults;
mod git;
mod graphql;
mod hooks;
mod lfs;
mod limits;
mod oauth;
mod pages;
mod rest;
mod reviews;
mod server;
mod show;
mod state;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

pub use acts::IssueAt;
pub use faults::{FaultKind, ModelFault};
pub use git::PushRecord;
pub use hooks::HookDoor;
pub use limits::{WRITES_PER_HOUR, WRITES_PER_MINUTE};
pub use reviews::EndedCheck;

use state::ModelState;

/// The App's private key, PKCS#1. It is for tests only.
pub const APP_KEY: &str = include_str!("../../fixtures/github/keys/app.test-key.pem");
/// The same key as PKCS#8.
pub const APP_KEY_PKCS8: &str = include_str!("../../fixtures/github/keys/app.pkcs8.test-key.pem");
/// Another key, with which [`GithubModel::replace_key`] replaces the App's.
pub const OTHER_KEY: &str = include_str!("../../fixtures/github/keys/other.test-key.pem");

/// One call as it came and was answered.
#[derive(Clone, Debug)]
pub struct ModelCall {
    /// Whose credential it had: `app`, `installation 5`, `user 7`, `anonymous`.
    pub identity: String,
    /// The operation as GitHub's description names it, such as `GET /repos/{owner}/{repo}`; `None` for
    /// git, and where a fault or a refusal came first.
    pub operation: Option<String>,
    /// The method.
    pub method: String,
    /// The path, without `/api/v3`.
    pub path: String,
    /// The parameters behind `?`, decoded.
    pub query: Vec<(String, String)>,
    /// The body; null where there is none.
    pub request: Value,
    /// The status; 0 where the connection ended instead.
    pub status: u16,
    /// The answer's body; null where there is none.
    pub answer: Value,
    /// This GitHub's time.
    pub at: Timestamp,
}

/// What the handle and the server share.
struct ModelShared {
    state: Mutex<ModelState>,
    changes: watch::Sender<u64>,
    releases: watch::Sender<u64>,
}

impl ModelShared {
    fn state(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call or a delivery is done.
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Waits for [`GithubModel::release`].
    async fn wait_for_release(&self) {
        let mut releases = self.releases.subscribe();
        self.changed();
        // The sender is part of `self`, so it does not end first.
        let _released = releases.changed().await;
    }
}

/// The handle of a running in-memory GitHub.
pub struct GithubModel {
    shared: Arc<ModelShared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl GithubModel {
    /// Starts one on a free port of 127.0.0.1, with an App that is installed nowhere yet. It runs on a
    /// thread of its own, whatever runtime the caller has.
    ///
    /// # Errors
    /// When there is no port, no temporary directory or no thread.
    pub fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let base = format!("http://{}", listener.local_addr()?);
        let name = format!("issuebox-github-{}", uuid::Uuid::now_v7().simple());
        let git_root = std::env::temp_dir().join(name);
        std::fs::create_dir(&git_root)?;
        let shared = Arc::new(ModelShared {
            state: Mutex::new(ModelState::new(base, git_root)),
            changes: watch::Sender::new(0),
            releases: watch::Sender::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let served = shared.clone();
        let serve = async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                return;
            };
            tokio::select! {
                () = server::run(served.clone(), listener) => {}
                () = hooks::send_deliveries(served) => {}
                _ = stopped => {}
            }
        };
        let thread = std::thread::Builder::new()
            .name("github-model".to_owned())
            .spawn(move || runtime.block_on(serve))?;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }

    fn state(&self) -> MutexGuard<'_, ModelState> {
        self.shared.state()
    }

    /// The base of the REST interface, without a slash at its end.
    #[must_use]
    pub fn api_url(&self) -> String {
        self.state().base.clone()
    }

    /// The base as GitHub Enterprise Server has it: it ends in `/api/v3`.
    #[must_use]
    pub fn enterprise_api_url(&self) -> String {
        format!("{}/api/v3", self.state().base)
    }

    /// The base of repositories' web and git addresses.
    #[must_use]
    pub fn web_url(&self) -> String {
        self.state().base.clone()
    }

    /// All calls so far, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<ModelCall> {
        self.state().calls.clone()
    }

    /// The calls with this method whose path begins and ends so.
    #[must_use]
    pub fn calls_to(&self, method: &str, start: &str, end: &str) -> Vec<ModelCall> {
        let fits = |call: &ModelCall| {
            call.method == method && call.path.starts_with(start) && call.path.ends_with(end)
        };
        self.state().calls.iter().filter(|call| fits(call)).cloned().collect()
    }

    /// What a client must not do and did: two writing calls at once, calls above the limits, unknown
    /// operations; in this crate's own tests also requests and answers that GitHub's description does
    /// not allow.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Forgets the violations so far, gives them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    /// Waits until a condition of this handle holds. It is tried after each call and delivery.
    pub async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        while !holds(self) {
            // The sender is part of `self`, so it does not end first.
            let _changed = changes.changed().await;
        }
    }

    /// Orders a fault.
    pub fn order(&self, fault: ModelFault) {
        self.state().faults.push(fault);
    }

    /// Forgets the faults that did not strike yet.
    pub fn cancel_faults(&self) {
        self.state().faults.clear();
    }

    /// How many answers [`FaultKind::Held`] holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.releases.receiver_count()
    }

    /// Lets all answers go that [`FaultKind::Held`] holds.
    pub fn release(&self) {
        self.shared.releases.send_modify(|count| *count += 1);
    }
}

impl Drop for GithubModel {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ended = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
        let root = self.state().git_root.clone();
        let _removed = std::fs::remove_dir_all(root);
    }
}
