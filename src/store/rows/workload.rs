//! What a template says of what runs in a sandbox, as a row keeps it: names of secrets, no values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::types::{
    CloneMode, GitWorkload, HostMount, Repository, SecretName, Workload, WorkloadSource,
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
}

/// What a template says of git.
#[derive(Serialize, Deserialize)]
struct GitPart {
    clone: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    read: Vec<String>,
    push_max_mb: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    workflows: bool,
}

impl GitPart {
    fn of(git: &GitWorkload) -> Self {
        Self {
            clone: git.clone.as_str().to_owned(),
            read: git.read.iter().map(ToString::to_string).collect(),
            push_max_mb: git.push_max_mb,
            workflows: git.workflows,
        }
    }

    fn into_git(self) -> Result<GitWorkload, BadRow> {
        let read = |text: String| Repository::parse(&text).map_err(|_| BadRow::UnknownWord(text));
        Ok(GitWorkload {
            clone: CloneMode::parse(&self.clone).ok_or(BadRow::UnknownWord(self.clone))?,
            read: self.read.into_iter().map(read).collect::<Result<_, _>>()?,
            push_max_mb: self.push_max_mb,
            workflows: self.workflows,
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
            options: self.options,
        })
    }
}
