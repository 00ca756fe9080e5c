//! A GitHub in memory, and a server's store, engine and recovery worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;
use tempfile::TempDir;

use crate::clock::{SystemClock, SystemIds};
use crate::config::{IntakeMode, RepositoryPattern};
use crate::engine::tests::{NoPublisher, SetForward, eventually};
use crate::engine::{Engine, EngineParts, Quotas, Retention, SandboxRef, Threads};
use crate::github::api::UnkeptPace;
use crate::github::client::{GitHubClient, GitHubCredentials};
use crate::github::model::{APP_KEY, GithubModel, HookDoor};
use crate::github::policy::TriggerPolicy;
use crate::intake::{Intake, RecoveryPace, RecoveryParts, RecoveryWorker};
use crate::issue::event::ProviderRules;
use crate::issue::{Rules, StepRules};
use crate::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use crate::store::recovered::RecoveryStore;
use crate::store::sqlite::SqliteStore;
use crate::store::{DeliveryFilter, DeliveryRow, PageAsk, SandboxFilter, Store};
use crate::types::*;

pub const REPOSITORY: &str = "octo/hello";
pub const MAINTAINER: &str = "mona";

/// A GitHub with one issue, whose deliveries do not arrive, and a server.
pub struct RecoveryWorld {
    pub github: GithubModel,
    pub repository_id: u64,
    pub number: u64,
    pub store: Arc<SqliteStore>,
    pub intake: Intake,
    pub clock: Arc<SetForward>,
    engine: Engine,
    arbiter: Arbiter,
    _dir: TempDir,
}

impl RecoveryWorld {
    pub async fn new() -> Self {
        let github = GithubModel::start().expect("it starts");
        github.set_door(HookDoor::Closed);
        github.set_hourly_limit(100_000);
        let repository_id = github.repository(REPOSITORY);
        github.set_role(REPOSITORY, MAINTAINER, "admin");
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(SqliteStore::open(&dir.path().join("data")).expect("a store"));
        let arbiter = Arbiter::new();
        let engine = engine(&dir, &store, &arbiter).await;
        let intake = Intake::new(engine.clone(), policy(&github));
        let number = github.open_issue(REPOSITORY, MAINTAINER, "A title", "A body");
        let clock = Arc::default();
        Self { github, repository_id, number, store, intake, clock, engine, arbiter, _dir: dir }
    }

    /// The same with the App installed.
    pub async fn with_app() -> Self {
        let world = Self::new().await;
        world.github.install("octo");
        world
    }

    /// What recovers, as after a start.
    pub fn worker(&self) -> RecoveryWorker {
        self.paced(RecoveryPace {
            payload_pause: Duration::ZERO,
            ..RecoveryPace::of(IntakeMode::Webhook)
        })
    }

    pub fn paced(&self, pace: RecoveryPace) -> RecoveryWorker {
        let (id, _, _) = self.github.app();
        let credentials = GitHubCredentials::app(id, &Secret::new(APP_KEY)).expect("a key");
        self.worker_as(credentials, IntakeMode::Webhook, pace)
    }

    pub fn worker_as(
        &self,
        credentials: GitHubCredentials,
        mode: IntakeMode,
        pace: RecoveryPace,
    ) -> RecoveryWorker {
        let clock = Arc::new(SystemClock);
        let (url, kept) = (self.github.api_url(), Arc::new(UnkeptPace));
        let client = GitHubClient::new(&url, credentials, clock, kept).expect("a client");
        RecoveryWorker::new(RecoveryParts {
            intake: self.intake.clone(),
            api: Arc::new(client),
            store: Arc::clone(&self.store) as _,
            rows: Arc::clone(&self.store) as _,
            clock: Arc::clone(&self.clock) as _,
            mode,
            public_url: None,
            web_url: self.github.web_url(),
            pace,
        })
    }

    pub fn at(&self) -> (&'static str, u64) {
        (REPOSITORY, self.number)
    }

    pub fn label(&self) {
        self.github.label(self.at(), MAINTAINER, "agent");
    }

    /// All stored deliveries, newest first.
    pub async fn rows(&self) -> Vec<DeliveryRow> {
        let ask = PageAsk { limit: 10_000, cursor: None };
        let page = self.store.deliveries(&DeliveryFilter::default(), &ask).await;
        page.expect("reads").items.into_iter().map(|one| one.row).collect()
    }

