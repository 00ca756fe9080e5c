//! What is sent to Daytona and what comes back, as its API document has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::network::NetworkRules;
use super::state::{DaytonaState, DesiredState, StateFacts};
use crate::sandbox::{CreateSpec, Labels, Object};
use crate::types::{ExternalId, ObjectName, ObjectState, Resources, Workload, WorkloadSource};

/// A label that says which secret an environment variable of commands has; the variable's name
/// follows.
const SECRET_LABEL: &str = "issuebox.secret.";
/// The label with the default directory of commands.
const DIR_LABEL: &str = "issuebox.working-dir";
/// The label with the template's limit on processes, which Daytona does not have.
const PROCESSES_LABEL: &str = "issuebox.processes";
/// One GiB in MiB: Daytona counts memory and disk in whole ones.
const GIB: u64 = 1024;

/// `CreateSandbox`
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateBody {
    name: String,
    labels: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    public: bool,
    /// Never: the server's own rule decides when an idle sandbox stops.
    auto_stop_interval: u32,
    auto_pause_interval: u32,
    /// Never.
    auto_delete_interval: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_archive_interval: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_info: Option<BuildInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<u64>,
    #[serde(flatten)]
    network: NetworkRules,
}

/// `CreateBuildInfo`
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BuildInfo {
    dockerfile_content: String,
}

impl CreateBody {
    /// What makes a sandbox as its template says. Only one made from an image has the template's
    /// limits: Daytona gives every other one those of its snapshot.
    pub fn new(
        spec: &CreateSpec,
        network: NetworkRules,
        region: Option<&str>,
        archive_minutes: Option<u64>,
    ) -> Self {
        let workload: &Workload = &spec.template.workload;
        let resources = &spec.template.resources;
        let (snapshot, image) = match &workload.source {
            Some(WorkloadSource::Snapshot(name)) => (Some(name.clone()), None),
            Some(WorkloadSource::Image(name)) => (None, Some(name)),
            None => (None, None),
        };
        let of_image = |amount: u64| image.map(|_| amount.max(1));
        let pairs = spec.labels.to_pairs().map(|(key, value)| (key.to_owned(), value));
        let mut labels = BTreeMap::from(pairs);
        for (variable, secret) in &workload.secrets {
            labels.insert(format!("{SECRET_LABEL}{variable}"), secret.to_string());
        }
        labels.insert(PROCESSES_LABEL.into(), resources.processes.to_string());
        labels.extend(workload.working_dir.clone().map(|dir| (DIR_LABEL.to_owned(), dir)));
        Self {
            name: spec.name.to_string(),
            labels,
            env: workload.env.clone(),
            public: false,
            auto_stop_interval: 0,
            auto_pause_interval: 0,
            auto_delete_interval: -1,
            auto_archive_interval: archive_minutes,
            target: region.map(str::to_owned),
            user: workload.user.clone(),
            snapshot,
            build_info: image
                .map(|image| BuildInfo { dockerfile_content: format!("FROM {image}\n") }),
            cpu: of_image(resources.cpu.ceil() as u64),
            memory: of_image(resources.memory_mb.div_ceil(GIB)),
            disk: of_image(resources.disk_mb.div_ceil(GIB)),
            network,
        }
    }
}

/// `Sandbox` and `SandboxListItem`, as far as this provider needs them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaSandbox {
    pub id: String,
    pub organization_id: String,
    pub name: String,
    labels: BTreeMap<String, String>,
    pub toolbox_proxy_url: String,
    state: Option<DaytonaState>,
    desired_state: Option<DesiredState>,
    error_reason: Option<String>,
    recoverable: Option<bool>,
    cpu: f64,
    memory: f64,
    disk: f64,
}

