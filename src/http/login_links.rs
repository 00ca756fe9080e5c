//! One-time log-in links, printed by `serve` and `issuebox login`, so that people need not copy a
//! token into a browser. They are kept in memory and expire after minutes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::access::KnownToken;
use crate::clock::IdSource;
use crate::types::{Timestamp, TokenId};

use super::room::to_replace;
use super::sessions::new_secret;

/// How long a link is valid.
pub const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Most open links of one holder; a new one replaces its oldest.
const LINKS_OF_HOLDER_MAX: usize = 8;
/// Most open links of all; beyond that the holder with the most of them loses its oldest.
const LINKS_MAX: usize = 1_000;

/// The links that were not used yet.
#[derive(Debug, Default)]
pub struct LoginLinks {
    open: Mutex<Vec<OpenLink>>,
}

/// Whom a link logs in.
#[derive(Clone, Debug)]
pub enum LinkHolder {
    /// The bearer of the configured admin token.
    Admin,
    /// The bearer of a token that a person created.
    Token(Arc<KnownToken>),
}

impl LinkHolder {
    /// The token whose bearer it is; `None` for the admin token.
    fn token(&self) -> Option<&TokenId> {
        match self {
            Self::Admin => None,
            Self::Token(token) => Some(token.id()),
        }
    }
}

/// A link, by the hash of its key.
struct OpenLink {
    hash: [u8; 32],
    ends_at: Timestamp,
    holder: LinkHolder,
}

impl std::fmt::Debug for OpenLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(*** until {})", self.ends_at)
    }
}

impl LoginLinks {
    /// Creates a link for this holder. Returns its key and its end.
    pub fn make(
        &self,
        holder: LinkHolder,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> (String, Timestamp) {
        let key = new_secret(ids);
        let ends_at = now.after(LINK_LIFETIME);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|link| link.ends_at > now);
        let holders = open.iter().map(|link| link.holder.token());
        if let Some(at) = to_replace(holders, &holder.token(), LINKS_OF_HOLDER_MAX, LINKS_MAX) {
            open.remove(at);
        }
        open.push(OpenLink { hash: hash(&key), ends_at, holder });
        (key, ends_at)
    }

    /// Invalidates all links.
    pub fn forget(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Uses a link up, and returns whom it logs in; `None` if it was not valid.
    pub fn take(&self, key: &str, now: Timestamp) -> Option<LinkHolder> {
        let hash = hash(key);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Hashes are compared, so the duration reveals nothing about a key.
        let at = open.iter().position(|link| link.hash == hash && link.ends_at > now);
        at.map(|at| open.remove(at).holder)
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
        let (one, ends_at) = links.make(LinkHolder::Admin, &SystemIds, now);
        let (two, _) = links.make(LinkHolder::Admin, &SystemIds, now);
        assert!(links.take("", now).is_none() && links.take("guess", now).is_none());
        assert!(links.take(&one, now).is_some() && links.take(&one, now).is_none());
        assert!(links.take(&two, ends_at).is_none());
    }

    fn holder(id: &str) -> LinkHolder {
        LinkHolder::Token(KnownToken::for_test(id))
    }

    #[test]
    fn a_holder_replaces_its_own_links_alone() {
        let links = LoginLinks::default();
        let now = Timestamp::from_unix_ms(0);
        let (of_admin, _) = links.make(LinkHolder::Admin, &SystemIds, now);
        let (of_other, _) = links.make(holder("other"), &SystemIds, now);
        let make = |_| links.make(holder("greedy"), &SystemIds, now).0;
        let keys: Vec<_> = (0..2_000).map(make).collect();
        assert_eq!(links.open.lock().expect("not poisoned").len(), 2 + LINKS_OF_HOLDER_MAX);
        assert!(links.take(&of_admin, now).is_some() && links.take(&of_other, now).is_some());
        assert!(links.take(&keys[0], now).is_none() && links.take(&keys[1_999], now).is_some());
    }

    #[test]
    fn memory_is_bounded_and_who_has_the_most_links_makes_room() {
        let links = LoginLinks::default();
        let now = Timestamp::from_unix_ms(0);
        let (only, _) = links.make(holder("first"), &SystemIds, now);
        for one in 0..LINKS_MAX {
            let greedy = holder(&format!("t-{}", one / LINKS_OF_HOLDER_MAX));
            links.make(greedy, &SystemIds, now);
        }
        let (late, _) = links.make(holder("late"), &SystemIds, now);
        assert_eq!(links.open.lock().expect("not poisoned").len(), LINKS_MAX);
        assert!(links.take(&only, now).is_some() && links.take(&late, now).is_some());
    }
}
