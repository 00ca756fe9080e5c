//! A `local` provider in a directory of its own, for tests that make real sandboxes.
//!
//! Where this machine can't make sandboxes, [`Local::new`] says so on standard error and returns
//! `None`, and the test has nothing to do; with `ISSUEBOX_REQUIRE_LOCAL=1` that is a failure.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalProvider};
use issuebox::sandbox::{
    CreateSpec, ExecEvent, ExecRequest, Execution, FilePart, Labels, Lifecycle, LimitEvent, Object,
    Processes, ProviderEvent, ProviderEvents, Target, TargetCall, WorkError, Workspace,
    WorkspacePath, Written,
};
use issuebox::types::{
    AccountName, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName, OnLimit,
    ProviderName, Resources, SandboxId, Template, TemplateName, Timestamp,
};
use tokio::sync::mpsc;

/// How long a condition may take to become true.
pub const WAIT: Duration = Duration::from_secs(20);

/// A deadline that no test should meet.
pub fn deadline() -> Timestamp {
    SystemClock.now().after(Duration::from_secs(60))
}

/// What to make, for this name and sandbox.
pub fn spec(name: &str, sandbox: &str) -> CreateSpec {
    CreateSpec {
        name: ObjectName::trusted(name),
        labels: Labels {
            instance: InstanceId::trusted("instance-1"),
            account: AccountName::default_account(),
            home: HomeId(7),
            issue: IssueId::parse("test-7").expect("an issue id"),
            sandbox: SandboxId::trusted(sandbox),
            generation: Generation(1),
            mode: Mode::Strong,
        },
        template: Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("local"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 512, processes: 128, disk_mb: 1024 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: issuebox::types::Workload::default().into(),
        },
        deadline: deadline(),
    }
}

/// The usual configuration, with the binary that cargo built as the launcher.
pub fn config(dir: &Path) -> LocalConfig {
    LocalConfig {
        launcher: PathBuf::from(env!("CARGO_BIN_EXE_issuebox")),
        stop_grace: Duration::from_millis(500),
        ..LocalConfig::new(dir)
    }
}

/// A provider and its directory. The provider is dropped first.
pub struct Local {
    pub provider: LocalProvider,
    pub dir: tempfile::TempDir,
}

impl Local {
    /// A provider that can make sandboxes.
    pub async fn new() -> Option<Self> {
        Self::with(|_| {}).await
    }

    /// A provider that is configured as the usual one but for something.
    pub async fn with(change: impl FnOnce(&mut LocalConfig)) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = config(dir.path());
        change(&mut config);
        let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
        let provider = provider.expect("opens");
        let mut trouble = provider.health().await.trouble;
        // The probe has less than two seconds, which a busy machine may need for other things.
        let began = Instant::now();
        while trouble.as_ref().is_some_and(|why| why.ends_with("was not ready in time"))
            && began.elapsed() < WAIT
        {
            trouble = provider.health().await.trouble;
        }
        match trouble {
            None => Some(Self { dir, provider }),
            Some(trouble) => {
                let required = std::env::var("ISSUEBOX_REQUIRE_LOCAL").is_ok_and(|v| v == "1");
                assert!(!required, "{trouble}");
                // Not `eprintln!`, which the test harness would swallow.
                writeln!(std::io::stderr(), "SKIPPED: {trouble}").expect("standard error");
                None
            }
        }
    }

    /// A running sandbox.
    pub async fn sandbox(&self, name: &str) -> Sandbox<'_> {
        let object = self.provider.create(spec(name, name)).await.expect("made");
        Sandbox { provider: &self.provider, target: target(&object) }
    }
}

/// Opens a provider.
pub fn open(dir: &Path) -> LocalProvider {
    LocalProvider::open(config(dir), Arc::new(SystemClock), Arc::new(SystemIds)).expect("opens")
}

/// The object, with the sandbox id that it carries.
pub fn target(object: &Object) -> Target {
    let labels = object.labels.as_ref().expect("ours");
    Target { external_id: object.external_id.clone(), expected: labels.sandbox.clone() }
}

/// A call on a target that has time.
pub fn call(target: &Target) -> TargetCall {
    TargetCall { target: target.clone(), force: false, deadline: deadline() }
}

/// What a command did, in full.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    pub timed_out: bool,
    pub stdout: String,
    pub stderr: String,
}

/// A running sandbox.
pub struct Sandbox<'a> {
    pub provider: &'a LocalProvider,
    pub target: Target,
}

/// A request for a command.
pub fn request(command: &[&str]) -> ExecRequest {
    ExecRequest {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: Vec::new(),
        stdin: Bytes::new().into(),
        timeout: None,
    }
}

