//! The templates of the configuration: what a create can name, and what it then gets.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::ListedPage;
use crate::http::Shared;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::{LimitEffectWord, ModeWord, NetworkWord};
use crate::http::error::ApiError;
use crate::http::wire::ListAnswer;
use crate::types::{
    HookAction, HookName, HookStep, Hooks, RepositoryFile, Resources, SyncMoments, Template,
    Workload, WorkloadSource,
};

/// A template.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Template)]
pub struct TemplateBody {
    /// Its name.
    pub name: String,
    /// A hash of everything that it says. A sandbox keeps that of the template it was made from.
    pub version: String,
    /// Whether it is used if a create names neither a template nor a provider.
    pub is_default: bool,
    /// Why its agent cannot work on this server, and what to do; null if it can, or there is none.
    pub unusable: Option<String>,
    /// What it says.
    #[serde(flatten)]
    pub configuration: ConfigurationBody,
}

/// What a sandbox is made from, what runs in it and what it may use. Values of environment variables
/// and of secrets are not shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Configuration)]
pub struct ConfigurationBody {
    /// The provider.
    pub provider: String,
    /// The agent that works in it; null for none.
    pub agent: Option<String>,
    /// The model that the agent is started with; null leaves it to the agent.
    pub model: Option<String>,
    /// How long one run of the agent may take; null without an agent.
    pub run_seconds: Option<u64>,
    /// How often one run may ask the model; null for no limit.
    pub max_turns: Option<u32>,
    /// What the agent is given to know in every run, after what issuebox says; may be empty.
    pub instructions: String,
    /// How a create is recorded if the caller does not say.
    #[schema(value_type = ModeWord)]
    pub mode: &'static str,
    /// The container image; null for the provider's own file system or a snapshot.
    pub image: Option<String>,
    /// The stored state of another sandbox that it begins with; null for none.
    pub snapshot: Option<String>,
    /// The user that commands run as; null for the provider's own.
    pub user: Option<String>,
    /// The default working directory; null for the workspace.
    pub working_dir: Option<String>,
    /// The program that is started whenever the sandbox comes up, and its arguments; empty for none.
    pub command: Vec<String>,
    /// The names of its environment variables with plain values.
    pub env: Vec<String>,
    /// The names of its environment variables whose values are secrets, each with the name of its
    /// secret in the configuration.
    pub secrets: BTreeMap<String, String>,
    /// Directories of the host that it sees, as `/host/path:/sandbox/path`.
    pub mounts: Vec<String>,
    /// What it can reach.
    #[schema(value_type = NetworkWord)]
    pub network: &'static str,
    /// The hosts that it can reach, with `network: allow`.
    pub allow: Vec<String>,
    /// Addresses that are not public and that it can reach, too.
    pub allow_private: Vec<String>,
    /// TCP ports that are reachable through the server.
    pub ports: Vec<u16>,
    /// Its resource limits.
    pub resources: ResourcesBody,
    /// What happens when it reaches a limit.
    #[schema(value_type = LimitEffectWord)]
    pub on_limit: &'static str,
    /// How much of the repository's history is checked out: `auto`, `full`, `blobless` or `shallow`; null
    /// if nothing is.
    pub clone: Option<&'static str>,
    /// The branch that the work begins at, as the configuration says it of the repository; null for the
    /// repository's default branch.
    pub base_branch: Option<String>,
    /// What the file `.github/issuebox.toml` of the repository adds; null if the template does not have it
    /// read.
    pub repository_file: Option<RepositoryFileBody>,
    /// The steps of its hooks, in order, by the names of the hooks; one without steps is absent.
    pub hooks: BTreeMap<&'static str, Vec<HookStepBody>>,
    /// How long a stop or a delete waits for `on_terminate` and for a push before it.
    pub grace_seconds: u64,
    /// When the workspace is pushed by itself.
    pub sync: SyncMomentsBody,
    /// What only its provider understands.
    pub options: BTreeMap<String, String>,
}

/// What a sandbox took over from its repository's file when its cold start succeeded. Nothing of a
/// template.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RepositoryFile)]
pub struct RepositoryFileBody {
    /// The commit that had the file; null if none was read.
    pub commit: Option<String>,
    /// Where the agent starts, unless `workingDir` is set; null for the workspace.
    pub working_dir: Option<String>,
    /// What the agent is given to know after `instructions`; may be empty.
    pub instructions: String,
}

impl From<&RepositoryFile> for RepositoryFileBody {
    fn from(file: &RepositoryFile) -> Self {
        let RepositoryFile { commit, working_dir, instructions } = file.clone();
        Self { commit, working_dir, instructions }
    }
}

/// A step of a hook: a command or something built in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HookStep)]
pub struct HookStepBody {
    /// The program and its arguments; null for something built in.
    pub run: Option<Vec<String>>,
    /// What is built in: `git-checkout`, `sync-pull` or `sync-push`; null for a command.
    pub uses: Option<&'static str>,
    /// The working directory; null for the template's.
    pub cwd: Option<String>,
    /// How long it may take.
    pub timeout_seconds: u64,
    /// The names of the environment variables that it gets beside the template's.
    pub env: Vec<String>,
}

