//! How a cold start ended.

use crate::types::RepositoryFile;

/// How the cold start of a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColdStartEnd {
    /// All of its steps succeeded.
    Succeeded,
    /// The same, and this is what the repository's file said.
    SucceededWith(RepositoryFile),
    /// It ran before, and the workspace has what it made.
    NotNeeded,
    /// No work may begin in the sandbox, for this reason; no step ran.
    Withheld(String),
    /// A step failed: which one, and its last lines.
    Failed(String),
    /// It was ended because the sandbox is not to run any more.
    Withdrawn,
}
