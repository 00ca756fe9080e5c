//! The warm pool: which creates get its sandboxes, and how these end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use issuebox::clock::{SystemClock, SystemIds};
use issuebox::sandbox::local::LocalProvider;
use issuebox::sandbox::{Lifecycle, Object, ProviderError};
use issuebox::types::{InstanceId, Network, ObjectState, Timestamp};

use crate::common::{Local, Sandbox, config, groups, spec, target, until};

/// The directories of warm sandboxes, which have no name yet.
fn unnamed(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("making")).expect("a directory").flatten();
    entries.map(|entry| entry.path()).collect()
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).expect("is there").ino()
}

/// Waits until the pool holds one sandbox, and returns the inode of its directory.
pub async fn waits(local: &Local) -> u64 {
    let is_alone = || local.provider.waiting() == 1 && unnamed(local.dir.path()).len() == 1;
    until("a warm sandbox", is_alone).await;
    match &*unnamed(local.dir.path()) {
        [directory] => inode(directory),
        other => panic!("one waits, not {other:?}"),
    }
}

async fn make(local: &Local, name: &str) -> (Object, u64) {
    let object = local.provider.create(spec(name, name)).await.expect("made");
    (object, inode(local.dir.path().join("objects").join(name)))
}

/// The sandbox's lock is held until its last process has ended.
async fn nothing_runs(directory: &Path) {
    let path = directory.join("lock");
    until("its end", || {
        fs::File::open(&path).map_or(true, |lock| {
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_create_of_the_same_make_gets_the_warm_sandbox() {
    let Some(local) = Local::new().await else { return };
    let (first, _) = make(&local, "first").await;
    let waiting = waits(&local).await;
    let listed = local.provider.list(InstanceId::trusted("instance-1")).await.expect("listed");
    assert_eq!(listed, [first], "no list contains a warm sandbox");
    let (second, directory) = make(&local, "second").await;
    assert_eq!(directory, waiting);
    assert_eq!(second.state, ObjectState::Running);
    let again = local.provider.create(spec("second", "second")).await.expect("it exists");
    assert_eq!(again, second);
    let sandbox = Sandbox { provider: &local.provider, target: target(&second) };
    assert_eq!(sandbox.sh("echo mine > f; cat f; ls -A | wc -l; id -u").await, "mine\n1\n1000\n");
    // It counts as made: it starts again with its data.
    let call = || crate::common::call(&sandbox.target);
    local.provider.stop(call()).await.expect("stopped");
    local.provider.start(call()).await.expect("started");
    assert_eq!(sandbox.sh("cat f").await, "mine\n");
    assert_ne!(waits(&local).await, waiting, "another waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_make_or_a_taken_name_gets_no_warm_sandbox() {
    let Some(local) = Local::new().await else { return };
    make(&local, "first").await;
    let waiting = waits(&local).await;
    let taken = local.provider.create(spec("first", "another")).await;
    assert!(matches!(taken, Err(ProviderError::Present(_))), "{taken:?}");
    assert_eq!(waits(&local).await, waiting);

    let mut larger = spec("larger", "larger");
    larger.template.resources.memory_mb += 1;
    let mut reaching = spec("reaching", "reaching");
    reaching.template.network = Network::Full { private: Vec::new() };
    for spec in [larger, reaching] {
        let path = local.dir.path().join("objects").join(spec.name.as_str());
        let waiting = waits(&local).await;
        local.provider.create(spec).await.expect("made");
        assert_ne!(inode(path), waiting);
        until(
            "one of the last requested make",
            || matches!(&*unnamed(local.dir.path()), [one] if inode(one) != waiting),
        )
        .await;
    }

    let mut late = spec("late", "late");
    late.template.network = Network::Full { private: Vec::new() };
    late.deadline = Timestamp::from_unix_ms(0);
    let waiting = waits(&local).await;
    local.provider.create(late).await.expect_err("too late");
    assert_eq!(waits(&local).await, waiting, "it is back in the pool");
    assert!(!local.dir.path().join("objects/late").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_sandbox_that_ended_is_not_assigned_and_is_removed() {
    let Some(local) = Local::new().await else { return };
    make(&local, "first").await;
    let waiting = waits(&local).await;
    let [directory] = &*unnamed(local.dir.path()) else { panic!("one waits") };
    // The lock is held by its launcher or its PID 1.
    let lock = fs::metadata(directory.join("lock")).expect("a lock");
    let held_by = |pid: &str| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        // By its inode: they hold it through another mount.
        let mut files = fds.filter_map(|fd| fs::metadata(fd.path()).ok());
        files.any(|file| (file.dev(), file.ino()) == (lock.dev(), lock.ino()))
    };
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let mut ended = 0;
    for pid in names.filter(|name| held_by(name)) {
        let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a process");
        // The launcher's end may have ended PID 1 too.
        ended +=
            usize::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
    }
    if ended == 0 {
        // Only root can read the descriptors of processes that are not dumpable.
        assert!(!rustix::process::geteuid().is_root());
        return;
    }
    nothing_runs(directory).await;
    let (second, made) = make(&local, "second").await;
    assert_ne!(made, waiting);
    let sandbox = Sandbox { provider: &local.provider, target: target(&second) };
    assert_eq!(sandbox.sh("echo fine").await, "fine\n");
    until("the directory of the other", || !directory.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_pool_stays_empty_and_a_closed_one_leaves_nothing() {
    let Some(local) = Local::with(|config| config.warm_pool = 0).await else { return };
    make(&local, "first").await;
    make(&local, "second").await;
    assert_eq!((local.provider.waiting(), unnamed(local.dir.path()).len()), (0, 0));

    let Local { dir, provider } = local;
    drop(provider);
    let mut opened = None;
    until("the directory", || {
        let config = config(dir.path());
        opened = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds)).ok();
        opened.is_some()
    })
    .await;
    let local = Local { provider: opened.expect("it is"), dir };
    make(&local, "third").await;
    waits(&local).await;
    let directories = unnamed(local.dir.path());
    let Local { dir, provider } = local;
    drop(provider);
    until("its end", || directories.iter().all(|directory| !directory.exists())).await;
    assert_eq!(groups(dir.path()), [] as [PathBuf; 0]);
}
