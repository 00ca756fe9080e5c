//! Carries out what is said on issues: one worker for the whole server, beside the one for providers.
//!
//! A step's effects are durable with the state that asked for them. The worker reads them back; for each
//! it takes a turn of the write queue, records that it asks, and asks. What becomes of the answer is in
//! [`answers`]; what each kind does is in [`attempt`], [`marks`], [`pull`] and [`status`].
//!
//! # Guarantees
//! - **In order.** A call with an unknown outcome, also after a crash, is followed by another one of its
//!   effect only [`LANDED_AFTER`] after it began, since GitHub may still work on it until then: so no
//!   earlier text replaces a later one.
//! - **Once.** A comment whose creation has an unknown outcome is looked for by its marker *and* its
//!   author before it is written again.
//! - **One pull request.** The pull requests of a branch are listed before one is opened, and GitHub
//!   refuses a second one of an open one's branch. One that a person closed or merged is left alone.
//! - **The newest counts.** The status is composed from the stored state when its turn has come: ten
//!   changes while GitHub is down are one edit.
//! - **Order and fairness.** Effects of one home are carried out one after the other: reaction, reply,
//!   pull request, status. One that waits delays no other.
//!
//! # Races it accepts
//! People's words that are added to the status comment between our read and our edit, which follows at
//! once, are lost.

mod agent;
mod answers;
mod attempt;
mod look;
mod marks;
mod place;
mod pull;
mod status;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::TaskTracker;

use crate::git::LatePublisher;
use crate::github::api::GitHubWriter;
use crate::github::messages::{LiveAgents, MessageContext, OutgoingTexts};
use crate::store::StoreError;
use crate::store::checkout::CheckoutStore;
use crate::store::conversation::LastAnswers;
use crate::store::github::{GithubOutbox, GithubRow, GithubState};
use crate::types::{HomeId, PerRepository, Timestamp};

use super::environment::Environment;

/// How many homes are worked on at once. The write queue lets one after the other write.
const HOMES_AT_ONCE_MAX: usize = 64;
/// How long after a call began it has come into effect, if it will ever do.
const LANDED_AFTER: Duration = Duration::from_secs(60);
/// How soon a call is made after its beginning was recorded; later, the beginning is recorded again.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);
/// The pause after the store failed.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep, in case the clock is set forward.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// What the engine needs to say something on issues.
#[derive(Clone)]
pub struct GithubParts {
    /// GitHub.
    pub api: Arc<dyn GitHubWriter>,
    /// The outbox.
    pub outbox: Arc<dyn GithubOutbox>,
    /// What each sandbox has checked out and pushed.
    pub checkouts: Arc<dyn CheckoutStore>,
    /// Publishes work.
    pub publisher: LatePublisher,
    /// The label that issues have while their sandbox is at work; empty for none.
    pub working_label: String,
    /// What the sentences about issues of each repository need to know.
    pub context: PerRepository<MessageContext>,
    /// What agents said last.
    pub runs: Arc<dyn LastAnswers>,
    /// What agents do now.
    pub live: Arc<dyn LiveAgents>,
    /// Makes texts of agents safe to publish.
    pub texts: PerRepository<OutgoingTexts>,
}

/// Carries out effects at GitHub.
pub(super) struct GithubWorker {
    env: Arc<Environment>,
    parts: GithubParts,
    /// Calls under way: the server's end waits for them, not for what waits for its turn.
    calls: TaskTracker,
    /// Notified when a step recorded effects.
    recorded: Arc<Notify>,
}

/// Carries out what is in the outbox and what comes into it, for ever.
pub(super) async fn run(worker: Arc<GithubWorker>) {
    while let Err(error) = worker.parts.outbox.resume_github(worker.env.now()).await {
        tracing::error!(%error, "failed to resume what was asked of GitHub; retrying");
        worker.pause().await;
    }
    let mut running = FuturesUnordered::new();
    let mut homes = HashSet::new();
    loop {
        let wake_at = worker.begin_due(&mut running, &mut homes).await;
        tokio::select! {
            biased;
            Some(home) = running.next(), if !running.is_empty() => {
                homes.remove(&home);
            }
            () = worker.recorded.notified() => {}
            () = worker.env.clock.sleep_until(wake_at) => {}
        }
    }
}

impl GithubWorker {
    /// Of an engine with these parts.
    pub fn new(
        env: Arc<Environment>,
        parts: GithubParts,
        calls: TaskTracker,
        recorded: Arc<Notify>,
    ) -> Self {
        Self { env, parts, calls, recorded }
    }

    async fn pause(&self) {
        self.env.clock.sleep_until(self.env.now().after(STORE_PAUSE)).await;
    }

    /// Begins what is due, as far as there are places. Returns when to look again.
    async fn begin_due(
        self: &Arc<Self>,
        running: &mut FuturesUnordered<BoxFuture<'static, HomeId>>,
        homes: &mut HashSet<HomeId>,
    ) -> Timestamp {
        let now = self.env.now();
        let latest = now.after(SLEEP_MAX);
        if self.env.is_stopping() || homes.len() >= HOMES_AT_ONCE_MAX {
            return latest;
        }
        // Those under way may still be due.
        let (due, next) = match self.read(now, HOMES_AT_ONCE_MAX + homes.len()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "failed to read what is to be said on issues; retrying");
                return now.after(STORE_PAUSE);
            }
        };
        for row in due {
            if homes.len() >= HOMES_AT_ONCE_MAX || !homes.insert(row.home) {
                continue;
            }
            let home = row.home;
            let (done, ended) = oneshot::channel();
            let worker = Arc::clone(self);
            self.env.spawner.io(Box::pin(async move {
                worker.carry_out(row).await;
                // Without a receiver the worker has ended.
                let _ = done.send(());
            }));
            running.push(Box::pin(async move {
                // An error is a panic in there: what was asked is looked for after the next start.
                let _ = ended.await;
                home
            }));
        }
        next.map_or(latest, |next| next.min(latest))
    }

    async fn read(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<(Vec<GithubRow>, Option<Timestamp>), StoreError> {
        let outbox = &self.parts.outbox;
        let due = outbox.github_effects(now, limit).await?;
        Ok((due, outbox.next_github_effect(now).await?))
    }

    /// Carries out one effect and records how that ended, until that is stored.
    async fn carry_out(&self, row: GithubRow) {
        let (home, kind) = (row.home.0, row.effect.kind().as_str());
        let end = match self.attempt(&row).await {
            Ok(end) => end,
            Err(error) => self.answered(&row, error).await,
        };
        let end = self.with_status(&row, end);
        let why = end.reason.as_deref().unwrap_or_default();
        match end.state {
            GithubState::Held | GithubState::GivenUp => {
                tracing::warn!(
                    home,
                    kind,
                    state = end.state.as_str(),
                    why,
                    "something is not said on an issue"
                );
            }
            GithubState::Gone => tracing::info!(home, kind, why, "a comment is gone"),
            GithubState::Due | GithubState::Look if !why.is_empty() => {
                tracing::info!(
                    home,
                    kind,
                    tries = end.tries,
                    why,
                    "what is said on an issue waits"
                );
            }
            GithubState::Due | GithubState::Look | GithubState::Asked | GithubState::Done => {}
        }
        while let Err(error) = self.parts.outbox.end_github(row.id, end.clone()).await {
            tracing::error!(home, kind, %error, "failed to record what became of a call to GitHub");
            if self.env.is_stopping() {
                return;
            }
            self.pause().await;
        }
    }
}
