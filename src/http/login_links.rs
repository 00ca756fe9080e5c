//! One-time log-in links, printed by `serve` and `issuebox login`, so that people need not copy the
//! admin token into a browser. They are kept in memory and expire after minutes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::clock::IdSource;
use crate::types::Timestamp;

use super::sessions::new_secret;

/// How long a link is valid.
pub const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Most open links; a new one replaces the oldest.
const LINKS_MAX: usize = 64;

/// The links that were not used yet.
#[derive(Debug, Default)]
pub struct LoginLinks {
    open: Mutex<Vec<OpenLink>>,
}

/// A link, by the hash of its key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OpenLink {
    hash: [u8; 32],
    ends_at: Timestamp,
}

impl std::fmt::Debug for OpenLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(*** until {})", self.ends_at)
    }
}

impl LoginLinks {
    /// Creates a link. Returns its key and its end.
    pub fn make(&self, ids: &dyn IdSource, now: Timestamp) -> (String, Timestamp) {
        let key = new_secret(ids);
        let ends_at = now.after(LINK_LIFETIME);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|link| link.ends_at > now);
        if open.len() >= LINKS_MAX {
            open.remove(0);
        }
        open.push(OpenLink { hash: hash(&key), ends_at });
        (key, ends_at)
    }

    /// Invalidates all links.
    pub fn forget(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Uses a link up, and returns whether it was valid.
    pub fn take(&self, key: &str, now: Timestamp) -> bool {
        let hash = hash(key);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Hashes are compared, so the duration reveals nothing about a key.
        let at = open.iter().position(|link| link.hash == hash && link.ends_at > now);
        at.map(|at| open.remove(at)).is_some()
    }
}

/// The path of a link.
pub fn path_of(key: &str) -> String {
    format!("/login?key={key}")
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemIds;

    #[test]
    fn a_link_is_good_once_and_for_some_minutes() {
        let links = LoginLinks::default();
        let now = Timestamp::from_unix_ms(0);
        let (one, ends_at) = links.make(&SystemIds, now);
        let (two, _) = links.make(&SystemIds, now);
        assert!(!links.take("", now) && !links.take("guess", now));
        assert!(links.take(&one, now) && !links.take(&one, now));
        assert!(!links.take(&two, ends_at));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_link_makes_room() {
        let links = LoginLinks::default();
        let now = Timestamp::from_unix_ms(0);
        let keys: Vec<_> = (0..=LINKS_MAX).map(|_| links.make(&SystemIds, now).0).collect();
        assert!(!links.take(&keys[0], now) && links.take(&keys[LINKS_MAX], now));
    }
}
