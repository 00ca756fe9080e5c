//! Log-ins with GitHub that were begun: each is good once, for ten minutes, and in the browser that began
//! it.
//!
//! # Guarantees
//! What GitHub leads back is taken for the browser alone whose cookie began the log-in: so no site logs a
//! person in as another. Only hashes of the state and the cookie are kept. Memory is bounded, and no
//! log-in makes room for one of an address that has more.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::clock::IdSource;
use crate::github::sign_in::{GithubSignIn, SignInProof, SignInRequest};
use crate::types::Timestamp;

use super::attempts::network;
use super::room::to_replace;
use super::sessions::new_secret;

/// How long GitHub's page may take.
pub const LOGIN_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Most log-ins that one address began.
const LOGINS_OF_ADDRESS_MAX: usize = 100;
/// Most of all.
const LOGINS_MAX: usize = 1_000;
/// Most log-ins for which GitHub is asked at the same moment.
const ASKED_MAX: usize = 16;
/// Length of the cookie's value, in characters.
const COOKIE_LEN: usize = 64;

/// What the server needs to log people in with GitHub.
#[derive(Clone)]
pub struct PeopleSetup {
    /// GitHub.
    pub sign_in: Arc<dyn GithubSignIn>,
    /// How long a session lasts.
    pub session: Duration,
}

/// The log-ins that were begun.
pub struct BegunLogins {
    open: Mutex<Vec<BegunLogin>>,
    /// Places for those for which GitHub is asked.
    pub asked: Semaphore,
}

struct BegunLogin {
    /// The SHA-256 of state and cookie.
    key: [u8; 32],
    /// Whose address it is counted for.
    address: Option<IpAddr>,
    ends_at: Timestamp,
    returned: ReturnedLogin,
}

/// A log-in with which GitHub led the browser back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedLogin {
    /// What the code is exchanged with.
    pub proof: SignInProof,
    /// The path that is shown after the log-in.
    pub next: String,
}

impl Default for BegunLogins {
    fn default() -> Self {
        Self { open: Mutex::default(), asked: Semaphore::new(ASKED_MAX) }
    }
}

impl BegunLogins {
    /// Begins a log-in. `cookie` is the one that the browser has of an earlier log-in, in another tab for
    /// example. Returns what GitHub is asked with, and the cookie for the browser.
    pub fn begin(
        &self,
        (redirect_uri, next): (String, String),
        cookie: Option<String>,
        address: Option<IpAddr>,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> (SignInRequest, String) {
        let is_ours = |text: &String| {
            text.len() == COOKIE_LEN && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let cookie = cookie.filter(is_ours).unwrap_or_else(|| new_secret(ids));
        let (state, verifier) = (new_secret(ids), new_secret(ids));
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let (address, key) = (address.map(network), key_of(&state, &cookie));
        let proof = SignInProof { verifier, redirect_uri: redirect_uri.clone() };
        let returned = ReturnedLogin { proof, next };
        let mut open = self.open(now);
        let addresses = open.iter().map(|login| login.address);
        if let Some(at) = to_replace(addresses, &address, LOGINS_OF_ADDRESS_MAX, LOGINS_MAX) {
            open.remove(at);
        }
        open.push(BegunLogin { key, address, ends_at: now.after(LOGIN_LIFETIME), returned });
        (SignInRequest { state, challenge, redirect_uri }, cookie)
    }

    /// Takes the log-in out that was begun with this state, in the browser that has one of these cookies.
    pub fn take(&self, state: &str, cookies: &[String], now: Timestamp) -> Option<ReturnedLogin> {
        let keys: Vec<_> = cookies.iter().map(|cookie| key_of(state, cookie)).collect();
        let mut open = self.open(now);
        // Hashes are compared, so the duration reveals nothing.
        let at = open.iter().position(|login| keys.contains(&login.key))?;
        Some(open.remove(at).returned)
    }

    /// Those that have not ended.
    fn open(&self, now: Timestamp) -> MutexGuard<'_, Vec<BegunLogin>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|login| login.ends_at > now);
        open
    }
}

fn key_of(state: &str, cookie: &str) -> [u8; 32] {
    Sha256::digest(format!("log-in {state} in {cookie}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemIds;

    fn begin(
        logins: &BegunLogins,
        next: &str,
        address: &str,
        now: Timestamp,
    ) -> (SignInRequest, String) {
        let to = ("https://box/back".to_owned(), next.to_owned());
        logins.begin(to, None, address.parse().ok(), &SystemIds, now)
    }

    #[test]
    fn a_log_in_is_good_once_for_minutes_and_in_its_own_browser() {
        let (logins, now) = (BegunLogins::default(), Timestamp::from_unix_ms(0));
        let (one, cookie) = begin(&logins, "/one", "9.9.9.9", now);
        let (two, other) = begin(&logins, "/two", "9.9.9.9", now);
        let take = |state: &str, cookies: &[&String], now| {
            let cookies: Vec<String> = cookies.iter().map(|cookie| (*cookie).clone()).collect();
            logins.take(state, &cookies, now).map(|returned| returned.next)
        };
        assert_eq!(take(&one.state, &[], now), None);
        assert_eq!(take(&one.state, &[&other], now), None, "of another browser");
        assert_eq!(take("", &[&cookie], now), None);
        assert_eq!(take(&one.state, &[&other, &cookie], now), Some("/one".to_owned()));
        assert_eq!(take(&one.state, &[&cookie], now), None, "it was used");
        assert_eq!(take(&two.state, &[&other], now.after(LOGIN_LIFETIME)), None, "too late");
    }

    #[test]
    fn a_browser_has_one_cookie_for_log_ins_in_several_tabs() {
        let (logins, now) = (BegunLogins::default(), Timestamp::from_unix_ms(0));
        let (one, cookie) = begin(&logins, "/one", "9.9.9.9", now);
        let to = ("https://box/back".to_owned(), "/two".to_owned());
        let (two, same) = logins.begin(to.clone(), Some(cookie.clone()), None, &SystemIds, now);
        assert_eq!(same, cookie);
        assert_ne!((&one.state, &one.challenge), (&two.state, &two.challenge));
        assert!(logins.take(&one.state, std::slice::from_ref(&cookie), now).is_some());
        assert!(logins.take(&two.state, &[cookie], now).is_some());
        let (_, made) = logins.begin(to, Some("short".to_owned()), None, &SystemIds, now);
        assert_eq!(made.len(), COOKIE_LEN);
    }

    #[test]
    fn an_address_with_many_log_ins_makes_room_for_its_own() {
        let (logins, now) = (BegunLogins::default(), Timestamp::from_unix_ms(0));
        let (only, cookie) = begin(&logins, "/", "9.9.9.9", now);
        for _ in 0..2_000 {
            begin(&logins, "/", "2001:db8::1", now);
            begin(&logins, "/", "2001:db8::2", now);
        }
        assert_eq!(logins.open(now).len(), 1 + LOGINS_OF_ADDRESS_MAX);
        assert!(logins.take(&only.state, &[cookie], now).is_some());
    }

    #[test]
    fn the_challenge_is_that_of_the_verifier() {
        let (logins, now) = (BegunLogins::default(), Timestamp::from_unix_ms(0));
        let (ask, cookie) = begin(&logins, "/", "9.9.9.9", now);
        let proof = logins.take(&ask.state, &[cookie], now).expect("it is there").proof;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&proof.verifier));
        assert_eq!((ask.challenge, ask.redirect_uri), (challenge, proof.redirect_uri));
        // RFC 7636: from 43 to 128 characters.
        assert_eq!(proof.verifier.len(), 64);
    }
}
