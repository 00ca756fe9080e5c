//! What a template says of what runs in a sandbox, as a row keeps it: names of secrets, no values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::BadRow;
use super::hooks::HooksPart;
use crate::types::{
    AgentName, AgentWorkload, CloneMode, GitWorkload, HostMount, Repository, RepositoryFile,
    SecretName, SyncMoments, WhileRunning, Workload, WorkloadSource,
};

/// A workload that is not empty.
#[derive(Serialize, Deserialize)]
pub(super) struct WorkloadPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    /// The name of the secret, by variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    git: Option<GitPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<AgentPart>,
    #[serde(default, skip_serializing_if = "HooksPart::is_default")]
    hooks: HooksPart,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    push_on_stop: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    push_before_delete: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
}

/// What a template says of its agent. Times are in milliseconds.
#[derive(Serialize, Deserialize)]
struct AgentPart {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    run_time_max: u64,
    quiet_time_max: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turns_max: Option<u32>,
    while_running: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    instructions: String,
}

impl AgentPart {
    fn of(agent: &AgentWorkload) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: agent.name.to_string(),
            model: agent.model.clone(),
            run_time_max: ms(agent.run_time_max),
            quiet_time_max: ms(agent.quiet_time_max),
            turns_max: agent.turns_max,
            while_running: agent.while_running.as_str().to_owned(),
            instructions: agent.instructions.clone(),
        }
    }

    fn into_agent(self) -> Result<AgentWorkload, BadRow> {
        let unknown = BadRow::UnknownWord(self.while_running.clone());
        Ok(AgentWorkload {
            name: AgentName::trusted(self.name),
            model: self.model,
            run_time_max: Duration::from_millis(self.run_time_max),
            quiet_time_max: Duration::from_millis(self.quiet_time_max),
            turns_max: self.turns_max,
            while_running: WhileRunning::parse(&self.while_running).ok_or(unknown)?,
            instructions: self.instructions,
        })
    }
}

/// What a template says of git.
#[derive(Serialize, Deserialize)]
struct GitPart {
    clone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    read: Vec<String>,
    push_max_mb: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    workflows: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repository_file: Option<RepositoryFilePart>,
}

/// What a sandbox has of the file of its repository.
#[derive(Serialize, Deserialize)]
struct RepositoryFilePart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    instructions: String,
}

impl RepositoryFilePart {
    fn of(file: &RepositoryFile) -> Self {
        let RepositoryFile { commit, working_dir, instructions } = file.clone();
        Self { commit, working_dir, instructions }
    }

    fn into_file(self) -> RepositoryFile {
        let Self { commit, working_dir, instructions } = self;
        RepositoryFile { commit, working_dir, instructions }
    }
}

impl GitPart {
    fn of(git: &GitWorkload) -> Self {
        Self {
            clone: git.clone.as_str().to_owned(),
            base: git.base.clone(),
            read: git.read.iter().map(ToString::to_string).collect(),
            push_max_mb: git.push_max_mb,
            workflows: git.workflows,
            repository_file: git.repository_file.as_ref().map(RepositoryFilePart::of),
        }
    }

    fn into_git(self) -> Result<GitWorkload, BadRow> {
        let read = |text: String| Repository::parse(&text).map_err(|_| BadRow::UnknownWord(text));
        Ok(GitWorkload {
            clone: CloneMode::parse(&self.clone).ok_or(BadRow::UnknownWord(self.clone))?,
            base: self.base,
            read: self.read.into_iter().map(read).collect::<Result<_, _>>()?,
            push_max_mb: self.push_max_mb,
            workflows: self.workflows,
            repository_file: self.repository_file.map(RepositoryFilePart::into_file),
        })
    }
}

impl WorkloadPart {
    /// The part for this workload.
    pub(super) fn of(workload: &Workload) -> Option<Self> {
        if *workload == Workload::default() {
            return None;
        }
        let (image, snapshot) = match workload.source.clone() {
            None => (None, None),
            Some(WorkloadSource::Image(image)) => (Some(image), None),
            Some(WorkloadSource::Snapshot(snapshot)) => (None, Some(snapshot)),
        };
        let secret = |(name, secret): (&String, &SecretName)| (name.clone(), secret.to_string());
        Some(Self {
            image,
            snapshot,
            env: workload.env.clone(),
            secrets: workload.secrets.iter().map(secret).collect(),
            user: workload.user.clone(),
            working_dir: workload.working_dir.clone(),
            command: workload.command.clone(),
            mounts: workload.mounts.iter().map(ToString::to_string).collect(),
            git: workload.git.as_ref().map(GitPart::of),
            agent: workload.agent.as_ref().map(AgentPart::of),
            hooks: HooksPart::of(&workload.hooks),
            push_on_stop: workload.sync.on_stop,
            push_before_delete: workload.sync.before_delete,
            options: workload.options.clone(),
        })
    }

    /// The workload of this part.
    pub(super) fn into_workload(self) -> Result<Workload, BadRow> {
        let secret = |(name, secret): (String, String)| (name, SecretName::trusted(secret));
        let mount = |text: String| HostMount::parse(&text).ok_or(BadRow::UnknownWord(text));
        let image = self.image.map(WorkloadSource::Image);
        Ok(Workload {
            source: image.or(self.snapshot.map(WorkloadSource::Snapshot)),
            env: self.env,
            secrets: self.secrets.into_iter().map(secret).collect(),
            user: self.user,
            working_dir: self.working_dir,
            command: self.command,
            mounts: self.mounts.into_iter().map(mount).collect::<Result<_, _>>()?,
            git: self.git.map(GitPart::into_git).transpose()?,
            agent: self.agent.map(AgentPart::into_agent).transpose()?,
            hooks: self.hooks.into_hooks()?,
            sync: SyncMoments {
                on_stop: self.push_on_stop,
                before_delete: self.push_before_delete,
            },
            options: self.options,
        })
    }
}
