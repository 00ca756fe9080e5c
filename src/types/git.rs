//! What is configured of git and of pull requests, and how far a sandbox's checkout is.

use super::{Repository, RepositoryFile};

/// `[templates.X.git]`: the repository in the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitWorkload {
    /// How much of the history is fetched.
    pub clone: CloneMode,
    /// The branch that the work begins at; `None` for the repository's default branch.
    pub base: Option<String>,
    /// Further repositories that the sandbox may read.
    pub read: Vec<Repository>,
    /// The most bytes of one push, in MiB.
    pub push_max_mb: u64,
    /// Whether it may change the files of workflows.
    pub workflows: bool,
    /// What the sandbox has of [`RepositoryFile::PATH`]; `None` if its cold start does not read that.
    pub repository_file: Option<RepositoryFile>,
}

/// How much of a repository's history a checkout fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloneMode {
    /// The whole history of a repository below 100 MB, else without the contents of old files.
    #[default]
    Auto,
    /// The whole history of the branch that the work begins at.
    Full,
    /// All commits; contents of old files are fetched when they are needed.
    Blobless,
    /// The last commit alone.
    Shallow,
}

impl CloneMode {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Full, Self::Blobless, Self::Shallow];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Full => "full",
            Self::Blobless => "blobless",
            Self::Shallow => "shallow",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// `github.pull_request`: what is opened for a branch that was pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullRequestMode {
    /// A draft; where GitHub refuses drafts, one that is ready for review.
    #[default]
    Draft,
    /// One that is ready for review.
    Ready,
    /// None: people open it.
    None,
}

impl PullRequestMode {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Draft, Self::Ready, Self::None];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Ready => "ready",
            Self::None => "none",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// `github.hidden`: what happens when the words for the agent have parts that GitHub does not show to
/// people. The agent never gets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HiddenMode {
    /// The timeline says how many there are.
    #[default]
    Tell,
    /// No work begins, either.
    Refuse,
}

impl HiddenMode {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Tell, Self::Refuse];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tell => "tell",
            Self::Refuse => "refuse",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// `github.follow_up`: which comments without a command are messages to the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowUpMode {
    /// None: only comments with the command and reviews are.
    #[default]
    Commands,
    /// Every comment on the issue and on its pull request, by a person who may trigger.
    All,
}

impl FollowUpMode {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Commands, Self::All];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::All => "all",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// `github.on_ci_failure`: what happens when a check of the newest pushed commit fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CiFailureMode {
    /// Nothing.
    #[default]
    Ignore,
    /// It is a message to the agent, which is to fix it.
    Fix,
}

impl CiFailureMode {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Ignore, Self::Fix];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Fix => "fix",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// `github.publish`: whether what a sandbox pushes is published at once. A branch that is pushed runs
/// the repository's workflows, with its secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishMode {
    /// At once if all texts that the work follows are by people who may write to the repository;
    /// else a person is asked.
    #[default]
    Auto,
    /// At once.
    Push,
    /// A person is asked.
    Ask,
    /// Never.
    Never,
}

impl PublishMode {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Push, Self::Ask, Self::Never];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Push => "push",
            Self::Ask => "ask",
            Self::Never => "never",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// What becomes of a sandbox's pushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushPermission {
    /// They are published: so it is configured.
    #[default]
    Free,
    /// They are published: all texts that the work follows are by people who may write.
    Trusted,
    /// They are refused until a person publishes the work.
    Waits,
    /// They are refused.
    Off,
}

impl PushPermission {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Free, Self::Trusted, Self::Waits, Self::Off];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Trusted => "trusted",
            Self::Waits => "waits",
            Self::Off => "off",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == word)
    }
}

/// How far a checkout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutState {
    /// It is under way.
    Fetching,
    /// The repository is there, on the sandbox's branch.
    Ready,
    /// It failed; the sandbox runs all the same.
    Failed,
}

impl CheckoutState {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Fetching, Self::Ready, Self::Failed];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fetching => "fetching",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}
