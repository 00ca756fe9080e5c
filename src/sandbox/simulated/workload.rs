//! What a simulated object was asked to run, written to its file for checks from outside. It has the
//! names of secrets, never a value.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::types::{Workload, WorkloadSource};

/// The workload in an object's file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkloadFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'a str>,
    env: &'a BTreeMap<String, String>,
    secrets: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<&'a str>,
    command: &'a [String],
    mounts: Vec<String>,
    #[serde(skip)]
    is_empty: bool,
}

impl<'a> WorkloadFile<'a> {
    pub(super) fn of(workload: &'a Workload) -> Self {
        let (image, snapshot) = match &workload.source {
            None => (None, None),
            Some(WorkloadSource::Image(image)) => (Some(image.as_str()), None),
            Some(WorkloadSource::Snapshot(snapshot)) => (None, Some(snapshot.as_str())),
        };
        let secrets = workload.secrets.iter();
        Self {
            image,
            snapshot,
            env: &workload.env,
            secrets: secrets.map(|(name, secret)| (name.as_str(), secret.as_str())).collect(),
            user: workload.user.as_deref(),
            working_dir: workload.working_dir.as_deref(),
            command: &workload.command,
            mounts: workload.mounts.iter().map(ToString::to_string).collect(),
            is_empty: *workload == Workload::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }
}
