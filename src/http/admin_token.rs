//! The configured admin token, which can be replaced while the server runs.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::types::Secret;

/// The SHA-256 of a token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash {
    hash: [u8; 32],
    is_short: bool,
}

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &Secret) -> Self {
        let hash = Sha256::digest(token.expose().as_bytes()).into();
        Self { hash, is_short: token.is_short() }
    }

    /// The bytes of the hash, for data that is bound to the token.
    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Whether the token [is short](Secret::is_short).
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Compares a token in constant time.
    pub fn matches(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        self.hash.ct_eq(&given).into()
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The hash of the admin token in force. It can be replaced while the server runs; clones share it.
#[derive(Clone, Debug)]
pub struct LiveToken(Arc<watch::Sender<TokenHash>>);

impl LiveToken {
    /// Starts with this token.
    pub fn new(token: TokenHash) -> Self {
        Self(Arc::new(watch::Sender::new(token)))
    }

    /// The token in force.
    pub fn in_force(&self) -> TokenHash {
        self.0.borrow().clone()
    }

    /// Replaces the token. Streams and sessions that began with the old one end, and its log-in
    /// links become invalid.
    pub fn replace(&self, token: TokenHash) {
        self.0.send_replace(token);
    }

    /// Notices replacements.
    pub(super) fn watch(&self) -> watch::Receiver<TokenHash> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_matches_its_hash() {
        let hash = TokenHash::of(&Secret::new("right"));
        assert!(hash.matches("right"));
        for wrong in ["", "Right", "right ", "wrong"] {
            assert!(!hash.matches(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{hash:?}"), "***");
    }
}
