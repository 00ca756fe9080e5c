//! What ends an answer that goes on: the server's end, and that of the session or the admin token
//! which asked for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;

use super::Shared;
use super::auth::{Caller, TokenHash};
use super::error::{ApiError, Code};
use super::sessions::{SessionKey, Sessions};
use super::shared::closed;

/// Watches for the end of an answer that goes on.
pub struct Ending {
    closing: watch::Receiver<bool>,
    asked_by: AskedBy,
}

/// What ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server is to end.
    Server,
    /// The session that it was asked with has ended.
    Session,
    /// Another admin token is in force than the one that it was asked with.
    Token,
}

impl Ended {
    /// The same in words, for programs.
    pub fn error(self) -> ApiError {
        match self {
            Self::Server => ApiError::new(Code::ShuttingDown, "the server ended"),
            Self::Session => ApiError::new(Code::Unauthorized, "the session has ended"),
            Self::Token => ApiError::new(Code::Unauthorized, "the admin token was replaced"),
        }
    }

    /// The same in words, on a page.
    pub const fn told(self) -> &'static str {
        match self {
            Self::Server => "The server ended; load the page again.",
            Self::Session => "The session has ended.",
            Self::Token => "The admin token was replaced; log in again.",
        }
    }
}

/// What something goes on with.
enum AskedBy {
    Session(WatchedSession),
    Token(watch::Receiver<TokenHash>),
    /// Nothing that could end before the server.
    #[cfg(test)]
    Nobody,
}

/// A session that something goes on with.
struct WatchedSession {
    sessions: Sessions,
    key: SessionKey,
    clock: Arc<dyn Clock>,
    /// How long it is taken for open after a look.
    lag_max: Duration,
    /// It is not looked at again before this.
    good_until: Instant,
}

impl Ending {
    /// Of an answer to this caller.
    pub fn new(shared: &Shared, caller: &Caller) -> Self {
        let (clock, lag_max) = (&shared.edge.clock, shared.edge.limits.session_lag_max);
        let asked_by = match &caller.session {
            Some(key) => AskedBy::Session(WatchedSession {
                sessions: shared.sessions.clone(),
                key: key.clone(),
                clock: Arc::clone(clock),
                lag_max,
                // It may have been found long ago, and a sandbox been started since.
                good_until: Instant::now(),
            }),
            None => AskedBy::Token(caller.token.clone()),
        };
        Self { closing: shared.edge.closing.clone(), asked_by }
    }

    /// Whether the end has come: the server's and the token's at once, a session's within
    /// [`Limits::session_lag_max`](super::Limits::session_lag_max).
    pub async fn has_come(&mut self) -> Option<Ended> {
        if *self.closing.borrow() {
            return Some(Ended::Server);
        }
        match &mut self.asked_by {
            AskedBy::Session(session) => session.has_ended().await.then_some(Ended::Session),
            AskedBy::Token(token) => is_replaced(token).then_some(Ended::Token),
            #[cfg(test)]
            AskedBy::Nobody => None,
        }
    }

    /// Returns once the end comes. May be dropped and asked for again.
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
                },
                AskedBy::Token(token) => tokio::select! {
                    biased;
                    () = closed => return Ended::Server,
                    () = replaced(token) => return Ended::Token,
                },
                #[cfg(test)]
                AskedBy::Nobody => {
                    closed.await;
                    return Ended::Server;
                }
            }
        }
    }
}

fn is_replaced(token: &watch::Receiver<TokenHash>) -> bool {
    // An error means that the server is gone: it ends by that.
    token.has_changed().unwrap_or(false)
}

/// Returns once it is; what saw it before sees it again.
async fn replaced(token: &mut watch::Receiver<TokenHash>) {
    match token.changed().await {
        Ok(()) => token.mark_changed(),
        Err(_) => std::future::pending().await,
    }
}

impl WatchedSession {
    /// As of some seconds ago; where that cannot be read, it is looked at again later.
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
