//! Many sandboxes, one after another and at once: counts what they leave, and what each of them
//! costs. The two tests take turns.
//!
//! This is a binary of its own because the tests count the children and the descriptors of their
//! process: no other test may make sandboxes in it meanwhile.

#[path = "common/local.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use issuebox::clock::{SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalProvider};
use issuebox::sandbox::{Enforcement, Lifecycle, LimitKind, Object};
use issuebox::types::Resources;

use common::{Local, Sandbox, WAIT, attached, call, config, groups, request, spec, target, until};

/// Sandboxes made one after another.
const ROUNDS: usize = 1_000;

/// Sandboxes up at once.
const AT_ONCE: usize = 200;

/// Most memory of each beyond its workspace, in KiB.
const MEMORY_KIB_MAX: u64 = 5 * 1024;

/// Held by the test that runs.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A provider whose host uids no other test uses.
async fn counted() -> Option<(Local, Range<u32>)> {
    let Local { dir, provider } = Local::new().await?;
    drop(provider);
    let first = 3_000_000 + std::process::id() % 10_000 * 1_000;
    let host_ids = first..first + 1_000;
    let config = LocalConfig { host_ids: Some(host_ids.clone()), ..config(dir.path()) };
    // Dropping the first provider does not wait for its end.
    until("the directory", || {
        let lock = fs::File::open(dir.path().join("lock")).expect("a lock");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    })
    .await;
    let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
    Some((Local { dir, provider: provider.expect("opens") }, host_ids))
}

/// The number of each kind of thing that a sandbox could leave.
type Census = BTreeMap<&'static str, usize>;

fn census(dir: &Path, host_ids: &Range<u32>) -> Census {
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let own = std::process::id().to_string();
    let mut found = BTreeMap::from([
        ("mounts", mounts(dir)),
        ("loop devices", attached(dir).len()),
        ("control groups", groups(dir).len()),
        ("descriptors", entries("/proc/self/fd").count()),
        ("files", files(dir)),
        ("children", 0),
        ("processes of a sandbox", 0),
    ]);
    for process in entries("/proc") {
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        if after_name.split_whitespace().nth(1) == Some(&own) {
            *found.entry("children").or_default() += 1;
        }
        if process.metadata().is_ok_and(|m| host_ids.contains(&m.uid())) {
            *found.entry("processes of a sandbox").or_default() += 1;
        }
    }
    found
}

/// Mounts of the host that contain our directory's path or a loop device.
fn mounts(dir: &Path) -> usize {
    let all = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let dir = dir.to_string_lossy();
    all.lines().filter(|line| line.contains(&*dir) || line.contains("/dev/loop")).count()
}

fn files(dir: &Path) -> usize {
    let below = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => 1 + files(&entry.path()),
        Ok(_) | Err(_) => 1,
    };
    fs::read_dir(dir).into_iter().flatten().flatten().map(below).sum()
}

