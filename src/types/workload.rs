//! What a sandbox is made from and what runs in it, as its template says.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{AgentName, GitWorkload, Hooks, RepositoryFile, SecretName, SyncMoments};

/// What a sandbox is made from and what runs in it. The default leaves everything to the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The file system it begins with; `None` for the provider's own.
    pub source: Option<WorkloadSource>,
    /// Environment variables with plain values.
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values are secrets. Only the names of the secrets are stored.
    pub secrets: BTreeMap<String, SecretName>,
    /// The user that commands run as; `None` for the provider's own.
    pub user: Option<String>,
    /// The default working directory; `None` for the workspace. A relative one is below it.
    pub working_dir: Option<String>,
    /// A program and its arguments, started whenever the sandbox comes up. Empty for none.
    pub command: Vec<String>,
    /// Directories of the host that it sees.
    pub mounts: Vec<HostMount>,
    /// The repository in it; `None` for none.
    pub git: Option<GitWorkload>,
    /// The agent that works in it; `None` for none.
    pub agent: Option<AgentWorkload>,
    /// What is carried out in it at certain moments.
    pub hooks: Hooks,
    /// When its workspace is pushed by itself.
    pub sync: SyncMoments,
    /// What only its provider understands: keys of `[templates.X.PROVIDER]`, as text.
    pub options: BTreeMap<String, String>,
}

impl Workload {
    /// What it has of the file of its repository; `None` if that is not read.
    pub fn repository_file(&self) -> Option<&RepositoryFile> {
        self.git.as_ref()?.repository_file.as_ref()
    }

    /// The directory that the repository's file names, unless the configuration names one.
    pub fn repository_dir(&self) -> Option<&str> {
        match &self.working_dir {
            Some(_) => None,
            None => self.repository_file()?.working_dir.as_deref(),
        }
    }
}

/// The agent that works in a sandbox, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentWorkload {
    /// Its name in `[agents]`.
    pub name: AgentName,
    /// The model that it is started with; `None` leaves it to the agent.
    pub model: Option<String>,
    /// How long one run may take.
    pub run_time_max: Duration,
    /// How long a run may go on without output or a request to a model.
    pub quiet_time_max: Duration,
    /// How often a run may ask the model; `None` for no bound.
    pub turns_max: Option<u32>,
    /// What a message does that comes while a run goes on.
    pub while_running: WhileRunning,
    /// What the agent is given to know in every run, after what issuebox says; may be empty.
    pub instructions: String,
}

impl AgentWorkload {
    /// This agent with the bounds that hold if nothing is said: an hour for a run, 15 minutes of quiet.
    pub fn usual(name: AgentName) -> Self {
        Self {
            name,
            model: None,
            run_time_max: Duration::from_secs(3_600),
            quiet_time_max: Duration::from_secs(900),
            turns_max: None,
            while_running: WhileRunning::default(),
            instructions: String::new(),
        }
    }
}

/// What a message does that comes while a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileRunning {
    /// It waits for the next run.
    #[default]
    Queue,
    /// It cancels the run, and the next one answers it.
    Interrupt,
}

impl WhileRunning {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Queue, Self::Interrupt];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Interrupt => "interrupt",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.as_str() == word)
    }
}

/// The file system that a sandbox begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadSource {
    /// A container image.
    Image(String),
    /// The stored state of another sandbox.
    Snapshot(String),
}

/// A directory of the host that a sandbox sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// The absolute path on the host.
    pub source: String,
    /// The absolute path in the sandbox.
    pub target: String,
    /// Whether the sandbox cannot write to it.
    pub is_read_only: bool,
}

impl HostMount {
    /// Reads `/host/path:/sandbox/path` or `/host/path:/sandbox/path:ro`.
    pub fn parse(text: &str) -> Option<Self> {
        let (paths, is_read_only) = match text.strip_suffix(":ro") {
            Some(paths) => (paths, true),
            None => (text, false),
        };
        let (source, target) = paths.split_once(':')?;
        let is_plain = |path: &str| {
            path.starts_with('/')
                && !path.contains([':', '\0'])
                && !path.split('/').any(|part| part == "..")
        };
        (is_plain(source) && is_plain(target)).then(|| Self {
            source: source.to_owned(),
            target: target.to_owned(),
            is_read_only,
        })
    }
}

impl fmt::Display for HostMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.target)?;
        if self.is_read_only { f.write_str(":ro") } else { Ok(()) }
    }
}

/// The keys of a template that only some providers can carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKey {
    /// `image`
    Image,
    /// `snapshot`
    Snapshot,
    /// `user`
    User,
    /// `mounts`
    Mounts,
}

impl WorkloadKey {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Image, Self::Snapshot, Self::User, Self::Mounts];

    /// The key in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Snapshot => "snapshot",
            Self::User => "user",
            Self::Mounts => "mounts",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_two_absolute_paths() {
        for good in ["/srv/cache:/cache", "/srv/a b:/cache:ro"] {
            assert_eq!(
                HostMount::parse(good).map(|mount| mount.to_string()).as_deref(),
                Some(good)
            );
        }
        for bad in ["", "/a", "a:/b", "/a:b", "/a:/b:rw", "/a/../b:/c", "/a:/b:/c"] {
            assert_eq!(HostMount::parse(bad), None, "{bad}");
        }
    }
}
