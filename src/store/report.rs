//! The port to what happened over time, counted: what the overview draws.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::types::{AccountName, Phase, Timestamp};

/// Rows that one report looks at; of more the oldest are left out.
pub const ROWS_MAX: usize = 500_000;

/// Counts what is on record. Reads only; a report may take as long as its rows need, so it is not
/// asked for on a thread that others wait for.
#[async_trait]
pub trait Reports: Send + Sync + 'static {
    /// What happened in each of some equally long spans of time.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn activity(
        &self,
        account: &AccountName,
        ask: ActivityAsk,
    ) -> Result<Activity, StoreError>;
}

/// Which spans of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityAsk {
    /// When the first one begins.
    pub since: Timestamp,
    /// How long each is; at least a millisecond.
    pub span: Duration,
    /// How many there are.
    pub count: usize,
}

impl ActivityAsk {
    /// The span that a time falls in; `None` before the first. What is later than the last counts
    /// as being in it.
    pub fn span_of(&self, at: Timestamp) -> Option<usize> {
        let after = at.unix_ms() - self.since.unix_ms();
        let span_ms = i64::try_from(self.span.as_millis()).unwrap_or(i64::MAX).max(1);
        let index = usize::try_from(after.div_euclid(span_ms)).ok()?;
        Some(index.min(self.count.checked_sub(1)?))
    }
}

/// What happened, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// How many live sandboxes are in each phase at that moment.
    pub now: Vec<(Phase, u64)>,
    /// What happened in each span.
    pub spans: Vec<SpanActivity>,
    /// Whether there was more than [`ROWS_MAX`], so that the first spans are not whole.
    pub is_cut: bool,
}

/// What happened in one span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanActivity {
    /// How many more sandboxes came into each phase than left it, in the order of [`Phase::ALL`].
    pub gains: [i64; Phase::ALL.len()],
    /// How long the creates took that ended well in it, the shortest first.
    pub creates: Vec<Duration>,
    /// Deliveries that had an effect.
    pub accepted: u64,
    /// Deliveries that had none.
    pub ignored: u64,
    /// Deliveries that are pending or were set aside.
    pub unfinished: u64,
}