impl Sandbox<'_> {
    pub async fn exec(&self, request: ExecRequest) -> Result<Execution, WorkError> {
        self.provider.exec(self.target.clone(), request).await
    }

    /// Runs a command to its end.
    pub async fn run(&self, request: ExecRequest) -> Ended {
        let execution = self.exec(request).await.expect("started");
        let ended = tokio::time::timeout(WAIT, collect(execution));
        ended.await.expect("must end").expect("must say how it ended")
    }

    /// Runs a shell script and returns what it wrote.
    pub async fn sh(&self, script: &str) -> String {
        let ended = self.run(request(&["sh", "-c", script])).await;
        assert_eq!(ended.code, 0, "{script}: {ended:?}");
        ended.stdout
    }

    pub async fn write(&self, path: &[u8], content: &str) -> Result<Written, WorkError> {
        self.write_bytes(path, Bytes::copy_from_slice(content.as_bytes())).await
    }

    /// Writes a file that there is room for.
    pub async fn put(&self, path: &[u8], content: Bytes) {
        self.write_bytes(path, content).await.expect("written");
    }

    pub async fn write_bytes(&self, path: &[u8], content: Bytes) -> Result<Written, WorkError> {
        let (sender, chunks) = mpsc::channel(1);
        tokio::spawn(async move { sender.send(Ok(content)).await });
        let path = WorkspacePath::parse(path).expect("a path");
        self.provider.write_file(self.target.clone(), path, chunks).await
    }

    pub async fn read(&self, path: &[u8]) -> Result<String, WorkError> {
        Ok(String::from_utf8_lossy(&self.bytes(path).await?).into_owned())
    }

    /// The bytes of a file that is there.
    pub async fn read_bytes(&self, path: &[u8]) -> Vec<u8> {
        self.bytes(path).await.expect("readable")
    }

    async fn bytes(&self, path: &[u8]) -> Result<Vec<u8>, WorkError> {
        let path = WorkspacePath::parse(path).expect("a path");
        let part = FilePart::Whole;
        let mut content = self.provider.read_file(self.target.clone(), path, part).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = content.chunks.recv().await {
            bytes.extend(chunk.expect("readable"));
        }
        assert_eq!(bytes.len() as u64, content.size);
        Ok(bytes)
    }

    pub async fn delete_file(&self, path: &[u8]) -> Result<(), WorkError> {
        let path = WorkspacePath::parse(path).expect("a path");
        self.provider.delete_file(self.target.clone(), path).await
    }

    /// The paths that a listing shows.
    pub async fn list(&self, path: &[u8], depth: u32) -> Result<Vec<String>, WorkError> {
        let path = WorkspacePath::parse(path).expect("a path");
        let listing = self.provider.list_files(self.target.clone(), path, depth).await?;
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        Ok(listing.entries.iter().map(|entry| text(&entry.path)).collect())
    }
}

/// Collects what a command does; `None` where it never said that it ended.
pub async fn collect(mut execution: Execution) -> Option<Ended> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut end = None;
    while let Some(event) = execution.events.recv().await {
        assert_eq!(end, None, "nothing may follow the end");
        match event {
            ExecEvent::Stdout(bytes) => stdout.extend(bytes),
            ExecEvent::Stderr(bytes) => stderr.extend(bytes),
            ExecEvent::Exit { code, timed_out } => end = Some((code, timed_out)),
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (code, timed_out) = end?;
    Some(Ended { code, timed_out, stdout: text(stdout), stderr: text(stderr) })
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WAIT, "{what} must come true");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// An argument that marks a process as this test's: `sleep` takes it for a time.
pub fn marker() -> String {
    use issuebox::clock::IdSource;
    let id = SystemIds.request_id();
    let digits = u64::from_str_radix(&id[id.len() - 12..], 16).expect("hexadecimal");
    format!("90000{digits}")
}

/// The processes of this machine whose arguments contain `marker`.
pub fn processes_with(marker: &str) -> Vec<u32> {
    processes().into_iter().filter(|(_, args)| args.contains(marker)).map(|(pid, _)| pid).collect()
}

/// Every process of this machine, and its arguments.
pub fn processes() -> HashMap<u32, String> {
    let table = std::fs::read_dir("/proc").expect("/proc");
    let process = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let args = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&args).into_owned()))
    };
    table.filter_map(|entry| process(entry.ok()?)).collect()
}

/// Whether something holds a sandbox's lock.
pub fn is_locked(dir: &Path, name: &str) -> bool {
    let lock = std::fs::File::open(dir.join("objects").join(name).join("lock")).expect("a lock");
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&lock, operation).is_err()
}

/// The control groups of this machine that begin with a provider's identity.
pub fn groups(dir: &Path) -> Vec<PathBuf> {
    let identity = std::fs::read_to_string(dir.join("identity")).expect("an identity");
    let prefix = format!("issuebox-{identity}-");
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&prefix) {
                    found.push(entry.path());
                }
                left.push(entry.path());
            }
        }
    }
    found
}

/// The files below a directory that loop devices have, whether they are still there or not.
pub fn attached(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|at| std::fs::read_to_string(at.path().join("loop/backing_file")).ok());
    files.filter(|file| file.starts_with(&*dir.to_string_lossy())).collect()
}

/// The next limit that a sandbox hits.
pub async fn limit_event(events: &mut ProviderEvents) -> LimitEvent {
    loop {
        let event = tokio::time::timeout(WAIT, events.next()).await.expect("in time");
        if let ProviderEvent::LimitHit(event) = event.expect("the provider is there") {
            return event;
        }
    }
}

/// Whether a sandbox has hit a limit that was not read yet.
pub fn has_hit_a_limit(events: &mut ProviderEvents) -> bool {
    std::iter::from_fn(|| events.try_next())
        .any(|event| matches!(event, ProviderEvent::LimitHit(_)))
}

/// Kills a sandbox's launcher, as any process of the host's root could.
pub fn kill_launcher(dir: &Path, name: &str) {
    let lock = dir.join("objects").join(name).join("lock");
    let inode = format!(":{}", std::fs::metadata(lock).expect("a lock").ino());
    let locks = std::fs::read_to_string("/proc/locks").expect("readable");
    let fields = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let mut held = locks.lines().map(fields).filter(|line| line[5].ends_with(&inode));
    let pid = held.next().expect("it is held")[4].parse().expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}
