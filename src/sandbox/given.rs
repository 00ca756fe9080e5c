//! Programs that the server gives to every sandbox, beside what its image or machine has: the
//! agents'.

use std::path::{Path, PathBuf};

use crate::types::AgentName;

/// A program of the server's machine that sandboxes can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenProgram {
    /// The agent that it is for.
    agent: AgentName,
    /// Its file on the server's machine, without links.
    file: PathBuf,
    /// The file's name in sandboxes.
    name: String,
}

impl GivenProgram {
    /// The directory of given programs in every sandbox.
    pub const DIR: &str = "/opt/issuebox";

    /// A program for this agent: one file, which needs no other of the host's than those that sandboxes
    /// see. Links are followed, since a sandbox may not see what they lead to; the name is that of
    /// the first of them, by which some programs know what they are.
    ///
    /// # Errors
    /// The file is not there.
    pub fn new(agent: AgentName, path: &Path) -> std::io::Result<Self> {
        let file = std::fs::canonicalize(path)?;
        let name = path.file_name().or(file.file_name()).unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        Ok(Self { agent, file, name })
    }

    /// The file on the server's machine.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The path in sandboxes.
    pub fn inside(&self) -> String {
        format!("{}/{}/{}", Self::DIR, self.agent, self.name)
    }
}
