//! What ends an answer that goes on: the server's end, and that of the session which asked for it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;

use super::Shared;
use super::error::{ApiError, Code};
use super::sessions::{SessionKey, Sessions};
use super::shared::closed;
use super::sse::HEARTBEAT;

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
struct Watched {
    sessions: Sessions,
    key: SessionKey,
    clock: Arc<dyn Clock>,
    /// It is not looked at again before this.
    good_until: Instant,
}

impl Ending {
    /// Of an answer to a request with that session, which was just found; with none, the token's.
    pub fn new(shared: &Shared, session: Option<SessionKey>) -> Self {
        let clock = &shared.edge.clock;
        let session = session.map(|key| (shared.sessions.clone(), key, Arc::clone(clock)));
        Self::of(shared.edge.closing.clone(), session)
    }

    /// The same, of its parts.
    pub fn of(
        closing: watch::Receiver<bool>,
        session: Option<(Sessions, SessionKey, Arc<dyn Clock>)>,
    ) -> Self {
        let good_until = Instant::now() + HEARTBEAT;
        let watched = |(sessions, key, clock)| Watched { sessions, key, clock, good_until };
        Self { closing, session: session.map(watched) }
    }

    /// Whether the end has come: the server's at once, a session's within [`HEARTBEAT`].
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
                None => closed.await,
                Some(session) => tokio::select! {
                    () = closed => {}
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
        self.good_until = Instant::now() + HEARTBEAT;
        is_open.is_ok_and(|is_open| !is_open)
    }
}

#[cfg(test)]
pub use tests::Session;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{SystemClock, SystemIds};
    use crate::http::auth::TokenHash;
    use crate::store::sqlite::SqliteStore;
    use crate::types::Secret;

    /// An answer that goes on with a session, until that is ended by what is sent to it.
    pub struct Session {
        pub sessions: Sessions,
        pub key: SessionKey,
        _dir: tempfile::TempDir,
    }

    impl Session {
        pub async fn begin() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let store = Arc::new(SqliteStore::open(dir.path()).expect("a store"));
            let sessions = Sessions::new(store, &TokenHash::of(&Secret::new("token")));
            let now = SystemClock.now();
            let secret = sessions.begin(&SystemIds, now).await.expect("it begins");
            let key = sessions.find(&secret, now).await.expect("it is read").expect("there");
            Self { sessions, key, _dir: dir }
        }

        pub async fn end(&self) {
            self.sessions.end(&self.key).await.expect("it ends");
        }

        pub fn ending(&self, closing: watch::Receiver<bool>) -> Ending {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            Ending::of(closing, Some((self.sessions.clone(), self.key.clone(), clock)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_comes_with_the_server_at_once_and_with_the_session_soon() {
        let (close, closing) = watch::channel(false);
        let session = Session::begin().await;
        let mut ending = session.ending(closing.clone());
        let began = Instant::now();
        tokio::time::timeout(HEARTBEAT * 9, ending.come()).await.expect_err("nothing has ended");
        session.end().await;
        let ended = tokio::time::timeout(HEARTBEAT, ending.come()).await;
        assert_eq!(ended, Ok(Ended::Session), "after {:?}", began.elapsed());
        let mut ending = Ending::of(closing, None);
        assert_eq!(ending.has_come().await, None);
        close.send_replace(true);
        assert_eq!(ending.come().await, Ended::Server);
    }
}
