//! The engine against a store and a provider that tests hold in their hands. Each measured trap of
//! actors has a test here that fails without its remedy.

mod admission;
mod breaker;
mod effects;
pub(in crate::engine) mod executor;
mod fake_github;
mod fast;
mod hooks;
pub(in crate::engine) mod outbox;
mod provider;
mod pulls;
mod races;
mod reconciler;
mod retention;
pub(in crate::engine) mod rows;
mod said;
mod scope_event;
pub(super) mod serial;
mod store;
mod transfers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix::Arbiter;

use crate::clock::{Clock, IdSource, SystemClock, SystemIds};
use crate::engine::{
    Change, Engine, EngineParts, EnsureIssue, IssueKey, Publisher, Quotas, Retention, SandboxRef,
    Threads, WaitFor,
};
use crate::issue::event::ProviderRules;
use crate::issue::{Rules, StepRules};
use crate::sandbox::Lifecycle;
use crate::types::{
    AccountName, Cause, IssueId, Mode, Network, OnLimit, Phase, ProviderName, Resources, SandboxId,
    SandboxMeta, Template, TemplateName, Timestamp,
};

use provider::HeldProvider;
use store::HeldStore;

/// Everything an engine needs, in a test's hands.
struct EngineBench {
    engine: Engine,
    arbiter: Arbiter,
    store: Arc<HeldStore>,
    provider: Arc<HeldProvider>,
    ids: Arc<TrapIds>,
}

/// Ids of the system, that panic once when armed: a panic in the middle of a handler.
#[derive(Default)]
struct TrapIds {
    armed: AtomicBool,
}

impl IdSource for TrapIds {
    fn sandbox_id(&self) -> SandboxId {
        assert!(!self.armed.swap(false, Ordering::SeqCst), "armed by the test");
        SystemIds.sandbox_id()
    }

    fn request_id(&self) -> String {
        SystemIds.request_id()
    }

    fn unix_ns(&self) -> i64 {
        SystemIds.unix_ns()
    }

    fn jitter_permille(&self) -> u16 {
        0
    }
}

pub(crate) struct NoPublisher;

impl Publisher for NoPublisher {
    fn publish(&self, _: Arc<Change>) {}
}

fn account() -> AccountName {
    AccountName::default_account()
}

fn template() -> Template {
    Template {
        name: TemplateName::trusted("default"),
        provider: ProviderName::trusted("held"),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 64, processes: 8, disk_mb: 64 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: crate::types::Workload::default().into(),
    }
}

fn other_template() -> Template {
    Template {
        name: TemplateName::trusted("other"),
        provider: ProviderName::trusted("other"),
        ..template()
    }
}

/// The rules of a test, with no provider.
pub(in crate::engine) fn rules() -> Rules {
    let bounds = StepRules { attempts: 3, timeout: Duration::from_secs(20) };
    Rules {
        github: None,
        create: bounds,
        start: bounds,
        stop: bounds,
        delete: bounds,
        idle_stop: None,
        delete_after_close: Duration::from_secs(86_400),
        ttl: None,
        trigger_label: "agent".to_owned().into(),
        repositories: Default::default(),
        default_template: template(),
        providers: HashMap::new(),
    }
}

/// What is not the same in every test's engine.
#[derive(Default)]
struct BenchSetup {
    /// Another provider, called `other`.
    other: Option<Arc<HeldProvider>>,
    /// How often providers are swept.
    reconcile: Option<Duration>,
    /// How many live sandboxes there may be.
    quotas: Quotas,
    /// Another clock than the system's.
    clock: Option<Arc<SetForward>>,
    /// One more template.
    hooked: Option<Template>,
}

/// The system's clock, which a test sets forward.
#[derive(Default)]
pub(crate) struct SetForward {
    by_ms: AtomicU64,
}

impl SetForward {
    pub(crate) fn set_forward(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).expect("some seconds");
        self.by_ms.fetch_add(by, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Clock for SetForward {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Duration::from_millis(self.by_ms.load(Ordering::SeqCst)))
    }

    async fn sleep_until(&self, at: Timestamp) {
        while self.now() < at {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl EngineBench {
    async fn new() -> Self {
        Self::new_with(BenchSetup::default()).await
    }

    async fn new_with(setting: BenchSetup) -> Self {
        Self::with(Arc::default(), Arc::default(), setting).await
    }

    /// A server process on what an earlier one left.
    async fn on(store: Arc<HeldStore>, provider: Arc<HeldProvider>) -> Self {
        Self::with(store, provider, BenchSetup::default()).await
    }

    /// The same, set otherwise.
    async fn with(store: Arc<HeldStore>, provider: Arc<HeldProvider>, setting: BenchSetup) -> Self {
        let BenchSetup { other, reconcile, quotas, clock, hooked } = setting;
        let clock = clock.map_or(Arc::new(SystemClock) as Arc<dyn Clock>, |clock| clock as _);
        store.begin_epoch();
        let arbiter = Arbiter::new();
        let ids = Arc::new(TrapIds::default());
        let providers: HashMap<ProviderName, Arc<dyn Lifecycle>> =
            [("held", Some(Arc::clone(&provider))), ("other", other)]
                .into_iter()
                .filter_map(|(name, p)| Some((ProviderName::trusted(name), p? as _)))
                .collect();
        let declared = provider.descriptor();
        let provider_rules = ProviderRules {
            names_enforced: true,
            late_effect_window: declared.late_effect_window,
            dies_with_server: declared.dies_with_server,
        };
        let engine = Engine::start(EngineParts {
            github: None,
            retention: Retention::default(),
            store: Arc::clone(&store) as _,
            clock,
            ids: Arc::clone(&ids) as _,
            rules: Rules {
                providers: providers.keys().map(|name| (name.clone(), provider_rules)).collect(),
                ..rules()
            },
            templates: ([template(), other_template()].into_iter().chain(hooked))
                .map(|t| (t.name.clone(), t))
                .collect(),
            providers,
            creates_in_flight: 2,
            quotas,
            publisher: Arc::new(NoPublisher),
            spawner: Arc::new(Threads {
                arbiter: arbiter.handle(),
                io: tokio::runtime::Handle::current(),
                calls: tokio::runtime::Handle::current(),
            }),
            reconcile,
        })
        .await
        .expect("the engine starts");
        Self { engine, arbiter, store, provider, ids }
    }

    /// The process ends here and now: nothing that is in flight reaches anybody.
    fn crash(self) -> (Arc<HeldStore>, Arc<HeldProvider>) {
        self.arbiter.stop();
        (self.store, self.provider)
    }
}

fn ensure(issue: &str) -> EnsureIssue {
    let id = IssueId::parse(issue).expect("a valid id");
    EnsureIssue {
        issue: IssueKey { id: Some(id), numbered: None },
        template: None,
        provider: None,
        agent_id: None,
        meta: SandboxMeta::default(),
        mode: None,
        title: None,
        retry: false,
        cause: Cause::Service("test"),
    }
}

fn named(issue: &str) -> SandboxRef {
    SandboxRef::Name(format!("claude-issue-{issue}"))
}

/// Waits until the sandbox of issue 1 is in this phase.
async fn settled(bench: &EngineBench, phase: Phase) {
    let until = WaitFor::Phase(phase);
    let waited = bench.engine.wait(&account(), &named("1"), until, Duration::from_secs(10)).await;
    let sandbox = waited.expect("it is known").sandbox.expect("a sandbox");
    assert_eq!(sandbox.phase, Some(phase), "{}", sandbox.reason);
}

/// Waits for a condition, at most ten seconds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(10), looking).await.is_err() {
        panic!("it never came to this: {what}");
    }
}
