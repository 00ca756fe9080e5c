//! The agents' programs: where each is on this machine, and where a sandbox sees it.

mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::agents::{Agent, built_in};
use crate::config::AgentProgram;
use crate::sandbox::GivenProgram;
use crate::types::{AgentName, AgentSettings};

pub use version::ProgramVersion;

/// Why an agent cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// There is no agent of that name.
    #[error("there is no agent {0} in the configuration")]
    Unknown(AgentName),
    /// Its program is nowhere.
    #[error("the program of {agent} is not on this machine: {hint}, or set agents.{agent}.path")]
    Missing {
        /// The agent.
        agent: AgentName,
        /// How to install it.
        hint: String,
    },
}

/// An agent that can be started.
#[derive(Clone)]
pub struct KnownAgent {
    /// How it is started and read.
    pub adapter: &'static dyn Agent,
    /// Its program, which every sandbox is given.
    pub program: GivenProgram,
    /// What the configuration says of it.
    pub settings: AgentSettings,
}

/// The agents of the configuration.
#[derive(Clone, Default)]
pub struct AgentPrograms {
    agents: BTreeMap<AgentName, Result<KnownAgent, ProgramError>>,
}

impl AgentPrograms {
    /// Looks for the programs: where the configuration says, or else in the directories of this
    /// process's `PATH`.
    pub fn of_machine(configured: &BTreeMap<AgentName, AgentProgram>) -> Self {
        Self::find(configured, &std::env::var("PATH").unwrap_or_default())
    }

    /// Looks for the programs: where the configuration says, or else in the directories of `path`.
    pub fn find(configured: &BTreeMap<AgentName, AgentProgram>, path: &str) -> Self {
        let agents = configured.iter().map(|(name, agent)| {
            let found = find(name, agent, path);
            (name.clone(), found)
        });
        Self { agents: agents.collect() }
    }

    /// The agent of this name.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn get(&self, name: &AgentName) -> Result<KnownAgent, ProgramError> {
        let known = self.agents.get(name).cloned();
        known.unwrap_or_else(|| Err(ProgramError::Unknown(name.clone())))
    }

    /// Whether the configuration has an agent of this name.
    pub fn is_known(&self, name: &AgentName) -> bool {
        self.agents.contains_key(name)
    }

    /// The names of all agents, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.agents.keys().map(AgentName::as_str).collect()
    }

    /// The programs that sandboxes are given.
    pub fn given(&self) -> Arc<[GivenProgram]> {
        let found = self.agents.values().filter_map(|agent| agent.as_ref().ok());
        found.map(|agent| agent.program.clone()).collect()
    }

    /// Every agent, by name, with its program or why there is none.
    pub fn all(&self) -> impl Iterator<Item = (&AgentName, &Result<KnownAgent, ProgramError>)> {
        self.agents.iter()
    }
}

/// A program in the directories of `path`.
pub fn on_path(program: &str, path: &str) -> Option<PathBuf> {
    path.split(':').map(|dir| Path::new(dir).join(program)).find(|file| file.is_file())
}

fn find(name: &AgentName, agent: &AgentProgram, path: &str) -> Result<KnownAgent, ProgramError> {
    let adapter = built_in(&agent.kind).ok_or_else(|| ProgramError::Unknown(name.clone()))?;
    let missing =
        || ProgramError::Missing { agent: name.clone(), hint: adapter.install_hint().to_owned() };
    let found = || on_path(adapter.program()?, path);
    let given = agent.path.clone().or_else(found).ok_or_else(missing)?;
    let program = GivenProgram::new(name.clone(), &given).map_err(|_| missing())?;
    Ok(KnownAgent { adapter, program, settings: agent.settings.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(kind: &str, path: Option<PathBuf>) -> AgentProgram {
        AgentProgram::new(kind, path)
    }

    #[test]
    fn a_program_is_where_the_configuration_says_or_on_the_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = dir.path().join("real");
        std::fs::write(&real, "").expect("written");
        std::os::unix::fs::symlink(&real, dir.path().join("claude")).expect("linked");
        let name = |name: &str| AgentName::trusted(name);
        let agents = BTreeMap::from([
            (name("claude-code"), agent("claude-code", None)),
            (name("codex"), agent("codex", None)),
            (name("mine"), agent("command", Some(real.clone()))),
        ]);
        let path = format!("/nowhere:{}", dir.path().display());
        let found = AgentPrograms::find(&agents, &path);
        let program =
            |one: &str| found.get(&name(one)).map(|agent| agent.program.file().to_owned());
        let real = std::fs::canonicalize(real).expect("there");
        assert_eq!(program("claude-code"), Ok(real.clone()));
        assert_eq!(program("mine"), Ok(real));
        let inside = found.get(&name("mine")).expect("found").program.inside();
        assert_eq!(inside, "/opt/issuebox/mine/real");
        assert_eq!(found.given().len(), 2, "of those that there are");
        assert!(matches!(program("codex"), Err(ProgramError::Missing { .. })));
        assert!(matches!(program("other"), Err(ProgramError::Unknown(_))));
    }
}
