//! Registering the server as a GitHub App, with a person's browser in between.
//!
//! # Guarantees
//! A code from GitHub is exchanged only for a login that asked for an App, once, within an hour: the state
//! that comes back with it is unguessable and bound to that login. So no forged callback makes the server
//! use the App of another. Credentials are stored before anything else is done with them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::clock::IdSource;
use crate::config::{AppFacts, StoredApp};
use crate::github::api::GitHubError;
use crate::github::registration::{AppRegistration, AppRequest, NewApp, ProvenApp};
use crate::store::session::SessionHash;
use crate::types::{Secret, Timestamp};

use super::sessions::new_secret;

/// How long GitHub's page may take: a code is valid for an hour.
const REQUEST_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Most open requests; a new one replaces the oldest.
const REQUESTS_MAX: usize = 64;

/// What the server needs to register itself as a GitHub App.
#[derive(Clone)]
pub struct AppSetup {
    /// GitHub, without credentials.
    pub registration: Arc<dyn AppRegistration>,
    /// The data directory.
    pub data: PathBuf,
    /// The address of GitHub's pages.
    pub web_url: String,
    /// The base of GitHub's REST API.
    pub api_url: String,
    /// The stored App whose credentials this server uses.
    pub in_use: Option<StoredApp>,
    /// The name that the form suggests.
    pub suggested_name: String,
    /// Notified when the server is to restart with the stored App.
    pub restart: Arc<Notify>,
}

/// Why an App was not adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The credentials did not arrive, or may not have.
    #[error(transparent)]
    Asked(#[from] GitHubError),
    /// They arrived and cannot be stored.
    #[error("cannot store the App's credentials: {0}")]
    NotStored(std::io::Error),
}

impl AppSetup {
    /// Exchanges a code for the App's credentials and stores them.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub(super) async fn adopt(&self, code: &str) -> Result<StoredApp, AdoptError> {
        let NewApp { app, key, webhook_secret } = self.registration.convert(code).await?;
        self.store(app, key, webhook_secret).await
    }

    /// Stores the credentials of an App of this GitHub. Without another secret, the App in use keeps that of
    /// its webhook.
    ///
    /// # Errors
    /// [`AdoptError::NotStored`].
    pub(super) async fn store(
        &self,
        ProvenApp { id, slug, html_url }: ProvenApp,
        key: Secret,
        webhook_secret: Option<Secret>,
    ) -> Result<StoredApp, AdoptError> {
        // A page links there, so it must be one of this GitHub.
        let is_there = html_url.strip_prefix(&self.web_url).is_some_and(|at| at.starts_with('/'));
        let html_url = if is_there { html_url } else { format!("{}/apps/{slug}", self.web_url) };
        let kept = self.in_use.as_ref().filter(|app| app.about.id == id);
        let kept = kept.and_then(|app| app.webhook_secret.clone());
        let webhook_secret = webhook_secret.or(kept);
        let (web_url, api_url) = (self.web_url.clone(), self.api_url.clone());
        let about = AppFacts { id, slug, html_url, web_url, api_url };
        let (stored, data) = (StoredApp { about, key, webhook_secret }, self.data.clone());
        let written = tokio::task::spawn_blocking(move || stored.write(&data).map(|()| stored));
        let written = written.await.map_err(std::io::Error::other).and_then(|written| written);
        written.map_err(AdoptError::NotStored)
    }
}

/// What a registration has come to in this run of the server.
#[derive(Clone, Debug, Default)]
pub enum SetupStage {
    /// Nothing yet.
    #[default]
    Open,
    /// The App is stored, but GitHub did not confirm its key.
    Unproved {
        /// The App.
        app: StoredApp,
        /// Why not.
        why: String,
    },
    /// The server restarts with the App of this name.
    Restarting(String),
}

