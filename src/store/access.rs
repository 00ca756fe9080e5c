//! The port to who may do what: the tokens of the API and the accounts that people made.

use async_trait::async_trait;

use super::{CommitError, StoreError};
use crate::types::{AccountName, AccountRules, ApiToken, Timestamp, TokenId};

/// Tokens and accounts. Durable as everything else in the store; kept apart from
/// [`Store`](super::Store), since the engine has nothing to do with them.
#[async_trait]
pub trait AccessStore: Send + Sync + 'static {
    /// Every token that was not removed, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError>;

    /// Keeps a new token.
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias.
    async fn put_token(&self, token: ApiToken) -> Result<(), CommitError>;

    /// Removes a token, and every session that began with it. No harm if there is none.
    ///
    /// # Errors
    /// As for [`AccessStore::put_token`].
    async fn remove_token(&self, id: &TokenId) -> Result<(), CommitError>;

    /// Keeps when tokens were used last. No harm for one that is not there.
    ///
    /// # Errors
    /// As for [`AccessStore::put_token`].
    async fn note_uses(&self, uses: Vec<(TokenId, Timestamp)>) -> Result<(), CommitError>;

    /// Every account that was put, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn accounts(&self) -> Result<Vec<(AccountName, AccountRules)>, StoreError>;

    /// Keeps an account, in place of one of that name.
    ///
    /// # Errors
    /// As for [`AccessStore::put_token`].
    async fn put_account(&self, name: AccountName, rules: AccountRules) -> Result<(), CommitError>;
}
