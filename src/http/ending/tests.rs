//! An end that comes, and sessions for tests of what it ends.

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