/// The registrations that people began.
#[derive(Default)]
pub struct Registrations {
    open: Mutex<Vec<OpenRequest>>,
    stage: Mutex<SetupStage>,
    /// Held while credentials are fetched, stored and proved: one App at a time.
    pub adopting: tokio::sync::Mutex<()>,
}

/// An App that was asked for, by the hash of its state.
struct OpenRequest {
    state: [u8; 32],
    session: SessionHash,
    ends_at: Timestamp,
    request: AppRequest,
}

impl Registrations {
    /// Remembers a request of a login; returns its state.
    pub fn begin(
        &self,
        session: SessionHash,
        request: AppRequest,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> String {
        let state = new_secret(ids);
        self.remember(&state, session, request, now);
        state
    }

    /// Takes the request with this state out, if this login made it within the last hour.
    pub fn take(&self, state: &str, session: SessionHash, now: Timestamp) -> Option<AppRequest> {
        let state = hash(state);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Hashes are compared, so the duration reveals nothing about a state.
        let at = open
            .iter()
            .position(|one| one.state == state && one.session == session && one.ends_at > now)?;
        Some(open.remove(at).request)
    }

    /// Remembers a request again whose code was certainly not exchanged.
    pub fn remember(&self, state: &str, session: SessionHash, request: AppRequest, now: Timestamp) {
        let (state, ends_at) = (hash(state), now.after(REQUEST_LIFETIME));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.ends_at > now);
        if open.len() >= REQUESTS_MAX {
            open.remove(0);
        }
        open.push(OpenRequest { state, session, ends_at, request });
    }

    /// What it has come to.
    pub fn stage(&self) -> SetupStage {
        self.locked_stage().clone()
    }

    /// Sets what it has come to.
    pub fn set_stage(&self, stage: SetupStage) {
        *self.locked_stage() = stage;
    }

    fn locked_stage(&self) -> MutexGuard<'_, SetupStage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(state: &str) -> [u8; 32] {
    Sha256::digest(state.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemIds;

    const OURS: SessionHash = SessionHash([1; 32]);
    const OTHER: SessionHash = SessionHash([2; 32]);

    fn request(name: &str) -> AppRequest {
        AppRequest::new(name, "").expect("a good name")
    }

    #[test]
    fn a_state_is_good_once_for_the_login_that_asked_and_for_an_hour() {
        let registrations = Registrations::default();
        let now = Timestamp::from_unix_ms(0);
        let begin = |name| registrations.begin(OURS, request(name), &SystemIds, now);
        let (one, two) = (begin("one"), begin("two"));
        assert_eq!(one.len(), 64, "32 bytes");
        assert_eq!(registrations.take(&one, OTHER, now), None, "another login");
        assert_eq!(registrations.take("guess", OURS, now), None);
        assert_eq!(registrations.take("", OURS, now), None);
        assert_eq!(registrations.take(&one, OURS, now), Some(request("one")));
        assert_eq!(registrations.take(&one, OURS, now), None, "used");
        let end = now.after(REQUEST_LIFETIME);
        assert_eq!(registrations.take(&two, OURS, end), None, "over");
        let just_before = Timestamp::from_unix_ms(end.unix_ms() - 1);
        assert_eq!(registrations.take(&two, OURS, just_before), Some(request("two")));
    }

    #[test]
    fn only_hashes_of_a_bounded_number_of_states_are_kept() {
        let registrations = Registrations::default();
        let now = Timestamp::from_unix_ms(0);
        let begin = |_| registrations.begin(OURS, request("one"), &SystemIds, now);
        let states: Vec<String> = (0..=REQUESTS_MAX).map(begin).collect();
        let kept = |state: &String| {
            let open = registrations.open.lock().expect("not poisoned");
            open.iter().any(|one| hex::encode(one.state) == *state)
        };
        assert!(!states.iter().any(kept), "not the states themselves");
        assert_eq!(registrations.take(&states[0], OURS, now), None, "it made room");
        assert!(registrations.take(&states[REQUESTS_MAX], OURS, now).is_some());
    }
}
