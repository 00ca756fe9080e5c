//! A server with a hostile sandbox, a neighbour, and a host that must stay unchanged.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use issuebox::sandbox::{
    ExecRequest, Lifecycle, ObjectKey, Processes, TerminalEvent, TerminalRequest, TerminalSize,
    WorkError, Workspace, WorkspacePath,
};
use issuebox::types::Resources;
use tokio::sync::mpsc;

use crate::common::{
    Ended, Local, Sandbox, call, collect, is_locked, request, spec, target, until,
};

/// The directory of the two programs, for a run that can't read the built ones.
pub const PROGRAMS: &str = "ISSUEBOX_ESCAPE_PROGRAMS";

/// The timeout of an attempt.
const TIME: Duration = Duration::from_secs(60);

/// A row: the attempt, the hostile program's arguments, and the expected result.
pub type Attempt<'a> = (&'a str, &'a str, &'a str);

/// How opening a file for administrators is refused; not every kernel has each.
pub fn refused_if_there(path: &str) -> &'static str {
    if Path::new(path).exists() { "EACCES" } else { "ENOENT" }
}

/// A provider with a neighbour sandbox, and the host's state before the attempts.
pub struct World {
    pub local: Local,
    neighbour: String,
    host: Host,
}

impl World {
    /// `None` if this machine can't make sandboxes; see [`Local::with`]. Each group of attempts
    /// has its own number, so that no two use the same uids.
    pub async fn new(group: u32) -> Option<Self> {
        // As the server does.
        issuebox::app::open_files::raise();
        let first = 2_100_000 + group * 1000;
        let local = Local::with(|config| {
            config.launcher = launcher();
            config.host_ids = Some(first..first + 1000);
            config.scratch_mb = 48;
        });
        let local = local.await?;
        fs::write(local.dir.path().join("canary"), "untouched").expect("written");
        let neighbour = "neighbour".to_owned();
        local.sandbox(&neighbour).await.sh("echo mine > file").await;
        Some(Self { host: Host::seen(), local, neighbour })
    }

