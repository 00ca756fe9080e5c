//! Syncs of real directories with an object storage in memory that fails to order.

mod collection;
mod faults;
mod healing;
mod place;

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use object_store::path::Path;
use proptest::prelude::*;

use self::faults::FailingStore;
use self::place::{TestPlace, shown};
use super::cache::ManifestCache;
use super::pull::pull;
use super::push::{Pushed, Unchanged, push};
use super::storage::SandboxStorage;
use super::*;
use crate::clock::SystemClock;
use crate::sandbox::WorkError;
use crate::types::{AccountName, SandboxId, SyncStats, SyncVersion};

fn storage(store: &Arc<FailingStore>) -> SandboxStorage {
    let account = AccountName::default_account();
    let sandbox = SandboxId::trusted("sb-1");
    let prefix = Path::from("some/prefix");
    let manifests = ManifestCache::default();
    SandboxStorage::new(Arc::clone(store) as _, &prefix, &account, &sandbox, manifests)
}

async fn pushed(place: &TestPlace, store: &Arc<FailingStore>) -> Result<Pushed, SyncError> {
    push(&place.place(), &storage(store), &SystemClock, Unchanged::NewVersion).await
}

async fn pulled(
    place: &TestPlace,
    store: &Arc<FailingStore>,
    version: Option<SyncVersion>,
) -> Result<SyncStats, SyncError> {
    pull(&place.place(), &storage(store), version, &SystemClock).await.map(|(_, stats)| stats)
}

/// Writes a file, and sets its time to long ago: it is settled.
fn old_file(place: &TestPlace, path: &str, content: &str) {
    let path = place.path(path);
    fs::write(&path, content).expect("written");
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = fs::File::options().append(true).open(path).expect("opens");
    file.set_modified(long_ago).expect("set");
}

fn small(place: &TestPlace) {
    fs::create_dir_all(place.path("d/empty")).expect("made");
    old_file(place, "a", "one");
    old_file(place, "d/b", "two");
    symlink("../a", place.path("d/link")).expect("made");
    fs::set_permissions(place.path("a"), fs::Permissions::from_mode(0o750)).expect("set");
}

#[tokio::test]
async fn a_push_stores_each_content_once_and_only_what_changed() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    old_file(&place, "copy", "one");
    let first = pushed(&place, &store).await.expect("pushed");
    let stats = first.stats;
    assert_eq!((stats.files_processed, stats.files_uploaded, stats.files_skipped), (4, 3, 1));
    assert_eq!((stats.bytes_transferred, stats.files_deleted), (6, 0));

    let writes = store.writes();
    let second = pushed(&place, &store).await.expect("pushed");
    assert!(second.version > first.version);
    assert_eq!((second.stats.files_uploaded, second.stats.files_skipped), (0, 4));
    assert_eq!(store.writes() - writes, 1, "one manifest");
    assert_eq!(place.reads(), 3, "unchanged files are not read");

    fs::remove_file(place.path("copy")).expect("removed");
    fs::write(place.path("a"), "three").expect("written");
    let third = pushed(&place, &store).await.expect("pushed");
    let stats = third.stats;
    assert_eq!((stats.files_processed, stats.files_uploaded), (3, 1));
    assert_eq!((stats.bytes_transferred, stats.files_deleted), (5, 1));
}

#[tokio::test]
async fn a_pull_restores_a_version_and_leaves_what_is_right_alone() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    let first = pushed(&place, &store).await.expect("pushed");
    let before = shown(place.root());

    old_file(&place, "a", "changed");
    fs::set_permissions(place.path("d/b"), fs::Permissions::from_mode(0o600)).expect("set");
    fs::remove_file(place.path("d/link")).expect("removed");
    fs::create_dir_all(place.path("new/deep")).expect("made");
    old_file(&place, "new/deep/x", "x");
    pushed(&place, &store).await.expect("pushed");

    let stats = pulled(&place, &store, Some(first.version)).await.expect("pulled");
    assert_eq!(shown(place.root()), before);
    assert_eq!((stats.files_downloaded, stats.files_skipped, stats.files_deleted), (2, 1, 1));
    assert_eq!(stats.bytes_transferred, 3);
    let again = pulled(&place, &store, Some(first.version)).await.expect("pulled");
    assert_eq!((again.files_downloaded, again.files_skipped), (0, 3));
}

