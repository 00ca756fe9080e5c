//! The recovery worker: finds what GitHub sent and what did not arrive.
//!
//! Four loops: the delivery logs every few minutes (every few seconds where nothing else brings
//! deliveries, and soon after one was turned away), the label check at the start and every hour,
//! the issues of live sandboxes, and issues of which two acts are of one second.
//!
//! # Guarantees
//! - Every GUID that GitHub's log holds is stored here after one comparison, and applied once.
//! - While GitHub limits us, nothing is asked. An error is logged once, and what failed is repeated.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Mutex, Notify};

use super::delivery_log::LogReader;
use super::issue_check::IssueCheck;
use super::known::{KnownRepository, known_repositories};
use super::label_check::LabelCheck;
use super::sources::{FoundSources, LogSources, passes};
use super::synthetic::SyntheticDelivery;
use super::ties::{SETTLE_PAUSE, settle};
use super::{DeliverySourceKind, Intake, IntakeError, ReceivedDelivery};
use crate::clock::Clock;
use crate::config::IntakeMode;
use crate::engine::EngineError;
use crate::github::api::{DeliverySource, GitHubApi, GitHubError};
use crate::github::permissions::RepositoryPermissions;
use crate::store::recovered::RecoveryStore;
use crate::store::{CommitError, Store, StoreError};
use crate::types::Timestamp;

/// How long after a delivery was turned away the log is read: it is in there once GitHub has our
/// answer.
const MISSED_PAUSE: Duration = Duration::from_secs(2);
/// How long at least is between two comparisons because of deliveries that were turned away.
const MISSED_EVERY: Duration = Duration::from_secs(15);
/// How long after an error the next try begins.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// How long the first label check waits for the first comparison.
const FIRST_COMPARISON: Duration = Duration::from_secs(20);
/// How often every repository is checked.
const LABELS_EVERY: Duration = Duration::from_secs(3_600);
/// How many repositories are checked at once at the start; the others within the hour.
const FIRST_REPOSITORIES: usize = 300;
/// How often issues of live sandboxes are looked through.
const ISSUES_EVERY: Duration = Duration::from_secs(60);

/// What recovery needs.
pub struct RecoveryParts {
    /// Where deliveries go.
    pub intake: Intake,
    /// GitHub.
    pub api: Arc<dyn GitHubApi>,
    /// What GitHub says of people.
    pub permissions: Arc<RepositoryPermissions>,
    /// The issues.
    pub store: Arc<dyn Store>,
    /// What is durable of recovery.
    pub rows: Arc<dyn RecoveryStore>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How deliveries come in.
    pub mode: IntakeMode,
    /// Our address, if it is configured.
    pub public_url: Option<String>,
    /// The address of GitHub's pages.
    pub web_url: String,
    /// How fast.
    pub pace: RecoveryPace,
}

/// How fast GitHub is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPace {
    /// How long is between two comparisons of the delivery logs.
    pub compare_every: Duration,
    /// How long is between two payloads, or two repositories of a label check.
    pub payload_pause: Duration,
    /// Where more payloads than this lack, the label check comes first.
    pub labels_first_above: usize,
}

impl RecoveryPace {
    /// That of a mode: at most 600 payloads a minute, where GitHub's secondary limit is 900.
    pub const fn of(mode: IntakeMode) -> Self {
        let seconds = match mode {
            IntakeMode::Webhook => 300,
            IntakeMode::Deliveries => 15,
        };
        Self {
            compare_every: Duration::from_secs(seconds),
            payload_pause: Duration::from_millis(100),
            labels_first_above: 2_000,
        }
    }
}

/// Why something was not recovered yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoveryError {
    #[error(transparent)]
    GitHub(#[from] GitHubError),
    #[error(transparent)]
    Read(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] CommitError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl RecoveryError {
    /// When to try again.
    fn retry_at(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::GitHub(GitHubError::Limited { until }) => (*until).max(now),
            Self::GitHub(_) | Self::Read(_) | Self::Write(_) | Self::Engine(_) => {
                now.after(RETRY_PAUSE)
            }
        }
    }
}

