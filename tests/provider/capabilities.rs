//! What a provider declares, and that it keeps to it: a declared capability works, any other is refused
//! without a look at the object.

use bytes::Bytes;
use issuebox::sandbox::{
    Capability, Enforcement, LimitKind, Offset, Overflow, ProcessId, ProcessSpec, Signal,
    StdinMode, Target, WorkError,
};
use issuebox::types::ExternalId;
use tokio::sync::mpsc;

use crate::subject::{Subject, at_terminal, path, target};

contract!(
    a_descriptor_is_the_same_at_every_call_and_agrees_with_health,
    what_is_not_declared_is_refused,
    an_object_s_limits_are_those_of_its_template,
);

async fn a_descriptor_is_the_same_at_every_call_and_agrees_with_health(subject: &Subject) {
    let declared = subject.provider.lifecycle.descriptor();
    assert_eq!(declared, *subject.provider.descriptor);
    let health = subject.provider.lifecycle.health().await;
    assert_eq!(health.trouble, None);
    assert!(health.identity.is_some());
    assert_eq!(health.limits, declared.limits, "nothing has changed since it was opened");
    for limit in [LimitKind::Cpu, LimitKind::Memory, LimitKind::Processes, LimitKind::Disk] {
        assert!(declared.limits.contains_key(&limit), "{limit}");
    }
    assert!(!declared.networks.is_empty());
    let tunnels_without_ports =
        declared.offers(Capability::Tunnels) && !declared.offers(Capability::Ports);
    assert!(!tunnels_without_ports);
}

async fn what_is_not_declared_is_refused(subject: &Subject) {
    // Of no object at all: it must not even be looked for.
    let target = Target {
        external_id: ExternalId::trusted("no-such-object"),
        expected: subject.spec("none", "s1").labels.sandbox,
    };
    let id = ProcessId { sandbox: target.expected.clone(), number: 1 };
    let processes = &subject.provider.processes;
    let workspace = &subject.provider.workspace;
    for capability in Capability::ALL.into_iter().filter(|one| !subject.offers(*one)) {
        let target = || target.clone();
        let answers: Vec<Option<WorkError>> = match capability {
            Capability::Terminal => {
                vec![processes.terminal(target(), at_terminal(&["cat"])).await.err()]
            }
            Capability::Ports => vec![processes.port(target(), 80).await.err()],
            Capability::Archives => vec![
                workspace.pack_directory(target(), path(b"")).await.err(),
                workspace.unpack_directory(target(), path(b""), mpsc::channel(1).1).await.err(),
            ],
            Capability::DetachedProcesses => vec![
                processes.spawn(target(), cat()).await.err(),
                processes.attach(target(), id.clone(), Offset(0)).await.err(),
                processes.write_stdin(target(), id.clone(), Bytes::new()).await.err(),
                processes.close_stdin(target(), id.clone()).await.err(),
                processes.signal(target(), id.clone(), Signal::Kill).await.err(),
                processes.wait(target(), id.clone()).await.err(),
            ],
            // No call of their own.
            Capability::Tunnels | Capability::Snapshots | Capability::Git => vec![],
        };
        for answer in answers {
            assert_eq!(answer, Some(WorkError::Unsupported(capability)));
        }
    }
}

fn cat() -> ProcessSpec {
    ProcessSpec {
        command: vec!["cat".into()],
        cwd: None,
        env: Vec::new(),
        stdin: StdinMode::Open,
        timeout: None,
        keep: 1 << 20,
        overflow: Overflow::Wait,
        tag: None,
    }
}

async fn an_object_s_limits_are_those_of_its_template(subject: &Subject) {
    let object = subject.make("limits", "s1").await;
    let declared = &subject.provider.descriptor.limits;
    let in_force = subject.provider.lifecycle.limits(target(&object)).await;
    match in_force {
        Some(in_force) => {
            let wanted = subject.spec("limits", "s1").template.resources;
            let got = in_force.resources;
            assert_eq!(got.processes, wanted.processes);
            // A provider that counts in large units gives no less.
            assert!(got.cpu >= wanted.cpu, "{got:?}");
            assert!(got.memory_mb >= wanted.memory_mb && got.disk_mb >= wanted.disk_mb, "{got:?}");
            if subject.name != "daytona" {
                assert_eq!(got, wanted);
            }
            assert_eq!(in_force.holds, *declared);
        }
        None => assert!(declared.values().all(|how| *how == Enforcement::None)),
    }
}
