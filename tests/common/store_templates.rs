//! Arbitrary templates, and plans of sandboxes, for properties of stored issues.

use std::time::Duration;

use issuebox::issue::SandboxPlan;
use issuebox::types::{
    AgentName, AgentWorkload, AllowedHost, CloneMode, GitWorkload, HookAction, HookStep, Hooks,
    HostMount, Mode, Network, NetworkKind, OnLimit, ProviderName, Repository, RepositoryFile,
    Resources, SandboxMeta, SecretName, SyncMoments, Template, TemplateName, WhileRunning,
    Workload, WorkloadSource,
};
use proptest::option::of;
use proptest::prelude::*;

use crate::store_issues::{one_of, text};

pub fn any_template() -> BoxedStrategy<Template> {
    let cpu = prop_oneof![
        any::<f64>().prop_filter("NaN is not equal to itself", |cpu| !cpu.is_nan()),
        Just(0.1 + 0.2)
    ];
    (
        text(),
        "[a-z]{1,9}",
        one_of(Mode::ALL),
        cpu,
        any::<u64>(),
        any::<u32>(),
        any::<u64>(),
        any::<bool>(),
        (any_network(), proptest::collection::vec(any::<u16>(), 0..3), any_workload()),
    )
        .prop_map(|(name, provider, mode, cpu, memory_mb, processes, disk_mb, stops, outside)| {
            let (network, ports, workload) = outside;
            Template {
                name: TemplateName::trusted(name),
                provider: ProviderName::trusted(provider),
                mode,
                resources: Resources { cpu, memory_mb, processes, disk_mb },
                network,
                ports,
                on_limit: if stops { OnLimit::Stop } else { OnLimit::Kill },
                workload: workload.into(),
            }
        })
        .boxed()
}

pub fn any_plan() -> impl Strategy<Value = SandboxPlan> {
    let meta = proptest::collection::btree_map(text(), text(), 0..3).prop_map(SandboxMeta::stored);
    (any_template(), of(text().prop_map(Into::into)), meta)
        .prop_map(|(template, agent_id, meta)| SandboxPlan { template, agent_id, meta })
}

fn repository_file() -> impl Strategy<Value = RepositoryFile> {
    (of(text()), of(text()), text()).prop_map(|(commit, working_dir, instructions)| {
        RepositoryFile { commit, working_dir, instructions }
    })
}

fn any_workload() -> BoxedStrategy<Workload> {
    let texts = || proptest::collection::btree_map("[A-Z]{1,5}", text(), 0..3);
    let mount =
        "/[a-z]{1,5}:/[a-z]{1,5}(:ro)?".prop_map(|text| HostMount::parse(&text).expect("one"));
    let source = prop_oneof![
        text().prop_map(WorkloadSource::Image),
        text().prop_map(WorkloadSource::Snapshot)
    ];
    let read = "[a-z]{1,5}/[a-z]{1,5}".prop_map(|text| Repository::parse(&text).expect("one"));
    let git = (
        proptest::sample::select(CloneMode::ALL.to_vec()),
        of(text()),
        proptest::collection::vec(read, 0..3),
        1_u64..2_048,
        any::<bool>(),
        of(repository_file()),
    );
    let git = git.prop_map(|(clone, base, read, push_max_mb, workflows, repository_file)| {
        GitWorkload { clone, base, read, push_max_mb, workflows, repository_file }
    });
    let lists = (
        proptest::collection::vec(text(), 0..3),
        proptest::collection::vec(mount, 0..3),
        texts(),
        texts(),
        texts(),
    );
    let hooks = (any_hooks(), any::<(bool, bool)>());
    (of(source), of(text()), of(text()), of(git), of(any_agent()), lists, hooks)
        .prop_map(|(source, user, working_dir, git, agent, lists, (hooks, pushes))| {
            let (command, mounts, env, secrets, options) = lists;
            let secret = |(name, secret): (String, String)| (name, SecretName::trusted(secret));
            let secrets = secrets.into_iter().map(secret).collect();
            Workload {
                source,
                env,
                secrets,
                user,
                working_dir,
                command,
                mounts,
                git,
                agent,
                hooks,
                sync: SyncMoments { on_stop: pushes.0, before_delete: pushes.1 },
                options,
            }
        })
        .boxed()
}

/// Hooks of a template.
fn any_hooks() -> BoxedStrategy<Hooks> {
    let action = prop_oneof![
        proptest::collection::vec(text(), 1..3).prop_map(HookAction::Run),
        proptest::sample::select(HookAction::BUILT_IN.to_vec()),
    ];
    let env = proptest::collection::btree_map(text(), text(), 0..2);
    let time = || (1_u64..100_000).prop_map(Duration::from_millis);
    let step = (action, of(text()), time(), env)
        .prop_map(|(action, cwd, timeout, env)| HookStep { action, cwd, timeout, env })
        .boxed();
    let steps = || proptest::collection::vec(step.clone(), 0..2);
    (steps(), steps(), steps(), steps(), of(time()))
        .prop_map(|(on_cold_start, on_message, on_stream_finish, on_terminate, grace)| Hooks {
            on_cold_start,
            on_message,
            on_stream_finish,
            on_terminate,
            grace: grace.unwrap_or(Hooks::GRACE_DEFAULT),
        })
        .boxed()
}

fn any_network() -> BoxedStrategy<Network> {
    let entry = "(\\*\\.)?[a-z][a-z0-9]{0,9}\\.[a-z]{2,5}(:[1-9][0-9]{0,3})?";
    let entry = entry.prop_map(|text| AllowedHost::parse(&text).expect("an entry"));
    let hosts = proptest::collection::vec(entry, 0..4);
    let address = any::<(std::net::IpAddr, u16)>().prop_map(std::net::SocketAddr::from);
    let private = proptest::collection::vec(address, 0..3);
    (one_of(&NetworkKind::ALL), hosts, private)
        .prop_map(|(kind, hosts, private)| Network::assemble(kind, hosts, private))
        .boxed()
}

fn any_agent() -> impl Strategy<Value = AgentWorkload> {
    let bounds = (any::<u32>(), any::<u32>(), of(any::<u32>()));
    let while_running = proptest::sample::select(WhileRunning::ALL.to_vec());
    (text(), of(text()), bounds, while_running, text()).prop_map(
        |(name, model, (run, quiet, turns_max), while_running, instructions)| AgentWorkload {
            name: AgentName::trusted(name),
            model,
            run_time_max: Duration::from_millis(run.into()),
            quiet_time_max: Duration::from_millis(quiet.into()),
            turns_max,
            while_running,
            instructions,
        },
    )
}