    /// A sandbox with the hostile program in its workspace.
    pub async fn hostile(&self, name: &str, resources: Option<Resources>) -> Hostile<'_> {
        let mut spec = spec(name, name);
        spec.template.resources = resources.unwrap_or(spec.template.resources);
        let object = self.local.provider.create(spec).await.expect("made");
        let sandbox = Sandbox { provider: &self.local.provider, target: target(&object) };
        let path = || WorkspacePath::parse(b"escape").expect("a path");
        let (sender, chunks) = mpsc::channel(1);
        let bytes = Bytes::from(fs::read(hostile_program()).expect("readable"));
        tokio::spawn(async move { sender.send(Ok(bytes)).await });
        let provider = &self.local.provider;
        provider.write_file(sandbox.target.clone(), path(), chunks).await.expect("written");
        provider.set_file_mode(sandbox.target.clone(), path(), 0o755).await.expect("made to run");
        let pids = sandbox.sh("readlink /proc/self/ns/pid").await.trim().to_owned();
        let map = sandbox.sh("cat /proc/self/uid_map").await;
        let user = map.split_whitespace().nth(1).expect("a map").parse().expect("a uid");
        Hostile { world: self, sandbox, name: name.to_owned(), pids, user }
    }

    /// Checks that the neighbour works, the server finds it, and the host is unchanged.
    pub async fn assert_unharmed(&self, after: &str) {
        let provider = &self.local.provider;
        let labels = spec(&self.neighbour, &self.neighbour).labels;
        let key = ObjectKey {
            name: spec(&self.neighbour, &self.neighbour).name,
            home: labels.home,
            instance: labels.instance,
        };
        let found = provider.find(key).await.expect("the server answers");
        let found = found.iter().find(|object| object.name.as_str() == self.neighbour);
        let neighbour = Sandbox { provider, target: target(found.expect("still there")) };
        let output = neighbour.sh("cat file; (echo forked)").await;
        assert_eq!(output, "mine\nforked\n", "the neighbour after: {after}");
        let canary = fs::read(self.local.dir.path().join("canary")).expect("still there");
        assert_eq!(canary, b"untouched", "after: {after}");
        assert_eq!(Host::seen(), self.host, "the host after: {after}");
    }

    /// Makes attempts one after another in one sandbox, which must survive them all.
    pub async fn try_all(&self, attempts: &[Attempt<'_>]) {
        let hostile = self.hostile("hostile", None).await;
        let mut wrong = Vec::new();
        for (tries, arguments, expected) in attempts {
            let result = hostile.attempt(arguments).await;
            if result != *expected {
                wrong.push(format!("{tries}: {result} instead of {expected}"));
            }
            self.assert_unharmed(tries).await;
            assert_eq!(hostile.sandbox.sh("echo still here").await, "still here\n", "{tries}");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        hostile.assert_gone_after_stop().await;
    }

    /// How the provider reports that a limit is enforced here.
    pub async fn holds(&self, limit: &str) -> &'static str {
        let limits = self.local.provider.health().await.limits;
        let held = limits.into_iter().find(|(kind, _)| kind.as_str() == limit);
        held.expect("a known limit").1.as_str()
    }

    /// Ends the server, and checks that nothing of any sandbox is left.
    pub async fn end(self) {
        self.assert_unharmed("everything").await;
        let dir = self.local.dir.path().to_owned();
        let identity = fs::read_to_string(dir.join("identity")).expect("an identity");
        drop(self.local.provider);
        until("the end of all sandboxes", || !is_locked(&dir, &self.neighbour)).await;
        let group = format!("issuebox-{identity}-");
        until("the end of all control groups", || !has_directory("/sys/fs/cgroup", &group)).await;
        let dir = dir.to_str().expect("UTF-8").to_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        assert!(!mounts.contains(&dir), "{mounts}");
        until("the end of all loop devices", || {
            let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
            let file = |device: fs::DirEntry| device.path().join("loop/backing_file");
            let mut files = devices.filter_map(|device| fs::read_to_string(file(device)).ok());
            !files.any(|file| file.contains(&dir))
        })
        .await;
    }
}

/// A sandbox that makes attempts.
pub struct Hostile<'a> {
    world: &'a World,
    pub sandbox: Sandbox<'a>,
    name: String,
    pids: String,
    user: u32,
}

impl Hostile<'_> {
    /// The result of an attempt: the hostile program's output, or the signal that ended it.
    pub async fn attempt(&self, arguments: &str) -> String {
        let (name, argument) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let command = ExecRequest { timeout: Some(TIME), ..request(&["./escape", name, argument]) };
        let execution = self.sandbox.exec(command).await.expect("started");
        match collect(execution).await {
            Some(ended) if ended.timed_out => "out of time".to_owned(),
            Some(ended) => result_of(&ended),
            None => "the end of the sandbox".to_owned(),
        }
    }

    /// The result of an attempt that is made at a terminal of the server.
    pub async fn attempt_at_a_terminal(&self, name: &str) -> String {
        let request = TerminalRequest {
            command: vec!["./escape".into(), name.into()],
            cwd: None,
            env: Vec::new(),
            size: TerminalSize { columns: 80, rows: 24 },
        };
        let target = self.sandbox.target.clone();
        let mut terminal = self.sandbox.provider.terminal(target, request).await.expect("opened");
        let mut shown = Vec::new();
        while let Some(event) = terminal.events.recv().await {
            match event {
                TerminalEvent::Output(bytes) => shown.extend(bytes),
                TerminalEvent::Exit { code } => assert_eq!(code, 0, "{name}"),
            }
        }
        String::from_utf8(shown).expect("text")
    }

    /// Stops the sandbox, and checks that no process of it is left.
    pub async fn assert_gone_after_stop(self) {
        let provider = &self.world.local.provider;
        provider.stop(call(&self.sandbox.target)).await.expect("stopped");
        assert!(!is_locked(self.world.local.dir.path(), &self.name));
        // If memory pressure killed its launcher, the kernel still ends the rest.
        until("the end of all its processes", || !processes().any(|process| self.has(&process)))
            .await;
        provider.delete(call(&self.sandbox.target)).await.expect("deleted");
        let object = self.world.local.dir.path().join("objects").join(&self.name);
        assert!(!object.exists(), "{} must be deleted", self.name);
    }

    /// Whether a process of the host, by its directory in `/proc`, belongs to the sandbox.
    fn has(&self, process: &Path) -> bool {
        let is_inside = fs::read_link(process.join("ns/pid"))
            .is_ok_and(|namespace| namespace == Path::new(&self.pids));
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let is_its_user = status.contains(&format!("\nUid:\t{}\t", self.user));
        // For an ordinary user all processes have the same uid.
        is_inside || (is_its_user && rustix::process::geteuid().is_root())
    }

    /// Checks that the sandbox still runs commands, or reports that it has no room for one.
    pub async fn assert_usable(&self) {
        let ended = self.sandbox.exec(request(&["true"])).await;
        assert!(matches!(ended, Ok(_) | Err(WorkError::Refused(_))), "{ended:?}");
    }
}

