//! What the engine is asked for, and what it says of a container.

use std::collections::HashMap;

use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, HealthConfig, HostConfig, Mount, MountType, MountVolumeOptions,
};
use serde::{Deserialize, Serialize};

use super::bundle::HELPER_DIR;
use super::inside::{HELPER_COMMAND, HOME, WORKSPACE, reach_word};
use super::server_volumes::ServerVolume;
use super::settings::{ContainerUser, DockerOptions};
use crate::sandbox::reach::Reach;
use crate::sandbox::stored_network::NetworkRow;
use crate::sandbox::stored_workload::WorkloadRow;
use crate::sandbox::{CreateSpec, Labels, Object};
use crate::types::{ExternalId, Network, ObjectName, ObjectState, Resources, Workload};

/// The label with what a container was made from, as JSON. It names secrets and has no value of one.
pub const SPEC_LABEL: &str = "issuebox.spec";

/// The label of a sandbox's workspace, with its sandbox id.
const SANDBOX_LABEL: &str = "issuebox.sandbox";

/// The label of everything of one installation.
pub const INSTANCE_LABEL: &str = "issuebox.instance";

/// The period over which processor time is counted, in microseconds: the kernel's default.
const CPU_PERIOD: i64 = 100_000;

/// Processes and threads of the helper and of the server's ways to it, beyond a template's limit.
const OWN_PROCESSES: i64 = 32;

/// The size of the scratch directories of a read-only container, in MiB. What they hold counts as its
/// memory, too.
const SCRATCH_MB: u64 = 1024;

/// The mode of a directory in which everyone may create files, and remove only their own.
const OF_ALL: &str = "1777";

/// What a container was made from, in its label.
#[derive(Serialize, Deserialize)]
struct StoredSpec {
    cpu: f64,
    memory_mb: u64,
    processes: u32,
    disk_mb: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<NetworkRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<WorkloadRow>,
}

/// What a container was made from.
pub struct MadeFrom {
    /// Its limits.
    pub resources: Resources,
    /// Its network.
    pub network: Network,
    /// The part of its workload that each command needs.
    pub workload: Workload,
}

impl MadeFrom {
    /// Reads a label; `None` if this program did not write it.
    fn parse(text: &str) -> Option<Self> {
        let row: StoredSpec = serde_json::from_str(text).ok()?;
        let StoredSpec { cpu, memory_mb, processes, disk_mb, network, workload } = row;
        Some(Self {
            resources: Resources { cpu, memory_mb, processes, disk_mb },
            network: network.map_or(Some(Network::None), |row| row.network())?,
            workload: workload.map(WorkloadRow::into_workload).unwrap_or_default(),
        })
    }
}

/// The text of the label.
fn stored(spec: &CreateSpec) -> String {
    let Resources { cpu, memory_mb, processes, disk_mb } = spec.template.resources;
    let row = StoredSpec {
        cpu,
        memory_mb,
        processes,
        disk_mb,
        network: NetworkRow::of(&spec.template.network),
        workload: WorkloadRow::of(&spec.template.workload),
    };
    serde_json::to_string(&row).expect("plain data")
}

/// What a container is made with beside its spec.
pub struct ContainerParts<'a> {
    /// Its image.
    pub image: &'a str,
    /// Whether its workspace and home belong to the user in the image already.
    pub is_prepared: bool,
    /// Who its commands are.
    pub user: ContainerUser,
    /// What its template says to this provider alone.
    pub options: &'a DockerOptions,
    /// The name of its workspace's volume.
    pub workspace: String,
    /// The volumes of the server: the helper's and the given programs'.
    pub mounted: &'a [ServerVolume],
    /// How the helper is started, without its arguments.
    pub helper: &'a [String],
}

