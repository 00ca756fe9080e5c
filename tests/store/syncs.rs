//! The last sync of each sandbox, and what stays for it.

use issuebox::store::sqlite::SqliteStore;
use issuebox::store::sync::{SyncRow, SyncStore};
use issuebox::store::{PruneAsk, Store, Write};
use issuebox::types::{SyncDirection, SyncStats, SyncVersion};

use crate::store_deliveries_suite::pruning;
use crate::store_issues::{at, only, running};
use crate::store_suite::{account, ended, store_first};

#[tokio::test]
async fn the_record_of_a_sandbox_with_a_synced_workspace_is_not_pruned() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(dir.path()).expect("opens");
    let mut ids = Vec::new();
    for _ in 0..2 {
        let before = running(&store_first(&store).await);
        assert_eq!(store.commit(only(before.clone())).await, Ok(()));
        let (issue, sandbox) = ended(&before);
        ids.push(sandbox.id.clone());
        let write = Write { ended: Some(sandbox), ..only(issue) };
        assert_eq!(store.commit(write).await, Ok(()));
    }
    let row = SyncRow {
        sandbox: ids[0].clone(),
        version: SyncVersion { seconds: 1, number: 1 },
        direction: SyncDirection::Push,
        synced_at: at(1),
        stats: SyncStats::default(),
    };
    assert_eq!(store.put_sync(row).await, Ok(()));
    let ask = PruneAsk { deleted_before: Some(at(99_999)), ..pruning(at(99_999), 10) };
    assert_eq!(store.prune(ask).await, Ok(1));
    let is_there =
        async |place: usize| store.sandbox(&account(), &ids[place]).await.expect("reads").is_some();
    assert_eq!([is_there(0).await, is_there(1).await], [true, false]);
    let synced = store.synced_sandboxes(None, 10).await.expect("reads");
    assert_eq!(synced, [(account(), ids[0].clone())], "its versions can still be collected");
}
