//! The last syncs of sandboxes, as rows.

use async_trait::async_trait;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::apply::execute;
use super::read::{all, bound, one};
use crate::store::sync::{SyncRow, SyncStore};
use crate::store::{CommitError, StoreError};
use crate::types::{AccountName, SandboxId, SyncDirection, SyncStats, SyncVersion, Timestamp};

const COLUMNS: &str = "sandbox, version, direction, synced_at, files_processed, files_uploaded, \
                       files_downloaded, files_deleted, files_skipped, bytes_transferred, \
                       duration_ms";

#[async_trait]
impl SyncStore for SqliteStore {
    async fn last_sync(&self, sandbox: &SandboxId) -> Result<Option<SyncRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM sync WHERE sandbox = ?1");
        self.readers.read(|conn| one(conn, &sql, [sandbox.as_str()], sync))
    }

    async fn synced_sandboxes(
        &self,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<(AccountName, SandboxId)>, StoreError> {
        let sql = "SELECT a.name, s.sandbox FROM sync AS s
             JOIN account AS a ON a.id = coalesce(
                 (SELECT account FROM issue WHERE sandbox_id = s.sandbox),
                 (SELECT account FROM ended WHERE sandbox_id = s.sandbox))
             WHERE s.sandbox > ?1 ORDER BY s.sandbox LIMIT ?2";
        let values = params![after.map_or("", |after| after.as_str()), bound(limit)];
        self.readers.read(|conn| {
            all(conn, sql, values, |row| {
                let account = AccountName::trusted(row.get_ref(0)?.as_str()?);
                Ok((account, SandboxId::trusted(row.get_ref(1)?.as_str()?)))
            })
        })
    }

    async fn put_sync(&self, row: SyncRow) -> Result<(), CommitError> {
        self.change(move |conn| put(conn, &row)).await
    }
}

fn put(conn: &Connection, row: &SyncRow) -> Result<usize, CommitError> {
    let sql = format!(
        "INSERT OR REPLACE INTO sync ({COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
    );
    let SyncRow { sandbox, version, direction, synced_at, stats } = row;
    let values = params![
        sandbox.as_str(),
        version.to_string(),
        direction.as_str(),
        synced_at.unix_ms(),
        stats.files_processed.cast_signed(),
        stats.files_uploaded.cast_signed(),
        stats.files_downloaded.cast_signed(),
        stats.files_deleted.cast_signed(),
        stats.files_skipped.cast_signed(),
        stats.bytes_transferred.cast_signed(),
        stats.duration_ms.cast_signed(),
    ];
    execute(conn, &sql, values)
}

fn sync(row: &Row<'_>) -> rusqlite::Result<SyncRow> {
    let text = |index: usize| row.get::<_, String>(index);
    let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let wrong = |index: usize, what: &str| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, what.into())
    };
    Ok(SyncRow {
        sandbox: SandboxId::trusted(text(0)?),
        version: SyncVersion::parse(&text(1)?).ok_or_else(|| wrong(1, "no version"))?,
        direction: SyncDirection::parse(&text(2)?).ok_or_else(|| wrong(2, "no direction"))?,
        synced_at: Timestamp::from_unix_ms(row.get(3)?),
        stats: SyncStats {
            files_processed: number(4)?,
            files_uploaded: number(5)?,
            files_downloaded: number(6)?,
            files_deleted: number(7)?,
            files_skipped: number(8)?,
            bytes_transferred: number(9)?,
            duration_ms: number(10)?,
        },
    })
}
