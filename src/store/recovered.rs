//! The port to what the comparison with GitHub needs: which deliveries are stored, how far each
//! delivery log was compared, and which repositories are known.

use std::collections::HashSet;

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::types::{DeliveryId, Repository, Timestamp};

/// A repository of which an issue is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRepository {
    /// Its name, as the newest issue of it has it.
    pub name: Repository,
    /// GitHub's numeric id.
    pub id: u64,
    /// The App's installation that last sent a delivery about one of its issues.
    pub installation: Option<u64>,
    /// Whether it has a live sandbox.
    pub is_live: bool,
}

/// What is durable of the comparison with GitHub. Durable as everything else in the store.
#[async_trait]
pub trait RecoveryStore: Send + Sync + 'static {
    /// Which of these deliveries are stored, in whatever state.
    ///
    /// # Errors
    /// [`StoreError`], as for all reads below.
    async fn stored_deliveries(
        &self,
        ids: &[DeliveryId],
    ) -> Result<HashSet<DeliveryId>, StoreError>;

    /// Up to when a delivery log was compared, by GitHub's clock; `None` if it never was.
    async fn compared_until(&self, source: &str) -> Result<Option<Timestamp>, StoreError>;

    /// A delivery log was compared up to this time.
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias; the same for all writes below.
    async fn put_compared_until(&self, source: &str, until: Timestamp) -> Result<(), CommitError>;

    /// The repositories of stored issues, by id.
    async fn stored_repositories(&self) -> Result<Vec<StoredRepository>, StoreError>;

    /// The webhooks that sent something here: the repository's id and the webhook's.
    async fn repository_hooks(&self) -> Result<Vec<(u64, u64)>, StoreError>;

    /// A repository's webhook, in place of the one that was known.
    async fn put_repository_hook(&self, repository_id: u64, hook: u64) -> Result<(), CommitError>;
}
