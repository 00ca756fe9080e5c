//! Deliveries that concern many issues: of a repository, or of an App's installation.
//!
//! Such a delivery is stored as pending and answered. Then it is applied to one issue after the other,
//! through their actors, so that it falls in line with everything else that happens to them.
//!
//! # Guarantees
//! - An acknowledged delivery is applied, or set aside with a reason: its progress is durable, and
//!   resumes after a restart.
//! - An issue to which it cannot be applied holds up neither the rest of the delivery nor other
//!   deliveries. It is retried, and after three tries the delivery is set aside with the error.
//!
//! # Races that are accepted
//! - Progress is stored once a page, and only up to the first issue that failed. After a crash, stops
//!   of stopped sandboxes and known names are repeated; a sandbox that was started again in these
//!   moments is stopped a second time.
//! - An issue that is transferred out of the repository and back while a delivery is being applied
//!   may be left out: it was not there when the issues were listed. Its next delivery says what it
//!   is called now.
//! - The counts in the reason are kept in memory: after a restart the reason says so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;

use crate::issue::{FanOut, IssueEvent, Reply, Scope, ScopeEvent};
use crate::sabotage::{Bug, on};
use crate::store::{
    CommitError, DeliveryRow, DeliveryState, PENDING_TRIES_MAX, PendingRow, StoreError, Write,
};
use crate::types::{DeliveryId, HomeId, Timestamp};

use super::actors::{Actors, unfitting};
use super::api::{Delivered, DeliveredStatus, EngineError};
use super::environment::Environment;
use super::holds::Holds;
use super::mailbox::Activation;

/// To how many issues it is applied at once, and after how many the progress is stored.
const PAGE: usize = 32;
/// How many deliveries are looked at in one round.
const ROUND: usize = 32;
/// How long after a failed try the next one begins, times the number of tries.
const TRY_PAUSE: Duration = Duration::from_secs(2);
/// How long after the store failed it is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Takes in deliveries that concern many issues, and applies them.
pub(super) struct FanOuts {
    env: Arc<Environment>,
    holds: Arc<Holds>,
    actors: Actors,
    /// A delivery was stored.
    wake: Notify,
}

impl FanOuts {
    /// By way of these actors.
    pub fn new(env: Arc<Environment>, holds: Arc<Holds>, actors: Actors) -> Self {
        Self { env, holds, actors, wake: Notify::new() }
    }

