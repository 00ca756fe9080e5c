//! A host uid of its own for each sandbox, and what that is for: what the kernel counts by user.
//!
//! Without a range in `/etc/subuid` an ordinary user's sandboxes have none; then most of this has
//! nothing to do. So one test runs the whole suite again as a user with a range.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use issuebox::clock::{SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalProvider, OwnUids};
use issuebox::sandbox::{Enforcement, Lifecycle, LimitKind};
use rustix::process::geteuid;

use super::files::unpack;
use crate::common::{Local, Sandbox, call, config, spec, target, until};

/// The user with a range, which `.ci/run` makes.
const USER: &str = "issuebox-range";

/// Set in the run that a user with a range makes.
const REQUIRED: &str = "ISSUEBOX_REQUIRE_OWN_UIDS";

/// A provider whose sandboxes have uids of their own; `None` if there is no range.
async fn own() -> Option<Local> {
    let local = Local::new().await?;
    let holds = local.provider.health().await.limits;
    let is_own = holds[&LimitKind::UserCounters] == Enforcement::Enforced;
    let required = geteuid().is_root() || std::env::var_os(REQUIRED).is_some();
    assert!(is_own || !required, "{:?}", local.provider.limits_not_enforced());
    is_own.then_some(local)
}

/// The host uid and gid of a sandbox.
async fn host_ids_of(sandbox: &Sandbox<'_>) -> [u32; 2] {
    let maps = sandbox.sh("cat /proc/self/uid_map /proc/self/gid_map").await;
    let outer = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
    let ids: Vec<u32> = maps.lines().filter_map(outer).collect();
    ids.try_into().expect("one line each")
}

/// A provider in the directory of an earlier one.
fn again(dir: &tempfile::TempDir, own_uids: OwnUids) -> LocalProvider {
    let config = LocalConfig { own_uids, ..config(dir.path()) };
    LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds)).expect("opens")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sandbox_keeps_a_host_uid_of_its_own_and_its_files() {
    let Some(local) = own().await else { return };
    let (one, other) = (local.sandbox("one").await, local.sandbox("other").await);
    let (ids, others) = (host_ids_of(&one).await, host_ids_of(&other).await);
    assert!(
        ids[0] == ids[1] && ids != others && ids[0] != geteuid().as_raw(),
        "{ids:?} {others:?}"
    );
    one.sh("mkdir -p a/b && echo mine > a/b/file && chmod 500 a/b").await;
    one.put(b"written", Bytes::from_static(b"by the server")).await;
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o640);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "packed", &b"x"[..]).expect("packed");
    unpack(&one, b"", archive.into_inner().expect("whole")).await.expect("unpacked");
    let all = "find . -not -name lost+found -exec stat -c %u:%g {} + | sort -u; id -G";
    assert_eq!(one.sh(all).await, "1000:1000\n1000\n");
    // Its processes on the host have that uid.
    let marker = crate::common::marker();
    one.sh(&format!("setsid sleep 1000 {marker} >/dev/null 2>&1 &")).await;
    until("the process", || !crate::common::processes_with(&marker).is_empty()).await;
    let process = crate::common::processes_with(&marker)[0];
    assert_eq!(fs::metadata(format!("/proc/{process}")).map(|at| at.uid()).ok(), Some(ids[0]));

    local.provider.stop(call(&one.target)).await.expect("stopped");
    local.provider.start(call(&one.target)).await.expect("started");
    assert_eq!(host_ids_of(&one).await, ids);
    let (kept, gone) = (one.target.clone(), other.target.clone());
    let Local { provider, dir } = local;
    drop(provider);
    let provider = again(&dir, OwnUids::Required);
    provider.delete(call(&gone)).await.expect("deleted");
    provider.start(call(&kept)).await.expect("started");
    let one = Sandbox { provider: &provider, target: kept };
    assert_eq!(host_ids_of(&one).await, ids, "after a restart of the server");
    assert_eq!(
        one.sh("chmod 700 a/b && echo more >> a/b/file && cat a/b/file").await,
        "mine\nmore\n"
    );
    one.sh("chmod 000 a/b a").await;
    let object = provider.create(spec("third", "third")).await.expect("made");
    let third = Sandbox { provider: &provider, target: target(&object) };
    assert_ne!(host_ids_of(&third).await, ids);
    provider.delete(call(&one.target)).await.expect("deleted");
    let left = || fs::read_dir(dir.path().join("trash")).expect("there").count();
    until("its files to be removed", || left() == 0).await;
}

/// Takes of the user's pipes, until new ones are small, and of its inotify instances, all there are;
/// keeps both.
const TAKE_ALL: &str = r#"
import ctypes, fcntl, os, time
libc = ctypes.CDLL(None)
size = lambda pipe: fcntl.fcntl(pipe[1], 1032)
held, number = [], 0
while libc.inotify_init() >= 0: pass
while True:
    r, w = os.pipe()
    if os.fork():
        os.close(w)
        small = os.read(r, 1) == b"s"
        if small: break
    else:
        try:
            while True:
                held.append(os.pipe())
                if size(held[-1]) < 65536: os.write(w, b"s"); break
        except OSError:
            os.close(held.pop()[0])
            os.write(w, b"m")
        time.sleep(1000)
open("full", "w").close()
time.sleep(1000)
"#;

/// What a new pipe holds, and whether there is an inotify instance.
const LEFT: &str = "python3 -c 'import ctypes, fcntl, os; \
    print(fcntl.fcntl(os.pipe()[1], 1032), ctypes.CDLL(None).inotify_init() >= 0)'";

