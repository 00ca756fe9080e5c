//! A provider under test, and what every part of the contract does with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use issuebox::sandbox::{
    Capability, CreateSpec, ExecEvent, ExecRequest, Execution, FilePart, Labels, Object, ObjectKey,
    Provider, ProviderError, Target, TargetCall, TerminalRequest, TerminalSize, WorkError,
    WorkspacePath, Written,
};
use issuebox::types::{
    AccountName, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName, OnLimit,
    ProviderName, Resources, SandboxId, Template, TemplateName, Timestamp, Workload,
};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::{daytona, docker, local};

/// How long something may take to come about.
pub const WAIT: Duration = Duration::from_secs(30);

/// Most looks at an object that is being deleted until it must be gone. Each look may wait.
const LOOKS_MAX: usize = 10_000;

/// Makes a test of each function for every provider. A further provider is one more line here.
macro_rules! contract {
    ($($name:ident),+ $(,)?) => {
        contract!(@of simulated: $($name),+);
        contract!(@of local: $($name),+);
        contract!(@of daytona: $($name),+);
        contract!(@ignored docker: $($name),+);
    };
    (@ignored $subject:ident: $($name:ident),+) => {
        mod $subject {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[ignore = "needs Docker's engine; run by .ci/run"]
                async fn $name() {
                    super::$name(&crate::subject::Subject::$subject()).await;
                }
            )+
        }
    };
    (@of $subject:ident: $($name:ident),+) => {
        mod $subject {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    if let Some(subject) = crate::subject::Subject::$subject().await {
                        super::$name(&subject).await;
                    }
                }
            )+
        }
    };
}

/// A provider under test.
pub struct Subject {
    pub provider: Provider,
    /// Its name, with which every object's name begins.
    pub name: &'static str,
    /// Whether its commands are real programs, or those that the simulation plays.
    pub has_shell: bool,
    dir: TempDir,
    open: fn(&Path) -> Provider,
    kill: fn(&Path, &Object),
    /// Removes what the objects leave at a provider that others use, too.
    owned: Option<docker::Owned>,
    /// What must go on while the subject is used.
    _world: Option<daytona::model::ModelGuard>,
}

impl Subject {
    /// The simulated provider.
    pub async fn simulated() -> Option<Self> {
        let open = |dir: &Path| {
            let config = SimulatedConfig { dir: dir.to_owned(), unique_names: true };
            let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
            let provider = SimulatedProvider::open(config, SimulatedFaults::default(), clock, ids);
            Provider::from(Arc::new(provider.expect("it opens")))
        };
        let kill = |dir: &Path, object: &Object| {
            let file = dir.join(format!("{}.json", object.external_id));
            let text = std::fs::read_to_string(&file).expect("the object's file");
            std::fs::write(file, text.replace("\"running\"", "\"stopped\"")).expect("written");
        };
        let dir = tempfile::tempdir().expect("a directory");
        Some(Self {
            provider: open(dir.path()),
            name: "simulated",
            has_shell: false,
            dir,
            open,
            kill,
            owned: None,
            _world: None,
        })
    }

    /// The local provider, if this machine can make sandboxes.
    pub async fn local() -> Option<Self> {
        let local::Local { provider, dir } = local::Local::new().await?;
        let open = |dir: &Path| Provider::from(Arc::new(local::open(dir)));
        let kill = |dir: &Path, object: &Object| local::kill_launcher(dir, object.name.as_str());
        let provider = Provider::from(Arc::new(provider));
        Some(Self {
            provider,
            name: "local",
            has_shell: true,
            dir,
            open,
            kill,
            owned: None,
            _world: None,
        })
    }

    /// The provider of containers, at the engine that `DOCKER_HOST` names.
    pub fn docker() -> Self {
        let open = |_: &Path| Provider::from(Arc::new(docker::open()));
        let kill = |_: &Path, object: &Object| {
            docker::docker_text(&["kill", object.external_id.as_str()]);
        };
        let dir = tempfile::tempdir().expect("a directory");
        let owned = docker::Owned::new();
        Self {
            provider: open(dir.path()),
            name: owned.0,
            has_shell: true,
            dir,
            open,
            kill,
            owned: Some(owned),
            _world: None,
        }
    }

    /// What the objects of the provider of containers are known by.
    pub fn owned(&self) -> &docker::Owned {
        self.owned.as_ref().expect("it has one")
    }

    /// The provider for Daytona, over a model of it.
    pub async fn daytona() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let world = daytona::model::start(dir.path());
        let kill = |dir: &Path, object: &Object| {
            let id = object.external_id.as_str();
            let stopped = |sandbox: &mut daytona::model::ModelSandbox| {
                (sandbox.state, sandbox.desired) = ("stopped", "stopped");
            };
            daytona::model::model_in(dir).with(id, stopped);
            daytona::model::kill_all(id);
        };
        Some(Self {
            provider: daytona::open(dir.path()),
            name: "daytona",
            has_shell: true,
            dir,
            open: daytona::open,
            kill,
            owned: None,
            _world: Some(world),
        })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server ends and starts again.
    pub fn restarted(self) -> Self {
        let Self { provider, dir, open, .. } = self;
        drop(provider);
        let provider = open(dir.path());
        Self { provider, dir, open, ..self }
    }

    /// Ends what runs in an object from outside, without a call to the provider.
    pub fn kill(&self, object: &Object) {
        (self.kill)(self.dir.path(), object);
    }

    pub fn offers(&self, capability: Capability) -> bool {
        self.provider.descriptor.offers(capability)
    }

