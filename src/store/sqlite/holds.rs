//! Holds, as rows.

use rusqlite::{Connection, params};

use super::apply::{execute, stored_account};
use super::read::{account_of, all};
use crate::store::rows::BadRow;
use crate::store::{CommitError, StoreError};
use crate::types::{AccountName, Hold, HoldScope, IssueId, Repository, Timestamp};

pub(super) fn list(conn: &Connection) -> Result<Vec<Hold>, StoreError> {
    all(
        conn,
        "SELECT kind, shown, reason, since, held_by, followed_to, account FROM hold
         ORDER BY kind, name",
        [],
        |row| {
            let (kind, shown) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            Ok(Hold {
                scope: scope(kind, shown, account_of(row, 6)?)?,
                reason: row.get(2)?,
                since: Timestamp::from_unix_ms(row.get(3)?),
                by: row.get(4)?,
                followed_to: row.get::<_, Option<String>>(5)?.map(Repository::trusted),
            })
        },
    )
}

/// Reads back what [`HoldScope::kind`] and [`HoldScope::name`] gave, and the account of an issue.
fn scope(kind: &str, name: &str, account: AccountName) -> Result<HoldScope, BadRow> {
    match kind {
        "server" => Ok(HoldScope::Server),
        "account" => Ok(HoldScope::Account(AccountName::trusted(name))),
        "repository" => Ok(HoldScope::Repository(Repository::trusted(name))),
        "issue" => Ok(HoldScope::Issue(account, IssueId::trusted(name))),
        other => Err(BadRow::UnknownWord(other.into())),
    }
}

pub(super) fn put(conn: &Connection, holds: &[Hold]) -> Result<usize, CommitError> {
    holds.iter().map(|hold| put_one(conn, hold)).sum()
}

fn put_one(conn: &Connection, hold: &Hold) -> Result<usize, CommitError> {
    let Hold { scope, reason, since, by, followed_to } = hold;
    let followed_to = followed_to.as_ref().map(Repository::as_str);
    let account = match scope {
        HoldScope::Issue(account, _) => stored_account(account),
        HoldScope::Server | HoldScope::Account(_) | HoldScope::Repository(_) => None,
    };
    execute(
        conn,
        "INSERT INTO hold (kind, name, shown, reason, since, held_by, followed_to, account)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT DO UPDATE SET shown = excluded.shown, reason = excluded.reason,
                                   since = excluded.since, held_by = excluded.held_by,
                                   followed_to = excluded.followed_to",
        params![
            scope.kind(),
            scope.folded(),
            scope.name(),
            reason,
            since.unix_ms(),
            by,
            followed_to,
            account
        ],
    )
}

pub(super) fn remove(conn: &Connection, scope: &HoldScope) -> Result<usize, CommitError> {
    let sql = "DELETE FROM hold WHERE kind = ?1 AND name = ?2";
    execute(conn, sql, params![scope.kind(), scope.folded()])
}
