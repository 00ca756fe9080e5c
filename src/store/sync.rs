//! The port to syncs: what was last pushed from or pulled into a sandbox's workspace.

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::types::{AccountName, SandboxId, SyncDirection, SyncStats, SyncVersion, Timestamp};

/// The last sync of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRow {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The version that was pushed or pulled.
    pub version: SyncVersion,
    /// Which way.
    pub direction: SyncDirection,
    /// When it ended.
    pub synced_at: Timestamp,
    /// What it did.
    pub stats: SyncStats,
}

/// The last syncs of sandboxes. Durable as everything else in the store.
#[async_trait]
pub trait SyncStore: Send + Sync + 'static {
    /// A sandbox's last sync.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn last_sync(&self, sandbox: &SandboxId) -> Result<Option<SyncRow>, StoreError>;

    /// The sandboxes with a sync that still have a record, live or deleted, with their accounts: in the
    /// order of their ids from behind `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn synced_sandboxes(
        &self,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<(AccountName, SandboxId)>, StoreError>;

    /// Keeps a sync, in place of the sandbox's one before.
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias.
    async fn put_sync(&self, row: SyncRow) -> Result<(), CommitError>;
}
