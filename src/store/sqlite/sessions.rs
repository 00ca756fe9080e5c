//! People's sessions, as rows.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::apply::execute;
use super::read::{bound, one};
use crate::store::session::{SESSIONS_MAX, SessionHash, SessionStore};
use crate::store::{CommitError, StoreError};
use crate::types::Timestamp;

#[async_trait]
impl SessionStore for SqliteStore {
    async fn put_session(
        &self,
        session: SessionHash,
        now: Timestamp,
        ends_at: Timestamp,
    ) -> Result<(), CommitError> {
        self.change(move |conn| put(conn, &session, now, ends_at)).await
    }

    async fn session_end(&self, session: SessionHash) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(|conn| {
            let sql = "SELECT ends_at FROM session WHERE hash = ?1";
            let found = one(conn, sql, [&session.0[..]], |row| row.get(0))?;
            Ok(found.map(Timestamp::from_unix_ms))
        })
    }

    async fn end_session(&self, session: SessionHash) -> Result<(), CommitError> {
        let end = move |conn: &Connection| {
            execute(conn, "DELETE FROM session WHERE hash = ?1", [&session.0[..]])
        };
        self.change(end).await
    }
}

fn put(
    conn: &Connection,
    session: &SessionHash,
    now: Timestamp,
    ends_at: Timestamp,
) -> Result<usize, CommitError> {
    execute(conn, "DELETE FROM session WHERE ends_at <= ?1", [now.unix_ms()])?;
    execute(
        conn,
        "INSERT INTO session (hash, ends_at) VALUES (?1, ?2)
         ON CONFLICT DO UPDATE SET ends_at = excluded.ends_at",
        params![&session.0[..], ends_at.unix_ms()],
    )?;
    execute(
        conn,
        "DELETE FROM session WHERE hash IN (
            SELECT hash FROM session ORDER BY ends_at DESC LIMIT -1 OFFSET ?1)",
        [bound(SESSIONS_MAX)],
    )
}
