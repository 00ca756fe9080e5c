//! One comparison of a delivery log of GitHub's with the deliveries that are stored.
//!
//! # Guarantees
//! - By GUID. What GitHub believes of a delivery's fate is not asked: what something in between
//!   answered 200, what was badly signed and what we turned away all lack here, and are taken in.
//! - Oldest first, and each once: the store knows which GUIDs it has.
//! - A comparison that ends early, by an error or a crash, is repeated from where it began. What it
//!   took in by then is not read again.
//! - Memory is bounded: one page of the log, and the cursors of the pages on which something lacks.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::recovery::{RecoveryError, RecoveryParts};
use super::sources::passes;
use super::{DeliverySourceKind, IntakeError, ReceivedDelivery};
use crate::engine::EngineError;
use crate::github::api::{DeliverySource, GitHubError, LoggedDelivery, PageCursor};
use crate::github::webhook::can_have_effect;
use crate::types::{DeliveryId, Timestamp};

/// How far behind the end of the last comparison the next one begins: deliveries may come into the
/// log late, and clocks differ.
const LOOK_BACK: Duration = Duration::from_secs(600);
/// How often GitHub is asked to send a delivery again whose payload it does not have any more.
const RESENDS_MAX: u32 = 3;
/// Most deliveries that are remembered for that, and for logging each error once.
const REMEMBERED_MAX: usize = 1_000;
/// After so many failures one after the other a comparison ends.
const FAILURES_MAX: u32 = 3;

/// Compares delivery logs.
#[derive(Default)]
pub(super) struct LogReader {
    /// How often each delivery without a payload was sent again.
    resent: HashMap<DeliveryId, u32>,
    /// Deliveries whose error was logged.
    failed: HashSet<DeliveryId>,
    /// When the next payload may be read.
    next_read: Option<Timestamp>,
}

/// What lacks of a delivery log.
pub(super) struct LogSurvey {
    /// Of its first page, which changes while GitHub sends: kept.
    newest: Vec<LoggedDelivery>,
    /// The other pages on which something lacks, newest first: read again.
    older: Vec<PageCursor>,
    /// How many payloads are to be read.
    pub payloads: usize,
    /// What was sent before this is not looked at.
    back_to: Timestamp,
    /// Up to when it is compared then.
    until: Timestamp,
}

/// The name under which it is stored how far a log was compared.
fn source_key(source: &DeliverySource) -> String {
    match source {
        DeliverySource::App => "app".to_owned(),
        DeliverySource::Hook { hook_id, .. } => format!("hook:{hook_id}"),
    }
}

impl LogReader {
    /// Finds out what lacks here of a delivery log.
    pub async fn survey(
        &self,
        parts: &RecoveryParts,
        source: &DeliverySource,
    ) -> Result<LogSurvey, RecoveryError> {
        let until = parts.api.github_now();
        let compared = parts.rows.compared_until(&source_key(source)).await?;
        let back_to = compared.unwrap_or(until).before(LOOK_BACK);
        let (newest, older) = (Vec::new(), Vec::new());
        let mut survey = LogSurvey { newest, older, payloads: 0, back_to, until };
        let mut cursor = PageCursor::FIRST;
        loop {
            let page = parts.api.delivery_log(source, &cursor).await?;
            let is_last = page.deliveries.iter().any(|one| one.delivered_at < back_to);
            let lacking = lacking(parts, page.deliveries, back_to).await?;
            survey.payloads += lacking.iter().filter(|one| matters(one).is_ok()).count();
            if cursor == PageCursor::FIRST {
                survey.newest = lacking;
            } else if !lacking.is_empty() {
                survey.older.push(cursor);
            }
            match page.next {
                Some(next) if !is_last => cursor = next,
                Some(_) | None => return Ok(survey),
            }
        }
    }

    /// Takes in what lacks, oldest first, and records how far the log is compared.
    pub async fn recover(
        &mut self,
        parts: &RecoveryParts,
        source: &DeliverySource,
        survey: LogSurvey,
    ) -> Result<(), RecoveryError> {
        let mut until = survey.until;
        for cursor in survey.older.iter().rev() {
            let page = parts.api.delivery_log(source, cursor).await?;
            let lacking = lacking(parts, page.deliveries, survey.back_to).await?;
            until = until.min(self.take_page(parts, source, lacking).await?.unwrap_or(until));
        }
        let failed_at = self.take_page(parts, source, survey.newest).await?;
        until = until.min(failed_at.unwrap_or(until));
        parts.rows.put_compared_until(&source_key(source), until).await?;
        Ok(())
    }