#[tokio::test]
async fn a_push_reads_no_file_that_a_pull_just_wrote() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    for (name, ns) in [("now", 123_456_789), ("whole", 0), ("one", 1)] {
        old_file(&place, name, name);
        let at = UNIX_EPOCH + Duration::new(1_000_000_000, ns);
        let file = fs::File::options().append(true).open(place.path(name)).expect("opens");
        file.set_modified(at).expect("set");
    }
    let before_1970 = UNIX_EPOCH - Duration::new(5, 1);
    let file = fs::File::options().append(true).open(place.path("one")).expect("opens");
    file.set_modified(before_1970).expect("set");
    pushed(&place, &store).await.expect("pushed");
    let other = TestPlace::new();
    pulled(&other, &store, None).await.expect("pulled");
    let modified = fs::metadata(other.path("one")).expect("there").modified();
    assert_eq!(modified.expect("a time"), before_1970);
    let stats = pushed(&other, &store).await.expect("pushed").stats;
    assert_eq!((stats.files_uploaded, stats.files_skipped, other.reads()), (0, 6, 0));
    let again = pulled(&place, &store, None).await.expect("pulled");
    assert_eq!((again.files_downloaded, again.files_skipped), (0, 6));
}

#[tokio::test]
async fn an_unchanged_workspace_gets_a_new_version_only_if_it_is_wanted() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    let push = async || {
        let storage = storage(&store);
        push(&place.place(), &storage, &SystemClock, Unchanged::LastVersion).await.expect("pushed")
    };
    let first = push().await;
    let writes = store.writes();
    let second = push().await;
    assert_eq!((second.version, store.writes()), (first.version, writes));
    assert_eq!((second.stats.files_processed, second.stats.files_skipped), (3, 3));
    assert!(pushed(&place, &store).await.expect("pushed").version > first.version);
    fs::create_dir(place.path("d/more")).expect("made");
    let third = push().await;
    assert!(third.version > first.version);
    fs::set_permissions(place.path("a"), fs::Permissions::from_mode(0o700)).expect("set");
    let fourth = push().await;
    assert!(fourth.version > third.version);
    fs::remove_file(place.path("d/b")).expect("removed");
    assert!(push().await.version > fourth.version);
}

#[tokio::test]
async fn what_cannot_be_read_is_left_out_and_a_shortage_fails_the_push() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    place.fail("a", WorkError::Refused("permission denied".into()));
    let pushed_without = pushed(&place, &store).await.expect("pushed");
    assert_eq!(pushed_without.stats.files_processed, 2);
    let manifest = storage(&store).manifest(pushed_without.version).await.expect("there");
    assert_eq!(manifest.left_out, [b"a".to_vec()]);
    place.fail("a", WorkError::Shortage("too many open files".into()));
    let error = pushed(&place, &store).await.expect_err("it has no descriptors");
    assert!(matches!(error, SyncError::Work(WorkError::Shortage(_))), "{error}");
    assert_eq!(storage(&store).versions().await.expect("listed").versions.len(), 1);
    // A pull does not take it for another content either.
    fs::write(place.path("d/b"), "2wo").expect("written");
    place.fail("d/b", WorkError::Shortage("too many open files".into()));
    let error = pulled(&place, &store, None).await.expect_err("it has no descriptors");
    assert!(matches!(error, SyncError::Work(WorkError::Shortage(_))), "{error}");
}

#[tokio::test]
async fn a_push_that_is_killed_between_any_two_writes_leaves_the_last_whole_version() {
    for writes in 0.. {
        let (place, store) = (TestPlace::new(), FailingStore::new());
        small(&place);
        let first = pushed(&place, &store).await.expect("pushed");
        let before = shown(place.root());
        for name in ["a", "d/b", "e", "f"] {
            fs::write(place.path(name), format!("new content of {name}")).expect("written");
        }
        store.fail_after(writes);
        let second = pushed(&place, &store).await;
        store.heal();
        let other = TestPlace::new();
        pulled(&other, &store, None).await.expect("pulled");
        let Ok(second) = second else {
            assert_eq!(shown(other.root()), before, "after {writes} writes");
            let stats = pushed(&place, &store).await.expect("pushed").stats;
            assert_eq!(stats.files_processed, 5);
            continue;
        };
        assert_eq!(writes, 5, "four contents and the manifest");
        assert!(second.version > first.version);
        assert_eq!(shown(other.root()), shown(place.root()));
        return;
    }
}

