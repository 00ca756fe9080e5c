//! A directory, a clock and dice for the simulated provider, and what anyone outside sees of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use issuebox::clock::{Clock, IdSource, SystemIds};
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use issuebox::sandbox::{CreateSpec, Labels, Object, ObjectKey, ProviderError, Target, TargetCall};
use issuebox::types::{
    AccountName, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName, OnLimit,
    ProviderName, Resources, SandboxId, Template, TemplateName, Timestamp,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

/// The wall clock of a paused runtime.
pub struct PausedClock {
    begun: Instant,
}

#[async_trait]
impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(1_770_000_000_000).after(self.begun.elapsed())
    }

    async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(at.since(self.now())).await;
    }
}

/// Ids of the system, and chance as the test says.
pub struct Dice {
    pub permille: AtomicU16,
}

impl IdSource for Dice {
    fn sandbox_id(&self) -> SandboxId {
        SystemIds.sandbox_id()
    }

    fn request_id(&self) -> String {
        SystemIds.request_id()
    }

    fn unix_ns(&self) -> i64 {
        SystemIds.unix_ns()
    }

    fn jitter_permille(&self) -> u16 {
        self.permille.load(Ordering::Relaxed)
    }
}

pub struct World {
    pub dir: TempDir,
    pub clock: Arc<PausedClock>,
    pub dice: Arc<Dice>,
}

impl World {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            clock: Arc::new(PausedClock { begun: Instant::now() }),
            dice: Arc::new(Dice { permille: AtomicU16::new(500) }),
        }
    }

    pub fn open_with(&self, unique_names: bool, faults: SimulatedFaults) -> SimulatedProvider {
        let config = SimulatedConfig { dir: self.dir.path().join("objects"), unique_names };
        let (clock, dice) = (self.clock.clone(), self.dice.clone());
        SimulatedProvider::open(config, faults, clock, dice).expect("opens")
    }

    pub fn open(&self) -> SimulatedProvider {
        self.open_with(true, SimulatedFaults::default())
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join("objects").join(file)
    }

    /// The files of objects, as anyone outside reads them.
    pub fn files(&self) -> Vec<Value> {
        let mut files: Vec<_> = fs::read_dir(self.path(""))
            .expect("is there")
            .map(|entry| entry.expect("reads").path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .collect();
        files.sort();
        let read = |path| serde_json::from_slice(&fs::read(path).expect("reads")).expect("is JSON");
        files.into_iter().map(read).collect()
    }

    pub fn put(&self, id: &str, object: &Value) {
        fs::write(self.path(&format!("{id}.json")), object.to_string()).expect("writes");
    }

    pub fn calls(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.path("calls.jsonl")).expect("is there");
        log.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
    }

    /// What was asked, and what came of it.
    pub fn results(&self) -> Vec<String> {
        let text = |call: &Value, key: &str| call[key].as_str().expect("text").to_owned();
        let calls = self.calls();
        calls.iter().map(|call| text(call, "verb") + " " + &text(call, "result")).collect()
    }

    pub fn in_an_hour(&self) -> Timestamp {
        self.clock.now().after(Duration::from_secs(3_600))
    }

    pub fn spec(&self, home: i64, sandbox: &str) -> CreateSpec {
        CreateSpec {
            name: ObjectName::trusted(format!("claude-issue-{home}")),
            labels: Labels {
                instance: InstanceId::trusted("here"),
                account: AccountName::default_account(),
                home: HomeId(home),
                issue: IssueId::trusted(home.to_string()),
                sandbox: SandboxId::trusted(sandbox),
                generation: Generation(1),
                mode: Mode::Strong,
            },
            template: Template {
                name: TemplateName::trusted("default"),
                provider: ProviderName::trusted("simulated"),
                mode: Mode::Strong,
                resources: Resources { cpu: 1.0, memory_mb: 1, processes: 1, disk_mb: 1 },
                network: Network::None,
                ports: Vec::new(),
                on_limit: OnLimit::Kill,
                workload: issuebox::types::Workload::default().into(),
            },
            deadline: self.in_an_hour(),
        }
    }

    pub fn call(&self, object: &Object, expected: &str) -> TargetCall {
        TargetCall { target: target(object, expected), force: false, deadline: self.in_an_hour() }
    }
}

pub fn target(object: &Object, expected: &str) -> Target {
    Target { external_id: object.external_id.clone(), expected: SandboxId::trusted(expected) }
}

pub fn key(home: i64) -> ObjectKey {
    ObjectKey {
        name: ObjectName::trusted(format!("claude-issue-{home}")),
        instance: InstanceId::trusted("here"),
        home: HomeId(home),
    }
}

pub fn is_unavailable<T>(result: Result<T, ProviderError>) -> bool {
    matches!(result, Err(ProviderError::Unavailable { .. }))
}

pub fn is_broken<T>(result: Result<T, ProviderError>) -> bool {
    matches!(result, Err(ProviderError::Broken(_)))
}

pub fn present(object: &Object) -> ProviderError {
    ProviderError::Present(Box::new(object.clone()))
}