impl DaytonaSandbox {
    /// What decides on its state.
    pub fn standing(&self) -> StateFacts<'_> {
        StateFacts {
            state: self.state.unwrap_or(DaytonaState::Unknown),
            desired: self.desired_state,
            is_recoverable: self.recoverable.unwrap_or(false),
            reason: self.error_reason.as_deref().unwrap_or("Daytona gives no reason"),
        }
    }

    /// Whose it is; `None` without labels of ours.
    pub fn labels(&self) -> Option<Labels> {
        Labels::from_pairs(|key| self.labels.get(key).map(String::as_str))
    }

    /// The port's view of it; `None` if it is gone.
    pub fn object(&self) -> Option<Object> {
        self.standing().object_state().map(|state| self.object_in(state))
    }

    /// The port's view of it in a state that is known otherwise.
    pub fn object_in(&self, state: ObjectState) -> Object {
        Object {
            external_id: ExternalId::trusted(self.id.clone()),
            name: ObjectName::trusted(self.name.clone()),
            labels: self.labels(),
            state,
        }
    }

    /// The names of the secrets that commands in it have, by variable.
    pub fn secret_names(&self) -> BTreeMap<String, String> {
        let of = |(key, name): (&String, &String)| {
            Some((key.strip_prefix(SECRET_LABEL)?.to_owned(), name.clone()))
        };
        self.labels.iter().filter_map(of).collect()
    }

    /// What it may use. Daytona counts memory and disk in GiB.
    pub fn resources(&self) -> Resources {
        let mib = |gib: f64| (gib * GIB as f64) as u64;
        let processes = self.labels.get(PROCESSES_LABEL).and_then(|count| count.parse().ok());
        Resources {
            cpu: self.cpu,
            memory_mb: mib(self.memory),
            processes: processes.unwrap_or(u32::MAX),
            disk_mb: mib(self.disk),
        }
    }

    /// The directory that commands begin in, if it is not the workspace.
    pub fn working_dir(&self) -> Option<String> {
        self.labels.get(DIR_LABEL).cloned()
    }
}

/// `ListSandboxesResponse`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxPage {
    pub items: Vec<DaytonaSandbox>,
    pub next_cursor: Option<String>,
}

/// `ApiKeyList`
#[derive(Debug, Deserialize)]
pub(super) struct CurrentKey {
    pub permissions: Vec<String>,
}

/// `Organization`
#[derive(Debug, Deserialize)]
pub(super) struct OrganizationItem {
    pub id: String,
}

/// `PortPreviewUrl`
#[derive(Deserialize)]
pub(super) struct PreviewUrl {
    pub url: String,
    pub token: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::{
        AccountName, Generation, HomeId, InstanceId, IssueId, Mode, Network, OnLimit, ProviderName,
        SandboxId, SecretName, Template, TemplateName, Timestamp,
    };

    fn spec(source: Option<WorkloadSource>) -> CreateSpec {
        let workload = Workload {
            source,
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            secrets: BTreeMap::from([("NPM_TOKEN".to_owned(), SecretName::trusted("npm"))]),
            working_dir: Some("src".into()),
            ..Workload::default()
        };
        CreateSpec {
            name: ObjectName::trusted("claude-issue-7"),
            labels: Labels {
                instance: InstanceId::trusted("i"),
                account: AccountName::default_account(),
                home: HomeId(7),
                issue: IssueId::parse("test-7").expect("an id"),
                sandbox: SandboxId::trusted("s"),
                generation: Generation(1),
                mode: Mode::Strong,
            },
            template: Template {
                name: TemplateName::trusted("default"),
                provider: ProviderName::trusted("daytona"),
                mode: Mode::Strong,
                resources: Resources { cpu: 1.5, memory_mb: 1025, processes: 64, disk_mb: 512 },
                network: Network::None,
                ports: Vec::new(),
                on_limit: OnLimit::Kill,
                workload: workload.into(),
            },
            deadline: Timestamp::from_unix_ms(0),
        }
    }

    fn body(source: Option<WorkloadSource>) -> serde_json::Value {
        let network = NetworkRules::of(&Network::None).expect("it can be said");
        let body = CreateBody::new(&spec(source), network, Some("eu"), None);
        serde_json::to_value(body).expect("JSON")
    }

    #[test]
    fn a_create_says_what_the_template_says_and_no_secret() {
        let made = body(Some(WorkloadSource::Image("debian:12".into())));
        let expected = json!({
            "name": "claude-issue-7",
            "labels": {
                "issuebox.instance": "i", "issuebox.account": "default", "issuebox.home": "7",
                "issuebox.issue": "test-7", "issuebox.sandbox": "s", "issuebox.generation": "1",
                "issuebox.mode": "strong", "issuebox.secret.NPM_TOKEN": "npm",
                "issuebox.working-dir": "src", "issuebox.processes": "64",
            },
            "env": {"A": "b"}, "public": false, "target": "eu",
            "autoStopInterval": 0, "autoPauseInterval": 0, "autoDeleteInterval": -1,
            "buildInfo": {"dockerfileContent": "FROM debian:12\n"},
            "cpu": 2, "memory": 2, "disk": 1, "networkBlockAll": true,
        });
        assert_eq!(made, expected);
        let from_snapshot = body(Some(WorkloadSource::Snapshot("snap".into())));
        assert_eq!(from_snapshot["snapshot"], "snap");
        for source in [from_snapshot, body(None)] {
            assert!(source.get("cpu").is_none() && source.get("buildInfo").is_none());
        }
    }
}
