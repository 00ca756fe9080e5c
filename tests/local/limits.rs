//! Limits: what they stop, how they are reported, and that no control group is left.
//!
//! If this machine can't enforce a limit (as for an ordinary user), the provider reports that, and
//! the weaker limit is tested.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use issuebox::clock::{SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalProvider};
use issuebox::sandbox::{
    CreateSpec, Enforcement, Enforcements, Lifecycle, LimitKind, ProviderError, WorkError,
    Workspace, WorkspacePath,
};
use issuebox::types::Resources;
use rustix::process::{Resource, getrlimit};

use crate::common::{
    Local, Sandbox, call, config, groups, limit_event, open, request, spec, target, until,
};

const SMALL: Resources = Resources { cpu: 0.5, memory_mb: 96, processes: 24, disk_mb: 16 };

async fn small<'a>(local: &'a Local, name: &str) -> Sandbox<'a> {
    with(local, name, SMALL).await
}

async fn with<'a>(local: &'a Local, name: &str, resources: Resources) -> Sandbox<'a> {
    let mut spec: CreateSpec = spec(name, name);
    spec.template.resources = resources;
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

async fn holds(local: &Local) -> Enforcements {
    local.provider.health().await.limits
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_every_kind_counts_and_its_limit_is_reported() {
    let Some(local) = Local::new().await else { return };
    let how = holds(&local).await[&LimitKind::Memory];
    let mut limit_events = local.provider.subscribe();
    let counts = local.provider.descriptor().isolation.memory_counts.expect("it limits memory");
    let is_whole = how == Enforcement::Enforced;
    assert_eq!(counts.starts_with("all memory of its commands together"), is_whole, "{counts}");
    let sandbox = small(&local, "memory").await;
    // Private memory: a shell with a long string.
    let hog = "x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo ${#x}";
    let ended = sandbox.run(request(&["bash", "-c", hog])).await;
    assert!(!ended.stdout.contains("200000000"), "{ended:?}");
    assert_eq!(sandbox.sh("echo still here").await, "still here\n");
    if how != Enforcement::Enforced {
        assert_eq!(how, Enforcement::PerProcess);
        let data = "for p in self 1; do sed -n 's/^Max data size *//p' /proc/$p/limits; done";
        let limits = sandbox.sh(data).await;
        let soft = limits.lines().map(|line| line.split_whitespace().next().expect("a limit"));
        let of_server = getrlimit(Resource::Data).maximum;
        let of_server = of_server.map_or("unlimited".to_owned(), |limit| limit.to_string());
        let command = (96 << 20).to_string();
        assert_eq!(soft.collect::<Vec<_>>(), [command, of_server], "a command, then PID 1");
        return;
    }
    let event = limit_event(&mut limit_events).await;
    assert_eq!(event.reason, "memory limit 96 MB reached");
    assert_eq!(event.labels.sandbox, sandbox.target.expected);
    // Shared memory and files in memory, which belong to no process.
    for place in ["/dev/shm", "/tmp", "/home/agent"] {
        let script = format!("head -c 200000000 /dev/zero > {place}/hog; stat -c %s {place}/hog");
        let ended = sandbox.run(request(&["sh", "-c", &script])).await;
        assert!(!ended.stdout.contains("200000000"), "{place}: {ended:?}");
        sandbox.sh(&format!("rm -f {place}/hog")).await;
    }
    // The page cache of a file on disk counts too, but the kernel can drop it.
    let sandbox = with(&local, "cache", Resources { disk_mb: 256, ..SMALL }).await;
    sandbox.sh("for n in 1 2 3 4 5 6 7 8; do head -c 16000000 /dev/zero > f$n; done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_hits_its_limit_and_that_is_reported() {
    let Some(local) = Local::new().await else { return };
    let mut limit_events = local.provider.subscribe();
    let sandbox = small(&local, "bomb").await;
    // This shell stops at the first failed fork; others retry for seconds.
    let bomb = "n=0; while [ $n -lt 60 ]; do n=$((n+1)); sleep 1000 & echo $n; done";
    let ended = sandbox.run(request(&["/bin/sh", "-c", bomb])).await;
    let started = ended.stdout.lines().count();
    assert!((10..=24).contains(&started), "{ended:?}");
    if rustix::process::geteuid().is_root() && !groups(local.dir.path()).is_empty() {
        assert_eq!(limit_event(&mut limit_events).await.reason, "process limit 24 reached");
    }
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_becomes_longer_than_the_disk() {
    let Some(local) = Local::new().await else { return };
    // Pages that are not written back yet count as memory, which must not run out first.
    let resources = Resources { memory_mb: 512, ..SMALL };
    let sandbox = with(&local, "long", resources).await;
    let ended = sandbox.run(request(&["sh", "-c", "head -c 20000000 /dev/zero > f"])).await;
    assert_ne!(ended.code, 0, "{ended:?}");
    let size: u64 = sandbox.sh("stat -c %s f").await.trim().parse().expect("a size");
    assert!(size <= 16 << 20, "{size}");
    // In an archive it is refused, and the unpacking process survives to report it.
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(20_000_000);
    header.set_mode(0o644);
    archive.append_data(&mut header, "long", std::io::repeat(0).take(20_000_000)).expect("packed");
    let (sender, chunks) = tokio::sync::mpsc::channel(1);
    sender.send(Ok(archive.into_inner().expect("packed").into())).await.expect("there is room");
    drop(sender);
    let place = WorkspacePath::parse(b"").expect("a path");
    let unpacked = local.provider.unpack_directory(sandbox.target.clone(), place, chunks).await;
    assert!(
        matches!(&unpacked, Err(WorkError::Refused(why)) if why.contains("long")),
        "{unpacked:?}"
    );
    let ended = sandbox.run(request(&["cat", "/proc/self/limits"])).await;
    let limit = |name: &str, column: usize| {
        let line = ended.stdout.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.split_whitespace().nth(column).expect("a limit").parse::<u64>().expect("a number")
    };
    let of_server = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
    for column in [0, 1] {
        let open_files = (of_server(Resource::Nofile) / 4).min(65_536);
        assert_eq!(limit("Max open files", column), open_files, "a quarter of the server's");
        let core = of_server(Resource::Core).min(1);
        assert_eq!(limit("Max core file size", column), core, "no core files, and no program");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_hold_what_the_template_says_and_go_with_the_sandbox() {
    // Without a warm pool, whose sandboxes would have groups too.
    let Some(local) = Local::with(|config| config.warm_pool = 0).await else { return };
    let how = holds(&local).await;
    let sandbox = small(&local, "group").await;
    let made = groups(local.dir.path());
    let is_enforced = |limit| how[&limit] == Enforcement::Enforced;
    if !is_enforced(LimitKind::Cpu) {
        assert!(!is_enforced(LimitKind::Memory) || !made.is_empty());
        return;
    }
    let read = |files: &[&str]| {
        let content = |dir: &PathBuf| {
            files.iter().find_map(|file| {
                let at = [dir.join(file), dir.join("work").join(file)];
                at.iter().find_map(|file| std::fs::read_to_string(file).ok())
            })
        };
        made.iter().find_map(content).unwrap_or_default()
    };
    let quota = read(&["cpu.cfs_quota_us", "cpu.max"]);
    assert!(quota == "50000\n" || quota == "50000 100000\n", "{quota}");
    assert_eq!(read(&["memory.limit_in_bytes", "memory.max"]), format!("{}\n", 96 << 20));
    assert_eq!(read(&["pids.max"]), "24\n");
    // Every process of the sandbox is in the group, but only the workers' memory is limited; and
    // no group is visible from inside, or can be left.
    let with = |file: &str| made.iter().find(|dir| dir.join(file).exists()).expect("one has it");
    let (whole, limited) = if with("pids.max").join("rest").exists() {
        (with("pids.max").join("rest"), with("pids.max").join("work"))
    } else {
        (with("pids.max").clone(), with("memory.limit_in_bytes").clone())
    };
    let members = |dir: &Path| {
        let members = std::fs::read_to_string(dir.join("cgroup.procs")).expect("readable");
        members.lines().count()
    };
    assert_eq!((members(&whole), members(&limited)), (2, 0), "the launcher and PID 1");
    sandbox.sh("sleep 1000 >&- 2>&- & echo").await;
    assert_eq!(members(&limited), 1, "what a command has left running");
    assert_eq!(
        sandbox.sh("ls /sys/fs/cgroup 2>/dev/null; cut -d: -f3 /proc/self/cgroup | sort -u").await,
        "/\n"
    );

    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    until("the groups' end", || groups(local.dir.path()).is_empty()).await;
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(groups(local.dir.path()).len(), made.len());
    local.provider.delete(call(&sandbox.target)).await.expect("deleted");
    until("the groups' end", || groups(local.dir.path()).is_empty()).await;

    // The next server removes the groups of one that was killed.
    let left = made[0].with_file_name(format!(
        "issuebox-{}-left",
        std::fs::read_to_string(local.dir.path().join("identity")).expect("an identity")
    ));
    small(&local, "last").await;
    assert_eq!(groups(local.dir.path()).len(), made.len());
    let Local { dir, provider } = local;
    drop(provider);
    assert_eq!(groups(dir.path()), Vec::<PathBuf>::new(), "they go with the server too");
    std::fs::create_dir(&left).expect("made");
    until("the directory to be free", || {
        let lock = std::fs::File::open(dir.path().join("lock")).expect("a lock");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    })
    .await;
    let _provider = open(dir.path());
    assert!(!left.exists(), "cleared at the start");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_required_limits_that_can_not_be_enforced_no_sandbox_is_made() {
    let Some(local) = Local::new().await else { return };
    let how = holds(&local).await;
    let missing: Vec<LimitKind> =
        [LimitKind::Cpu, LimitKind::Memory, LimitKind::Processes, LimitKind::Disk]
            .into_iter()
            .filter(|limit| how[limit] != Enforcement::Enforced)
            .collect();
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig { require_limits: true, ..config(dir.path()) };
    let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = provider.expect("opens");
    let made = provider.create(spec("required", "s")).await;
    let trouble = provider.health().await.trouble;
    if missing.is_empty() {
        assert!(made.is_ok() && trouble.is_none(), "{made:?}, {trouble:?}");
        return;
    }
    let Err(ProviderError::Refused(why)) = made else { panic!("{made:?}") };
    for limit in missing {
        assert!(why.contains(&format!("{limit} is")), "{limit} in {why}");
        assert!(
            trouble.as_deref().is_some_and(|t| t.contains(limit.as_str())),
            "{limit} in {trouble:?}"
        );
    }
    assert!(why.contains("require_limits"), "{why}");
}
