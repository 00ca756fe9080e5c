//! Deliveries that wait for their sender's permission, as rows.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::apply::{GuidKey, execute};
use super::read::{all, bound, one};
use crate::store::waiting::{WaitingDeliveries, WaitingDelivery};
use crate::store::{CommitError, StoreError};
use crate::types::{DeliveryId, Timestamp};

#[async_trait]
impl WaitingDeliveries for SqliteStore {
    async fn put_waiting(&self, delivery: WaitingDelivery) -> Result<(), CommitError> {
        self.change(move |conn| put(conn, &delivery)).await
    }

    async fn is_waiting(&self, id: &DeliveryId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM waiting_delivery WHERE guid = ?1";
        let found = self
            .readers
            .read(|conn| one(conn, sql, params![GuidKey::of(id)], |row| row.get::<_, i64>(0)));
        found.map(|found| found.is_some())
    }

    async fn waiting(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<WaitingDelivery>, StoreError> {
        let sql = "SELECT guid, event, body, received_at, recovered, due_at, tries
                   FROM waiting_delivery WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2";
        let values = params![now.unix_ms(), bound(limit)];
        self.readers.read(|conn| {
            all(conn, sql, values, |row| {
                Ok(WaitingDelivery {
                    id: GuidKey::read(row, 0)?,
                    event: row.get(1)?,
                    body: row.get(2)?,
                    received_at: Timestamp::from_unix_ms(row.get(3)?),
                    recovered: row.get(4)?,
                    due_at: Timestamp::from_unix_ms(row.get(5)?),
                    tries: row.get(6)?,
                })
            })
        })
    }

    async fn next_waiting(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT due_at FROM waiting_delivery ORDER BY due_at LIMIT 1";
        let found = self.readers.read(|conn| one(conn, sql, [], |row| row.get::<_, i64>(0)));
        found.map(|found| found.map(Timestamp::from_unix_ms))
    }

    async fn delay_waiting(
        &self,
        id: &DeliveryId,
        due_at: Timestamp,
        reason: String,
    ) -> Result<(), CommitError> {
        let id = id.clone();
        let sql = "UPDATE waiting_delivery SET due_at = ?2, tries = tries + 1, reason = ?3
                   WHERE guid = ?1";
        self.change(move |conn| {
            execute(conn, sql, params![GuidKey::of(&id), due_at.unix_ms(), reason])
        })
        .await
    }

    async fn finish_waiting(&self, id: &DeliveryId) -> Result<(), CommitError> {
        let id = id.clone();
        let sql = "DELETE FROM waiting_delivery WHERE guid = ?1";
        self.change(move |conn| execute(conn, sql, params![GuidKey::of(&id)])).await
    }
}

fn put(conn: &Connection, delivery: &WaitingDelivery) -> Result<usize, CommitError> {
    let kept = execute(
        conn,
        "INSERT INTO waiting_delivery (guid, event, body, received_at, recovered, due_at, tries)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
         WHERE NOT EXISTS (SELECT 1 FROM delivery WHERE guid = ?1)
         ON CONFLICT (guid) DO NOTHING",
        params![
            GuidKey::of(&delivery.id),
            delivery.event,
            delivery.body,
            delivery.received_at.unix_ms(),
            delivery.recovered,
            delivery.due_at.unix_ms(),
            delivery.tries,
        ],
    )?;
    if kept == 0 { Err(CommitError::DuplicateDelivery) } else { Ok(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DeliveryRow, DeliveryState, Store, Write};
    use crate::types::AccountName;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    fn waiting(id: &str, due_at: i64) -> WaitingDelivery {
        WaitingDelivery {
            id: DeliveryId::trusted(id),
            event: "issues".to_owned(),
            body: b"{\"action\":\"labeled\"}".to_vec(),
            received_at: at(7),
            recovered: true,
            due_at: at(due_at),
            tries: 0,
        }
    }

    #[tokio::test]
    async fn what_waits_is_kept_in_order_until_it_is_finished() {
        let dir = tempfile::tempdir().expect("a directory");
        let (guid, word) = ("72d3162e-cc78-11e3-81ab-4c9367dc0958", "a-word");
        {
            let store = SqliteStore::open(dir.path()).expect("opens");
            store.put_waiting(waiting(guid, 20)).await.expect("kept");
            store.put_waiting(waiting(word, 10)).await.expect("kept");
            let closed = store.closed().expect("the first to ask");
            drop(store);
            // It is closed when the last thread has dropped it.
            let _disconnected = closed.recv();
        }
        let store = SqliteStore::open(dir.path()).expect("opens");
        assert_eq!(store.waiting(at(9), 8).await, Ok(vec![]));
        assert_eq!(store.waiting(at(20), 1).await, Ok(vec![waiting(word, 10)]));
        let both = vec![waiting(word, 10), waiting(guid, 20)];
        assert_eq!(store.waiting(at(20), 8).await, Ok(both));
        let word = DeliveryId::trusted(word);
        store.delay_waiting(&word, at(30), "no answer".to_owned()).await.expect("delayed");
        let later = WaitingDelivery { tries: 1, ..waiting(word.as_str(), 30) };
        assert_eq!(store.waiting(at(30), 8).await, Ok(vec![waiting(guid, 20), later]));
        assert_eq!(store.next_waiting().await, Ok(Some(at(20))));
        store.finish_waiting(&DeliveryId::trusted(guid)).await.expect("finished");
        assert_eq!(store.next_waiting().await, Ok(Some(at(30))));
        assert_eq!(store.is_waiting(&word).await, Ok(true));
        assert_eq!(store.is_waiting(&DeliveryId::trusted(guid)).await, Ok(false));
    }

    #[tokio::test]
    async fn a_guid_waits_once_and_not_after_it_was_taken_in() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SqliteStore::open(dir.path()).expect("opens");
        store.put_waiting(waiting("d-1", 1)).await.expect("kept");
        let again = store.put_waiting(waiting("d-1", 1)).await;
        assert_eq!(again, Err(CommitError::DuplicateDelivery));
        let row = DeliveryRow {
            account: AccountName::default_account(),
            id: DeliveryId::trusted("d-2"),
            received_at: at(1),
            recovered: false,
            event: "issues".to_owned(),
            action: "labeled".to_owned(),
            home: None,
            applied: false,
            reason: "no effect".to_owned(),
            state: DeliveryState::Done,
        };
        let write = Write { delivery: Some(row), ..Write::default() };
        store.commit(write).await.expect("durable");
        let taken_in = store.put_waiting(waiting("d-2", 1)).await;
        assert_eq!(taken_in, Err(CommitError::DuplicateDelivery));
        assert_eq!(store.waiting(at(1), 8).await.map(|rows| rows.len()), Ok(1));
    }
}
