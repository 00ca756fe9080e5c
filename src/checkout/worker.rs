//! Makes checkouts: when a sandbox comes up, and for what a former process left unfinished.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::CheckoutParts;
use super::branch::choose;
use super::commands::{self, CheckoutPlan, CloneDepth, Committer, OnFailure};
use super::run::{CHECKOUT, CheckoutPlace};
use crate::engine::SandboxRef;
use crate::github::api::RepositoryTarget;
use crate::issue::Issue;
use crate::sandbox::Target;
use crate::store::StoreError;
use crate::store::checkout::CheckoutRow;
use crate::types::{
    Cause, CheckoutState, CloneMode, GitWorkload, HomeId, Phase, ProviderName, SandboxId,
};

/// The pauses between tries.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// How many of these pauses a checkout takes that a create waits for.
const CREATE_PAUSES: usize = 3;

/// Below this size a whole history is fetched, in KiB by GitHub's account.
const FULL_BELOW_KIB: u64 = 100 * 1024;

/// How many homes are read at once at the start.
const START_PAGE: usize = 1_000;

/// Makes checkouts.
#[derive(Clone)]
pub struct CheckoutWorker {
    pub(super) parts: Arc<CheckoutParts>,
    /// Sandboxes whose checkout is under way here, and what ends the pause before its next try.
    under_way: Arc<Mutex<HashMap<SandboxId, Arc<Notify>>>>,
    /// How often a checkout came to something.
    changed: Arc<watch::Sender<u64>>,
}