impl RecoveryParts {
    /// Takes in a delivery that GitHub did not send.
    pub(super) async fn take_synthetic(
        &self,
        delivery: &SyntheticDelivery<'_>,
    ) -> Result<(), RecoveryError> {
        let Some(payload) = delivery.payload().as_ref().map(Value::to_string) else {
            return Ok(());
        };
        let received = ReceivedDelivery {
            id: delivery.id(),
            event: "issues",
            json: payload.as_bytes(),
            received_at: self.clock.now(),
            source: DeliverySourceKind::Recovered,
        };
        match self.intake.take(received).await {
            Ok(_) => Ok(()),
            Err(IntakeError::Engine(error)) => Err(error.into()),
            Err(IntakeError::Malformed(malformed)) => {
                tracing::error!(%malformed, "cannot read what GitHub says of an issue");
                Ok(())
            }
        }
    }
}

/// Recovers deliveries that did not arrive.
pub struct RecoveryWorker {
    pub(super) parts: RecoveryParts,
    log: Mutex<(LogSources, LogReader)>,
    labels: Mutex<LabelCheck>,
    issues: Mutex<IssueCheck>,
    first_comparison: Notify,
}

impl RecoveryWorker {
    /// A worker. It does nothing until it runs.
    pub fn new(parts: RecoveryParts) -> Self {
        parts.intake.signals.settle_ties();
        Self {
            parts,
            log: Mutex::default(),
            labels: Mutex::default(),
            issues: Mutex::default(),
            first_comparison: Notify::new(),
        }
    }

    /// Recovers for ever.
    pub async fn run(&self) {
        tokio::join!(self.watch_log(), self.watch_labels(), self.watch_issues(), self.watch_ties());
    }

    async fn watch_log(&self) {
        let RecoveryParts { clock, intake, pace, .. } = &self.parts;
        let mut trouble =
            RecoveryTrouble::new("cannot compare GitHub's delivery log with what arrived");
        loop {
            let began = clock.now();
            let next = match self.compare().await {
                Ok(at_least) => {
                    trouble.over();
                    began.after(pace.compare_every.max(at_least))
                }
                Err(error) => trouble.again_at(&error, clock.now()),
            };
            self.first_comparison.notify_one();
            tokio::select! {
                () = clock.sleep_until(next) => {}
                () = intake.missed() => {
                    let soon = clock.now().after(MISSED_PAUSE).max(began.after(MISSED_EVERY));
                    clock.sleep_until(soon.min(next)).await;
                }
            }
        }
    }

    /// Compares every delivery log once. Returns how long is to be between two comparisons at least.
    pub(super) async fn compare(&self) -> Result<Duration, RecoveryError> {
        let parts = &self.parts;
        let mut log = self.log.lock().await;
        let (sources, reader) = &mut *log;
        let FoundSources { sources: found, not_before } = sources.find(parts).await?;
        for source in found {
            if sources.is_paused(&source, parts.clock.now()) {
                continue;
            }
            match self.compare_one(reader, &source).await {
                Ok(()) => {}
                Err(RecoveryError::GitHub(error))
                    if !passes(&error) && source != DeliverySource::App =>
                {
                    let DeliverySource::Hook { target, hook_id } = &source else { continue };
                    tracing::warn!(repository = %target.name, hook_id, %error, "cannot read the delivery log of a repository's webhook; trying again in an hour");
                    sources.pause(target.id, parts.clock.now());
                }
                Err(error) => return Err(error),
            }
        }
        parts.intake.signals.compared(parts.clock.now());
        Ok(not_before)
    }

    async fn compare_one(
        &self,
        reader: &mut LogReader,
        source: &DeliverySource,
    ) -> Result<(), RecoveryError> {
        let parts = &self.parts;
        let survey = reader.survey(parts, source).await?;
        if survey.payloads > 0 {
            tracing::info!(
                lacking = survey.payloads,
                "deliveries did not arrive; reading them from GitHub"
            );
        }
        // What is wanted now is there within minutes, and what is read then changes it.
        if survey.payloads > parts.pace.labels_first_above {
            let all = known_repositories(parts).await?;
            self.check_labels(&all, parts.pace.payload_pause).await;
        }
        reader.recover(parts, source, survey).await
    }

