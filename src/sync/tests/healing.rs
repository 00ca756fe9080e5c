//! Contents that the object storage lost or damaged, and how they come back.

use std::sync::Arc;

use futures_util::StreamExt;

use super::*;
use crate::sandbox::{FilePart, WorkspacePath};
use crate::sync::manifest::ContentChecksum;

fn object(content: &[u8]) -> Path {
    let name = ContentChecksum::of(content).to_string();
    let (first, rest) = name.split_at(2);
    Path::from(format!("some/prefix/default/sb-1/objects/{first}/{rest}"))
}

const MARKS: &str = "some/prefix/default/sb-1/damaged";

#[tokio::test]
async fn contents_that_are_lost_come_back_by_one_push_after_one_reader_met_one() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    for (name, content) in [("a", "one"), ("b", "two"), ("c", "three"), ("d", "four")] {
        old_file(&place, name, content);
    }
    old_file(&place, "empty", "");
    pushed(&place, &store).await.expect("pushed");
    store.lose(&object(b"two")).await;
    store.lose(&object(b"three")).await;
    // No reader met it yet: the next push relies on the last version.
    pushed(&place, &store).await.expect("pushed");
    let error = pulled(&TestPlace::new(), &store, None).await.expect_err("two is lost");
    assert!(matches!(error, SyncError::ContentMissing(_)), "{error}");
    assert!(store.count(MARKS).await > 0);

    let reads = place.reads();
    let healed = pushed(&place, &store).await.expect("pushed");
    assert_eq!(place.reads() - reads, 2, "the two files are read again");
    assert_eq!((healed.stats.files_uploaded, healed.stats.files_skipped), (2, 3));
    assert_eq!(store.count(MARKS).await, 0);
    let other = TestPlace::new();
    pulled(&other, &store, None).await.expect("pulled");
    assert_eq!(shown(other.root()), shown(place.root()));
    pushed(&place, &store).await.expect("pushed");
    assert_eq!(place.reads() - reads, 2, "and then no more");
}

#[tokio::test]
async fn a_damaged_content_is_stored_again() {
    for damage in [&b"0ne"[..], b"on"] {
        let (place, store) = (TestPlace::new(), FailingStore::new());
        small(&place);
        pushed(&place, &store).await.expect("pushed");
        store.overwrite(&object(b"one"), damage).await;
        let error = pulled(&TestPlace::new(), &store, None).await.expect_err("is damaged");
        assert!(matches!(error, SyncError::ContentDamaged(_)), "{error}");
        assert_eq!(pushed(&place, &store).await.expect("pushed").stats.files_uploaded, 1);
        pulled(&TestPlace::new(), &store, None).await.expect("pulled");
        assert_eq!(store.count(MARKS).await, 0);
    }
}

#[tokio::test]
async fn a_mark_stays_until_its_content_is_stored_again() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    let long: Vec<u8> = (0..17 * 1024 * 1024_u32).map(|n| (n % 241) as u8).collect();
    std::fs::write(place.path("long"), &long).expect("written");
    pushed(&place, &store).await.expect("pushed");
    let damaged = [&long[1..], b"!"].concat();
    store.overwrite(&object(&long), &damaged).await;
    pulled(&TestPlace::new(), &store, None).await.expect_err("is damaged");
    // The file is gone, so nothing stores its content again.
    std::fs::rename(place.path("long"), place.root().with_extension("aside")).expect("renamed");
    pushed(&place, &store).await.expect("pushed");
    assert_eq!(store.count(MARKS).await, 1);
    // It is back, and an object with its name and length is there.
    std::fs::rename(place.root().with_extension("aside"), place.path("long")).expect("renamed");
    assert_eq!(pushed(&place, &store).await.expect("pushed").stats.files_uploaded, 1);
    assert_eq!(store.count(MARKS).await, 0);
    pulled(&TestPlace::new(), &store, None).await.expect("pulled");
}

#[tokio::test]
async fn a_push_whose_mark_cannot_be_taken_away_is_whole_and_the_next_one_reads_again() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    pushed(&place, &store).await.expect("pushed");
    store.lose(&object(b"one")).await;
    pulled(&TestPlace::new(), &store, None).await.expect_err("is lost");
    // The content and the manifest are written; what follows is not.
    store.fail_after(2);
    pushed(&place, &store).await.expect("pushed");
    store.heal();
    pulled(&TestPlace::new(), &store, None).await.expect("pulled");
    assert_eq!(pushed(&place, &store).await.expect("pushed").stats.files_uploaded, 1);
    assert_eq!(store.count(MARKS).await, 0);
}

#[tokio::test]
async fn a_reader_of_a_stored_file_never_has_the_end_of_a_wrong_content() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    let version = pushed(&place, &store).await.expect("pushed").version;
    let read = async |part| {
        let storage = storage(&store);
        let manifest = storage.manifest(version).await.expect("there");
        let path = WorkspacePath::parse(b"a").expect("a path");
        let content = SyncedTree::new(storage, manifest).read(&path, part).await?;
        let chunks = tokio_stream::wrappers::ReceiverStream::new(content.chunks);
        let chunks: Vec<_> = chunks.collect().await;
        chunks
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map(|all| all.concat())
            .map_err(SyncError::Storage)
    };
    let part = FilePart::Between(1, 2);
    assert_eq!(read(FilePart::Whole).await.expect("read"), b"one");
    assert_eq!(read(part).await.expect("read"), b"ne");
    store.overwrite(&object(b"one"), b"0ne").await;
    assert!(read(FilePart::Whole).await.is_err());
    assert_eq!(store.count(MARKS).await, 1);
    store.overwrite(&object(b"one"), b"o").await;
    assert!(matches!(read(part).await, Err(SyncError::ContentDamaged(_))));
    store.lose(&object(b"one")).await;
    assert!(matches!(read(part).await, Err(SyncError::ContentMissing(_))));
}

#[tokio::test]
async fn readers_share_one_decoded_manifest() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    let storage = storage(&store);
    let pushed = push(&place.place(), &storage, &SystemClock, Unchanged::NewVersion).await;
    let version = pushed.expect("pushed").version;
    let (one, two) = tokio::join!(storage.manifest(version), storage.manifest(version));
    assert!(Arc::ptr_eq(&one.expect("there"), &two.expect("there")));
    assert_eq!(storage.head(version).await.expect("there").size, 6);
}