/// Why a checkout is not tried again.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutRetryError {
    /// It is there.
    #[error("the checkout is ready: there is nothing to retry")]
    Ready,
    /// The sandbox has none, and why.
    #[error("the sandbox has no checkout: {0}")]
    None(&'static str),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A running sandbox whose checkout is not ready.
pub struct UnfinishedCheckout {
    /// The home of its issue.
    pub home: HomeId,
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// What is checked out.
    pub git: GitWorkload,
}

impl CheckoutWorker {
    /// A worker. It does nothing until it is asked.
    pub fn new(parts: Arc<CheckoutParts>) -> Self {
        Self { parts, under_way: Arc::default(), changed: Arc::default() }
    }

    /// The running sandboxes whose checkout is not ready, as after a crash.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn unfinished(&self) -> Result<Vec<UnfinishedCheckout>, StoreError> {
        let (mut unfinished, mut after) = (Vec::new(), None);
        loop {
            let page = self.parts.store.live(after, START_PAGE).await?;
            let Some(last) = page.last() else { return Ok(unfinished) };
            after = Some(last.home);
            for issue in page.iter().filter(|issue| issue.state.phase() == Some(Phase::Running)) {
                let Some(record) = issue.state.record() else { continue };
                let Some(git) = &record.template.workload.git else { continue };
                let row = self.checkout(&record.id).await?;
                if row.is_none_or(|row| row.state != CheckoutState::Ready) {
                    let (home, sandbox, git) = (issue.home, record.id.clone(), git.clone());
                    unfinished.push(UnfinishedCheckout { home, sandbox, git });
                }
            }
        }
    }

    /// Makes a sandbox's checkout unless it has one. Returns when it is ready or was given up.
    pub async fn ensure(&self, home: HomeId, sandbox: &SandboxId, git: &GitWorkload) {
        self.ensure_in(home, sandbox, git, None).await;
    }

    /// Makes the checkout of a sandbox that is up at its provider and in which no work has begun, as if
    /// it had none: what is in its workspace may be of another object. Returns how it ended; `None` if
    /// there is nothing to check out. It may be dropped meanwhile.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn make(
        &self,
        home: HomeId,
        git: &GitWorkload,
        provider: &ProviderName,
        target: &Target,
    ) -> Result<Option<CheckoutRow>, StoreError> {
        let place = CheckoutPlace::of_object(provider.clone(), target.clone());
        self.ensure_in(home, &target.expected, git, Some(place)).await;
        self.checkout(&target.expected).await
    }

    async fn ensure_in(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
        git: &GitWorkload,
        place: Option<CheckoutPlace>,
    ) {
        let woken = Arc::new(Notify::new());
        match self.lock().entry(sandbox.clone()) {
            Entry::Occupied(_) => return,
            Entry::Vacant(entry) => entry.insert(Arc::clone(&woken)),
        };
        // Also when it is dropped.
        let _end = CheckoutEnd { worker: self, sandbox };
        if let Err(error) = self.ensure_alone((home, sandbox), git, &woken, place).await {
            // Without a row the next start tries again.
            tracing::error!(sandbox.id = %sandbox, %error, "cannot record a checkout");
        }
    }

    /// Waits until a sandbox's checkout is ready, and makes it if none is under way. `waits` is called
    /// with what it waits for; a checkout that was given up is waited for until it is retried.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn ready(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
        git: &GitWorkload,
        waits: &(dyn Fn(String) + Send + Sync),
    ) -> Result<CheckoutRow, StoreError> {
        let mut changed = self.changed.subscribe();
        let mut is_made = false;
        loop {
            changed.mark_unchanged();
            match self.checkout(sandbox).await? {
                Some(row) if row.state == CheckoutState::Ready => return Ok(row),
                Some(row) if row.state == CheckoutState::Failed => {
                    waits(format!("the checkout failed: {}", row.reason));
                }
                Some(_) | None => waits("the repository is being checked out".to_owned()),
            }
            let is_under_way = self.lock().contains_key(sandbox);
            if !is_under_way && !std::mem::replace(&mut is_made, true) {
                self.ensure(home, sandbox, git).await;
            } else {
                // An error means that the worker is gone, and the server with it.
                let _ = changed.changed().await;
            }
        }
    }

    /// A sandbox's checkout, as it is known.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn checkout(&self, sandbox: &SandboxId) -> Result<Option<CheckoutRow>, StoreError> {
        self.parts.rows.checkout(sandbox).await
    }

    /// Tries a running sandbox's checkout again, now.
    ///
    /// # Errors
    /// [`CheckoutRetryError`].
    pub async fn retry(&self, home: HomeId, sandbox: &SandboxId) -> Result<(), CheckoutRetryError> {
        let row = self.checkout(sandbox).await?;
        if row.is_some_and(|row| row.state == CheckoutState::Ready) {
            return Err(CheckoutRetryError::Ready);
        }
        if let Some(woken) = self.lock().get(sandbox) {
            woken.notify_one();
            return Ok(());
        }
        let issue = self.parts.store.load(home).await?;
        let issue = issue.ok_or(CheckoutRetryError::None("its issue has no record"))?;
        let record = issue.state.record().filter(|record| record.id == *sandbox);
        let git = record.and_then(|record| record.template.workload.git.clone());
        let git = git.ok_or(CheckoutRetryError::None("its template has `clone = \"none\"`"))?;
        if RepositoryTarget::of(&issue.facts).is_none() {
            return Err(CheckoutRetryError::None("its issue's repository is not known"));
        }
        let (worker, sandbox) = (self.clone(), sandbox.clone());
        self.parts.runtime.spawn(async move { worker.ensure(home, &sandbox, &git).await });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Notify>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ensure_alone(
        &self,
        (home, sandbox): (HomeId, &SandboxId),
        git: &GitWorkload,
        woken: &Notify,
        place: Option<CheckoutPlace>,
    ) -> Result<(), String> {
        let parts = self.parts.as_ref();
        let CheckoutParts { rows, store, clock, .. } = parts;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let known = rows.checkout(sandbox).await.map_err(|error| text(&error))?;
        if place.is_none() && known.as_ref().is_some_and(|row| row.state == CheckoutState::Ready) {
            return Ok(());
        }
        let issue = store.load(home).await.map_err(|error| text(&error))?;
        let Some(issue) = issue else { return Ok(()) };
        let provider = issue.state.record().map(|record| &record.template.provider);
        if provider.is_none_or(|provider| !self.parts.processes.contains_key(provider)) {
            return Ok(());
        }
        // Without a repository there is nothing to check out: an issue known by its id alone.
        let Some(target) = RepositoryTarget::of(&issue.facts) else { return Ok(()) };
        // Work that was pushed stays in its repository.
        let pushed = known.filter(|row| row.tip.is_some() || row.pushing.is_some());
        let target = pushed.map_or(target, |row| RepositoryTarget::of_checkout(&row, &issue.facts));
        let remote = (target.name.clone(), target.id);
        let begun = CheckoutRow::begun(sandbox.clone(), home, remote, clock.now());
        parts.begin(begun).await?;
        // A create does not wait for long.
        let tries = if place.is_some() { CREATE_PAUSES } else { PAUSES.len() };
        let mut pauses = PAUSES.into_iter().take(tries);
        loop {
            let tried = self.attempt(&issue, &target, (sandbox, git), place.as_ref()).await;
            let (state, reason, pause) = match tried {
                Ok(note) => (CheckoutState::Ready, note, None),
                Err(reason) => match pauses.next() {
                    Some(pause) if place.is_some() || self.is_running(&issue, sandbox).await => {
                        let reason = format!("{reason}; trying again in {} s", pause.as_secs());
                        (CheckoutState::Fetching, reason, Some(pause))
                    }
                    Some(_) | None => (CheckoutState::Failed, reason, None),
                },
            };
            let now = clock.now();
            let end = |row: &mut CheckoutRow| {
                (row.state, row.reason, row.changed_at) = (state, reason, now);
            };
            parts.change(sandbox, end).await?;
            let Some(pause) = pause else { return Ok(()) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = woken.notified() => {}
            }
        }
    }

    async fn is_running(&self, issue: &Issue, sandbox: &SandboxId) -> bool {
        let now = self.parts.store.sandbox(&issue.account, sandbox).await;
        now.is_ok_and(|now| now.is_some_and(|now| now.phase == Some(Phase::Running)))
    }

    /// Makes the checkout, and returns what people should know of it.
    async fn attempt(
        &self,
        issue: &Issue,
        target: &RepositoryTarget,
        (sandbox, git): (&SandboxId, &GitWorkload),
        place: Option<&CheckoutPlace>,
    ) -> Result<String, String> {
        let CheckoutParts { engine, rows, api, pattern, web_url, .. } = self.parts.as_ref();
        let text = |error: crate::github::api::GitHubError| error.to_string();
        let repository = api.repository(target).await.map_err(text)?;
        let identity = api.identity().await.map_err(text)?;
        let number = issue.facts.number.ok_or("the issue's number is not known")?;
        let earlier = rows.checkouts_of(issue.home).await.map_err(|error| error.to_string())?;
        let branch = choose(api.as_ref(), target, pattern, number, &earlier).await?;
        let host = web_url.split_once("://").map_or(web_url.as_str(), |(_, host)| host);
        let plan = CheckoutPlan {
            url: format!("{web_url}/{}.git", repository.name),
            base: git.base.clone().unwrap_or(repository.default_branch),
            branch,
            depth: match git.clone {
                CloneMode::Auto if repository.size_kib < FULL_BELOW_KIB => CloneDepth::Full,
                CloneMode::Full => CloneDepth::Full,
                CloneMode::Auto | CloneMode::Blobless => CloneDepth::Blobless,
                CloneMode::Shallow => CloneDepth::Shallow,
            },
            committer: Committer {
                email: format!("{}+{}@users.noreply.{host}", identity.user_id, identity.login),
                name: identity.login,
            },
        };
        let pushes = self.parts.pushes(issue, target).await?;
        // The gateway serves the fetch by what is recorded.
        let begun = |row: &mut CheckoutRow| {
            (row.remote, row.remote_id) = (repository.name, Some(repository.id));
            row.base = Some(plan.base.clone());
            // Its tip may have grown since the branch was chosen.
            let branch = Some(plan.branch.name.clone());
            if row.branch != branch || row.tip.is_none() {
                row.tip.clone_from(&plan.branch.tip);
            }
            row.branch = branch;
            (row.pushes, row.pushes_why) = pushes;
        };
        self.parts.change(sandbox, begun).await?;
        let place = match place {
            Some(place) => place.clone(),
            None => {
                let (id, cause) = (SandboxRef::Id(sandbox.clone()), Cause::Service(CHECKOUT));
                let work = engine.work(&issue.account, &id, false, cause, Duration::ZERO).await;
                work.map_err(|error| error.to_string())?.into()
            }
        };
        let mut notes = Vec::new();
        let mut commands = commands::commands(&plan).into_iter();
        while let Some(command) = commands.next() {
            let Err(words) = self.parts.run(&place, sandbox, command.argv).await? else { continue };
            match command.on_failure {
                OnFailure::Fail => return Err(words),
                OnFailure::Ignore => {}
                OnFailure::Skip => drop(commands.next()),
                OnFailure::Note(note) => notes.push(note),
            }
        }
        Ok(notes.join("; "))
    }
}

/// Ends a checkout under way, however it ends.
struct CheckoutEnd<'a> {
    worker: &'a CheckoutWorker,
    sandbox: &'a SandboxId,
}

impl Drop for CheckoutEnd<'_> {
    fn drop(&mut self) {
        self.worker.lock().remove(self.sandbox);
        self.worker.changed.send_modify(|changes| *changes += 1);
    }
}
