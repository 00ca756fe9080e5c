//! The adapter to GitHub's API. octocrab is the transport; what is asked, with which token, how often
//! and what an answer means is decided here.
//!
//! # Guarantees
//! - A call is sent once. It is sent a second time only where the first certainly had no effect: with
//!   a new token after 401, and by the repository's id after a redirect.
//! - Credentials go to the configured address alone, whatever an answer names, and into no log line,
//!   error or `Debug` output.
//! - An App's tokens have no more permissions and repositories than their purpose needs.

mod answers;
mod ask;
mod calls;
mod counts;
mod credentials;
mod git;
mod github_clock;
mod jwt;
mod limits;
mod pages;
mod queue;
mod reads;
mod registration;
mod sign_in;
mod tokens;
mod transport;
mod verification;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Mutex as AsyncMutex;

use crate::clock::Clock;

use super::api::{GitHubIdentity, WritePace};
use counts::CallCounts;
pub use credentials::GitHubCredentials;
use limits::ReadLimits;
pub(crate) use queue::WriteQueues;
pub use registration::AppRegistrar;
pub use sign_in::{AppClient, AppSignIn};
use tokens::TokenCache;
use transport::Transport;

/// Most installations that are remembered by the name of a repository.
const INSTALLATIONS_MAX: usize = 4_096;

/// Why there is no client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The address cannot be used.
    #[error("github.api_url {api_url} cannot be used: {why}")]
    Address {
        /// The address.
        api_url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The App's key cannot be used.
    #[error("the key of the GitHub App {0}; download a new one from the App's settings")]
    Key(String),
}

/// GitHub under one identity.
pub struct GitHubClient {
    transport: Transport,
    credentials: RwLock<Arc<GitHubCredentials>>,
    tokens: TokenCache,
    queues: WriteQueues,
    reads: ReadLimits,
    counts: CallCounts,
    identity: AsyncMutex<Option<GitHubIdentity>>,
    /// By the folded name of a repository.
    installations: Mutex<HashMap<String, u64>>,
}

impl GitHubClient {
    /// A client of the GitHub with this REST base. Needs a runtime, which then serves it.
    ///
    /// # Errors
    /// [`ClientError::Address`] if the address cannot be used.
    pub fn new(
        api_url: &str,
        credentials: GitHubCredentials,
        clock: Arc<dyn Clock>,
        pace: Arc<dyn WritePace>,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            transport: Transport::new(api_url, Arc::clone(&clock))?,
            queues: WriteQueues::new(clock, pace),
            credentials: RwLock::new(Arc::new(credentials)),
            tokens: TokenCache::default(),
            reads: ReadLimits::new(),
            counts: CallCounts::default(),
            identity: AsyncMutex::default(),
            installations: Mutex::default(),
        })
    }

    /// Uses other credentials from now on. Calls under way end with the old ones.
    pub async fn replace_credentials(&self, credentials: GitHubCredentials) {
        let mut identity = self.identity.lock().await;
        *self.credentials.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
        self.tokens.clear();
        self.installations.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *identity = None;
    }

    /// How far GitHub's clock is ahead of ours, in seconds; 0 within 30 s.
    pub fn clock_ahead_secs(&self) -> i64 {
        self.transport.clock.ahead_ms() / 1_000
    }

    fn credentials(&self) -> Arc<GitHubCredentials> {
        Arc::clone(&self.credentials.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
