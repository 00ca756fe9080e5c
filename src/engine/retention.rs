//! Retention: old deliveries, timeline rows and records of deleted sandboxes are removed once an hour.
//!
//! The store removes them in small batches between other writes. Here, too, there is a pause after
//! every thousand rows, so that a server which finds a year of them (retention was set for the first
//! time) removes them in the background and no delivery waits for that.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{CommitError, PruneAsk};

use super::environment::Environment;

/// The pause between two rounds. What is kept for days may be an hour older.
const ROUND_EVERY: Duration = Duration::from_secs(3600);
/// The pause before the first round: a server that starts has more urgent work.
const FIRST_AFTER: Duration = Duration::from_secs(60);
/// How many rows are asked for at once.
const ROWS_MAX: usize = 1_024;
/// The pause after so many.
const ROWS_PAUSE: Duration = Duration::from_millis(50);

/// How long things are kept; `None` for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Deliveries. The store keeps them for three days at least.
    pub deliveries: Option<Duration>,
    /// Rows of timelines.
    pub timeline: Option<Duration>,
    /// Records of deleted sandboxes, from their deletion on.
    pub deleted: Option<Duration>,
}

/// Removes what is too old, for ever.
pub(super) async fn run(env: Arc<Environment>, retention: Retention) {
    if retention == Retention::default() {
        return;
    }
    env.clock.sleep_until(env.now().after(FIRST_AFTER)).await;
    loop {
        match round(&env, retention).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "removed old deliveries, timeline rows and records"),
            Err(error) => {
                tracing::warn!(%error, "failed to remove all old deliveries, timeline rows and \
                                        records; retrying in an hour");
            }
        }
        env.clock.sleep_until(env.now().after(ROUND_EVERY)).await;
    }
}

/// Removes all that is too old now; returns how many rows.
pub(super) async fn round(env: &Environment, retention: Retention) -> Result<u64, CommitError> {
    let mut rows = 0;
    loop {
        let now = env.now();
        let before = |age: Option<Duration>| age.map(|age| now.before(age));
        let ask = PruneAsk {
            now,
            deliveries_before: before(retention.deliveries),
            timeline_before: before(retention.timeline),
            deleted_before: before(retention.deleted),
            limit: ROWS_MAX,
        };
        let removed = env.store.prune(ask).await?;
        rows += removed;
        if removed < ROWS_MAX as u64 || env.is_stopping() {
            return Ok(rows);
        }
        env.clock.sleep_until(env.now().after(ROWS_PAUSE)).await;
    }
}
