//! Installation tokens in memory: one for each installation, repositories and purpose.
//!
//! # Guarantees
//! - One mint at a time for each key: all that wait for it get the same token.
//! - A token is renewed when 10 minutes are left, and not used when less than a minute is.
//! - At most [`TOKENS_MAX`] are kept. None is written anywhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use crate::types::{Secret, Timestamp};

use super::super::api::GitHubError;

/// Most tokens that are kept.
const TOKENS_MAX: usize = 4_096;
/// With less than this left a token is renewed.
const RENEW_LEFT: Duration = Duration::from_secs(10 * 60);
/// With less than this left a token is not used.
const USE_LEFT: Duration = Duration::from_secs(60);

/// What a token is for; it decides the permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TokenPurpose {
    /// Fetch, by way of the git gateway.
    Read,
    /// Push, by way of the git gateway.
    Push,
    /// Push, also of workflow files.
    PushWorkflows,
    /// Comments, reactions, labels, pull requests.
    Speak,
    /// Commit statuses, which not every installation grants.
    Status,
    /// Issues, comments, permissions.
    List,
    /// The same and the base's tip.
    Verify,
    /// Members of organisations, which not every installation grants.
    Members,
}

impl TokenPurpose {
    /// The permissions of a token for this.
    pub const fn permissions(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Read => &[("contents", "read"), ("metadata", "read")],
            Self::Push => &[("contents", "write"), ("metadata", "read")],
            Self::PushWorkflows => {
                &[("contents", "write"), ("workflows", "write"), ("metadata", "read")]
            }
            Self::Speak => &[("issues", "write"), ("pull_requests", "write"), ("metadata", "read")],
            Self::Status => &[("statuses", "write"), ("metadata", "read")],
            Self::List => &[("issues", "read"), ("metadata", "read")],
            Self::Verify => &[("issues", "read"), ("metadata", "read"), ("contents", "read")],
            Self::Members => &[("members", "read"), ("metadata", "read")],
        }
    }
}

/// What a token is kept by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    pub installation: u64,
    pub purpose: TokenPurpose,
    /// The ids of the repositories it is narrowed to, sorted; empty for all of the installation's.
    pub repositories: Vec<u64>,
}

/// A token as GitHub minted it.
#[derive(Clone, Debug)]
pub(super) struct Minted {
    pub token: Secret,
    /// By GitHub's clock.
    pub expires_at: Timestamp,
}

type TokenSlot = Arc<AsyncMutex<Option<Minted>>>;

/// All tokens.
#[derive(Default)]
pub(super) struct TokenCache {
    slots: Mutex<HashMap<TokenKey, (TokenSlot, Timestamp)>>,
}

impl TokenCache {
    /// The token of a key, from memory or minted by `mint`. `now` is GitHub's time.
    ///
    /// # Errors
    /// That of the mint, unless the token that is kept can still be used.
    pub async fn get(
        &self,
        key: &TokenKey,
        now: Timestamp,
        mint: impl Future<Output = Result<Minted, GitHubError>>,
    ) -> Result<Secret, GitHubError> {
        let slot = self.slot(key, now);
        let mut kept = slot.lock().await;
        let left = kept.as_ref().map_or(Duration::ZERO, |minted| minted.expires_at.since(now));
        if let Some(minted) = kept.as_ref().filter(|_| left >= RENEW_LEFT) {
            return Ok(minted.token.clone());
        }
        match (mint.await, kept.as_ref()) {
            (Ok(minted), _) => {
                let token = minted.token.clone();
                *kept = Some(minted);
                Ok(token)
            }
            (Err(error), Some(minted)) if left >= USE_LEFT => {
                tracing::warn!(%error, "cannot renew a token of an installation yet");
                Ok(minted.token.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Drops this token, if it is the one that is kept.
    pub async fn forget(&self, key: &TokenKey, token: &Secret) {
        let slot = self.locked().get(key).map(|(slot, _)| Arc::clone(slot));
        if let Some(slot) = slot {
            let mut kept = slot.lock().await;
            if kept.as_ref().is_some_and(|minted| minted.token == *token) {
                *kept = None;
            }
        }
    }

    /// Takes the tokens out that are narrowed to this repository alone.
    pub async fn take_of(&self, repository_id: u64) -> Vec<Secret> {
        let mut slots = Vec::new();
        self.locked().retain(|key, (slot, _)| {
            let is_of_it = key.repositories == [repository_id];
            if is_of_it {
                slots.push(Arc::clone(slot));
            }
            !is_of_it
        });
        let mut taken = Vec::with_capacity(slots.len());
        for slot in slots {
            taken.extend(slot.lock().await.take().map(|minted| minted.token));
        }
        taken
    }

    /// Drops all of them.
    pub fn clear(&self) {
        self.locked().clear();
    }

    fn slot(&self, key: &TokenKey, now: Timestamp) -> TokenSlot {
        let mut slots = self.locked();
        if slots.len() >= TOKENS_MAX && !slots.contains_key(key) {
            // Those in use are held by another Arc.
            let idle = slots.iter().filter(|(_, (slot, _))| Arc::strong_count(slot) == 1);
            let oldest = idle.min_by_key(|(_, (_, used_at))| *used_at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                slots.remove(&oldest);
            }
        }
        let (slot, used_at) =
            slots.entry(key.clone()).or_insert_with(|| (TokenSlot::default(), now));
        *used_at = now;
        Arc::clone(slot)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<TokenKey, (TokenSlot, Timestamp)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
