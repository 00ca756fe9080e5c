//! People's sessions, as rows.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::apply::execute;
use super::read::{bound, one};
use crate::store::session::{
    GithubPerson, SESSIONS_MAX, SESSIONS_OF_TOKEN_MAX, SessionHash, SessionOrigin, SessionRow,
    SessionStore,
};
use crate::store::{CommitError, StoreError};
use crate::types::{AccountName, Timestamp, TokenId};

#[async_trait]
impl SessionStore for SqliteStore {
    async fn put_session(
        &self,
        session: SessionHash,
        row: SessionRow,
        now: Timestamp,
    ) -> Result<(), CommitError> {
        self.change(move |conn| put(conn, &session, &row, now)).await
    }

    async fn session(&self, session: SessionHash) -> Result<Option<SessionRow>, StoreError> {
        self.readers.read(|conn| {
            let sql = "SELECT ends_at, account, token, github_user, github_login, login_grant
                       FROM session WHERE hash = ?1";
            one(conn, sql, [&session.0[..]], |row| {
                Ok(SessionRow {
                    ends_at: Timestamp::from_unix_ms(row.get(0)?),
                    account: row.get_ref(1)?.as_str_or_null()?.map(AccountName::trusted),
                    origin: origin(row)?,
                })
            })
        })
    }

    async fn choose_account(
        &self,
        session: SessionHash,
        account: AccountName,
    ) -> Result<(), CommitError> {
        let choose = move |conn: &Connection| {
            let sql = "UPDATE session SET account = ?2 WHERE hash = ?1";
            execute(conn, sql, params![&session.0[..], account.as_str()])
        };
        self.change(choose).await
    }

    async fn keep_sessions_of(&self, grants: Vec<String>) -> Result<(), CommitError> {
        let keys = serde_json::Value::from(grants).to_string();
        let end = move |conn: &Connection| {
            let sql = "DELETE FROM session WHERE login_grant IS NOT NULL
                       AND login_grant NOT IN (SELECT value FROM json_each(?1))";
            execute(conn, sql, [&keys])
        };
        self.change(end).await
    }

    async fn end_session(&self, session: SessionHash) -> Result<(), CommitError> {
        let end = move |conn: &Connection| {
            execute(conn, "DELETE FROM session WHERE hash = ?1", [&session.0[..]])
        };
        self.change(end).await
    }
}

fn origin(row: &Row<'_>) -> rusqlite::Result<SessionOrigin> {
    let user: Option<i64> = row.get(3)?;
    if let Some(user_id) = user.and_then(|user| u64::try_from(user).ok()) {
        let (login, grant) = (row.get(4)?, row.get(5)?);
        return Ok(SessionOrigin::Person(GithubPerson { user_id, login, grant }));
    }
    let token = row.get_ref(2)?.as_str_or_null()?.map(TokenId::trusted);
    Ok(token.map_or(SessionOrigin::Admin, SessionOrigin::Token))
}

fn put(
    conn: &Connection,
    session: &SessionHash,
    row: &SessionRow,
    now: Timestamp,
) -> Result<usize, CommitError> {
    let SessionRow { ends_at, origin, account } = row;
    let account = account.as_ref().map(AccountName::as_str);
    let (token, person) = match origin {
        SessionOrigin::Admin => (None, None),
        SessionOrigin::Token(token) => (Some(token.as_str()), None),
        SessionOrigin::Person(person) => (None, Some(person)),
    };
    let user = person.map(|person| i64::try_from(person.user_id).unwrap_or(i64::MAX));
    execute(conn, "DELETE FROM session WHERE ends_at <= ?1", [now.unix_ms()])?;
    execute(
        conn,
        "INSERT OR REPLACE INTO session
            (hash, ends_at, account, token, github_user, github_login, login_grant)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            &session.0[..],
            ends_at.unix_ms(),
            account,
            token,
            user,
            person.map(|person| person.login.as_str()),
            person.map(|person| person.grant.as_str()),
        ],
    )?;
    execute(
        conn,
        "DELETE FROM session WHERE hash IN (
            SELECT hash FROM session WHERE token IS ?1 AND github_user IS ?4
            ORDER BY ends_at DESC, hash = ?2 DESC LIMIT -1 OFFSET ?3)",
        params![token, &session.0[..], bound(SESSIONS_OF_TOKEN_MAX), user],
    )?;
    // Of those with equally many, the new session's own makes room: a log-in takes from no equal.
    execute(
        conn,
        "DELETE FROM session WHERE hash IN (
            SELECT hash FROM (
                SELECT hash, ends_at, token IS ?1 AND github_user IS ?4 AS own,
                       count(*) OVER (PARTITION BY token, github_user) AS of_origin
                FROM session)
            WHERE hash != ?2 ORDER BY of_origin DESC, own DESC, ends_at
            LIMIT (SELECT max(count(*) - ?3, 0) FROM session))",
        params![token, &session.0[..], bound(SESSIONS_MAX), user],
    )
}
