//! What every command and terminal of a sandbox gets from its template: environment variables and
//! the working directory.
//!
//! The values of secrets are looked up for each command and kept nowhere: not on disk, not in PID 1.

use std::sync::Arc;

use bytes::Bytes;

use serde::{Deserialize, Serialize};

use crate::sandbox::WorkError;
use crate::types::{NamedSecrets, SecretName, Workload};

/// Where a command starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingDirectory {
    /// The path, taken from the workspace; empty for the workspace itself.
    pub path: Vec<u8>,
    /// Whether the caller has named it. If a default cannot be entered, the command starts in the
    /// workspace and says so.
    pub is_named: bool,
}

/// The template's part of every command.
#[derive(Clone, Debug, Default)]
pub struct CommandDefaults {
    workload: Arc<Workload>,
    secrets: NamedSecrets,
}

impl CommandDefaults {
    /// The defaults of this workload.
    pub fn new(workload: Arc<Workload>, secrets: NamedSecrets) -> Self {
        Self { workload, secrets }
    }

    /// The environment of a command as `KEY=value`; what the caller gives wins.
    ///
    /// # Errors
    /// [`WorkError::CannotStart`] if a secret does not exist any more.
    pub fn env(&self, given: &[(String, String)]) -> Result<Vec<Bytes>, WorkError> {
        let secrets = self.secrets.resolve(&self.workload.secrets);
        let secrets = secrets.map_err(|name| WorkError::CannotStart(missing(&name)))?;
        let plain = self.workload.env.iter().map(|(name, value)| (name, value.as_str()));
        let secret = secrets.iter().map(|(name, secret)| (name, secret.expose()));
        let is_default = |(name, _): &(&String, &str)| given.iter().all(|(own, _)| own != *name);
        let given = given.iter().map(|(name, value)| (name, value.as_str()));
        let all = plain.chain(secret).filter(is_default).chain(given);
        Ok(all.map(|(name, value)| format!("{name}={value}").into()).collect())
    }

    /// The working directory of a command.
    pub fn cwd(&self, given: Option<&str>) -> WorkingDirectory {
        let path = given.or(self.workload.working_dir.as_deref()).unwrap_or_default();
        WorkingDirectory { path: path.into(), is_named: given.is_some() }
    }
}

/// What to do about a secret that a template names and the configuration does not have.
pub fn missing(name: &SecretName) -> String {
    format!("its template needs the secret {name}; add [secrets.{name}] to the configuration")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::types::Secret;

    #[test]
    fn a_caller_s_variables_win_and_a_lost_secret_is_named() {
        let npm = SecretName::trusted("npm");
        let workload = Workload {
            env: BTreeMap::from([("A".into(), "1".into()), ("B".into(), "2".into())]),
            secrets: BTreeMap::from([("TOKEN".into(), npm.clone())]),
            working_dir: Some("src".into()),
            ..Workload::default()
        };
        let secrets = NamedSecrets::new(BTreeMap::from([(npm, Secret::new("hush"))]));
        let defaults = CommandDefaults::new(workload.into(), secrets.clone());
        let env = |given: &[(&str, &str)]| {
            let given: Vec<_> =
                given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            defaults.env(&given).map(|env| {
                env.into_iter()
                    .map(|entry| String::from_utf8(entry.into()).expect("text"))
                    .collect()
            })
        };
        let expected = |texts: &[&str]| -> Result<Vec<String>, WorkError> {
            Ok(texts.iter().map(|text| (*text).to_owned()).collect())
        };
        assert_eq!(env(&[]), expected(&["A=1", "B=2", "TOKEN=hush"]));
        assert_eq!(env(&[("B", "3"), ("TOKEN", "own")]), expected(&["A=1", "B=3", "TOKEN=own"]));
        for (given, path, is_named) in [(None, "src", false), (Some("/tmp"), "/tmp", true)] {
            let expected = WorkingDirectory { path: path.into(), is_named };
            assert_eq!(defaults.cwd(given), expected);
        }
        assert!(!format!("{defaults:?}").contains("hush"));
        secrets.replace(BTreeMap::new());
        let error = env(&[]).expect_err("it is gone");
        assert!(error.to_string().contains("add [secrets.npm]"), "{error}");
    }
}