#[tokio::test]
async fn a_push_of_which_any_one_write_fails_makes_no_version() {
    // Two contents and the manifest.
    for write in 0..3 {
        let (place, store) = (TestPlace::new(), FailingStore::new());
        small(&place);
        store.fail_at(write);
        let error = pushed(&place, &store).await.expect_err("a write failed");
        assert!(matches!(error, SyncError::Storage(_)), "{error}");
        let none = pulled(&place, &store, None).await;
        assert!(matches!(none, Err(SyncError::NoVersion)), "write {write}");
    }
}

#[tokio::test]
async fn a_damaged_manifest_means_a_full_sync_and_a_pull_takes_the_version_before() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    small(&place);
    let first = pushed(&place, &store).await.expect("pushed");
    fs::write(place.path("a"), "changed").expect("written");
    let second = pushed(&place, &store).await.expect("pushed");
    let path = |version| Path::from(format!("some/prefix/default/sb-1/{version}/.sandbox-state"));
    store.overwrite(&path(second.version), b"{").await;
    let error = pulled(&place, &store, Some(second.version)).await.expect_err("is damaged");
    assert!(matches!(error, SyncError::Damaged { .. }), "{error}");
    pulled(&place, &store, None).await.expect("pulled");
    assert_eq!(fs::read_to_string(place.path("a")).expect("there"), "one");

    store.overwrite(&path(first.version), b"").await;
    let third = pushed(&place, &store).await.expect("pushed");
    assert!(third.version > second.version, "a taken name is not given again");
    assert_eq!(third.stats.files_uploaded, third.stats.files_processed);
    let nowhere = SyncVersion { seconds: 1, number: 1 };
    let error = pulled(&place, &store, Some(nowhere)).await.expect_err("is unknown");
    assert_eq!(error.to_string(), "the sandbox has no version v1-1");
    let empty = FailingStore::new();
    assert!(matches!(pulled(&place, &empty, None).await, Err(SyncError::NoVersion)));
}

#[tokio::test]
async fn a_damaged_or_missing_content_is_said_and_never_written() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    let long = "long ".repeat(400_000);
    for (content, name) in [("one", "short"), (long.as_str(), "long")] {
        fs::write(place.path(name), content).expect("written");
    }
    pushed(&place, &store).await.expect("pushed");
    for content in ["one", long.as_str()] {
        let name = manifest::ContentChecksum::of(content.as_bytes()).to_string();
        let (first, rest) = name.split_at(2);
        let path = Path::from(format!("some/prefix/default/sb-1/objects/{first}/{rest}"));
        let damaged = [&content.as_bytes()[1..], b"!"].concat();
        store.overwrite(&path, &damaged).await;
        let other = TestPlace::new();
        let error = pulled(&other, &store, None).await.expect_err("is damaged");
        assert!(matches!(error, SyncError::ContentDamaged(_)), "{error}");
        assert!(!fs::read_dir(other.root()).expect("reads").any(|entry| {
            fs::read(entry.expect("an entry").path()).is_ok_and(|found| found == damaged)
        }));
        store.overwrite(&path, content.as_bytes()).await;
        pulled(&other, &store, None).await.expect("pulled");
    }
}

#[tokio::test]
async fn what_is_ignored_is_not_pushed_and_not_deleted() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    fs::write(place.path(".issueboxignore"), "*.tmp\n/build/\n").expect("written");
    fs::write(place.path("a.tmp"), "x").expect("written");
    fs::write(place.path("b"), "x").expect("written");
    fs::create_dir(place.path("build")).expect("made");
    fs::write(place.path("build/out"), "x").expect("written");
    let manifest = pushed(&place, &store).await.expect("pushed");
    assert_eq!(manifest.stats.files_processed, 2);
    fs::write(place.path("extra"), "x").expect("written");
    pulled(&place, &store, None).await.expect("pulled");
    assert!(place.path("a.tmp").exists() && place.path("build/out").exists());
    assert!(!place.path("extra").exists());
}

