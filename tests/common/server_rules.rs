//! The rules, templates and hooks of a test's server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use issuebox::clock::SystemClock;
use issuebox::engine::Engine;
use issuebox::hooks::{HookGate, HookParts, HookRunner};
use issuebox::issue::event::ProviderRules;
use issuebox::issue::{Rules, StepRules};
use issuebox::logs::Logs;
use issuebox::sandbox::Provider;
use issuebox::store::Store;
use issuebox::sync::SyncWorker;
use issuebox::types::*;

pub fn rules(provider: &ProviderName) -> Rules {
    let step = StepRules { attempts: 1, timeout: Duration::from_secs(20) };
    let provider_rules = ProviderRules {
        names_enforced: true,
        late_effect_window: Duration::ZERO,
        dies_with_server: false,
    };
    Rules {
        github: None,
        create: step,
        start: step,
        stop: step,
        delete: step,
        idle_stop: None,
        delete_after_close: Duration::from_secs(86_400),
        ttl: None,
        trigger_label: "agent".to_owned().into(),
        repositories: Default::default(),
        default_template: Template {
            name: TemplateName::trusted("default"),
            provider: provider.clone(),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 512, processes: 64, disk_mb: 512 },
            network: Network::None,
            ports: vec![3000, 3001],
            on_limit: OnLimit::Kill,
            workload: issuebox::types::Workload::default().into(),
        },
        providers: HashMap::from([(provider.clone(), provider_rules)]),
    }
}

/// The default template, and `big` with everything that a provider can carry out.
pub fn templates(default: &Template) -> HashMap<TemplateName, Template> {
    let text = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let workload = Workload {
        source: Some(WorkloadSource::Image("debian:13".into())),
        env: text("PLAIN", "a plain value"),
        secrets: [("NPM_TOKEN".to_owned(), SecretName::trusted("npm"))].into(),
        user: Some("agent".into()),
        working_dir: Some("src".into()),
        command: vec!["make".into(), "watch".into()],
        options: text("runtime", "runsc"),
        hooks: Hooks {
            on_message: vec![hook_step(&["echo", "first"]), hook_step(&["fail", "3"])],
            on_stream_finish: vec![hook_step(&["echo", "built"])],
            ..Hooks::default()
        },
        ..Workload::default()
    };
    let big = Template {
        name: TemplateName::trusted("big"),
        network: Network::Full { private: vec!["10.0.0.5:443".parse().expect("an address")] },
        ports: vec![],
        on_limit: OnLimit::Stop,
        workload: workload.into(),
        ..default.clone()
    };
    [default.clone(), big].map(|template| (template.name.clone(), template)).into()
}

fn hook_step(command: &[&str]) -> HookStep {
    let action = HookAction::Run(command.iter().map(ToString::to_string).collect());
    HookStep { action, cwd: None, timeout: Duration::from_secs(10), env: BTreeMap::new() }
}

/// Lets all work begin.
struct OpenGate;

#[async_trait::async_trait]
impl HookGate for OpenGate {
    async fn may_begin(&self, _home: HomeId, _sandbox: &SandboxId, _since: Timestamp) -> bool {
        true
    }
}

/// What carries hooks out, for the engine and for callers.
pub fn hooks(
    engine: &Engine,
    store: Arc<dyn Store>,
    (providers, logs, sync): (&BTreeMap<ProviderName, Provider>, &Logs, &SyncWorker),
) -> Arc<HookRunner> {
    let hooks = Arc::new(HookRunner::new(HookParts {
        engine: engine.downgrade(),
        store,
        providers: providers.clone(),
        logs: logs.clone(),
        checkouts: None,
        sync: Some(sync.clone()),
        gate: Arc::new(OpenGate),
        clock: Arc::new(SystemClock),
    }));
    engine.set_hooks(Arc::clone(&hooks) as _);
    hooks
}
