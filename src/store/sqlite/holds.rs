//! Holds, as rows.

use rusqlite::{Connection, params};

use super::apply::execute;
use super::read::all;
use super::rows::BadRow;
use crate::store::{CommitError, StoreError};
use crate::types::{AccountName, Hold, HoldScope, IssueId, Repository, Timestamp};

pub(super) fn list(conn: &Connection) -> Result<Vec<Hold>, StoreError> {
    all(
        conn,
        "SELECT kind, shown, reason, since, held_by FROM hold ORDER BY kind, name",
        [],
        |row| {
            let (kind, shown) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            Ok(Hold {
                scope: scope(kind, shown)?,
                reason: row.get(2)?,
                since: Timestamp::from_unix_ms(row.get(3)?),
                by: row.get(4)?,
            })
        },
    )
}

/// Reads back what [`HoldScope::kind`] and [`HoldScope::name`] gave.
fn scope(kind: &str, name: &str) -> Result<HoldScope, BadRow> {
    match kind {
        "server" => Ok(HoldScope::Server),
        "account" => Ok(HoldScope::Account(AccountName::trusted(name))),
        "repository" => Ok(HoldScope::Repository(Repository::trusted(name))),
        "issue" => Ok(HoldScope::Issue(IssueId::trusted(name))),
        other => Err(BadRow::UnknownWord(other.into())),
    }
}

pub(super) fn put(conn: &Connection, hold: &Hold) -> Result<usize, CommitError> {
    let Hold { scope, reason, since, by } = hold;
    execute(
        conn,
        "INSERT INTO hold (kind, name, shown, reason, since, held_by)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO UPDATE SET shown = excluded.shown, reason = excluded.reason,
                                   since = excluded.since, held_by = excluded.held_by",
        params![scope.kind(), scope.folded(), scope.name(), reason, since.unix_ms(), by],
    )
}

pub(super) fn remove(conn: &Connection, scope: &HoldScope) -> Result<usize, CommitError> {
    let sql = "DELETE FROM hold WHERE kind = ?1 AND name = ?2";
    execute(conn, sql, params![scope.kind(), scope.folded()])
}
