//! What a template says of what runs in a sandbox, as a row keeps it: names of secrets, no values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::types::{HostMount, SecretName, Workload, WorkloadSource};

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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
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
            options: self.options,
        })
    }
}
