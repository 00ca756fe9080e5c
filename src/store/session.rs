//! The port to people's sessions: they outlive a restart, and end by time or by logging out.

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::types::Timestamp;

/// Sessions that are kept; beyond that the one that ends first makes room.
pub const SESSIONS_MAX: usize = 1_000;

/// The SHA-256 of a session's key. The key itself is nowhere but in the person's cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionHash(pub [u8; 32]);

impl std::fmt::Debug for SessionHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionHash(***)")
    }
}

/// People's sessions. Durable as everything else in the store; kept apart from
/// [`Store`](super::Store), since the engine has nothing to do with them.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Keeps a session until `ends_at`. Those that ended by `now` are forgotten, and the number of
    /// all never exceeds [`SESSIONS_MAX`].
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias.
    async fn put_session(
        &self,
        session: SessionHash,
        now: Timestamp,
        ends_at: Timestamp,
    ) -> Result<(), CommitError>;

    /// When a session ends; `None` if it is not kept (any more). One that has ended may still be
    /// found.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn session_end(&self, session: SessionHash) -> Result<Option<Timestamp>, StoreError>;

    /// Ends a session; no harm if there is none.
    ///
    /// # Errors
    /// As for [`SessionStore::put_session`].
    async fn end_session(&self, session: SessionHash) -> Result<(), CommitError>;
}
