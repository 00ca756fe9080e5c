//! The port to deliveries that wait: GitHub is asked what their sender may do before they are taken in.

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::types::{DeliveryId, Timestamp};

/// A delivery that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDelivery {
    /// Its GUID.
    pub id: DeliveryId,
    /// GitHub's event, such as `issues`.
    pub event: String,
    /// The verified payload, as JSON.
    pub body: Vec<u8>,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Whether it was read from GitHub's delivery log.
    pub recovered: bool,
    /// When GitHub is asked next.
    pub due_at: Timestamp,
    /// How many times GitHub did not answer.
    pub tries: u32,
}

/// Deliveries that wait. Durable as everything else in the store.
#[async_trait]
pub trait WaitingDeliveries: Send + Sync + 'static {
    /// Keeps a delivery until it is taken in.
    ///
    /// # Errors
    /// [`CommitError::DuplicateDelivery`] if it waits already or was taken in before; all others as for
    /// a write.
    async fn put_waiting(&self, delivery: WaitingDelivery) -> Result<(), CommitError>;

    /// Whether a delivery waits.
    ///
    /// # Errors
    /// [`StoreError`], as for all reads below.
    async fn is_waiting(&self, id: &DeliveryId) -> Result<bool, StoreError>;

    /// Deliveries that are due at `now`, the longest due first, at most `limit`.
    async fn waiting(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<WaitingDelivery>, StoreError>;

    /// When the next one is due; `None` if none waits.
    async fn next_waiting(&self) -> Result<Option<Timestamp>, StoreError>;

    /// GitHub did not answer: it is asked again later. No harm if the delivery does not wait.
    ///
    /// # Errors
    /// [`CommitError`], as for the write below.
    async fn delay_waiting(
        &self,
        id: &DeliveryId,
        due_at: Timestamp,
        reason: String,
    ) -> Result<(), CommitError>;

    /// The delivery is taken in, or recorded as ignored. No harm if it does not wait.
    async fn finish_waiting(&self, id: &DeliveryId) -> Result<(), CommitError>;
}