fn result_of(ended: &Ended) -> String {
    match ended.code {
        0 => ended.stdout.clone(),
        code @ 129.. => format!("killed by {}", code - 128),
        _ => panic!("{ended:?}"),
    }
}

/// The host's state that a sandbox could have changed for all others.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    settings: Vec<Option<String>>,
    programs: Vec<Option<std::time::SystemTime>>,
    devices: BTreeSet<OsString>,
    /// Mode and time of the last change of the server's program file.
    server: (u32, i64, i64),
}

impl Host {
    fn seen() -> Self {
        let settings =
            ["kernel/core_pattern", "kernel/sysrq", "kernel/modprobe", "vm/panic_on_oom"];
        let settings = settings.map(|name| fs::read_to_string(format!("/proc/sys/{name}")).ok());
        let server = fs::metadata(launcher()).expect("the server's program");
        let changed = |path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        Self {
            name: text(rustix::system::uname().nodename()),
            settings: settings.into(),
            programs: ["/usr/bin", "/usr/bin/env", "/etc/passwd"].map(changed).into(),
            devices: devices(),
            server: (server.mode(), server.ctime(), server.ctime_nsec()),
        }
    }
}

/// The names in `/dev`, except loop devices: when all are in use, the kernel makes another one,
/// which also changes the directory's time.
fn devices() -> BTreeSet<OsString> {
    let names = fs::read_dir("/dev").expect("/dev").flatten().map(|entry| entry.file_name());
    names.filter(|name| !name.as_encoded_bytes().starts_with(b"loop")).collect()
}

fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The directories in `/proc` of the host's processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let table = fs::read_dir("/proc").expect("/proc").flatten();
    table
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .map(|entry| entry.path())
}

/// Whether a directory below `at` has a name with this prefix.
fn has_directory(at: impl AsRef<Path>, prefix: &str) -> bool {
    let entries = fs::read_dir(at).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).any(|entry| {
        entry.file_name().to_string_lossy().starts_with(prefix)
            || has_directory(entry.path(), prefix)
    })
}

/// The program that starts sandboxes.
pub fn launcher() -> PathBuf {
    match std::env::var_os(PROGRAMS) {
        Some(dir) => Path::new(&dir).join("issuebox"),
        None => std::env::var_os("ISSUEBOX_BINARY")
            .map_or_else(|| env!("CARGO_BIN_EXE_issuebox").into(), PathBuf::from),
    }
}

/// The hostile program, compiled once per run.
pub fn hostile_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(dir) = std::env::var_os(PROGRAMS) {
            return Path::new(&dir).join("escape");
        }
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (path, new) = (dir.join("escape"), dir.join(format!("escape-{}", std::process::id())));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/escape/inside/main.c");
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-static", "-pthread", "-o"])
            .arg(&new)
            .args([source, "-lutil", "-lrt"])
            .output()
            .expect("a C compiler");
        assert!(compiled.status.success(), "{compiled:?}");
        fs::rename(new, &path).expect("renamed");
        path
    })
}
