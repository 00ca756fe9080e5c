//! Collections of versions and contents, between and during pushes, some of them killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;

use super::*;
use crate::clock::Clock;
use crate::sync::collect::collect;
use crate::sync::retention::SyncRetention;
use crate::types::Timestamp;

const DAY: u64 = 86_400;

/// A clock that a test moves.
#[derive(Clone)]
struct ModelClock(Arc<AtomicI64>);

#[async_trait]
impl Clock for ModelClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, _: Timestamp) {
        unreachable!("nothing of this sleeps")
    }
}

/// A workspace and its versions, in a time of their own.
struct SyncModel {
    place: TestPlace,
    store: Arc<FailingStore>,
    clock: ModelClock,
    /// How many changes there were: each file has a time of its own.
    changes: u64,
}

impl SyncModel {
    fn new() -> Self {
        let clock = ModelClock(Arc::new(AtomicI64::new(2_000_000_000_000)));
        let model = Self { place: TestPlace::new(), store: FailingStore::new(), clock, changes: 0 };
        model.wait(0);
        model
    }

    fn wait(&self, seconds: u64) {
        let ms = i64::try_from(seconds * 1000).expect("some days");
        let now = self.clock.0.fetch_add(ms, Ordering::SeqCst) + ms;
        self.store.set_now(now);
    }

    fn write(&mut self, name: &str, content: &str) {
        self.changes += 1;
        old_file(&self.place, name, content);
        let file = fs::File::options().append(true).open(self.place.path(name)).expect("opens");
        let at = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + self.changes);
        file.set_modified(at).expect("set");
    }

    async fn push(&self) -> Result<Pushed, SyncError> {
        let place = self.place.place();
        push(&place, &storage(&self.store), &self.clock, Unchanged::NewVersion).await
    }

    async fn collect(&self, retention: SyncRetention) -> Result<(usize, usize), SyncError> {
        let collected = collect(&storage(&self.store), retention, self.clock.now()).await?;
        Ok((collected.versions, collected.contents))
    }

    /// The whole versions, newest first. Each has all of its contents.
    async fn whole(&self) -> Vec<SyncVersion> {
        let storage = storage(&self.store);
        let mut whole = Vec::new();
        for version in storage.versions().await.expect("listed").versions {
            let Ok(manifest) = storage.manifest(version).await else { continue };
            for (checksum, size) in manifest.contents() {
                let found = storage.find(checksum).await.expect("asked");
                assert_eq!(found.map(|found| found.size), Some(size), "{version} lacks {checksum}");
            }
            whole.push(version);
        }
        whole
    }
}

const ONE: SyncRetention = SyncRetention { versions_max: Some(1), age_max: None };

#[tokio::test]
async fn old_versions_and_their_contents_go_a_day_after_they_were_replaced() {
    let mut model = SyncModel::new();
    model.write("a", "one");
    model.write("b", "kept");
    model.push().await.expect("pushed");
    model.wait(DAY * 3);
    model.write("a", "two");
    let second = model.push().await.expect("pushed");
    model.wait(DAY - 10);
    assert_eq!(model.collect(ONE).await.expect("collected"), (0, 0), "a push may rely on it");
    model.wait(20);
    assert_eq!(model.collect(ONE).await.expect("collected"), (1, 1));
    assert_eq!(model.whole().await, [second.version]);
    assert_eq!(model.store.count("some/prefix/default/sb-1/objects").await, 2);
    model.wait(DAY * 1000);
    let none = SyncRetention { versions_max: Some(1), age_max: Some(Duration::ZERO) };
    assert_eq!(model.collect(none).await.expect("collected"), (0, 0), "the newest one stays");
    pulled(&TestPlace::new(), &model.store, None).await.expect("pulled");
}

#[tokio::test]
async fn what_a_killed_push_left_is_collected_and_nothing_while_a_manifest_cannot_be_read() {
    let mut model = SyncModel::new();
    model.write("a", "one");
    let first = model.push().await.expect("pushed");
    model.write("b", "two");
    model.store.fail_after(1);
    model.push().await.expect_err("killed");
    model.store.heal();
    assert_eq!(model.collect(ONE).await.expect("collected"), (0, 0), "a push may go on");
    model.wait(DAY + 10);
    let manifest = format!("some/prefix/default/sb-1/{}/.sandbox-state", first.version);
    model.write("b", "three");
    model.push().await.expect("pushed");
    model.store.overwrite(&Path::from(manifest), b"{").await;
    model.wait(DAY / 2);
    assert_eq!(model.collect(ONE).await.expect("collected"), (0, 0), "it may name them");
    model.wait(DAY);
    // It is past retention, and so is what only it may have named.
    assert_eq!(model.collect(ONE).await.expect("collected"), (1, 1));
    assert_eq!(model.whole().await.len(), 1);
}

