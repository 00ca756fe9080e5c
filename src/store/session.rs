//! The port to people's sessions: they outlive a restart, and end by time or by logging out.

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::types::{AccountName, Timestamp, TokenId};

/// Sessions that are kept. Beyond that the token or person with the most loses the one that ends first,
/// so that no person's log-ins end the sessions of a person who has fewer.
pub const SESSIONS_MAX: usize = 1_000;
/// The same of one token or one person; beyond that the own one that ends first makes room. The admin token
/// counts as one.
pub const SESSIONS_OF_TOKEN_MAX: usize = 100;

/// The SHA-256 of a session's key. The key itself is nowhere but in the person's cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionHash(pub [u8; 32]);

impl std::fmt::Debug for SessionHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionHash(***)")
    }
}

/// What a session began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionOrigin {
    /// The configured admin token.
    Admin,
    /// A token that a person created.
    Token(TokenId),
    /// A log-in with GitHub.
    Person(GithubPerson),
}

/// A person whom GitHub logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubPerson {
    /// The numeric id at GitHub, which never changes.
    pub user_id: u64,
    /// The login at that time.
    pub login: String,
    /// The key of the [rule](crate::types::LoginGrants) that let the person in.
    pub grant: String,
}

/// What is kept of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// When it ends.
    pub ends_at: Timestamp,
    /// What it began with.
    pub origin: SessionOrigin,
    /// The account that the person chose; `None` for that of its origin.
    pub account: Option<AccountName>,
}

/// People's sessions. Durable as everything else in the store; kept apart from
/// [`Store`](super::Store), since the engine has nothing to do with them.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Keeps a session, in place of one with this hash. Those that ended by `now` are forgotten, and
    /// their number never exceeds [`SESSIONS_OF_TOKEN_MAX`] for one token or person and
    /// [`SESSIONS_MAX`] for all.
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias.
    async fn put_session(
        &self,
        session: SessionHash,
        row: SessionRow,
        now: Timestamp,
    ) -> Result<(), CommitError>;

    /// A session; `None` if it is not kept (any more). One that has ended may still be found.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn session(&self, session: SessionHash) -> Result<Option<SessionRow>, StoreError>;

    /// Lets a session work in another account; no harm if it has ended.
    ///
    /// # Errors
    /// As for [`SessionStore::put_session`].
    async fn choose_account(
        &self,
        session: SessionHash,
        account: AccountName,
    ) -> Result<(), CommitError>;

    /// Ends the sessions of people whose rule's key is not among these.
    ///
    /// # Errors
    /// As for [`SessionStore::put_session`].
    async fn keep_sessions_of(&self, grants: Vec<String>) -> Result<(), CommitError>;

    /// Ends a session; no harm if there is none.
    ///
    /// # Errors
    /// As for [`SessionStore::put_session`].
    async fn end_session(&self, session: SessionHash) -> Result<(), CommitError>;
}