    async fn watch_labels(&self) {
        let RecoveryParts { clock, intake, pace, .. } = &self.parts;
        if intake.triggers().all().all(|policy| policy.label.is_empty()) {
            return;
        }
        tokio::select! {
            () = self.first_comparison.notified() => {}
            () = clock.sleep_until(clock.now().after(FIRST_COMPARISON)) => {}
        }
        let mut trouble =
            RecoveryTrouble::new("cannot find out which repositories are to be checked");
        let mut is_first = true;
        loop {
            let began = clock.now();
            let next = match known_repositories(&self.parts).await {
                Ok(all) => {
                    trouble.over();
                    let at_once = if is_first { all.len().min(FIRST_REPOSITORIES) } else { 0 };
                    let (now, later) = all.split_at(at_once);
                    self.check_labels(now, pace.payload_pause).await;
                    let count = u32::try_from(later.len()).unwrap_or(u32::MAX).max(1);
                    self.check_labels(later, LABELS_EVERY / count).await;
                    is_first = false;
                    began.after(LABELS_EVERY)
                }
                Err(error) => trouble.again_at(&error, clock.now()),
            };
            clock.sleep_until(next).await;
        }
    }

    /// Checks these repositories, each so long after the one before.
    pub(super) async fn check_labels(&self, repositories: &[KnownRepository], pause: Duration) {
        let clock = &self.parts.clock;
        for known in repositories {
            let began = clock.now();
            while let Err(error) = self.labels.lock().await.check(&self.parts, known).await {
                if let RecoveryError::GitHub(GitHubError::Limited { until }) = error {
                    clock.sleep_until(until).await;
                    continue;
                }
                // The next round tries again.
                if self.labels.lock().await.is_new_error(known, &error) {
                    let name = &known.target.name;
                    tracing::warn!(repository = %name, %error, "cannot check which issues have the trigger label");
                }
                break;
            }
            clock.sleep_until(began.after(pause)).await;
        }
    }

    async fn watch_issues(&self) {
        let clock = &self.parts.clock;
        let mut trouble = RecoveryTrouble::new("cannot read the issues of live sandboxes");
        loop {
            let began = clock.now();
            let next = match self.check_issues().await {
                Ok(()) => {
                    trouble.over();
                    began.after(ISSUES_EVERY)
                }
                Err(error) => trouble.again_at(&error, clock.now()),
            };
            clock.sleep_until(next).await;
        }
    }

    async fn watch_ties(&self) {
        let RecoveryParts { clock, intake, .. } = &self.parts;
        let mut trouble = RecoveryTrouble::new("cannot ask GitHub which of two acts came last");
        loop {
            let changed = intake.signals.changed.next().await;
            clock.sleep_until(changed.at.after(SETTLE_PAUSE)).await;
            while let Err(error) = settle(&self.parts, &changed).await {
                if matches!(&error, RecoveryError::GitHub(error) if !passes(error)) {
                    tracing::debug!(issue.id = changed.id, %error, "cannot ask GitHub how an issue is");
                    break;
                }
                clock.sleep_until(trouble.again_at(&error, clock.now())).await;
            }
            trouble.over();
        }
    }

    /// Reads the issues of live sandboxes of which nothing was heard for a while.
    pub(super) async fn check_issues(&self) -> Result<(), RecoveryError> {
        self.issues.lock().await.check_all(&self.parts).await
    }
}

/// Logs an error once, until it is over.
struct RecoveryTrouble {
    what: &'static str,
    logged: Option<String>,
}

impl RecoveryTrouble {
    const fn new(what: &'static str) -> Self {
        Self { what, logged: None }
    }

    /// Logs the error unless it was the last one. Returns when to try again.
    fn again_at(&mut self, error: &RecoveryError, now: Timestamp) -> Timestamp {
        let at = error.retry_at(now);
        let kind = match error {
            RecoveryError::GitHub(error) => error.as_str(),
            RecoveryError::Read(_) | RecoveryError::Write(_) => "store",
            RecoveryError::Engine(_) => "engine",
        };
        if self.logged.as_deref() != Some(kind) {
            tracing::warn!(%error, "{}; trying again", self.what);
            self.logged = Some(kind.to_owned());
        }
        at
    }

    fn over(&mut self) {
        if self.logged.take().is_some() {
            tracing::info!("over: {}", self.what);
        }
    }
}
