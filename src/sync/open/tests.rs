//! The storages by themselves: a directory, and a server that speaks S3.

use bytes::Bytes;
use futures_util::TryStreamExt;

use super::*;
use crate::sync::cache::ManifestCache;
use crate::sync::manifest::ContentChecksum;
use crate::sync::storage::SandboxStorage;
use crate::types::{AccountName, SandboxId, Secret};

/// Writes and reads contents of both kinds, and lists versions.
async fn works(storage: OpenStorage) {
    let (account, sandbox) = (AccountName::default_account(), SandboxId::trusted("sb-1"));
    let OpenStorage { store, prefix } = storage;
    let open = || {
        let manifests = ManifestCache::default();
        SandboxStorage::new(Arc::clone(&store), &prefix, &account, &sandbox, manifests)
    };
    let storage = open();
    let versions = async || storage.versions().await.expect("listed").versions;
    let size =
        async |checksum| storage.find(checksum).await.expect("asked").map(|found| found.size);
    assert_eq!(versions().await, []);
    let short = Bytes::from_static(b"a short content");
    let checksum = ContentChecksum::of(&short);
    assert_eq!(size(checksum).await, None);
    storage.put(checksum, short.clone()).await.expect("written");
    assert_eq!(size(checksum).await, Some(15));
    let part: Vec<Bytes> = storage
        .content(checksum, 15, Some(2..7))
        .await
        .expect("there")
        .try_collect()
        .await
        .expect("read");
    assert_eq!(part.concat(), b"short");
    let long = Bytes::from(vec![7; 33 * 1024 * 1024]);
    let long_checksum = ContentChecksum::of(&long);
    let mut upload = storage.begin(long_checksum).await.expect("begun");
    for piece in long.chunks(1024 * 1024) {
        upload.add(Bytes::copy_from_slice(piece)).await.expect("taken");
    }
    upload.finish().await.expect("finished");
    assert_eq!(size(long_checksum).await, Some(long.len() as u64));
    let listed = storage.contents().await.expect("listed");
    assert_eq!((listed.len(), listed[&checksum].size), (2, 15));
    let version = crate::types::SyncVersion { seconds: 5, number: 1 };
    let manifest = crate::sync::manifest::Manifest {
        version,
        walked_at: crate::types::Timestamp::from_unix_ms(5_000),
        stats: crate::types::SyncStats::default(),
        left_out: Vec::new(),
        entries: Vec::new(),
    };
    storage.put_manifest(manifest.clone()).await.expect("written");
    assert_eq!(versions().await, [version]);
    // Also without what this one keeps in memory.
    for storage in [&storage, &open()] {
        assert_eq!(**storage.manifest(version).await.expect("there"), manifest);
        assert_eq!(storage.head(version).await.expect("there").walked_at, manifest.walked_at);
    }
    let missing = ContentChecksum::of(b"?");
    let read = storage.content(missing, 1, None).await;
    assert!(matches!(read, Err(SyncError::ContentMissing(_))));
    let other = storage.content(checksum, 16, Some(15..16)).await;
    assert!(matches!(other, Err(SyncError::ContentDamaged(_))));
    assert!(storage.versions().await.expect("listed").has_marks);
    assert_eq!(storage.marks().await.expect("listed"), [missing, checksum].into());
    for checksum in [missing, checksum] {
        storage.unmark(checksum).await.expect("taken away");
        storage.delete_content(checksum).await.expect("removed");
    }
    storage.delete_version(version).await.expect("removed");
    storage.delete_version(version).await.expect("it is gone already");
    let left = storage.versions().await.expect("listed");
    assert_eq!((left.versions.len(), left.has_marks), (0, false));
    let gone = storage.manifest(version).await;
    assert!(matches!(gone, Err(SyncError::NoSuchVersion(_))));
    assert_eq!(storage.contents().await.expect("listed").len(), 1);
}

#[tokio::test]
async fn a_directory_is_made_and_works() {
    let dir = tempfile::tempdir().expect("a directory");
    let location = StorageLocation::Directory(dir.path().join("not/there yet"));
    works(OpenStorage::open(&location).expect("opens")).await;
}

#[tokio::test]
#[ignore = "needs a server that speaks S3 with a new bucket: ISSUEBOX_TEST_S3=http://127.0.0.1:5000/bucket"]
async fn a_bucket_works() {
    let url = std::env::var("ISSUEBOX_TEST_S3").expect("ISSUEBOX_TEST_S3 names the bucket");
    let (endpoint, bucket) = url.rsplit_once('/').expect("an address and a bucket");
    let keys = StorageKeys { id: "test".into(), key: Secret::new("test-secret") };
    let location = StorageLocation::S3(S3Location {
        bucket: bucket.into(),
        prefix: "some/prefix".into(),
        endpoint: Some(endpoint.into()),
        region: Some("us-east-1".into()),
        keys: Some(keys),
    });
    works(OpenStorage::open(&location).expect("opens")).await;
    let shown = format!("{location:?}");
    assert!(!shown.contains("test-secret"), "{shown}");
}
