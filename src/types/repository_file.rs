//! `.github/issuebox.toml`: what a repository says of its own sandboxes.

use std::time::Duration;

/// What a sandbox took over from its repository's file when its cold start succeeded. The default is
/// that of a sandbox without one: its cold start is still to come, or there was no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryFile {
    /// The commit that had the file; `None` if none was read.
    pub commit: Option<String>,
    /// `working_dir`: where the agent starts, unless the configuration says that.
    pub working_dir: Option<String>,
    /// `instructions`: what the agent is given to know after what the configuration says; may be empty.
    pub instructions: String,
}

impl RepositoryFile {
    /// Its path in the repository.
    pub const PATH: &str = ".github/issuebox.toml";

    /// How long all commands of its `setup` may take together.
    pub const SETUP_TIME_MAX: Duration = Duration::from_secs(600);
}