#[tokio::test]
async fn a_long_file_goes_in_parts_and_comes_back() {
    let (place, store) = (TestPlace::new(), FailingStore::new());
    let content: Vec<u8> = (0..17 * 1024 * 1024_u32).map(|n| (n % 251) as u8).collect();
    fs::write(place.path("long"), &content).expect("written");
    let stats = pushed(&place, &store).await.expect("pushed").stats;
    assert_eq!((stats.files_uploaded, stats.bytes_transferred), (1, content.len() as u64));
    let other = TestPlace::new();
    pulled(&other, &store, None).await.expect("pulled");
    assert!(fs::read(other.path("long")).expect("there") == content);
    fs::rename(place.path("long"), place.path("renamed")).expect("renamed");
    let stats = pushed(&place, &store).await.expect("pushed").stats;
    assert_eq!((stats.files_uploaded, stats.files_deleted), (0, 1), "its content is there");
}

#[tokio::test]
async fn an_unchanged_push_stores_its_manifest_alone() {
    const FILES: usize = 500;
    let (place, store) = (TestPlace::new(), FailingStore::new());
    for at in 0..FILES {
        old_file(&place, &format!("f{at}"), &format!("{at}"));
    }
    let first = pushed(&place, &store).await.expect("pushed").stats;
    assert_eq!(first.files_uploaded, FILES as u64);
    let stats = pushed(&place, &store).await.expect("pushed").stats;
    assert_eq!((stats.files_uploaded, stats.files_skipped), (0, FILES as u64));
    assert_eq!(stats.bytes_transferred, 0, "no content is read again");
}

/// Part of a random tree: where, and what.
type Planted = (Vec<Vec<u8>>, u8, u32, Vec<u8>);

fn planted() -> impl Strategy<Value = Vec<Planted>> {
    let name = prop_oneof![
        prop::sample::select(vec![
            b"a".to_vec(),
            b"b".to_vec(),
            b"\xff\xfe".to_vec(),
            b"line\nfeed".to_vec(),
            "\u{e4}".as_bytes().to_vec(),
            vec![b'n'; 200],
            b"-rf".to_vec(),
            b" ".to_vec(),
        ]),
        prop::collection::vec(1..=255_u8, 1..12),
    ];
    let name = name.prop_filter("a name", |name| {
        !name.contains(&b'/') && name != b"." && name != b".." && name != b".issueboxignore"
    });
    let one = (
        prop::collection::vec(name, 1..4),
        0..4_u8,
        prop::sample::select(vec![0o644_u32, 0o600, 0o755, 0o700, 0o777]),
        prop::collection::vec(1..=255_u8, 1..40),
    );
    prop::collection::vec(one, 0..12)
}

/// Makes a tree as far as its parts go together.
fn plant(root: &FilePath, tree: &[Planted]) {
    for (parts, kind, mode, content) in tree {
        let names = parts.iter().map(|name| std::ffi::OsString::from_vec(name.clone()));
        let path = names.fold(root.to_owned(), |path: PathBuf, name| path.join(name));
        let parent = path.parent().expect("below the root");
        if fs::create_dir_all(parent).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        let set = || fs::set_permissions(&path, fs::Permissions::from_mode(*mode));
        match kind {
            0 => drop(fs::create_dir(&path).and_then(|()| {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o700))
            })),
            1 => drop(symlink(std::ffi::OsString::from_vec(content.clone()), &path)),
            2 => drop(fs::write(&path, "").and_then(|()| set())),
            _ => drop(fs::write(&path, content).and_then(|()| set())),
        }
    }
}

proptest! {
    #![proptest_config(crate::fuzz::cases(64))]

    #[test]
    fn a_pull_of_what_was_pushed_makes_the_same_tree(one in planted(), other in planted()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (place, store) = (TestPlace::new(), FailingStore::new());
            plant(place.root(), &one);
            pushed(&place, &store).await.expect("pushed");
            let wanted = shown(place.root());
            // Into an empty directory, and into one with something else in it.
            let (empty, full) = (TestPlace::new(), TestPlace::new());
            plant(full.root(), &other);
            for place in [&empty, &full] {
                pulled(place, &store, None).await.expect("pulled");
                assert_eq!(shown(place.root()), wanted);
            }
        });
    }
}
