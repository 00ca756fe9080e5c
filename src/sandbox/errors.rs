//! Why a provider did not do what it was asked, for lifecycle calls and for work in a sandbox.

use std::time::Duration;

use super::{Capability, Object};

/// Why a lifecycle call did not do what was asked. Each says what may follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider was reached and has no such object. Only this is absence.
    #[error("the provider has no such object")]
    Absent,
    /// The name or external id belongs to an object of another sandbox; nothing was changed.
    #[error("the name {} is taken at the provider by an object that is not this sandbox's", .0.name)]
    Present(Box<Object>),
    /// The provider said no and made nothing; asking again without a change does not help.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// The provider is up and has no room: a full disk, a quota, a rate limit. It did nothing.
    /// Asking again helps once there is room, not before `retry_after` when given.
    #[error("the provider has no room: {what}")]
    Exhausted {
        /// What is used up and how to make room, for people.
        what: String,
        /// How long the provider asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Not reached, not understood, or no answer in time: *what happened is unknown*. Look, then
    /// try again, not before `retry_after` when given.
    #[error("the provider is unavailable: {message}")]
    Unavailable {
        /// What went wrong, for people.
        message: String,
        /// How long the provider asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The provider tried and failed; something may be left. Trying again may help.
    #[error("the provider failed: {0}")]
    Broken(String),
}

impl ProviderError {
    /// An unknown outcome without a wish of the provider about when to come back.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }

    /// No room, without a wish of the provider about when to come back.
    pub fn exhausted(what: impl Into<String>) -> Self {
        Self::Exhausted { what: what.into(), retry_after: None }
    }
}

/// Why work in a sandbox (exec, files) did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The object is not up, or went down meanwhile.
    #[error("the sandbox is not running")]
    NotRunning,
    /// There is nothing at that path.
    #[error("no such file or directory in the workspace")]
    NoSuchFile,
    /// The path leads out of the workspace, through a link that may not be followed, or has a
    /// form that is not accepted.
    #[error("the path is not allowed: {0}")]
    PathNotAllowed(String),
    /// Something is at that path already, and nothing said that it may be replaced.
    #[error("there is something already: {0}")]
    Exists(String),
    /// An archive is malformed or cut off, or holds what is not taken into a workspace; says which
    /// entry. What came before it stays.
    #[error("the archive is not taken: {0}")]
    BadArchive(String),
    /// The part of a file that was asked for begins behind its end.
    #[error("nothing of that range is there: the file has {size} bytes")]
    OutOfRange {
        /// The file's size, in bytes.
        size: u64,
    },
    /// What is there has the wrong kind (a directory where a file is needed, a device, a FIFO).
    #[error("wrong kind of file: {0}")]
    WrongKind(String),
    /// There is no such program.
    #[error("the command could not be started: {0}")]
    CommandNotFound(String),
    /// The command could not be started for another reason (not executable, no such directory).
    #[error("the command could not be started: {0}")]
    CannotStart(String),
    /// The sandbox has no room or refuses (disk full, permission, too many processes).
    #[error("refused inside the sandbox: {0}")]
    Refused(String),
    /// The provider lacks file descriptors or memory for this now, whatever the file is: a later try
    /// may succeed.
    #[error("the sandbox lacks resources now: {0}")]
    Shortage(String),
    /// No server accepts connections on that port.
    #[error("nothing in the sandbox listens on that port")]
    NotListening,
    /// The object has no process of this id: it never had, or forgot it after its end.
    #[error("the sandbox has no such process")]
    NoSuchProcess,
    /// The process's standard input is closed, or it has ended.
    #[error("the process does not read its input any more")]
    StdinClosed,
    /// The provider does not declare this capability. The edge refuses it before it asks.
    #[error("this provider does not offer {0}")]
    Unsupported(Capability),
    /// The provider could not be reached or failed; for people.
    #[error("the provider failed: {0}")]
    Broken(String),
}