    /// The GUIDs that GitHub sent and that are not stored.
    pub async fn lacking(&self) -> Vec<String> {
        let guids: BTreeSet<String> = self.github.delivered_guids().into_iter().collect();
        let ids: Vec<_> = guids.into_iter().map(DeliveryId::trusted).collect();
        let stored = self.store.stored_deliveries(&ids).await.expect("reads");
        ids.iter().filter(|id| !stored.contains(*id)).map(ToString::to_string).collect()
    }

    /// How many payloads were read of GitHub's log.
    pub fn payloads_read(&self) -> usize {
        self.github.calls_to("GET", "/app/hook/deliveries/", "").len()
    }

    /// The issue's sandbox, if it has one.
    pub async fn sandbox(&self) -> Option<Sandbox> {
        let (account, filter) = (AccountName::default_account(), SandboxFilter::default());
        let ask = PageAsk { limit: 10, cursor: None };
        let page = self.store.sandboxes(&account, &filter, &ask);
        let found = page.await.expect("reads").items;
        assert!(found.len() <= 1, "one sandbox at most: {found:?}");
        found.into_iter().next()
    }

    /// Waits until the sandbox is in this phase.
    pub async fn until_phase(&self, phase: Phase) {
        eventually(phase.as_str(), async || {
            self.sandbox().await.is_some_and(|one| one.phase == Some(phase))
        })
        .await;
    }

    /// Deletes the sandbox, as a person does.
    pub async fn delete_sandbox(&self) {
        let id = self.sandbox().await.expect("a sandbox").id;
        let cause = Cause::Service("test");
        let command = crate::issue::Command::Delete;
        let account = AccountName::default_account();
        let sandbox = SandboxRef::Id(id);
        self.engine.command(&account, &sandbox, command, cause).await.expect("it is deleted");
        eventually("deleted", async || self.sandbox().await.is_none()).await;
    }

    pub fn nothing_wrong(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

impl Drop for RecoveryWorld {
    fn drop(&mut self) {
        self.arbiter.stop();
    }
}

fn policy(github: &GithubModel) -> TriggerPolicy {
    TriggerPolicy {
        label: "agent".into(),
        command: "/issuebox".into(),
        opened: false,
        associations: vec!["OWNER".into(), "MEMBER".into(), "COLLABORATOR".into()],
        bots: Vec::new(),
        assignee: 0,
        unlabel_stops: true,
        permission: None,
        bot_user_id: github.bot().0.into(),
        repositories: vec![RepositoryPattern::parse("octo/*").expect("a pattern")],
    }
}

async fn engine(dir: &TempDir, store: &Arc<SqliteStore>, arbiter: &Arbiter) -> Engine {
    let name = ProviderName::trusted("simulated");
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let settings = SimulatedConfig { dir: dir.path().join("objects"), unique_names: true };
    let faults = SimulatedFaults::default();
    let provider = SimulatedProvider::open(settings, faults, clock, ids).expect("a provider");
    let bounds = StepRules { attempts: 3, timeout: Duration::from_secs(20) };
    let template = Template {
        name: TemplateName::trusted("default"),
        provider: name.clone(),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 64, processes: 8, disk_mb: 64 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: Workload::default().into(),
    };
    let provider_rules = ProviderRules {
        names_enforced: true,
        late_effect_window: Duration::ZERO,
        dies_with_server: false,
    };
    let here = tokio::runtime::Handle::current();
    let started = Engine::start(EngineParts {
        github: None,
        retention: Retention::default(),
        store: Arc::clone(store) as _,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        rules: Rules {
            github: None,
            create: bounds,
            start: bounds,
            stop: bounds,
            delete: bounds,
            idle_stop: None,
            delete_after_close: Duration::from_secs(86_400),
            ttl: None,
            trigger_label: "agent".into(),
            default_template: template.clone(),
            providers: HashMap::from([(name.clone(), provider_rules)]),
        },
        templates: HashMap::from([(template.name.clone(), template)]),
        providers: HashMap::from([(name, Arc::new(provider) as _)]),
        creates_in_flight: 0,
        quotas: Quotas::default(),
        publisher: Arc::new(NoPublisher),
        spawner: Arc::new(Threads { arbiter: arbiter.handle(), io: here.clone(), calls: here }),
        reconcile: None,
    });
    started.await.expect("the engine starts")
}
