//! What the comparison with GitHub needs, as rows.

use std::collections::HashSet;

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::SqliteStore;
use super::apply::{GuidKey, execute};
use super::read::{all, one};
use crate::store::recovered::{RecoveryStore, StoredRepository};
use crate::store::{CommitError, StoreError};
use crate::types::{DeliveryId, Repository, Timestamp};

#[async_trait]
impl RecoveryStore for SqliteStore {
    async fn stored_deliveries(
        &self,
        ids: &[DeliveryId],
    ) -> Result<HashSet<DeliveryId>, StoreError> {
        self.readers.read(|conn| {
            let mut stored = HashSet::with_capacity(ids.len());
            for id in ids {
                let sql = "SELECT 1 FROM delivery WHERE guid = ?1";
                if one(conn, sql, [GuidKey::of(id)], |_| Ok(()))?.is_some() {
                    stored.insert(id.clone());
                }
            }
            Ok(stored)
        })
    }

    async fn compared_until(&self, source: &str) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT compared_until FROM delivery_log WHERE source = ?1";
        self.readers
            .read(|conn| one(conn, sql, [source], |row| row.get(0).map(Timestamp::from_unix_ms)))
    }

    async fn put_compared_until(&self, source: &str, until: Timestamp) -> Result<(), CommitError> {
        let source = source.to_owned();
        self.change(move |conn| {
            let sql =
                "INSERT OR REPLACE INTO delivery_log (source, compared_until) VALUES (?1, ?2)";
            execute(conn, sql, params![source, until.unix_ms()])
        })
        .await
    }

    async fn stored_repositories(&self) -> Result<Vec<StoredRepository>, StoreError> {
        // With max(), SQLite takes the other columns from the row that has the maximum.
        let sql = "SELECT repository_id, body ->> '$.facts.repository',
                          max(iif(installation_id IS NULL, 0, home)), installation_id,
                          total(phase IS NOT NULL) > 0
                   FROM issue
                   WHERE repository_id IS NOT NULL AND body ->> '$.facts.repository' IS NOT NULL
                   GROUP BY repository_id ORDER BY repository_id";
        let found = self.readers.read(|conn| all(conn, sql, [], stored_repository))?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn repository_hooks(&self) -> Result<Vec<(u64, u64)>, StoreError> {
        let sql = "SELECT repository_id, hook FROM repository_hook ORDER BY repository_id";
        let number = |row: &Row<'_>, at| row.get::<_, i64>(at).map(i64::cast_unsigned);
        self.readers.read(|conn| all(conn, sql, [], |row| Ok((number(row, 0)?, number(row, 1)?))))
    }

    async fn put_repository_hook(&self, repository_id: u64, hook: u64) -> Result<(), CommitError> {
        self.change(move |conn| {
            let sql =
                "INSERT OR REPLACE INTO repository_hook (repository_id, hook) VALUES (?1, ?2)";
            execute(conn, sql, params![repository_id.cast_signed(), hook.cast_signed()])
        })
        .await
    }
}

/// `None` if its name is none.
fn stored_repository(row: &Row<'_>) -> rusqlite::Result<Option<StoredRepository>> {
    let name = Repository::parse(row.get_ref(1)?.as_str()?).ok();
    let (id, installation): (i64, Option<i64>) = (row.get(0)?, row.get(3)?);
    let is_live = row.get(4)?;
    Ok(name.map(|name| StoredRepository {
        name,
        id: id.cast_unsigned(),
        installation: installation.map(i64::cast_unsigned),
        is_live,
    }))
}