#[tokio::test]
async fn a_collection_marks_what_the_newest_version_lacks() {
    let mut model = SyncModel::new();
    model.write("a", "one");
    model.push().await.expect("pushed");
    let name = super::manifest::ContentChecksum::of(b"one").to_string();
    let (first, rest) = name.split_at(2);
    let object = format!("some/prefix/default/sb-1/objects/{first}/{rest}");
    model.store.lose(&Path::from(object)).await;
    model.collect(ONE).await.expect("collected");
    assert_eq!(model.push().await.expect("pushed").stats.files_uploaded, 1);
    model.whole().await;
}

#[tokio::test]
async fn a_push_of_another_server_loses_nothing_to_a_collection() {
    // It waits before its first and its second content, and before its manifest.
    for at in 0..3 {
        let mut model = SyncModel::new();
        for (name, content) in [("a", "one"), ("b", "two"), ("c", "old")] {
            model.write(name, content);
        }
        model.push().await.expect("pushed");
        fs::remove_file(model.place.path("c")).expect("removed");
        model.write("d", "four");
        model.write("e", "five");
        model.wait(DAY * 10);
        let gate = model.store.wait_at(at);
        let (place, store, clock) =
            (model.place.place(), storage(&model.store), model.clock.clone());
        let pushing =
            tokio::spawn(async move { push(&place, &store, &clock, Unchanged::NewVersion).await });
        gate.reached.notified().await;
        // This server pushes something else meanwhile, and collects.
        let other = TestPlace::new();
        old_file(&other, "x", "other");
        let (other, storage) = (other.place(), storage(&model.store));
        let pushed = push(&other, &storage, &model.clock, Unchanged::NewVersion).await;
        pushed.expect("pushed");
        model.wait(DAY - 100);
        model.collect(ONE).await.expect("collected");
        gate.open.notify_one();
        pushing.await.expect("no panic").expect("pushed");
        assert!(model.whole().await.len() >= 2);
        model.wait(50);
        model.collect(ONE).await.expect("collected");
        model.whole().await;
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum SyncHappening {
    Write(u8, u8),
    Remove(u8),
    /// A push, which is killed after so many writes.
    Push(Option<usize>),
    /// So many hours pass.
    Wait(u64),
    /// A collection with so many versions and days, which is killed after so many removals.
    Collect(Option<usize>, Option<u64>, Option<usize>),
}

fn happening() -> impl Strategy<Value = SyncHappening> {
    let killed = || prop_oneof![2 => Just(None), 1 => (0..6_usize).prop_map(Some)];
    prop_oneof![
        4 => (0..4_u8, 0..6_u8).prop_map(|(name, content)| SyncHappening::Write(name, content)),
        1 => (0..4_u8).prop_map(SyncHappening::Remove),
        4 => killed().prop_map(SyncHappening::Push),
        3 => (1..60_u64).prop_map(SyncHappening::Wait),
        3 => (prop::option::of(1..4_usize), prop::option::of(0..5_u64), killed())
            .prop_map(|(versions, days, killed)| SyncHappening::Collect(versions, days, killed)),
    ]
}

async fn happens(model: &mut SyncModel, one: SyncHappening) {
    let before = model.whole().await;
    match one {
        SyncHappening::Write(name, content) => {
            model.write(&format!("f{name}"), &format!("content {content}"));
        }
        SyncHappening::Remove(name) => {
            drop(fs::remove_file(model.place.path(&format!("f{name}"))));
        }
        SyncHappening::Push(killed) => {
            if let Some(writes) = killed {
                model.store.fail_after(writes);
            }
            let pushed = model.push().await;
            model.store.heal();
            let is_there = pushed.is_ok();
            assert_eq!(model.whole().await.len(), before.len() + usize::from(is_there));
        }
        SyncHappening::Wait(hours) => model.wait(hours * 3600),
        SyncHappening::Collect(versions_max, days, killed) => {
            if let Some(removals) = killed {
                model.store.fail_after(removals);
            }
            let age_max = days.map(|days| Duration::from_secs(days * DAY));
            let _ = model.collect(SyncRetention { versions_max, age_max }).await;
            model.store.heal();
            let after = model.whole().await;
            assert_eq!(after.first(), before.first(), "the newest whole version stays");
            let at_least = versions_max.filter(|_| days.is_none()).unwrap_or(0);
            assert!(after.len() >= at_least.min(before.len()));
        }
    }
    model.whole().await;
}

proptest! {
    #![proptest_config(crate::fuzz::cases(48))]

    #[test]
    fn no_whole_version_ever_lacks_a_content(all in prop::collection::vec(happening(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut model = SyncModel::new();
            for one in all {
                happens(&mut model, one).await;
            }
            // What is left when nothing happens any more is one version and what it names.
            model.wait(DAY * 3);
            let whole = model.whole().await;
            let Some(newest) = whole.first() else { return };
            model.collect(ONE).await.expect("collected");
            let storage = storage(&model.store);
            let named: BTreeMap<_, _> =
                storage.manifest(*newest).await.expect("there").contents().collect();
            let left = storage.contents().await.expect("listed");
            assert_eq!(left.len(), named.len());
        });
    }
}
