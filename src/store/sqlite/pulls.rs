//! Whose work pull requests and commits are, as rows say it.

use async_trait::async_trait;
use rusqlite::params;

use super::SqliteStore;
use super::read::one;
use crate::store::StoreError;
use crate::store::pulls::WorkOwners;
use crate::types::{HomeId, IssueNumber};

#[async_trait]
impl WorkOwners for SqliteStore {
    async fn home_of_pull(
        &self,
        repository_id: u64,
        number: IssueNumber,
    ) -> Result<Option<HomeId>, StoreError> {
        // Many pull requests have the same small number: the repository decides which one is meant.
        // That is the one of the sandbox's checkout, which an issue leaves behind when it is transferred.
        let sql = "SELECT e.home FROM github_effect AS e JOIN issue AS i ON i.home = e.home
                   LEFT JOIN checkout AS c ON c.sandbox = e.key
                   WHERE e.kind = 'show_pull' AND e.comment = ?2
                     AND coalesce(c.remote_id, i.repository_id) = ?1
                   ORDER BY e.id DESC LIMIT 1";
        let by = params![repository_id.cast_signed(), number.0.cast_signed()];
        self.readers.read(|conn| one(conn, sql, by, |row| row.get(0).map(HomeId)))
    }

    async fn home_of_commit(
        &self,
        repository_id: u64,
        commit: &str,
    ) -> Result<Option<HomeId>, StoreError> {
        let sql = "SELECT c.home FROM checkout AS c JOIN issue AS i ON i.home = c.home
                   WHERE (c.tip = ?2 OR c.pushing = ?2)
                     AND coalesce(c.remote_id, i.repository_id) = ?1
                     AND i.sandbox_id = c.sandbox LIMIT 1";
        let by = params![repository_id.cast_signed(), commit];
        self.readers.read(|conn| one(conn, sql, by, |row| row.get(0).map(HomeId)))
    }
}