/// The container for a sandbox.
pub fn container(spec: &CreateSpec, parts: &ContainerParts<'_>) -> ContainerCreateBody {
    let template = &spec.template;
    let reach = Reach::of(&template.network, template.workload.git.is_some());
    let labels: HashMap<String, String> =
        spec.labels.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let of_volume = [SANDBOX_LABEL, INSTANCE_LABEL];
    let of_volume = of_volume.map(|key| (key.to_owned(), labels[key].clone()));
    let workspace = Mount {
        target: Some(WORKSPACE.to_owned()),
        source: Some(parts.workspace.clone()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions {
            // The volume takes over the owner of the image's directory, which is empty.
            no_copy: Some(!parts.is_prepared),
            labels: Some(of_volume.into()),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    };
    let given = parts.mounted.iter().map(ServerVolume::read_only);
    let host_config = HostConfig {
        mounts: Some(std::iter::once(workspace).chain(given).collect()),
        tmpfs: parts.options.is_read_only.then(|| scratch(parts.user)),
        readonly_rootfs: Some(parts.options.is_read_only),
        runtime: parts.options.runtime.clone(),
        ..limited(&template.resources)
    };
    let mut all_labels = labels;
    all_labels.insert(SPEC_LABEL.to_owned(), stored(spec));
    ContainerCreateBody {
        image: Some(parts.image.to_owned()),
        user: Some(parts.user.to_text()),
        entrypoint: Some(parts.helper.to_vec()),
        cmd: Some(vec![HELPER_COMMAND.to_owned(), reach_word(reach).to_owned()]),
        working_dir: Some("/".to_owned()),
        labels: Some(all_labels),
        stop_signal: Some("SIGTERM".to_owned()),
        // An image's own would run its command beside ours.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// The isolation and the limits, which no template can loosen.
fn limited(resources: &Resources) -> HostConfig {
    let memory = i64::try_from(resources.memory_mb.saturating_mul(1 << 20)).unwrap_or(i64::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "processors are few")]
    let cpu_quota = (resources.cpu * CPU_PERIOD as f64) as i64;
    HostConfig {
        // The helper leads to what its template allows: no network of the engine's is needed.
        network_mode: Some("none".to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        pids_limit: Some(i64::from(resources.processes) + OWN_PROCESSES),
        memory: Some(memory),
        // Memory and swap together: no swap.
        memory_swap: Some(memory),
        cpu_period: Some(CPU_PERIOD),
        cpu_quota: Some(cpu_quota.max(1000)),
        init: Some(false),
        privileged: Some(false),
        ..HostConfig::default()
    }
}

/// The directories that a read-only container can still write to beside its workspace.
fn scratch(user: ContainerUser) -> HashMap<String, String> {
    let ContainerUser { uid, gid } = user;
    scratch_with(&format!("mode=0755,uid={uid},gid={gid}"))
}

fn scratch_with(home: &str) -> HashMap<String, String> {
    let size = format!("rw,nosuid,nodev,size={SCRATCH_MB}m");
    HashMap::from([
        ("/tmp".to_owned(), format!("{size},mode={OF_ALL}")),
        (HOME.to_owned(), format!("{size},{home}")),
    ])
}

/// Whether the engine gives a directory in memory no owner: Podman 4 knows no such option.
pub fn refuses_owner(error: &Error) -> bool {
    error.to_string().contains("unknown mount option \"uid=")
}

/// A container whose home in memory belongs to root, and everyone inside may write to it.
pub fn with_scratch_of_all(mut body: ContainerCreateBody) -> ContainerCreateBody {
    if let Some(host) = &mut body.host_config {
        host.tmpfs = Some(scratch_with(&format!("mode={OF_ALL}")));
    }
    body
}

/// A container as the engine describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundContainer {
    /// Its id and its name.
    pub id: String,
    name: String,
    labels: HashMap<String, String>,
    /// What it is.
    pub state: ObjectState,
    /// Whether it was paused from outside.
    pub is_paused: bool,
    /// Who its commands are, if the engine says it.
    pub user: Option<ContainerUser>,
    /// Whether its root file system is read-only; a list does not say so.
    pub is_read_only: bool,
}

impl FoundContainer {
    /// Of an inspection; `None` if it has no id.
    pub fn inspected(found: ContainerInspectResponse) -> Option<Self> {
        use ContainerStateStatusEnum as Status;
        let config = found.config.unwrap_or_default();
        let status = found.state.and_then(|state| state.status);
        let state = match status {
            Some(Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING) => {
                ObjectState::Running
            }
            Some(Status::CREATED) => ObjectState::Partial,
            Some(Status::REMOVING | Status::DEAD) => ObjectState::Destroying,
            Some(Status::EXITED | Status::EMPTY) | None => ObjectState::Stopped,
        };
        Some(Self {
            id: found.id?,
            name: found.name?.trim_start_matches('/').to_owned(),
            labels: config.labels.unwrap_or_default(),
            state,
            is_paused: status == Some(Status::PAUSED),
            is_read_only: found.host_config.and_then(|host| host.readonly_rootfs) == Some(true),
            user: config.user.and_then(|user| ContainerUser::parse(&user).ok()),
        })
    }

    /// Of a list; `None` if it has no id or no name.
    pub fn listed(found: ContainerSummary) -> Option<Self> {
        use ContainerSummaryStateEnum as State;
        let state = match found.state {
            Some(State::RUNNING | State::PAUSED | State::RESTARTING | State::STOPPING) => {
                ObjectState::Running
            }
            Some(State::CREATED) => ObjectState::Partial,
            Some(State::REMOVING | State::DEAD) => ObjectState::Destroying,
            Some(State::EXITED | State::EMPTY) | None => ObjectState::Stopped,
        };
        // Beside its own name it has those by which linked containers know it, `/other/alias`.
        let names = found.names?.into_iter().map(|name| name.trim_start_matches('/').to_owned());
        Some(Self {
            id: found.id?,
            name: names.into_iter().find(|name| !name.contains('/'))?,
            labels: found.labels.unwrap_or_default(),
            state,
            is_paused: found.state == Some(State::PAUSED),
            is_read_only: false,
            user: None,
        })
    }

    /// Whose it is; `None` if it is not ours.
    pub fn labels(&self) -> Option<Labels> {
        labels_of(&self.labels)
    }

    /// What it was made from; `None` if it is not ours.
    pub fn made_from(&self) -> Option<MadeFrom> {
        MadeFrom::parse(self.labels.get(SPEC_LABEL)?)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As the port shows it.
    pub fn object(&self) -> Object {
        Object {
            external_id: ExternalId::trusted(self.id.clone()),
            name: ObjectName::trusted(self.name.clone()),
            labels: self.labels(),
            state: self.state.clone(),
        }
    }
}

/// The labels of a container or an event, if they are ours.
pub fn labels_of(all: &HashMap<String, String>) -> Option<Labels> {
    Labels::from_pairs(|key| all.get(key).map(String::as_str))
}

/// How the helper's binary is started: by its own interpreter, if it has one.
pub fn helper_command(interpreter: Option<&str>) -> Vec<String> {
    let binary = format!("{HELPER_DIR}/issuebox");
    match interpreter {
        None => vec![binary],
        Some(name) => vec![
            format!("{HELPER_DIR}/lib/{name}"),
            "--library-path".to_owned(),
            format!("{HELPER_DIR}/lib"),
            binary,
        ],
    }
}

#[cfg(test)]
mod tests;
