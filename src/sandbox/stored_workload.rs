//! The part of a workload that an object's record keeps. It has the names of secrets, never a value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::{GitWorkload, SecretName, Workload};

/// A workload that is not empty. The command is not kept: the server starts it.
#[derive(Serialize, Deserialize)]
pub struct WorkloadRow {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    /// The name of the secret, by variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
    /// Whether git goes through the gateway. What may be fetched and pushed is not this provider's
    /// concern.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    git: bool,
}

impl WorkloadRow {
    /// The row for this workload; `None` if it is empty.
    pub fn of(workload: &Workload) -> Option<Self> {
        let Workload { env, secrets, working_dir, options, git, .. } = workload;
        let secret = |(name, secret): (&String, &SecretName)| (name.clone(), secret.to_string());
        let is_empty =
            env.is_empty() && secrets.is_empty() && working_dir.is_none() && options.is_empty();
        let is_empty = is_empty && git.is_none();
        (!is_empty).then(|| Self {
            env: env.clone(),
            secrets: secrets.iter().map(secret).collect(),
            working_dir: working_dir.clone(),
            options: options.clone(),
            git: git.is_some(),
        })
    }

    /// The workload of this row.
    pub fn into_workload(self) -> Workload {
        let secret = |(name, secret): (String, String)| (name, SecretName::trusted(secret));
        Workload {
            env: self.env,
            secrets: self.secrets.into_iter().map(secret).collect(),
            working_dir: self.working_dir,
            options: self.options,
            git: self.git.then(GitWorkload::default),
            ..Workload::default()
        }
    }
}