    /// Takes in the deliveries of a page. Returns when the first was sent that could not be.
    async fn take_page(
        &mut self,
        parts: &RecoveryParts,
        source: &DeliverySource,
        lacking: Vec<LoggedDelivery>,
    ) -> Result<Option<Timestamp>, RecoveryError> {
        let (mut failed_at, mut in_a_row) = (None, 0);
        for logged in lacking {
            let taken = self.take(parts, source, &logged).await;
            in_a_row = if taken.is_ok() { 0 } else { in_a_row + 1 };
            if let Err(error) = taken {
                if is_of_all(&error) || in_a_row == FAILURES_MAX {
                    return Err(error);
                }
                failed_at = failed_at.or(Some(logged.delivered_at));
                if self.failed.len() < REMEMBERED_MAX && self.failed.insert(logged.guid.clone()) {
                    tracing::error!(delivery = %logged.guid, %error, "cannot take in a delivery that was read from GitHub; trying again");
                }
            }
        }
        Ok(failed_at)
    }

    async fn take(
        &mut self,
        parts: &RecoveryParts,
        source: &DeliverySource,
        logged: &LoggedDelivery,
    ) -> Result<(), RecoveryError> {
        let now = parts.clock.now();
        let (id, what) = (logged.guid.clone(), event_of(logged));
        if let Err(reason) = matters(logged) {
            parts.intake.record_unread(id, now, what, reason).await?;
            return Ok(());
        }
        self.wait_for_turn(parts).await;
        let stored = match parts.api.delivery(source, logged.id).await {
            Ok(stored) => stored,
            // The log forgot it in between.
            Err(GitHubError::NotFound(_) | GitHubError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Some(json) = stored.payload else {
            return self.resend(parts, source, logged).await;
        };
        let received = ReceivedDelivery {
            id: id.clone(),
            event: &logged.event,
            json: json.as_bytes(),
            received_at: parts.clock.now(),
            source: DeliverySourceKind::Recovered,
        };
        match parts.intake.take(received).await {
            Ok(_) => Ok(()),
            Err(IntakeError::Engine(error)) => Err(error.into()),
            // Recorded, so that it is not read again.
            Err(IntakeError::Malformed(malformed)) => {
                let reason = malformed.to_string();
                parts.intake.record_unread(id, now, what, reason).await?;
                Ok(())
            }
        }
    }

    /// Has GitHub send a delivery again, a few times.
    async fn resend(
        &mut self,
        parts: &RecoveryParts,
        source: &DeliverySource,
        logged: &LoggedDelivery,
    ) -> Result<(), RecoveryError> {
        let delivery = &logged.guid;
        if self.resent.len() >= REMEMBERED_MAX && !self.resent.contains_key(delivery) {
            self.resent.clear();
        }
        let times = self.resent.entry(delivery.clone()).or_default();
        if *times < RESENDS_MAX {
            *times += 1;
            tracing::info!(%delivery, times, "GitHub does not have the payload of a delivery any more; it sends it again");
            match parts.api.redeliver(source, logged.id).await {
                Ok(()) => {}
                Err(error) if passes(&error) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%delivery, %error, "cannot have GitHub send a delivery again")
                }
            }
        }
        Ok(())
    }

    /// Waits until the next payload may be read.
    async fn wait_for_turn(&mut self, parts: &RecoveryParts) {
        let now = parts.clock.now();
        let at = self.next_read.map_or(now, |at| at.max(now));
        parts.clock.sleep_until(at).await;
        self.next_read = Some(at.after(parts.pace.payload_pause));
    }
}

/// The deliveries of a page that are not stored, oldest first, each GUID once: by its newest attempt.
async fn lacking(
    parts: &RecoveryParts,
    page: Vec<LoggedDelivery>,
    back_to: Timestamp,
) -> Result<Vec<LoggedDelivery>, RecoveryError> {
    let mut seen = HashSet::new();
    let recent = page.into_iter().filter(|one| one.delivered_at >= back_to);
    let mut once: Vec<_> = recent.filter(|one| seen.insert(one.guid.clone())).collect();
    let ids: Vec<DeliveryId> = once.iter().map(|one| one.guid.clone()).collect();
    let stored = parts.rows.stored_deliveries(&ids).await?;
    once.retain(|one| !stored.contains(&one.guid));
    once.reverse();
    Ok(once)
}

fn event_of(logged: &LoggedDelivery) -> (&str, &str) {
    (&logged.event, logged.action.as_deref().unwrap_or_default())
}

/// Whether a delivery can have an effect; else why not.
fn matters(logged: &LoggedDelivery) -> Result<(), String> {
    let (event, action) = event_of(logged);
    can_have_effect(event, action)
}

/// Whether an error is none of one delivery alone: the next one would fail, too.
const fn is_of_all(error: &RecoveryError) -> bool {
    match error {
        RecoveryError::GitHub(error) => matches!(
            error,
            GitHubError::Limited { .. }
                | GitHubError::Unreachable(_)
                | GitHubError::Unauthorized(_)
        ),
        RecoveryError::Engine(error) => matches!(
            error,
            EngineError::ShuttingDown | EngineError::StoreFailed(_) | EngineError::Overloaded
        ),
        RecoveryError::Read(_) | RecoveryError::Write(_) => true,
    }
}
