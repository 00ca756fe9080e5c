//! An end that comes, and sessions for tests of what it ends.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::clock::{SystemClock, SystemIds};
use crate::http::sessions::SessionHolder;
use crate::http::sse::HEARTBEAT;
use crate::http::{LiveToken, TokenHash};
use crate::store::access::AccessStore;
use crate::store::session::{SessionHash, SessionRow, SessionStore};
use crate::store::{CommitError, StoreError};
use crate::types::{AccountName, AccountRules, ApiToken, Secret, Timestamp, TokenId};

/// One session, in memory.
#[derive(Default)]
struct OneSession(Mutex<Option<SessionRow>>);

#[async_trait]
impl SessionStore for OneSession {
    async fn put_session(
        &self,
        _: SessionHash,
        row: SessionRow,
        _: Timestamp,
    ) -> Result<(), CommitError> {
        *self.0.lock().expect("not poisoned") = Some(row);
        Ok(())
    }

    async fn session(&self, _: SessionHash) -> Result<Option<SessionRow>, StoreError> {
        Ok(self.0.lock().expect("not poisoned").clone())
    }

    async fn choose_account(&self, _: SessionHash, _: AccountName) -> Result<(), CommitError> {
        Ok(())
    }

    async fn keep_sessions_of(&self, _: Vec<String>) -> Result<(), CommitError> {
        Ok(())
    }

    async fn end_session(&self, _: SessionHash) -> Result<(), CommitError> {
        *self.0.lock().expect("not poisoned") = None;
        Ok(())
    }
}

/// No token, and no account but `default`.
#[async_trait]
impl AccessStore for OneSession {
    async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        Ok(Vec::new())
    }

    async fn put_token(&self, _: ApiToken) -> Result<(), CommitError> {
        Ok(())
    }

    async fn remove_token(&self, _: &TokenId) -> Result<(), CommitError> {
        Ok(())
    }

    async fn note_uses(&self, _: Vec<(TokenId, Timestamp)>) -> Result<(), CommitError> {
        Ok(())
    }

    async fn accounts(&self) -> Result<Vec<(AccountName, AccountRules)>, StoreError> {
        Ok(Vec::new())
    }

    async fn put_account(&self, _: AccountName, _: AccountRules) -> Result<(), CommitError> {
        Ok(())
    }
}

/// An answer that goes on with a session, until that is ended by what is sent to it.
pub struct TestSession {
    pub sessions: Sessions,
    pub key: SessionKey,
}

impl TestSession {
    pub async fn begin() -> Self {
        let token = TokenHash::of(&Secret::new("token"));
        let access = Access::open(Arc::new(OneSession::default()), BTreeMap::new()).await;
        let access = Arc::new(access.expect("it is read"));
        let live = LiveToken::new(token.clone());
        let sessions = Sessions::new(Arc::new(OneSession::default()), live, access);
        let now = SystemClock.now();
        let secret =
            sessions.begin(SessionHolder::Admin(token), &SystemIds, now).await.expect("it begins");
        let key = sessions.find(&secret, now).await.expect("it is read").expect("there");
        Self { sessions, key }
    }

    pub async fn end(&self) {
        self.sessions.end(&self.key).await.expect("it ends");
    }

    pub fn ending(&self, closing: watch::Receiver<bool>) -> Ending {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (sessions, key) = (self.sessions.clone(), self.key.clone());
        let good_until = Instant::now() + HEARTBEAT;
        let changed = sessions.access_changed();
        let lag_max = HEARTBEAT;
        let watched = WatchedSession { sessions, key, clock, lag_max, good_until, changed };
        Ending { closing, asked_by: AskedBy::Session(watched) }
    }
}

/// Of an answer that nothing ends before the server does.
pub const fn until_closed(closing: watch::Receiver<bool>) -> Ending {
    Ending { closing, asked_by: AskedBy::Unbound }
}

#[tokio::test(start_paused = true)]
async fn it_comes_with_the_server_at_once_and_with_the_session_soon() {
    let (close, closing) = watch::channel(false);
    let session = TestSession::begin().await;
    let mut ending = session.ending(closing.clone());
    let began = Instant::now();
    tokio::time::timeout(HEARTBEAT * 9, ending.come()).await.expect_err("nothing has ended");
    session.end().await;
    let ended = tokio::time::timeout(HEARTBEAT, ending.come()).await;
    assert_eq!(ended, Ok(Ended::Session), "after {:?}", began.elapsed());
    let mut ending = until_closed(closing);
    assert_eq!(ending.has_come().await, None);
    close.send_replace(true);
    assert_eq!(ending.come().await, Ended::Server);
}

#[tokio::test(start_paused = true)]
async fn it_comes_with_the_token_however_often_it_is_asked() {
    let (_open, closing) = watch::channel(false);
    let token = LiveToken::new(TokenHash::of(&Secret::new("one")));
    let mut ending = Ending { closing, asked_by: AskedBy::Admin(token.watch()) };
    assert_eq!(ending.has_come().await, None);
    tokio::time::timeout(HEARTBEAT * 9, ending.come()).await.expect_err("nothing has ended");
    // While it is waited for, polled first.
    let replaced = async { token.replace(TokenHash::of(&Secret::new("two"))) };
    let (ended, ()) = tokio::join!(biased; ending.come(), replaced);
    assert_eq!(ended, Ended::Token);
    assert_eq!(ending.has_come().await, Some(Ended::Token));
    assert_eq!(ending.come().await, Ended::Token);
}

#[test]
fn a_lost_shutdown_signal_ends_answers() {
    // On a thread of its own: what never yields holds up every timer of its runtime.
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let session = TestSession::begin().await;
            for is_by_session in [false, true] {
                let (gone, closing) = watch::channel(false);
                let mut ending = match is_by_session {
                    false => until_closed(closing),
                    true => session.ending(closing),
                };
                drop(gone);
                tx.send(ending.come().await).expect("the receiver is there");
            }
        });
    });
    for _ in 0..2 {
        let ended = rx.recv_timeout(Duration::from_secs(10)).expect("the end is not noticed");
        assert_eq!(ended, Ended::Server);
    }
}
