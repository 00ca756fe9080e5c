//! What a container is made with.

use std::collections::BTreeMap;

use super::*;
use crate::types::{
    AccountName, Generation, GitWorkload, HomeId, InstanceId, IssueId, Mode, OnLimit, ProviderName,
    SandboxId, SecretName, Template, TemplateName, Timestamp,
};

fn spec() -> CreateSpec {
    let workload = Workload {
        env: BTreeMap::from([("A".into(), "1".into())]),
        secrets: BTreeMap::from([("TOKEN".into(), SecretName::trusted("npm"))]),
        git: Some(GitWorkload::default()),
        ..Workload::default()
    };
    CreateSpec {
        name: ObjectName::trusted("claude-issue-1"),
        labels: Labels {
            instance: InstanceId::trusted("i"),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::parse("test-1").expect("an issue id"),
            sandbox: SandboxId::trusted("s"),
            generation: Generation(1),
            mode: Mode::Strong,
        },
        template: Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("docker"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.5, memory_mb: 256, processes: 64, disk_mb: 512 },
            network: Network::Full { private: Vec::new() },
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: workload.into(),
        },
        deadline: Timestamp::from_unix_ms(0),
    }
}

fn body(options: &DockerOptions) -> ContainerCreateBody {
    let helper = helper_command(Some("ld.so"));
    let parts = ContainerParts {
        image: "debian:12",
        is_prepared: false,
        user: ContainerUser::default(),
        options,
        workspace: "w".into(),
        mounted: &[],
        helper: &helper,
    };
    container(&spec(), &parts)
}

#[test]
fn a_container_is_confined_whatever_its_template_says() {
    let host = body(&DockerOptions::default()).host_config.expect("set");
    assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
    assert_eq!(host.cap_add, None);
    assert_eq!(host.security_opt, Some(vec!["no-new-privileges".to_owned()]));
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!(
        (host.privileged, host.binds.clone(), host.devices.clone()),
        (Some(false), None, None)
    );
    assert_eq!((host.memory, host.memory_swap), (Some(256 << 20), Some(256 << 20)));
    assert_eq!((host.cpu_quota, host.cpu_period), (Some(150_000), Some(100_000)));
    assert_eq!(host.pids_limit, Some(64 + OWN_PROCESSES));
    assert_eq!((host.readonly_rootfs, host.tmpfs), (Some(false), None));
    let options = DockerOptions { runtime: Some("runsc".into()), is_read_only: true };
    let host = body(&options).host_config.expect("set");
    assert_eq!((host.readonly_rootfs, host.runtime.as_deref()), (Some(true), Some("runsc")));
    assert!(host.tmpfs.expect("set")["/home/agent"].contains("uid=1000,gid=1000"));
}

#[test]
fn a_label_has_all_that_commands_need_and_no_secret() {
    let body = body(&DockerOptions::default());
    let labels = body.labels.expect("set");
    assert_eq!(labels_of(&labels), Some(spec().labels));
    let made = MadeFrom::parse(&labels[SPEC_LABEL]).expect("ours");
    assert_eq!(made.resources, spec().template.resources);
    assert_eq!(made.network, spec().template.network);
    assert_eq!(made.workload.env, spec().template.workload.env);
    assert_eq!(made.workload.secrets, spec().template.workload.secrets);
    assert_eq!(body.env, None, "an environment would be readable by inspecting");
    assert!(MadeFrom::parse("{}").is_none());
    let cmd = body.cmd.expect("set");
    assert_eq!(cmd, [HELPER_COMMAND, "proxy"]);
}

#[test]
fn states_of_the_engine_become_states_of_objects() {
    let state = |status: ContainerStateStatusEnum| {
        let found = ContainerInspectResponse {
            id: Some("c1".into()),
            name: Some("/n".into()),
            state: Some(bollard::models::ContainerState {
                status: Some(status),
                ..Default::default()
            }),
            ..ContainerInspectResponse::default()
        };
        FoundContainer::inspected(found).expect("it has an id").object()
    };
    use ContainerStateStatusEnum as Status;
    for (status, expected) in [
        (Status::CREATED, ObjectState::Partial),
        (Status::RUNNING, ObjectState::Running),
        (Status::PAUSED, ObjectState::Running),
        (Status::EXITED, ObjectState::Stopped),
        (Status::REMOVING, ObjectState::Destroying),
        (Status::DEAD, ObjectState::Destroying),
    ] {
        let object = state(status);
        assert_eq!((object.state, object.labels, object.name.as_str()), (expected, None, "n"));
    }
}
