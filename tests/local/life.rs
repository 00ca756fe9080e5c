//! Create, stop, kill and delete: the data that is kept, and the processes that are left.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalOpenError, LocalProvider};
use issuebox::sandbox::{
    Lifecycle, Object, ObjectKey, ProviderError, ProviderEvent, TargetCall, WorkError,
};
use issuebox::types::{HomeId, InstanceId, ObjectName, ObjectState};

use crate::common::{
    Local, Sandbox, WAIT, attached, call, config, is_locked, kill_launcher, marker, open,
    processes_with, request, spec, target, until,
};

/// Makes this test binary, started again, a server in this directory.
const SERVER_DIR: &str = "ISSUEBOX_TEST_SERVER_DIR";

/// Marks the processes in that server's sandbox.
const SERVER_MARK: &str = "ISSUEBOX_TEST_SERVER_MARK";

async fn find(provider: &LocalProvider, name: &str) -> Vec<Object> {
    let key = ObjectKey {
        name: ObjectName::trusted(name),
        instance: InstanceId::trusted("instance-1"),
        home: HomeId(7),
    };
    provider.find(key).await.expect("found")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_survives_a_stop_and_nothing_else_does() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("kept").await;
    sandbox.sh("echo kept > /workspace/file; echo gone > ~/file; echo gone > /tmp/file").await;
    let stopped = local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert_eq!(stopped.state, ObjectState::Stopped);
    let error = sandbox.exec(request(&["true"])).await.expect_err("stopped");
    assert_eq!(error, WorkError::NotRunning);
    assert_eq!(sandbox.read(b"file").await, Err(WorkError::NotRunning));
    local.provider.stop(call(&sandbox.target)).await.expect("already");

    let started = local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(started.state, ObjectState::Running);
    assert_eq!(sandbox.sh("cat /workspace/file; ls ~ /tmp").await, "kept\n/home/agent:\n\n/tmp:\n");
    local.provider.start(call(&sandbox.target)).await.expect("already");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sends_sigterm_first_and_then_kills() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("stop").await;
    let mark = marker();
    let polite = "trap 'echo asked > asked; exit' TERM; echo > ready; while :; do sleep 0.01; done";
    let stubborn = format!("setsid sh -c \"trap '' TERM; sleep {mark}; sleep {mark}\"");
    let _polite = sandbox.exec(request(&["sh", "-c", polite])).await.expect("started");
    let _stubborn = sandbox.exec(request(&["sh", "-c", &stubborn])).await.expect("started");
    until("both to run", || processes_with(&mark).len() >= 2).await;
    sandbox.sh("until [ -e ready ]; do sleep 0.01; done").await;
    // A process stopped by SIGSTOP does not react either.
    let _stopped = sandbox.exec(request(&["sh", "-c", "kill -STOP $$"])).await.expect("started");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert_eq!(processes_with(&mark), [0; 0]);
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("cat asked").await, "asked\n");
    // A stop does not wait if no process is left.
    let grace = WAIT * 10;
    let Some(local) = Local::with(|config| config.stop_grace = grace).await else { return };
    let sandbox = local.sandbox("idle").await;
    sandbox.sh("true").await;
    let begin = Instant::now();
    local
        .provider
        .stop(TargetCall { deadline: SystemClock.now().after(2 * grace), ..call(&sandbox.target) })
        .await
        .expect("stopped");
    assert!(begin.elapsed() < grace / 2, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_stop_kills_without_sigterm() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("force").await;
    let polite = "trap 'echo asked > asked; exit' TERM; echo > ready; while :; do sleep 0.01; done";
    let _polite = sandbox.exec(request(&["sh", "-c", polite])).await.expect("started");
    sandbox.sh("until [ -e ready ]; do sleep 0.01; done").await;
    let forced = TargetCall { force: true, ..call(&sandbox.target) };
    local.provider.stop(forced).await.expect("stopped");
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("ls").await, "ready\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_under_way_end_without_an_exit_when_the_sandbox_stops() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("under-way").await;
    let mark = marker();
    let stubborn = format!("trap '' TERM; echo begun; sleep {mark}; sleep {mark}");
    let execution = sandbox.exec(request(&["sh", "-c", &stubborn])).await.expect("started");
    until("the command", || !processes_with(&mark).is_empty()).await;
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert_eq!(crate::common::collect(execution).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_creates_at_once_under_one_name_one_makes_the_object() {
    let Some(local) = Local::new().await else { return };
    for turn in 0..5 {
        let name = format!("twice-{turn}");
        let create = |sandbox: &str| local.provider.create(spec(&name, sandbox));
        let (one, other) = tokio::join!(create("one"), create("other"));
        let (made, refused) = if one.is_ok() { (one, other) } else { (other, one) };
        let (made, refused) = (made.expect("one is made"), refused.expect_err("only one"));
        let ProviderError::Present(present) = refused else { panic!("{refused:?}") };
        assert_eq!(present.external_id, made.external_id);
        let found: Vec<Object> = find(&local.provider, &name)
            .await
            .into_iter()
            .filter(|o| o.name.as_str() == name)
            .collect();
        assert_eq!(found, [made]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_dropped_leaves_nothing_running() {
    let Some(local) = Local::new().await else { return };
    for millis in 0..12 {
        let name = format!("dropped-{millis}");
        let create = local.provider.create(spec(&name, "first"));
        let _ = tokio::time::timeout(Duration::from_millis(millis), create).await;
        // However far it got, the same create completes it, and another is refused.
        let object = local.provider.create(spec(&name, "first")).await.expect("completed");
        assert_eq!(object.state, ObjectState::Running);
        let other = local.provider.create(spec(&name, "second")).await;
        assert!(matches!(other, Err(ProviderError::Present(_))), "{other:?}");
        local.provider.delete(call(&target(&object))).await.expect("deleted");
    }
    let making = || std::fs::read_dir(local.dir.path().join("making")).expect("there").count();
    until("none but warm sandboxes", || making() == local.provider.waiting()).await;
}

/// The number of other processes that have a file open.
fn holders(path: &Path) -> usize {
    let file = |path: &Path| std::fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    let meant = file(path).expect("the file is there");
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let pid = |process: &std::fs::DirEntry| process.file_name().to_str()?.parse::<u32>().ok();
    let others =
        processes.filter(|process| pid(process).is_some_and(|pid| pid != std::process::id()));
    let holds = |process: &std::fs::DirEntry| {
        let open = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        // A launcher opens it through a mount of its own, where it has another path.
        open.into_iter().any(|fd| file(&fd.path()) == Some(meant))
    };
    others.filter(holds).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_a_lock_ends_with_the_provider() {
    let Some(local) = Local::new().await else { return };
    let target = local.sandbox("waits").await.target;
    local.provider.stop(call(&target)).await.expect("stopped");
    let lock = local.dir.path().join("objects/waits/lock");
    let held = std::fs::File::open(&lock).expect("opened");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let Local { dir: _dir, provider } = local;
    let starting = tokio::spawn(async move { provider.start(call(&target)).await });
    until("its launcher to wait", || holders(&lock) == 1).await;
    starting.abort();
    until("its launcher's end", || holders(&lock) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_past_deadline_makes_nothing() {
    let Some(local) = Local::new().await else { return };
    let past = issuebox::sandbox::CreateSpec { deadline: SystemClock.now(), ..spec("late", "s") };
    let error = local.provider.create(past).await.expect_err("too late");
    assert!(matches!(error, ProviderError::Unavailable { .. }), "{error:?}");
    assert_eq!(find(&local.provider, "late").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_names_are_refused() {
    let Some(local) = Local::new().await else { return };
    for name in ["", "..", "a/b", "A", "a_b", "-a", "a-", "a@b", &"a".repeat(101)] {
        let error = local.provider.create(spec(name, "s")).await.expect_err("refused");
        assert!(matches!(error, ProviderError::Refused(_)), "{name}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_directory_is_listed_and_not_changed() {
    let Some(local) = Local::new().await else { return };
    let foreign = local.dir.path().join("objects/foreign");
    std::fs::create_dir(&foreign).expect("made");
    std::fs::write(foreign.join("precious"), "x").expect("written");
    let found = find(&local.provider, "foreign").await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].labels, None);
    let error = local.provider.create(spec("foreign", "s")).await.expect_err("taken");
    assert!(matches!(error, ProviderError::Present(_)), "{error:?}");
    let wrong = issuebox::sandbox::Target {
        external_id: found[0].external_id.clone(),
        expected: issuebox::types::SandboxId::trusted("s"),
    };
    for error in [
        local.provider.start(call(&wrong)).await.expect_err("not ours"),
        local.provider.stop(call(&wrong)).await.expect_err("not ours"),
        local.provider.delete(call(&wrong)).await.expect_err("not ours"),
    ] {
        assert!(matches!(error, ProviderError::Present(_)), "{error:?}");
    }
    assert!(foreign.join("precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_directory_has_one_server() {
    let Some(local) = Local::new().await else { return };
    let again =
        LocalProvider::open(config(local.dir.path()), Arc::new(SystemClock), Arc::new(SystemIds));
    assert!(matches!(again, Err(LocalOpenError::InUse(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_is_killed_takes_its_sandbox_along() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("launcher").await;
    let mark = marker();
    sandbox
        .sh(&format!("setsid sleep {mark} >/dev/null 2>&1 & sleep {mark} >/dev/null 2>&1 &"))
        .await;
    let execution = sandbox.exec(request(&["sleep", &mark])).await.expect("started");
    until("the processes", || processes_with(&mark).len() >= 3).await;
    kill_launcher(local.dir.path(), "launcher");
    assert_eq!(crate::common::collect(execution).await, None);
    // *Stopped* is reported only when no process runs any more.
    while find(&local.provider, "launcher").await[0].state == ObjectState::Running {}
    assert_eq!(processes_with(&mark), [0; 0]);
    local.provider.start(call(&sandbox.target)).await.expect("started again");
    assert_eq!(sandbox.sh("echo back").await, "back\n");
}

/// The one process in the sandbox's namespace that nothing there can kill, as this machine sees it.
async fn first_process(mark: &str) -> rustix::process::Pid {
    // A process has no arguments for a moment while it executes a program.
    let mut marked = Vec::new();
    until("the marked process", || {
        marked = processes_with(mark);
        marked.len() == 1
    })
    .await;
    let marked = marked[0];
    let stat = std::fs::read_to_string(format!("/proc/{marked}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("its name");
    let parent = fields.split_whitespace().nth(1).expect("its parent");
    rustix::process::Pid::from_raw(parent.parse().expect("a pid")).expect("a pid")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_no_call_asked_for_is_reported_once() {
    let Some(local) = Local::new().await else { return };
    let mut events = local.provider.subscribe();
    for (name, force) in [("stopped", false), ("forced", true)] {
        let sandbox = local.sandbox(name).await;
        let call = TargetCall { force, ..call(&sandbox.target) };
        local.provider.stop(call).await.expect("stopped");
    }
    local.provider.delete(call(&local.sandbox("deleted").await.target)).await.expect("deleted");
    // What calls asked for is no news: the first event is about the first of these.
    for (name, kills_launcher) in [("launcher", true), ("first", false)] {
        let sandbox = local.sandbox(name).await;
        if kills_launcher {
            kill_launcher(local.dir.path(), name);
        } else {
            let mark = marker();
            sandbox.sh(&format!("setsid sleep {mark} >/dev/null 2>&1 &")).await;
            let first = first_process(&mark).await;
            rustix::process::kill_process(first, rustix::process::Signal::KILL).expect("killed");
        }
        let event = tokio::time::timeout(WAIT, events.next()).await.expect("in time");
        let Some(ProviderEvent::ObjectChanged(change)) = event else { panic!("{event:?}") };
        assert_eq!(change.external_id, sandbox.target.external_id);
        assert_eq!(change.labels.map(|labels| labels.sandbox), Some(sandbox.target.expected));
        assert_eq!(find(&local.provider, name).await[0].state, ObjectState::Stopped);
    }
    assert_eq!(events.try_next(), None);
}

/// Not a test: this binary acts as a server that is to be killed.
#[tokio::test(flavor = "multi_thread")]
async fn serves_until_it_is_killed() {
    let (Ok(dir), Ok(mark)) = (std::env::var(SERVER_DIR), std::env::var(SERVER_MARK)) else {
        return;
    };
    let provider = open(Path::new(&dir));
    let object = provider.create(spec("orphan", "s")).await.expect("made");
    let sandbox = Sandbox { provider: &provider, target: target(&object) };
    sandbox.sh(&format!("echo kept > file; setsid sleep {mark} >/dev/null 2>&1 &")).await;
    let _running = sandbox.exec(request(&["sleep", &mark])).await.expect("started");
    std::future::pending::<()>().await;
}

fn serve(dir: &Path, mark: &str) -> Child {
    Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "life::serves_until_it_is_killed"])
        .env(SERVER_DIR, dir)
        .env(SERVER_MARK, mark)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_leaves_no_process_and_finds_its_sandboxes_stopped() {
    if Local::new().await.is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for _ in 0..5 {
        let mark = marker();
        let mut server = serve(dir.path(), &mark);
        // The server itself has the mark only in its environment.
        until("the sandbox", || processes_with(&mark).len() >= 2).await;
        server.kill().expect("killed");
        server.wait().expect("waited for");
        let provider = open(dir.path());
        assert_eq!(processes_with(&mark), [0; 0], "no process is orphaned");
        assert!(!is_locked(dir.path(), "orphan"));
        // The kernel takes a device away after its last user has closed it.
        until("no device is left", || attached(dir.path()).is_empty()).await;
        let found = find(&provider, "orphan").await;
        assert_eq!(found[0].state, ObjectState::Stopped);
        let started = provider.start(call(&target(&found[0]))).await.expect("started");
        let sandbox = Sandbox { provider: &provider, target: target(&started) };
        assert_eq!(sandbox.sh("cat file").await, "kept\n");
        drop(provider);
        until("the end of the provider's sandboxes", || !is_locked(dir.path(), "orphan")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_trees_are_removed_with_their_sandbox() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("hostile").await;
    // Making the tree takes long; once is enough.
    let depth = if rustix::process::geteuid().is_root() { 60_000 } else { 5_000 };
    sandbox
        .sh(&format!("perl -e 'for (1..{depth}) {{ mkdir \"d\" or die; chdir \"d\" or die }}'"))
        .await;
    sandbox
        .sh("mkdir -p closed/closed; touch closed/closed/x; chmod 000 closed/closed; \
             chmod 000 closed; ln -s /etc etc; mkfifo fifo; mkdir .moved-1; touch .moved-2; \
             touch \"$(printf 'a\\nb\\377')\"; chmod 000 /workspace")
        .await;
    local.provider.delete(call(&sandbox.target)).await.expect("accepted");
    let present = || async {
        match local.provider.delete(call(&sandbox.target)).await {
            Ok(()) => true,
            Err(ProviderError::Absent) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    while present().await {}
    assert_eq!(find(&local.provider, "hostile").await, []);
    assert_eq!(std::fs::read_dir(local.dir.path().join("trash")).expect("there").count(), 0);
    assert!(Path::new("/etc/passwd").exists());
    local.sandbox("hostile").await.sh("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_removal_goes_on_and_keeps_its_name_until_then() {
    let Some(local) = Local::new().await else { return };
    let object = local.provider.create(spec("half", "s")).await.expect("made");
    let Local { dir, provider } = local;
    drop(provider);
    until("the end of the sandbox", || !is_locked(dir.path(), "half")).await;
    let trash = dir.path().join("trash").join(object.external_id.as_str());
    std::fs::rename(dir.path().join("objects/half"), &trash).expect("moved");
    // Held as by another process, so the removal has to wait.
    let lock = std::fs::File::open(trash.join("lock")).expect("a lock");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let dir_path = dir.path().to_owned();
    // Opening waits for the lock, up to a timeout.
    let provider = tokio::task::spawn_blocking(move || open(&dir_path)).await.expect("opened");
    let found = find(&provider, "half").await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].state, ObjectState::Destroying);
    let error = provider.create(spec("half", "s")).await.expect_err("still there");
    assert!(matches!(error, ProviderError::Present(_)), "{error:?}");
    assert_eq!(provider.delete(call(&target(&object))).await, Ok(()), "accepted, not absent");
    drop(lock);
    until("the removal", || !trash.exists()).await;
    assert_eq!(provider.delete(call(&target(&object))).await, Err(ProviderError::Absent));
    let next = provider.create(spec("half", "s")).await.expect("made again");
    assert_ne!(next.external_id, object.external_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remains_of_a_removal_do_not_take_the_name() {
    let Some(local) = Local::new().await else { return };
    // As a removal leaves it that failed after the record was gone.
    let remains = local.dir.path().join("trash/again@left");
    std::fs::create_dir(&remains).expect("made");
    assert_eq!(find(&local.provider, "again").await, [], "nothing is left of it");
    local.sandbox("again").await.sh("true").await;
    assert!(!remains.exists());
}

/// A mount in the way of a removal; only root can make one.
struct MountInTheWay(std::path::PathBuf);

impl MountInTheWay {
    fn new(at: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).expect("made");
        let mount = ["-t", "tmpfs", "in-the-way"];
        let mounted = std::process::Command::new("mount").args(mount).arg(&at).output();
        mounted.is_ok_and(|ended| ended.status.success()).then(|| Self(at))
    }

    fn moved(&mut self, to: std::path::PathBuf) {
        self.0 = to;
    }
}

impl Drop for MountInTheWay {
    fn drop(&mut self) {
        let ended = std::process::Command::new("umount").arg(&self.0).status();
        assert!(ended.is_ok_and(|status| status.success()), "{} is mounted", self.0.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_failed_is_tried_again_by_itself_and_by_a_create_of_its_name() {
    let Some(local) = Local::new().await else { return };
    for is_created_again in [true, false] {
        let sandbox = local.sandbox("stuck").await;
        let at = |place: &str| local.dir.path().join(place);
        let Some(mut mount) = MountInTheWay::new(at("objects/stuck/mount")) else { return };
        let trash = at("trash").join(sandbox.target.external_id.as_str());
        let failed = local.provider.delete(call(&sandbox.target)).await.expect_err("it is busy");
        assert!(matches!(failed, ProviderError::Broken(_)), "{failed:?}");
        mount.moved(trash.join("mount"));
        let taken = local.provider.create(spec("stuck", "stuck")).await.expect_err("still there");
        // Its record is removed before the mount is met.
        assert!(
            matches!(&taken, ProviderError::Broken(why) if why.contains("still being removed")),
            "{taken:?}"
        );
        drop(mount);
        if is_created_again {
            let next = local.provider.create(spec("stuck", "stuck")).await.expect("made");
            local.provider.delete(call(&target(&next))).await.expect("deleted");
        }
        until("the removal", || !trash.exists()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_can_not_start_is_reported_with_its_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig { launcher: "/nowhere".into(), ..config(dir.path()) };
    let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = provider.expect("opens");
    let trouble = provider.health().await.trouble.expect("can't work");
    assert!(trouble.contains("start the launcher"), "{trouble}");
    let error = provider.create(spec("a", "s")).await.expect_err("refused");
    assert!(matches!(error, ProviderError::Refused(_)), "{error:?}");
    until("nothing to be left", || {
        let left = |part: &str| std::fs::read_dir(dir.path().join(part)).expect("there").count();
        left("objects") + left("trash") + left("making") == 0
    })
    .await;
}

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().expect("known"));
    tests.args(["--test-threads=2"]).uid(65_534).gid(65_534).current_dir("/");
    let ended = tests.env("TMPDIR", "/tmp").output().expect("started");
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{output}{}", String::from_utf8_lossy(&ended.stderr));
}
