//! A GitHub in memory, and a server's store, engine and recovery worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;
use tempfile::TempDir;

use crate::clock::{Clock, SystemClock, SystemIds};
use crate::config::IntakeMode;
use crate::engine::tests::{NoPublisher, SetForward, eventually};
use crate::engine::{Engine, EngineParts, GithubParts, Quotas, Retention, SandboxRef, Threads};
use crate::git::LatePublisher;
use crate::github::api::UnkeptPace;
use crate::github::client::{GitHubClient, GitHubCredentials};
use crate::github::messages::MessageContext;
use crate::github::model::{APP_KEY, GithubModel, HookDoor};
use crate::github::permissions::RepositoryPermissions;
use crate::github::policy::TriggerPolicy;
use crate::intake::{Intake, PermissionParts, RecoveryPace, RecoveryParts, RecoveryWorker};
use crate::issue::event::ProviderRules;
use crate::issue::{GithubRules, Rules, StepRules};
use crate::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use crate::store::recovered::RecoveryStore;
use crate::store::sqlite::SqliteStore;
use crate::store::{DeliveryFilter, DeliveryRow, PageAsk, SandboxFilter, Store};
use crate::types::RepositoryPattern;
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
        Self::saying(None, false).await
    }

    /// The same with the App installed, and a server that says these things on issues.
    pub async fn with_effects(said: GithubRules) -> Self {
        let world = Self::saying(Some(said), false).await;
        world.github.install("octo");
        world
    }

    /// The same with an agent. People's permissions are asked, and the agent hears of failed checks.
    pub async fn with_agent(said: GithubRules) -> Self {
        let mut world = Self::saying(Some(said), true).await;
        world.github.install("octo");
        let triggers = TriggerPolicy {
            permission: Some(PermissionLevel::Write),
            on_ci_failure: CiFailureMode::Fix,
            ..policy(&world.github)
        };
        let api = client(&world.github, app_of(&world.github), Arc::clone(&world.clock) as _);
        let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
        world.intake = Intake::new(world.engine.clone(), triggers).asking(PermissionParts {
            permissions: Arc::new(RepositoryPermissions::new(api, Arc::clone(&clock))),
            waiting: Arc::clone(&world.store) as _,
            store: Arc::clone(&world.store) as _,
            owners: Arc::clone(&world.store) as _,
            clock,
        });
        world
    }

    /// Has what was recorded said on issues.
    pub fn say_recorded(&self) {
        self.engine.say_recorded();
    }

    async fn saying(said: Option<GithubRules>, has_agent: bool) -> Self {
        let github = GithubModel::start().expect("it starts");
        github.set_door(HookDoor::Closed);
        github.set_hourly_limit(100_000);
        let repository_id = github.repository(REPOSITORY);
        github.set_role(REPOSITORY, MAINTAINER, "admin");
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(SqliteStore::open(&dir.path().join("data")).expect("a store"));
        let arbiter = Arbiter::new();
        let clock: Arc<SetForward> = Arc::default();
        let said = said.map(|rules| (rules, said_by(&github, &store, &clock)));
        let engine = engine(&dir, &store, &clock, &arbiter, said, has_agent).await;
        let intake = Intake::new(engine.clone(), policy(&github));
        let number = github.open_issue(REPOSITORY, MAINTAINER, "A title", "A body");
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
        self.worker_as(app_of(&self.github), IntakeMode::Webhook, pace)
    }

    pub fn worker_as(
        &self,
        credentials: GitHubCredentials,
        mode: IntakeMode,
        pace: RecoveryPace,
    ) -> RecoveryWorker {
        let api = client(&self.github, credentials, Arc::clone(&self.clock) as _);
        let (asked, clock) = (Arc::clone(&api) as _, Arc::clone(&self.clock) as _);
        RecoveryWorker::new(RecoveryParts {
            intake: self.intake.clone(),
            api,
            permissions: Arc::new(RepositoryPermissions::new(asked, clock)),
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

    /// How many sandboxes are in this phase.
    pub async fn count(&self, phase: Phase) -> usize {
        let live = self.store.live(None, 10_000).await.expect("reads");
        live.iter().filter(|issue| issue.state.phase() == Some(phase)).count()
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
        refuses_hidden: false,
        follow_up: FollowUpMode::Commands,
        on_ci_failure: CiFailureMode::Ignore,
        permission: None,
        bot_user_id: github.bot().0.into(),
        repositories: vec![RepositoryPattern::parse("octo/*").expect("a pattern")],
    }
}

pub fn app_of(github: &GithubModel) -> GitHubCredentials {
    let (id, _, _) = github.app();
    GitHubCredentials::app(id, &Secret::new(APP_KEY)).expect("a key")
}

fn client(
    github: &GithubModel,
    credentials: GitHubCredentials,
    clock: Arc<dyn Clock>,
) -> Arc<GitHubClient> {
    let (url, kept) = (github.api_url(), Arc::new(UnkeptPace));
    Arc::new(GitHubClient::new(&url, credentials, clock, kept).expect("a client"))
}

/// What the App says on issues.
fn said_by(github: &GithubModel, store: &Arc<SqliteStore>, clock: &Arc<SetForward>) -> GithubParts {
    GithubParts {
        api: client(github, app_of(github), Arc::clone(clock) as _),
        outbox: Arc::clone(store) as _,
        checkouts: Arc::clone(store) as _,
        publisher: LatePublisher::default(),
        working_label: String::new(),
        context: MessageContext {
            instance: store.instance(),
            public_url: None,
            command: "/issuebox".into(),
        }
        .into(),
        runs: Arc::clone(store) as _,
        live: Arc::new(()),
        texts: crate::types::PerRepository::default(),
    }
}

fn agent() -> AgentWorkload {
    AgentWorkload {
        name: AgentName::trusted("claude-code"),
        model: None,
        run_time_max: Duration::from_secs(60),
        quiet_time_max: Duration::from_secs(60),
        turns_max: None,
        while_running: WhileRunning::Queue,
        instructions: String::new(),
    }
}

async fn engine(
    dir: &TempDir,
    store: &Arc<SqliteStore>,
    clock: &Arc<SetForward>,
    arbiter: &Arbiter,
    said: Option<(GithubRules, GithubParts)>,
    has_agent: bool,
) -> Engine {
    let name = ProviderName::trusted("simulated");
    let (github_rules, github) = said.unzip();
    let (system_clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let settings = SimulatedConfig { dir: dir.path().join("objects"), unique_names: true };
    let faults = SimulatedFaults::default();
    let provider =
        SimulatedProvider::open(settings, faults, system_clock, ids).expect("a provider");
    // Tests set the clock forward by minutes at a time.
    let bounds = StepRules { attempts: 3, timeout: Duration::from_secs(3_600) };
    let template = Template {
        name: TemplateName::trusted("default"),
        provider: name.clone(),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 64, processes: 8, disk_mb: 64 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: Workload { agent: has_agent.then(agent), ..Workload::default() }.into(),
    };
    let provider_rules = ProviderRules {
        names_enforced: true,
        late_effect_window: Duration::ZERO,
        dies_with_server: false,
    };
    let here = tokio::runtime::Handle::current();
    let started = Engine::start(EngineParts {
        github,
        retention: Retention::default(),
        store: Arc::clone(store) as _,
        clock: Arc::clone(clock) as _,
        ids: Arc::new(SystemIds),
        rules: Rules {
            github: github_rules,
            create: bounds,
            start: bounds,
            stop: bounds,
            delete: bounds,
            idle_stop: None,
            delete_after_close: Duration::from_secs(86_400),
            ttl: None,
            trigger_label: "agent".to_owned().into(),
            repositories: Default::default(),
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