    pub fn spec(&self, name: &str, sandbox: &str) -> CreateSpec {
        CreateSpec {
            name: ObjectName::trusted(format!("{}-{name}", self.name)),
            labels: Labels {
                instance: InstanceId::trusted(format!("{}-instance", self.name)),
                account: AccountName::default_account(),
                home: HomeId(41),
                issue: IssueId::parse("test-41").expect("an issue id"),
                sandbox: SandboxId::trusted(format!("{}-{sandbox}", self.name)),
                generation: Generation(3),
                mode: Mode::Strong,
            },
            template: Template {
                name: TemplateName::trusted("default"),
                provider: ProviderName::trusted(self.name),
                mode: Mode::Strong,
                resources: Resources { cpu: 1.0, memory_mb: 256, processes: 64, disk_mb: 256 },
                network: Network::None,
                ports: Vec::new(),
                on_limit: OnLimit::Kill,
                workload: Workload::default().into(),
            },
            deadline: deadline(),
        }
    }

    pub async fn make(&self, name: &str, sandbox: &str) -> Object {
        self.provider.lifecycle.create(self.spec(name, sandbox)).await.expect("made")
    }

    /// A new object to work in.
    pub async fn target(&self) -> Target {
        target(&self.make("work", "s1").await)
    }

    pub async fn find(&self, name: &str) -> Vec<Object> {
        let CreateSpec { name, labels, .. } = self.spec(name, "s1");
        let key = ObjectKey { name, instance: labels.instance, home: labels.home };
        self.provider.lifecycle.find(key).await.expect("found")
    }

    pub async fn stop(&self, target: &Target) {
        self.provider.lifecycle.stop(call(target)).await.expect("stopped");
    }

    pub async fn start(&self, target: &Target) {
        self.provider.lifecycle.start(call(target)).await.expect("started");
    }

    /// Deletes an object and sees it gone. Until it is, it must be found.
    pub async fn remove(&self, object: &Object, force: bool) {
        for _ in 0..LOOKS_MAX {
            let call = TargetCall { force, ..call(&target(object)) };
            match self.provider.lifecycle.delete(call).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(ProviderError::Absent) => return,
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("{} must be gone in the end", object.name);
    }

    pub async fn exec(&self, target: &Target, command: &[&str]) -> Result<Execution, WorkError> {
        self.provider.processes.exec(target.clone(), request(command)).await
    }

    /// Runs a command to its end.
    pub async fn run(&self, target: &Target, command: &[&str]) -> Ended {
        let execution = self.exec(target, command).await.expect("started");
        ended(execution).await
    }

    pub async fn write(
        &self,
        target: &Target,
        at: &[u8],
        bytes: Bytes,
    ) -> Result<Written, WorkError> {
        let (sender, chunks) = mpsc::channel(1);
        let workspace = Arc::clone(&self.provider.workspace);
        let (target, at) = (target.clone(), path(at));
        let writing = tokio::spawn(async move { workspace.write_file(target, at, chunks).await });
        for chunk in bytes.chunks(60_000) {
            // One that is refused takes no more.
            if sender.send(Ok(Bytes::copy_from_slice(chunk))).await.is_err() {
                break;
            }
        }
        drop(sender);
        writing.await.expect("no panic")
    }

    pub async fn read(&self, target: &Target, at: &[u8]) -> Result<Vec<u8>, WorkError> {
        self.read_part(target, at, FilePart::Whole).await
    }

    pub async fn read_part(
        &self,
        target: &Target,
        at: &[u8],
        part: FilePart,
    ) -> Result<Vec<u8>, WorkError> {
        let mut content = self.provider.workspace.read_file(target.clone(), path(at), part).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = content.chunks.recv().await {
            bytes.extend(chunk.expect("readable"));
        }
        Ok(bytes)
    }

    /// The paths below a directory of the workspace.
    pub async fn list(&self, target: &Target, at: &[u8]) -> Vec<Vec<u8>> {
        let listing = self.provider.workspace.list_files(target.clone(), path(at), 9).await;
        let listing = listing.expect("listed");
        assert!(!listing.truncated);
        listing.entries.into_iter().map(|entry| entry.path).collect()
    }
}

/// A deadline that no test should meet.
pub fn deadline() -> Timestamp {
    SystemClock.now().after(Duration::from_secs(60))
}

pub fn target(object: &Object) -> Target {
    let labels = object.labels.as_ref().expect("ours");
    Target { external_id: object.external_id.clone(), expected: labels.sandbox.clone() }
}

pub fn call(target: &Target) -> TargetCall {
    TargetCall { target: target.clone(), force: false, deadline: deadline() }
}

pub fn path(path: &[u8]) -> WorkspacePath {
    WorkspacePath::parse(path).expect("a path")
}

pub fn request(command: &[&str]) -> ExecRequest {
    ExecRequest {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: Vec::new(),
        stdin: Bytes::new().into(),
        timeout: None,
    }
}

pub fn at_terminal(command: &[&str]) -> TerminalRequest {
    TerminalRequest {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: Vec::new(),
        size: TerminalSize { columns: 80, rows: 24 },
    }
}

/// What a command did.
#[derive(Debug, Default)]
pub struct Ended {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Its exit code and whether its time was up; `None` if it never said so.
    pub exit: Option<(i32, bool)>,
}

/// Takes all output of a command.
pub async fn ended(mut execution: Execution) -> Ended {
    let mut all = Ended::default();
    while let Some(event) = execution.events.recv().await {
        assert_eq!(all.exit, None, "nothing comes after the exit");
        match event {
            ExecEvent::Stdout(bytes) => all.stdout.extend(bytes),
            ExecEvent::Stderr(bytes) => all.stderr.extend(bytes),
            ExecEvent::Exit { code, timed_out } => all.exit = Some((code, timed_out)),
        }
    }
    all
}