    /// Takes in a delivery that concerns many issues. Durable when it returns; applied after that.
    pub async fn deliver(&self, fan_out: FanOut) -> Result<Delivered, EngineError> {
        let env = &self.env;
        if env.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let id = fan_out.delivery.clone();
        let (stored, reason) = match &fan_out.news {
            // Nothing changes for an issue, so it is applied to none.
            ScopeEvent::Noted(what) => {
                let reason = what.clone();
                (env.store.commit(recorded(&fan_out, &reason)).await, reason)
            }
            ScopeEvent::Renamed { .. } | ScopeEvent::Stop(_) | ScopeEvent::LabelGone => {
                if let ScopeEvent::Renamed { repository, formerly: Some(formerly), .. } =
                    &fan_out.news
                {
                    self.holds.follow(formerly, repository).await?;
                }
                let stored = env.store.put_pending(fan_out).await;
                self.wake.notify_one();
                (stored, "it is being applied to one issue after the other".to_owned())
            }
        };
        let accepted =
            |reason| Delivered { status: DeliveredStatus::Accepted, issue_id: None, reason };
        match stored {
            Ok(()) => Ok(accepted(reason)),
            Err(CommitError::DuplicateDelivery) => {
                let row = env.store.delivery(&id).await?;
                let row = row.ok_or_else(|| {
                    EngineError::StoreFailed("a delivery is stored but was not found".into())
                })?;
                match row.state {
                    DeliveryState::Pending => Ok(accepted(reason)),
                    DeliveryState::Done | DeliveryState::SetAside => {
                        Ok(Delivered::duplicate(None, &row))
                    }
                }
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn recorded(fan_out: &FanOut, reason: &str) -> Write {
    Write {
        delivery: Some(DeliveryRow {
            account: fan_out.account.clone(),
            id: fan_out.delivery.clone(),
            received_at: fan_out.received_at,
            recovered: fan_out.recovered,
            event: fan_out.event.clone(),
            action: fan_out.action.clone(),
            home: None,
            applied: true,
            reason: reason.to_owned(),
            state: DeliveryState::Done,
        }),
        ..Write::default()
    }
}

/// Applies what is pending, for ever.
pub(super) async fn run(fan_outs: Arc<FanOuts>) {
    let env = &fan_outs.env;
    let mut under_way = HashMap::new();
    while !env.is_stopping() {
        let wake = match round(&fan_outs, &mut under_way).await {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(%error, "the store failed while stored deliveries were applied to their issues; retrying");
                Some(env.now().after(STORE_PAUSE))
            }
        };
        // If one was stored meanwhile, this returns at once.
        match wake {
            None => fan_outs.wake.notified().await,
            Some(at) => tokio::select! {
                biased;
                () = fan_outs.wake.notified() => {}
                () = env.clock.sleep_until(at) => {}
            },
        }
    }
}

/// Why a round could not go on.
#[derive(Debug, thiserror::Error)]
enum Halt {
    #[error(transparent)]
    Read(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] CommitError),
}

/// Goes through what is pending. Returns when the next try is due; `None` if nothing waits.
async fn round(
    parts: &FanOuts,
    under_way: &mut HashMap<DeliveryId, FanOutProgress>,
) -> Result<Option<Timestamp>, Halt> {
    let env = &parts.env;
    let rows = env.store.pending(ROUND).await?;
    under_way.retain(|id, _| rows.iter().any(|row| row.fan_out.delivery == *id));
    let is_full = rows.len() == ROUND;
    let mut went_on = false;
    let mut next: Option<Timestamp> = None;
    for row in rows {
        let id = row.fan_out.delivery.clone();
        let progress = under_way.entry(id.clone()).or_insert_with(|| FanOutProgress::of(&row));
        if progress.not_before.is_none_or(|at| at <= env.now()) {
            if env.is_stopping() {
                return Ok(None);
            }
            progress.go_on(parts, row).await?;
            went_on = true;
        }
        match progress.not_before {
            Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
            None => {
                under_way.remove(&id);
            }
        }
    }
    // Behind a full round there may be more. If all of the round waits, so do they.
    Ok(if is_full && went_on { Some(env.now()) } else { next })
}

/// How far a delivery is.
struct FanOutProgress {
    /// The last home that it was applied to, or could not be.
    after: Option<HomeId>,
    /// Whether there are homes behind it.
    more: bool,
    /// Homes to which it could not be applied, with the reason.
    failed: Vec<(HomeId, String)>,
    /// To how many homes it was applied, and for how many that changed something.
    applied: u64,
    changed: u64,
    /// Whether it was applied to some before this server started.
    resumed: bool,
    /// When the next try is due; `None` while there is something to do now, and at the end.
    not_before: Option<Timestamp>,
}

impl FanOutProgress {
    const fn of(row: &PendingRow) -> Self {
        Self {
            after: row.done_to,
            more: true,
            failed: Vec::new(),
            applied: 0,
            changed: 0,
            resumed: row.done_to.is_some(),
            not_before: None,
        }
    }

    /// Applies it to the homes that are left, and stores the result.
    async fn go_on(&mut self, parts: &FanOuts, row: PendingRow) -> Result<(), Halt> {
        let store = &parts.env.store;
        let PendingRow { fan_out, tries, .. } = row;
        let again = std::mem::take(&mut self.failed);
        for some in again.chunks(PAGE) {
            self.apply(parts, &fan_out, some.iter().map(|(home, _)| *home)).await;
        }
        while self.more {
            let page = store.homes(&fan_out.scope, self.after, PAGE).await?;
            let Some(last) = page.last().copied() else {
                self.more = false;
                break;
            };
            let skipped = usize::from(on(Bug::FanOutSkips));
            self.apply(parts, &fan_out, page.into_iter().skip(skipped)).await;
            self.after = Some(last);
            if parts.env.is_stopping() {
                // It resumes after the restart.
                self.not_before = Some(parts.env.now());
                return Ok(());
            }
            if self.failed.is_empty() {
                store.advance_pending(&fan_out.delivery, last).await?;
            }
        }
        let Some((home, error)) = self.failed.first() else {
            let reason = self.reason(&fan_out);
            self.not_before = None;
            return Ok(store.finish_pending(&fan_out.delivery, self.changed > 0, reason).await?);
        };
        if parts.env.is_stopping() {
            // Not applied because the server shuts down: that is no failed try.
            self.not_before = Some(parts.env.now());
            return Ok(());
        }
        let (home, left) = (home.0, self.failed.len());
        tracing::error!(delivery = %fan_out.delivery, home, left, error, "failed to apply a stored delivery to some of its issues");
        let why = format!("cannot apply it to {left} issues, first home {home}: {error}");
        store.fail_pending(&fan_out.delivery, why).await?;
        let tries = tries + 1;
        let at = parts.env.now().after(TRY_PAUSE * tries);
        self.not_before = (tries < PENDING_TRIES_MAX).then_some(at);
        Ok(())
    }

    async fn apply(
        &mut self,
        parts: &FanOuts,
        fan_out: &FanOut,
        homes: impl Iterator<Item = HomeId>,
    ) {
        let all = homes.map(|home| async move { (home, apply(parts, fan_out, home).await) });
        for (home, result) in join_all(all).await {
            match result {
                Ok(changed) => {
                    self.applied += 1;
                    self.changed += u64::from(changed);
                }
                Err(error) => self.failed.push((home, error.to_string())),
            }
        }
    }

    fn reason(&self, fan_out: &FanOut) -> String {
        let (applied, changed) = (self.applied, self.changed);
        let what = match &fan_out.news {
            ScopeEvent::Stop(why) => {
                format!("{why}: stopped {changed} sandboxes of {applied} issues")
            }
            ScopeEvent::Renamed { repository, .. } => {
                format!("it is {repository} now: {changed} of {applied} issues are there")
            }
            ScopeEvent::LabelGone => {
                format!("the trigger label has another name: {changed} of {applied} issues had it")
            }
            ScopeEvent::Noted(what) => what.clone(),
        };
        let resumed =
            if self.resumed { "; issues from before a restart are not counted" } else { "" };
        let whose = match &fan_out.scope {
            Scope::Repositories(_) => "",
            Scope::Installation(_) => "; only issues known through this installation",
        };
        format!("{what}{resumed}{whose}")
    }
}

/// Applies it to one issue. Returns whether that changed something.
async fn apply(parts: &FanOuts, fan_out: &FanOut, home: HomeId) -> Result<bool, EngineError> {
    let mut attempts = parts.actors.retry_limit()?;
    loop {
        let (news, delivery) = (fan_out.news.clone(), fan_out.delivery.clone());
        let event = IssueEvent::ScopeEvent { news, delivery };
        let attempt = parts.actors.ask_home(home, Activation::default(), event).await;
        let Some(answered) = attempts.judge(attempt)? else { continue };
        return match answered.reply {
            Reply::Delivered(result) => Ok(result.applied),
            // The issue has another home now, which gets the delivery for itself.
            _ if answered.moved => Ok(false),
            reply => Err(unfitting(&reply)),
        };
    }
}
