//! From *ensure* to a running sandbox in strong and in fast mode, in turn, where a commit takes 20 ms
//! and so does a create: what fast mode is for.

#[path = "../tests/common/store.rs"]
#[allow(dead_code, reason = "only the slow store is used")]
mod store;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use issuebox::clock::{SystemClock, SystemIds};
use issuebox::engine::{
    Change, Engine, EngineParts, EnsureIssue, IssueKey, Publisher, Quotas, Retention, SandboxRef,
    Threads, WaitFor,
};
use issuebox::issue::event::ProviderRules;
use issuebox::issue::{Rules, StepRules};
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use issuebox::store::sqlite::SqliteStore;
use issuebox::types::{
    AccountName, Cause, IssueId, Mode, Network, OnLimit, Phase, ProviderName, Resources,
    SandboxMeta, Template, TemplateName,
};
use store::MoodyStore;

/// How long a commit takes, and a create, in milliseconds.
const STEP_MS: u64 = 20;
/// How many issues are measured in each mode.
const ISSUES: usize = 200;
/// The most that fast may take of strong.
const RATIO_MAX: f64 = 0.7;

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let io = io.expect("a runtime");
    let ratio = actix::System::new().block_on(measure(io.handle().clone()));
    println!("fast takes {ratio:.2} of strong (at most {RATIO_MAX})");
    assert!(ratio <= RATIO_MAX, "fast mode is not worth it");
}

async fn measure(io: tokio::runtime::Handle) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    let arbiter = actix::Arbiter::new();
    let engine = start(dir.path(), &arbiter, io).await;
    let mut took: HashMap<Mode, Vec<f64>> = HashMap::new();
    for issue in 0..=ISSUES {
        for mode in [Mode::Strong, Mode::Fast] {
            let began = Instant::now();
            run(&engine, mode, &format!("{mode}-{issue}")).await;
            // The first one of each warms it up.
            if issue > 0 {
                took.entry(mode).or_default().push(began.elapsed().as_secs_f64() * 1000.0);
            }
        }
    }
    engine.stop(Duration::from_secs(5)).await;
    arbiter.stop();
    let mut median = |mode| {
        let all = took.get_mut(&mode).expect("it was measured");
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (strong, fast) = (median(Mode::Strong), median(Mode::Fast));
    println!("ensure to running, median of {ISSUES}: strong {strong:.1} ms, fast {fast:.1} ms");
    fast / strong
}

/// Asks for a sandbox, and waits until it runs.
async fn run(engine: &Engine, mode: Mode, issue: &str) {
    let account = AccountName::default_account();
    let id = IssueId::parse(issue).expect("a valid id");
    let ask = EnsureIssue {
        issue: IssueKey { id: Some(id), numbered: None },
        template: None,
        provider: None,
        agent_id: None,
        meta: SandboxMeta::default(),
        mode: Some(mode),
        title: None,
        retry: false,
        cause: Cause::Service("bench"),
    };
    let sandbox = engine.ensure(&account, ask).await.expect("it is answered").sandbox;
    assert_eq!(sandbox.mode, mode);
    let until = WaitFor::Phase(Phase::Running);
    let of = SandboxRef::Id(sandbox.id);
    let waited = engine.wait(&account, &of, until, Duration::from_secs(10)).await;
    let phase = waited.expect("it is known").sandbox.and_then(|sandbox| sandbox.phase);
    assert_eq!(phase, Some(Phase::Running));
}

async fn start(
    dir: &std::path::Path,
    arbiter: &actix::Arbiter,
    io: tokio::runtime::Handle,
) -> Engine {
    let sqlite = SqliteStore::open(&dir.join("data")).expect("the store opens");
    let store = MoodyStore::new(Arc::new(sqlite));
    store.slow_down(STEP_MS);
    let config = SimulatedConfig { dir: dir.join("simulated"), unique_names: true };
    let faults = SimulatedFaults { create_delay_ms: STEP_MS, ..SimulatedFaults::default() };
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let provider =
        SimulatedProvider::open(config, faults, Arc::clone(&clock) as _, Arc::clone(&ids) as _);
    let name = ProviderName::trusted("simulated");
    let template = Template {
        name: TemplateName::trusted("default"),
        provider: name.clone(),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 64, processes: 8, disk_mb: 64 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: issuebox::types::Workload::default().into(),
    };
    let bounds = StepRules { attempts: 3, timeout: Duration::from_secs(20) };
    let provider_rules = ProviderRules {
        names_enforced: true,
        late_effect_window: Duration::ZERO,
        dies_with_server: false,
    };
    let parts = EngineParts {
        github: None,
        retention: Retention::default(),
        store: Arc::new(store),
        clock,
        ids,
        rules: Rules {
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
            default_template: template.clone(),
            providers: HashMap::from([(name.clone(), provider_rules)]),
        },
        templates: HashMap::from([(template.name.clone(), template)]),
        providers: HashMap::from([(name, Arc::new(provider.expect("it opens")) as _)]),
        creates_in_flight: 0,
        quotas: Quotas::default(),
        reconcile: None,
        publisher: Arc::new(Silent),
        spawner: Arc::new(Threads { arbiter: arbiter.handle(), calls: io.clone(), io }),
    };
    Engine::start(parts).await.expect("the engine starts")
}

struct Silent;

impl Publisher for Silent {
    fn publish(&self, _: Arc<Change>) {}
}
