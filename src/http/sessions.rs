//! Sessions of the page: who logged in with the token, for some hours, in bounded memory.
//!
//! A session's secret is in its cookie alone; here its SHA-256 is kept. Its form token is derived
//! from the secret, so it needs no memory and dies with the session. A restart ends all.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::clock::IdSource;
use crate::types::Timestamp;

/// The name of the cookie.
pub const SESSION_COOKIE: &str = "issuebox_session";
/// How long a session lasts: a working day.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Sessions that are kept; the one that ends first makes room.
const SESSIONS_MAX: usize = 1_000;

/// The sessions that have not ended.
#[derive(Debug, Default)]
pub struct Sessions {
    ends: Mutex<HashMap<[u8; 32], Timestamp>>,
}

/// A session that was found by its cookie.
#[derive(Clone)]
pub struct SessionKey {
    hash: [u8; 32],
    form_token: String,
}

impl SessionKey {
    fn of(secret: &str) -> Self {
        Self {
            hash: Sha256::digest(secret.as_bytes()).into(),
            form_token: hex::encode(Sha256::digest(format!("form token of {secret}"))),
        }
    }

    /// What a form of this session has to carry.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Whether a form carried it, compared in constant time.
    pub fn form_token_matches(&self, given: &str) -> bool {
        self.form_token.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(***)")
    }
}

impl Sessions {
    /// Begins a session and returns the secret for its cookie.
    pub fn begin(&self, ids: &dyn IdSource, now: Timestamp) -> String {
        // Request ids hold some 70 random bits each, but fewer where several are made within one
        // millisecond; four of them are at least as hard to guess as a 128-bit key.
        let seed: Vec<String> = (0..4).map(|_| ids.request_id()).collect();
        let secret = hex::encode(Sha256::digest(seed.concat()));
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() >= SESSIONS_MAX {
            ends.retain(|_, end| *end > now);
            if ends.len() >= SESSIONS_MAX {
                let first = ends.iter().min_by_key(|(_, end)| **end).map(|(hash, _)| *hash);
                first.map(|first| ends.remove(&first));
            }
        }
        ends.insert(SessionKey::of(&secret).hash, now.after(SESSION_LIFETIME));
        secret
    }

    /// The session with this secret, if it has not ended.
    pub fn find(&self, secret: &str, now: Timestamp) -> Option<SessionKey> {
        let key = SessionKey::of(secret);
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(&key.hash).is_some_and(|end| *end > now).then_some(key)
    }

    /// Ends a session.
    pub fn end(&self, session: &SessionKey) {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemIds;

    #[test]
    fn a_session_is_found_until_it_ends() {
        let sessions = Sessions::default();
        let now = Timestamp::from_unix_ms(0);
        let secret = sessions.begin(&SystemIds, now);
        assert!(sessions.find(&secret, now).is_some());
        assert!(sessions.find("other", now).is_none());
        assert!(sessions.find(&secret, now.after(SESSION_LIFETIME)).is_none());
        let key = sessions.find(&secret, now).expect("it has not ended");
        sessions.end(&key);
        assert!(sessions.find(&secret, now).is_none());
    }

    #[test]
    fn form_tokens_belong_to_one_session_and_do_not_show_its_secret() {
        let sessions = Sessions::default();
        let now = Timestamp::from_unix_ms(0);
        let (one, two) = (sessions.begin(&SystemIds, now), sessions.begin(&SystemIds, now));
        let (a, b) = (sessions.find(&one, now), sessions.find(&two, now));
        let (a, b) = (a.expect("the first"), b.expect("the second"));
        assert!(a.form_token_matches(a.form_token()));
        assert!(!a.form_token_matches(b.form_token()));
        assert!(!a.form_token_matches("") && a.form_token() != one);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_session_makes_room() {
        let sessions = Sessions::default();
        let first = sessions.begin(&SystemIds, Timestamp::from_unix_ms(0));
        let later = Timestamp::from_unix_ms(1);
        let secrets: Vec<_> =
            (0..SESSIONS_MAX).map(|_| sessions.begin(&SystemIds, later)).collect();
        assert!(sessions.find(&first, later).is_none());
        assert!(sessions.find(secrets.last().expect("some"), later).is_some());
        assert_eq!(sessions.ends.lock().expect("not poisoned").len(), SESSIONS_MAX);
    }
}