async fn delete(provider: &LocalProvider, object: &Object) {
    while provider.delete(call(&target(object))).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a thousand sandboxes, which takes minutes; run by .ci/run"]
async fn a_thousand_one_after_the_other_leave_nothing() {
    let _turn = TURN.lock().await;
    let Some((local, host_ids)) = counted().await else { return };
    let round = async |number: usize| {
        let name = format!("round-{number}");
        let object = local.provider.create(spec(&name, &name)).await.expect("made");
        let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
        assert_eq!(sandbox.sh("echo x > f; sleep 1000 & cat f").await, "x\n");
        delete(&local.provider, &object).await;
    };
    // The stock for the next sandboxes is complete after a few.
    for number in 0..3 {
        round(number).await;
    }
    until("a warm sandbox", || local.provider.waiting() == 1).await;
    let before = census(local.dir.path(), &host_ids);
    let begin = Instant::now();
    for number in 0..ROUNDS {
        round(number).await;
    }
    println!("{ROUNDS} creates, commands and deletes took {:?}", begin.elapsed());
    as_before(&before, local.dir.path(), &host_ids).await;
}

/// Waits until the counts are back at those of before.
async fn as_before(before: &Census, dir: &Path, host_ids: &Range<u32>) {
    let begin = Instant::now();
    loop {
        let left = census(dir, host_ids);
        if left == *before {
            return println!("left, as before: {left:?}");
        }
        assert!(begin.elapsed() < WAIT, "left are {left:?}, before were {before:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The memory of the processes of sandboxes and of their launchers, shared pages in parts, in KiB.
fn memory_kib(host_ids: &Range<u32>) -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_ours = processes.filter(|process| {
        let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let uid = uid.and_then(|ids| ids.split_whitespace().next()?.parse().ok());
        uid.is_some_and(|uid: u32| host_ids.contains(&uid))
    });
    let pss = |process: fs::DirEntry| -> Option<u64> {
        let rollup = fs::read_to_string(process.path().join("smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    of_ours.filter_map(pss).sum()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes two hundred sandboxes at once; run by .ci/run"]
async fn two_hundred_at_once_are_small_and_not_harmed_by_two_hostile_ones() {
    let _turn = TURN.lock().await;
    let Some((local, host_ids)) = counted().await else { return };
    let make = async |number: usize| {
        let name = format!("one-{number}");
        let mut spec = spec(&name, &name);
        spec.template.resources =
            Resources { cpu: 1.0, memory_mb: 128, processes: 64, disk_mb: 64 };
        local.provider.create(spec).await
    };
    let warm = make(AT_ONCE).await.expect("made");
    let sandbox = Sandbox { provider: &local.provider, target: target(&warm) };
    sandbox.sh("true").await;
    delete(&local.provider, &warm).await;
    until("a warm sandbox", || local.provider.waiting() == 1).await;
    let before = census(local.dir.path(), &host_ids);
    let begin = Instant::now();
    let made: Result<Vec<Object>, _> = join_all((0..AT_ONCE).map(make)).await.into_iter().collect();
    println!("{AT_ONCE} at once were ready after {:?}", begin.elapsed());
    let made = made.expect("all of them");
    let sandboxes: Vec<Sandbox<'_>> = made
        .iter()
        .map(|object| Sandbox { provider: &local.provider, target: target(object) })
        .collect();

    if rustix::process::geteuid().is_root() {
        let each = memory_kib(&host_ids) / AT_ONCE as u64;
        println!("each takes {each} KiB beyond its workspace");
        assert!((100..MEMORY_KIB_MAX).contains(&each), "{each} KiB each");
    }

    let bomb = request(&["sh", "-c", "f() { f | f & }; f; sleep 1000"]);
    let bomb = sandboxes[0].exec(bomb).await.expect("started");
    let fill = "while :; do cat /dev/zero > $(mktemp -p .) 2>/dev/null || sleep 0.01; done";
    let fill = sandboxes[1].exec(request(&["sh", "-c", fill])).await.expect("started");
    let write = "echo fine > f && sync f && cat f && rm f";
    for _ in 0..3 {
        let others = sandboxes[2..].iter().map(|sandbox| sandbox.sh(write));
        for output in join_all(others).await {
            assert_eq!(output, "fine\n");
        }
    }
    let full = sandboxes[1].run(request(&["sh", "-c", "head -c 1000000 /dev/zero > more"])).await;
    assert!(full.code != 0 || holds_no_disk(&local).await, "the wild one had its effect: {full:?}");
    // An execution whose output is not read holds its pipes.
    drop((bomb, fill));

    join_all(made.iter().map(|object| delete(&local.provider, object))).await;
    as_before(&before, local.dir.path(), &host_ids).await;
}

/// Whether disk limits are not enforced here.
async fn holds_no_disk(local: &Local) -> bool {
    let limits = local.provider.health().await.limits;
    limits[&LimitKind::Disk] != Enforcement::Enforced
}
