//! The end of streaming answers: at shutdown, or when the session or the token of their caller ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::access::{Access, KnownToken};
use crate::clock::Clock;

use super::Shared;
use super::admin_token::TokenHash;
use super::caller::{Caller, Credential};
use super::error::{ApiError, Code};
use super::sessions::{SessionKey, Sessions};
use super::shared::closed;

/// Watches for the end of a streaming answer.
pub struct Ending {
    closing: watch::Receiver<bool>,
    asked_by: AskedBy,
}

/// Why a streaming answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server shuts down.
    Server,
    /// The caller's session ended.
    Session,
    /// The caller's admin token was replaced.
    Token,
    /// The caller's token was removed or has expired, or its account was disabled.
    Revoked,
}

impl Ended {
    /// The error for programs.
    pub fn error(self) -> ApiError {
        match self {
            Self::Server => ApiError::new(Code::ShuttingDown, "the server is shutting down"),
            Self::Session => ApiError::new(Code::Unauthorized, "the session has ended"),
            Self::Token => ApiError::new(Code::Unauthorized, "the admin token was replaced"),
            Self::Revoked => ApiError::new(Code::Unauthorized, "the token is no longer valid"),
        }
    }

    /// The message for a page.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Server => "The server is shutting down; load the page again later.",
            Self::Session => "The session has ended; log in again.",
            Self::Token => "The admin token was replaced; log in again.",
            Self::Revoked => "The token is no longer valid; log in with another one.",
        }
    }
}

/// The credential of a streaming answer.
enum AskedBy {
    Session(WatchedSession),
    Admin(watch::Receiver<TokenHash>),
    Token(WatchedToken),
    /// None; for tests.
    #[cfg(test)]
    Unbound,
}

/// The session of a streaming answer.
struct WatchedSession {
    sessions: Sessions,
    key: SessionKey,
    clock: Arc<dyn Clock>,
    /// How long one check is valid.
    lag_max: Duration,
    /// Until when the last check is valid.
    good_until: Instant,
    /// Tokens and accounts, with which a session may end.
    changed: watch::Receiver<()>,
}

/// The token of a streaming answer.
struct WatchedToken {
    access: Arc<Access>,
    token: Arc<KnownToken>,
    clock: Arc<dyn Clock>,
    changed: watch::Receiver<()>,
}

impl WatchedToken {
    fn has_ended(&self) -> bool {
        !self.access.admits(&self.token, self.clock.now())
    }

    /// Returns when it may have ended.
    async fn changed(&mut self) {
        let expires = async {
            match self.token.expires_at() {
                Some(at) => self.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = expires => {}
            _ = self.changed.changed() => {}
        }
    }
}

impl Ending {
    /// For an answer to this caller.
    pub fn new(shared: &Shared, caller: &Caller) -> Self {
        let (clock, lag_max) = (&shared.edge.clock, shared.edge.limits.session_lag_max);
        let asked_by = match &caller.credential {
            Credential::Session(key) => AskedBy::Session(WatchedSession {
                changed: shared.sessions.access_changed(),
                sessions: shared.sessions.clone(),
                key: key.clone(),
                clock: Arc::clone(clock),
                lag_max,
                // It may have been checked long ago, before a sandbox was started.
                good_until: Instant::now(),
            }),
            Credential::Admin(token) => AskedBy::Admin(token.clone()),
            Credential::Token(token) => AskedBy::Token(WatchedToken {
                access: Arc::clone(&shared.edge.access),
                token: Arc::clone(token),
                clock: Arc::clone(clock),
                changed: shared.edge.access.changed(),
            }),
        };
        Self { closing: shared.edge.closing.clone(), asked_by }
    }

    /// Whether the end has come. A person's log-out is noticed within
    /// [`Limits::session_lag_max`](super::Limits::session_lag_max), the others at once.
    pub async fn has_come(&mut self) -> Option<Ended> {
        if *self.closing.borrow() {
            return Some(Ended::Server);
        }
        match &mut self.asked_by {
            AskedBy::Session(session) => session.has_ended().await.then_some(Ended::Session),
            AskedBy::Admin(token) => is_replaced(token).then_some(Ended::Token),
            AskedBy::Token(token) => token.has_ended().then_some(Ended::Revoked),
            #[cfg(test)]
            AskedBy::Unbound => None,
        }
    }

    /// Checks that the end has not come: for what must not be done with a credential that was deleted
    /// while the body arrived.
    ///
    /// # Errors
    /// 401 if the credential is no longer valid, 503 at shutdown.
    pub async fn check(&mut self) -> Result<(), ApiError> {
        self.has_come().await.map_or(Ok(()), |ended| Err(ended.error()))
    }

    /// Returns when the end comes. Cancel safe.
    pub async fn come(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.has_come().await {
                return ended;
            }
            let closed = closed(self.closing.clone());
            match &mut self.asked_by {
                AskedBy::Session(session) => tokio::select! {
                    biased;
                    () = closed => return Ended::Server,
                    () = sleep_until(session.good_until) => {}
                    _ = session.changed.changed() => session.good_until = Instant::now(),
                },
                AskedBy::Token(token) => tokio::select! {
                    biased;
                    () = closed => return Ended::Server,
                    () = token.changed() => {}
                },
                AskedBy::Admin(token) => tokio::select! {
                    biased;
                    () = closed => return Ended::Server,
                    () = replaced(token) => return Ended::Token,
                },
                #[cfg(test)]
                AskedBy::Unbound => {
                    closed.await;
                    return Ended::Server;
                }
            }
        }
    }
}

fn is_replaced(token: &watch::Receiver<TokenHash>) -> bool {
    // An error means that the server is gone, which ends the answer anyway.
    token.has_changed().unwrap_or(false)
}

/// Returns when the token is replaced, also if that was seen before.
async fn replaced(token: &mut watch::Receiver<TokenHash>) {
    match token.changed().await {
        Ok(()) => token.mark_changed(),
        Err(_) => std::future::pending().await,
    }
}

impl WatchedSession {
    /// Checks the session, at most once in `lag_max`. A failed check is repeated later.
    async fn has_ended(&mut self) -> bool {
        if Instant::now() < self.good_until {
            return false;
        }
        let is_open = self.sessions.is_open(&self.key, self.clock.now()).await;
        self.good_until = Instant::now() + self.lag_max;
        is_open.is_ok_and(|is_open| !is_open)
    }
}

#[cfg(test)]
pub use tests::{TestSession, until_closed};

#[cfg(test)]
mod tests;
