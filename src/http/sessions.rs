//! Sessions of the dashboard. They last for some hours.
//!
//! Only the cookie holds a session's secret. The store keeps its SHA-256, so sessions survive a
//! restart, and a stolen database grants no access. The hash includes the admin token: replacing
//! the token ends every session. The form token is derived from the secret, so it is not stored.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::clock::IdSource;
use crate::engine::EngineError;
use crate::store::CommitError;
use crate::store::session::{SessionHash, SessionStore};
use crate::types::Timestamp;

use super::auth::{LiveToken, TokenHash};
use super::error::ApiError;

/// The name of the cookie.
pub const SESSION_COOKIE: &str = "issuebox_session";
/// The name of the cookie where the public address is https: browsers take such a cookie only from
/// this very host, over https and for all paths (RFC 6265bis, section 4.1.3.2).
pub const SESSION_COOKIE_HTTPS: &str = "__Host-issuebox_session";
/// How long a session lasts: a working day.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Length of a secret, in characters. Cookies of another length are ignored.
const SECRET_LEN: usize = 64;

/// The sessions that have not ended.
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    token: LiveToken,
}

/// A session that was found by its cookie.
#[derive(Clone)]
pub struct SessionKey {
    hash: SessionHash,
    /// The admin token at its beginning.
    token: TokenHash,
    form_token: String,
}

impl SessionKey {
    fn of(secret: &str, token: TokenHash) -> Self {
        let hash = Sha256::new().chain_update(token.as_bytes()).chain_update(secret).finalize();
        Self {
            hash: SessionHash(hash.into()),
            token,
            form_token: hex::encode(Sha256::digest(format!("form token of {secret}"))),
        }
    }

    /// The hash by which the session is known.
    pub const fn hash(&self) -> SessionHash {
        self.hash
    }

    /// The form token, which forms of this session must contain.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Compares a form token in constant time.
    pub fn form_token_matches(&self, given: &str) -> bool {
        self.form_token.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(***)")
    }
}

/// An unguessable secret in hexadecimal.
pub fn new_secret(ids: &dyn IdSource) -> String {
    // A request id has some 70 random bits, but fewer if several are created in one millisecond.
    // Four of them are at least as hard to guess as a 128-bit key.
    let seed: Vec<String> = (0..4).map(|_| ids.request_id()).collect();
    hex::encode(Sha256::digest(seed.concat()))
}

impl Sessions {
    /// Sessions in this store, bound to this admin token.
    pub fn new(store: Arc<dyn SessionStore>, token: LiveToken) -> Self {
        Self { store, token }
    }

    /// Begins a session for this admin token, and returns the secret for its cookie. If the token
    /// was replaced meanwhile, the session has ended already.
    ///
    /// # Errors
    /// 503 if it cannot be stored.
    pub async fn begin(
        &self,
        shown: TokenHash,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> Result<String, ApiError> {
        let secret = new_secret(ids);
        let hash = SessionKey::of(&secret, shown).hash;
        let ends_at = now.after(SESSION_LIFETIME);
        self.store.put_session(hash, now, ends_at).await.map_err(not_stored)?;
        Ok(secret)
    }

    /// The session with this secret, if it has not ended.
    ///
    /// # Errors
    /// 503 if the store cannot be read.
    pub async fn find(&self, secret: &str, now: Timestamp) -> Result<Option<SessionKey>, ApiError> {
        if secret.len() != SECRET_LEN {
            return Ok(None);
        }
        let key = SessionKey::of(secret, self.token.in_force());
        Ok(self.is_open(&key, now).await?.then_some(key))
    }

    /// Whether a session is still open.
    ///
    /// # Errors
    /// As for [`Sessions::find`].
    pub async fn is_open(&self, session: &SessionKey, now: Timestamp) -> Result<bool, ApiError> {
        if session.token != self.token.in_force() {
            return Ok(false);
        }
        let end = self.store.session_end(session.hash).await?;
        Ok(end.is_some_and(|end| end > now))
    }

    /// Ends a session.
    ///
    /// # Errors
    /// 503 if that cannot be stored.
    pub async fn end(&self, session: &SessionKey) -> Result<(), ApiError> {
        self.store.end_session(session.hash).await.map_err(not_stored)
    }
}

fn not_stored(error: CommitError) -> ApiError {
    match error {
        CommitError::Overloaded => EngineError::Overloaded.into(),
        CommitError::DuplicateDelivery
        | CommitError::AliasTaken
        | CommitError::Fenced
        | CommitError::Damaged { .. }
        | CommitError::Failed(_) => EngineError::StoreFailed(error.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemIds;
    use crate::store::session::SESSIONS_MAX;
    use crate::store::sqlite::SqliteStore;
    use crate::types::Secret;

    fn token(token: &str) -> TokenHash {
        TokenHash::of(&Secret::new(token))
    }

    fn sessions(dir: &std::path::Path) -> Sessions {
        Sessions::new(
            Arc::new(SqliteStore::open(dir).expect("a store")),
            LiveToken::new(token("one")),
        )
    }

    async fn is_open(sessions: &Sessions, secret: &str, now: Timestamp) -> bool {
        sessions.find(secret, now).await.expect("it is read").is_some()
    }

    #[tokio::test]
    async fn a_session_is_found_until_it_ends_also_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::from_unix_ms(0);
        let before = sessions(dir.path());
        let secret = before.begin(token("one"), &SystemIds, now).await.expect("it begins");
        let other = before.begin(token("one"), &SystemIds, now).await.expect("it begins");
        drop(before);
        let after = sessions(dir.path());
        assert!(is_open(&after, &secret, now).await);
        assert!(!is_open(&after, &"0".repeat(64), now).await && !is_open(&after, "x", now).await);
        assert!(!is_open(&after, &secret, now.after(SESSION_LIFETIME)).await);
        let key = after.find(&secret, now).await.expect("it is read").expect("it has not ended");
        after.token.replace(token("two"));
        assert!(!is_open(&after, &secret, now).await, "the admin token is another");
        assert!(!after.is_open(&key, now).await.expect("it is read"), "for what goes on, too");
        let late = after.begin(token("one"), &SystemIds, now).await.expect("it begins");
        assert!(!is_open(&after, &late, now).await, "it was shown before that");
        after.token.replace(token("one"));
        after.end(&key).await.expect("it ends");
        assert!(!is_open(&after, &secret, now).await && is_open(&after, &other, now).await);
    }

    #[test]
    fn form_tokens_belong_to_one_session_and_do_not_show_its_secret() {
        let (a, b) = (SessionKey::of("one", token("t")), SessionKey::of("two", token("t")));
        assert!(a.form_token_matches(a.form_token()));
        assert!(!a.form_token_matches(b.form_token()));
        assert!(!a.form_token_matches("") && a.form_token() != "one");
    }

    #[tokio::test]
    async fn room_is_bounded_and_the_session_that_ends_first_makes_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = sessions(dir.path());
        let first = sessions
            .begin(token("one"), &SystemIds, Timestamp::from_unix_ms(0))
            .await
            .expect("begins");
        let later = Timestamp::from_unix_ms(1);
        let mut last = String::new();
        for _ in 0..SESSIONS_MAX {
            last = sessions.begin(token("one"), &SystemIds, later).await.expect("begins");
        }
        assert!(!is_open(&sessions, &first, later).await);
        assert!(is_open(&sessions, &last, later).await);
    }
}
