//! What ends an answer that goes on: the server's end, and that of the session which asked for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;

use super::Shared;
use super::error::{ApiError, Code};
use super::sessions::{SessionKey, Sessions};
use super::shared::closed;

/// Watches for the end of an answer that goes on.
pub struct Ending {
    closing: watch::Receiver<bool>,
    session: Option<Watched>,
}

/// What ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server is to end.
    Server,
    /// The session that it was asked with has ended.
    Session,
}

impl Ended {
    /// The same in words, for programs.
    pub fn error(self) -> ApiError {
        match self {
            Self::Server => ApiError::new(Code::ShuttingDown, "the server ended"),
            Self::Session => ApiError::new(Code::Unauthorized, "the session has ended"),
        }
    }

    /// The same in words, on a page.
    pub const fn told(self) -> &'static str {
        match self {
            Self::Server => "The server ended; load the page again.",
            Self::Session => "The session has ended.",
        }
    }
}

/// A session that something goes on with.
pub struct Watched {
    sessions: Sessions,
    key: SessionKey,
    clock: Arc<dyn Clock>,
    /// How long it is taken for open after a look.
    lag_max: Duration,
    /// It is not looked at again before this.
    good_until: Instant,
}

impl Ending {
    /// Of an answer to a request with that session, which was just found; with none, the token's.
    pub fn new(shared: &Shared, session: Option<SessionKey>) -> Self {
        let (clock, lag_max) = (&shared.edge.clock, shared.edge.limits.session_lag_max);
        let watched = |key| Watched {
            sessions: shared.sessions.clone(),
            key,
            clock: Arc::clone(clock),
            lag_max,
            good_until: Instant::now() + lag_max,
        };
        Self::of(shared.edge.closing.clone(), session.map(watched))
    }

    /// The same, of its parts.
    pub const fn of(closing: watch::Receiver<bool>, session: Option<Watched>) -> Self {
        Self { closing, session }
    }

    /// Whether the end has come: the server's at once, a session's within
    /// [`Limits::session_lag_max`](super::Limits::session_lag_max).
    pub async fn has_come(&mut self) -> Option<Ended> {
        if *self.closing.borrow() {
            return Some(Ended::Server);
        }
        let has_ended = match &mut self.session {
            Some(session) => session.has_ended().await,
            None => false,
        };
        has_ended.then_some(Ended::Session)
    }

    /// Returns once the end comes. May be dropped and asked for again.
    pub async fn come(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.has_come().await {
                return ended;
            }
            let closed = closed(self.closing.clone());
            match &self.session {
                None => {
                    closed.await;
                    return Ended::Server;
                }
                Some(session) => tokio::select! {
                    biased;
                    () = closed => return Ended::Server,
                    () = sleep_until(session.good_until) => {}
                },
            }
        }
    }
}

impl Watched {
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
pub use tests::Session;

#[cfg(test)]
mod tests;
