//! Checkouts, as rows.

use async_trait::async_trait;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::apply::execute;
use super::github;
use super::read::{all, one};
use crate::issue::GithubEffect;
use crate::store::checkout::{CheckoutRow, CheckoutStore};
use crate::store::{CommitError, StoreError};
use crate::types::{CheckoutState, HomeId, PushPermission, Repository, SandboxId, Timestamp};

const COLUMNS: &str = "sandbox, home, state, reason, changed_at, remote, base, branch, tip, pushing, \
                       foreign_tip, foreign_is_fetched, pushes, pushes_why, published_by, remote_id";

#[async_trait]
impl CheckoutStore for SqliteStore {
    async fn checkout(&self, sandbox: &SandboxId) -> Result<Option<CheckoutRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM checkout WHERE sandbox = ?1");
        self.readers.read(|conn| one(conn, &sql, [sandbox.as_str()], checkout))
    }

    async fn checkouts_of(&self, home: HomeId) -> Result<Vec<CheckoutRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM checkout WHERE home = ?1 ORDER BY sandbox");
        self.readers.read(|conn| all(conn, &sql, [home.0], checkout))
    }

    async fn unfinished_pushes(&self) -> Result<Vec<CheckoutRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM checkout WHERE pushing IS NOT NULL");
        self.readers.read(|conn| all(conn, &sql, [], checkout))
    }

    async fn put_checkout(
        &self,
        row: CheckoutRow,
        effects: Vec<GithubEffect>,
        now: Timestamp,
    ) -> Result<(), CommitError> {
        self.change(move |conn| {
            for effect in &effects {
                github::record(conn, row.home, effect, now)?;
            }
            put(conn, &row)
        })
        .await
    }
}

fn put(conn: &Connection, row: &CheckoutRow) -> Result<usize, CommitError> {
    let sql = format!(
        "INSERT OR REPLACE INTO checkout ({COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
    );
    let values = params![
        row.sandbox.as_str(),
        row.home.0,
        row.state.as_str(),
        row.reason,
        row.changed_at.unix_ms(),
        row.remote.as_str(),
        row.base,
        row.branch,
        row.tip,
        row.pushing,
        row.foreign_tip,
        row.foreign_is_fetched,
        row.pushes.as_str(),
        row.pushes_why,
        row.published_by,
        row.remote_id.map(u64::cast_signed),
    ];
    execute(conn, &sql, values)
}

fn checkout(row: &Row<'_>) -> rusqlite::Result<CheckoutRow> {
    let text = |index: usize| row.get::<_, String>(index);
    let wrong = |index: usize, what: &str| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, what.into())
    };
    Ok(CheckoutRow {
        sandbox: SandboxId::trusted(text(0)?),
        home: HomeId(row.get(1)?),
        state: CheckoutState::parse(&text(2)?).ok_or_else(|| wrong(2, "no checkout's state"))?,
        reason: text(3)?,
        changed_at: Timestamp::from_unix_ms(row.get(4)?),
        remote: Repository::parse(&text(5)?).map_err(|_| wrong(5, "no repository"))?,
        base: row.get(6)?,
        branch: row.get(7)?,
        tip: row.get(8)?,
        pushing: row.get(9)?,
        foreign_tip: row.get(10)?,
        foreign_is_fetched: row.get(11)?,
        pushes: PushPermission::parse(&text(12)?).ok_or_else(|| wrong(12, "no permission"))?,
        pushes_why: text(13)?,
        published_by: row.get(14)?,
        remote_id: row.get::<_, Option<i64>>(15)?.map(i64::cast_unsigned),
    })
}