#[tokio::test(flavor = "multi_thread")]
async fn what_one_sandbox_takes_of_its_user_leaves_its_neighbour_its_own() {
    let Some(local) = own().await else { return };
    let (hostile, neighbour) = (local.sandbox("hostile").await, local.sandbox("neighbour").await);
    assert_eq!(neighbour.sh(LEFT).await, "65536 True\n");
    hostile.put(b"take.py", Bytes::from_static(TAKE_ALL.as_bytes())).await;
    hostile.sh("setsid python3 take.py >/dev/null 2>said &").await;
    let begun = Instant::now();
    while hostile.sh("ls").await.lines().all(|name| name != "full") {
        let said = hostile.sh("cat said").await;
        assert!(begun.elapsed() < Duration::from_secs(60) && said.is_empty(), "{said}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let left = hostile.sh(LEFT).await;
    assert!(!left.starts_with("65536") && left.ends_with("False\n"), "it took all: {left}");
    assert_eq!(neighbour.sh(LEFT).await, "65536 True\n", "the neighbour's own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_from_before_keeps_the_server_s_uid_and_says_so() {
    let Some(Local { provider, dir }) = own().await else { return };
    drop(provider);
    if geteuid().is_root() {
        // Root's have always had their own.
        return;
    }
    let provider = again(&dir, OwnUids::Off);
    let object = provider.create(spec("old", "old")).await.expect("made");
    let old = Sandbox { provider: &provider, target: target(&object) };
    old.sh("echo kept > file").await;
    let kept = old.target.clone();
    drop(provider);

    let provider = again(&dir, OwnUids::Auto);
    provider.start(call(&kept)).await.expect("started");
    let old = Sandbox { provider: &provider, target: kept };
    assert_eq!(old.sh("cat file && echo more > file").await, "kept\n");
    assert_eq!(host_ids_of(&old).await[0], geteuid().as_raw());
    let object = provider.create(spec("new", "new")).await.expect("made");
    let new = Sandbox { provider: &provider, target: target(&object) };
    assert_ne!(host_ids_of(&new).await[0], geteuid().as_raw());
    for (sandbox, expected) in [(&old, Enforcement::None), (&new, Enforcement::Enforced)] {
        let limits = provider.limits(sandbox.target.clone()).await.expect("there");
        assert_eq!(limits.holds[&LimitKind::UserCounters], expected);
    }
    provider.stop(call(&old.target)).await.expect("stopped");
    let (kept, mapped) = (old.target.clone(), new.target.clone());
    drop(provider);

    let provider = again(&dir, OwnUids::Required);
    let refused = provider.start(call(&kept)).await.expect_err("refused").to_string();
    assert!(refused.contains("delete it and make it again"), "{refused}");
    drop(provider);
    let provider = again(&dir, OwnUids::Off);
    let refused = provider.start(call(&mapped)).await.expect_err("refused").to_string();
    assert!(refused.contains("own_uids is \"off\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uid_of_what_hangs_since_before_is_given_to_no_other() {
    if !geteuid().is_root() || Local::new().await.is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let hangs = dir.path().join("making/hangs");
    fs::create_dir_all(&hangs).expect("made");
    fs::write(hangs.join("lock"), "2500000").expect("written");
    let held = fs::File::options().write(true).open(hangs.join("lock")).expect("opened");
    held.lock().expect("locked");
    let host_ids = Some(2_500_000..2_500_002);
    let config = LocalConfig { host_ids, warm_pool: 0, ..config(dir.path()) };
    let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = provider.expect("opens");
    let object = provider.create(spec("one", "one")).await.expect("made");
    let one = Sandbox { provider: &provider, target: target(&object) };
    assert_eq!(host_ids_of(&one).await, [2_500_001; 2]);
    let none = provider.create(spec("two", "two")).await.expect_err("none is left").to_string();
    assert!(none.contains("every host uid"), "{none}");
    provider.delete(call(&one.target)).await.expect("deleted");
    provider.create(spec("two", "two")).await.expect("it is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_range_a_required_uid_is_refused_with_the_reason() {
    let Some(Local { provider, dir }) = Local::new().await else { return };
    let holds = provider.health().await.limits;
    drop(provider);
    let trouble = again(&dir, OwnUids::Required).health().await.trouble;
    match holds[&LimitKind::UserCounters] {
        Enforcement::Enforced => assert_eq!(trouble, None),
        _ => {
            let why = trouble.expect("refused");
            assert!(why.contains("own_uids") && why.contains("--add-subuids"), "{why}");
        }
    }
}

#[test]
#[ignore = "needs root, and the user issuebox-range with a range in /etc/subuid and /etc/subgid"]
fn the_suite_holds_for_a_user_with_a_range() {
    if !geteuid().is_root() {
        return;
    }
    let id = |flag| {
        let said = Command::new("id").args([flag, USER]).output().expect("started").stdout;
        let id = String::from_utf8_lossy(&said).trim().parse();
        id.unwrap_or_else(|_| panic!("the user {USER} is missing: .ci/run makes it"))
    };
    let mut tests = Command::new(std::env::current_exe().expect("known"));
    tests.args(["--test-threads=2"]).uid(id("-u")).gid(id("-g")).current_dir("/");
    let ended = tests.env("TMPDIR", "/tmp").env(REQUIRED, "1").output().expect("started");
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{output}{}", String::from_utf8_lossy(&ended.stderr));
}
