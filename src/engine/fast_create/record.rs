//! The record of a fast create while it is being written.

use std::time::Duration;

use futures_util::future::{BoxFuture, Shared};
use tokio::sync::oneshot;

use crate::store::CommitError;
use crate::types::{AccountName, Alias, Timestamp};

/// How long a record may take to become durable, counted from when its create was handed in.
pub(in crate::engine) const RECORD_TIME_MAX: Duration = Duration::from_secs(30);

/// How a commit ends, for all that wait for it.
pub(in crate::engine) type CommitEnd = Shared<BoxFuture<'static, Result<(), CommitError>>>;

/// A record that is being written.
pub(in crate::engine) struct PendingRecord {
    /// How that ends.
    pub end: CommitEnd,
    /// By when it must be durable.
    pub by: Timestamp,
    /// The names that the record claims, and in which account: no other home's until this is over.
    pub account: AccountName,
    pub names: Vec<Alias>,
    /// Fires once the object of a record that was not durable in time is destroyed; dropped if the
    /// record was in time, or refused.
    pub too_slow: oneshot::Sender<()>,
}