/// When a workspace is pushed by itself.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SyncMoments)]
pub struct SyncMomentsBody {
    /// Before each stop.
    pub on_stop: bool,
    /// Before a running sandbox is deleted.
    pub before_delete: bool,
}

impl From<&HookStep> for HookStepBody {
    fn from(step: &HookStep) -> Self {
        let run = match &step.action {
            HookAction::Run(command) => Some(command.clone()),
            HookAction::GitCheckout | HookAction::SyncPull | HookAction::SyncPush => None,
        };
        Self {
            run,
            uses: step.action.uses(),
            cwd: step.cwd.clone(),
            timeout_seconds: step.timeout.as_secs(),
            env: step.env.keys().cloned().collect(),
        }
    }
}

fn hooks_body(hooks: &Hooks) -> BTreeMap<&'static str, Vec<HookStepBody>> {
    let with_steps = HookName::ALL.into_iter().filter(|name| !hooks.of(*name).is_empty());
    let body = |name: HookName| (name.as_str(), hooks.of(name).iter().map(Into::into).collect());
    with_steps.map(body).collect()
}

/// Resource limits of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Resources)]
pub struct ResourcesBody {
    /// CPUs.
    pub cpu: f64,
    /// Memory, in MiB.
    pub memory_mb: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Disk, in MiB.
    pub disk_mb: u64,
}

impl From<&Template> for ConfigurationBody {
    fn from(template: &Template) -> Self {
        let Template { provider, mode, resources, network, ports, on_limit, .. } = template;
        let Workload { source, env, secrets, user, working_dir, command, .. } = &*template.workload;
        let Workload { mounts, git, agent, hooks, sync, options, .. } = &*template.workload;
        let SyncMoments { on_stop, before_delete } = *sync;
        let Resources { cpu, memory_mb, processes, disk_mb } = *resources;
        let (image, snapshot) = match source.clone() {
            None => (None, None),
            Some(WorkloadSource::Image(image)) => (Some(image), None),
            Some(WorkloadSource::Snapshot(snapshot)) => (None, Some(snapshot)),
        };
        let secrets = secrets.iter().map(|(name, secret)| (name.clone(), secret.to_string()));
        Self {
            provider: provider.to_string(),
            agent: agent.as_ref().map(|agent| agent.name.to_string()),
            model: agent.as_ref().and_then(|agent| agent.model.clone()),
            run_seconds: agent.as_ref().map(|agent| agent.run_time_max.as_secs()),
            max_turns: agent.as_ref().and_then(|agent| agent.turns_max),
            instructions: agent.as_ref().map(|one| one.instructions.clone()).unwrap_or_default(),
            mode: mode.as_str(),
            image,
            snapshot,
            user: user.clone(),
            working_dir: working_dir.clone(),
            command: command.clone(),
            env: env.keys().cloned().collect(),
            secrets: secrets.collect(),
            mounts: mounts.iter().map(ToString::to_string).collect(),
            network: network.kind().as_str(),
            allow: network.hosts().iter().map(ToString::to_string).collect(),
            allow_private: network.private().iter().map(ToString::to_string).collect(),
            ports: ports.clone(),
            resources: ResourcesBody { cpu, memory_mb, processes, disk_mb },
            on_limit: on_limit.as_str(),
            clone: git.as_ref().map(|git| git.clone.as_str()),
            base_branch: git.as_ref().and_then(|git| git.base.clone()),
            repository_file: template.workload.repository_file().map(Into::into),
            hooks: hooks_body(hooks),
            grace_seconds: hooks.grace.as_secs(),
            sync: SyncMomentsBody { on_stop, before_delete },
            options: options.clone(),
        }
    }
}

/// Why the agent of a template cannot work on this server; `None` if it can, or there is none.
pub fn unusable(shared: &Shared, template: &Template) -> Option<String> {
    let agent = template.workload.agent.as_ref()?;
    let program = shared.edge.runs.programs.get(&agent.name);
    program.err().map(|error| error.to_string())
}

/// Lists the templates in force, by name.
#[utoipa::path(
    operation_id = "listTemplates", tag = "server",
    params(params::PageOf),
    responses(
        (status = 200, description = "a page of templates", body = ListAnswer<TemplateBody>),
    )
)]
#[get("/v1/templates")]
pub async fn list(
    shared: web::Data<Shared>,
    _caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let engine = &shared.edge.engine;
    let (templates, default) = (engine.templates(), engine.default_template());
    Ok(ListedPage::of(&request, &templates)?.answer(|template| TemplateBody {
        name: template.name.to_string(),
        version: template.version().to_string(),
        is_default: template.name == default.name,
        unusable: unusable(&shared, template),
        configuration: template.into(),
    }))
}
