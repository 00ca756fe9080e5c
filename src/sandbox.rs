//! The port to what really makes sandboxes, and the contract that every provider keeps.
//!
//! # Expected flow
//! The engine records a step, then calls; at most one of `create`, `start`, `stop`, `delete` and
//! `find` is under way for a home at any moment. `exec` and the file calls run beside them.
//!
//! # Guarantees a provider gives
//! - **Ownership.** Every object carries [`Labels`]. `create` under an existing name returns that
//!   object only when it carries the *same sandbox id*, completing it where it was half made;
//!   otherwise it answers [`ProviderError::Present`] with what is there and changes nothing.
//!   `start`, `stop`, `delete`, `exec` and the file calls take an external id and the sandbox id
//!   expected on it, and check it: a delete never hits a successor of the same name.
//! - **Absence.** [`ProviderError::Absent`] and an empty `find` mean: the provider was reached and
//!   does not have it. An object that is being destroyed still counts as present. What could not
//!   be reached or understood is [`ProviderError::Unavailable`].
//! - **Deadline and settle.** A lifecycle call gives up at its deadline; dropping its future gives
//!   up too. What it asked for may still come into effect until the deadline plus
//!   [`Traits::late_effect_window`], and not later.
//! - **Uniqueness.** [`Uniqueness::EnforcedNames`] promises that no two objects of one name exist,
//!   also when two creates run at once.
//!
//! # Assumptions a provider may make
//! Names and labels have the forms of [`crate::types`]; futures are polled on a tokio runtime
//! where blocking for milliseconds is allowed but not for longer.

mod capacity;
mod egress;
mod files;
mod kind;
mod limits;
pub mod local;
mod ports;
pub mod simulated;
mod terminal;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

pub use capacity::{Capacity, DiskRoom};
pub use files::{
    ChunkReceiver, FileContent, FileEntry, FileKind, FileListing, FilePart, WorkspacePath, Written,
};

pub use egress::{Egress, EgressResult, Notice};
pub use kind::{
    OpenContext, OpenFailure, OpenedProvider, ProviderKind, ReloadSettings, ReloadedSettings,
};
pub use limits::{LimitEffect, LimitEvent, LimitsInForce};
pub use ports::Stream;
pub use terminal::{
    Terminal, TerminalControl, TerminalEvent, TerminalRequest, TerminalSignal, TerminalSize,
};

use crate::types::{
    AccountName, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode, ObjectName,
    ObjectState, SandboxId, Template, Timestamp,
};

/// What really makes sandboxes. See the [module](self) for the contract.
#[async_trait]
pub trait SandboxProvider: Send + Sync + 'static {
    /// What never changes about this provider while the server runs.
    fn traits(&self) -> Traits;

    /// Looks whether it can work now. Answers within two seconds.
    async fn health(&self) -> Health;

    /// Makes the object and brings it up; returns once it is ready for `exec`.
    ///
    /// # Errors
    /// [`ProviderError::Present`] when the name is taken by an object of another sandbox id; never
    /// [`ProviderError::Absent`].
    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError>;

    /// Every object that has this name or carries this home's label, in any state, foreign ones
    /// of that name included. Empty means that there is none.
    ///
    /// # Errors
    /// Only [`ProviderError::Unavailable`] and [`ProviderError::Broken`].
    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError>;

    /// Every object that carries this instance's label.
    ///
    /// # Errors
    /// Only [`ProviderError::Unavailable`] and [`ProviderError::Broken`].
    async fn list(&self, instance: InstanceId) -> Result<Vec<Object>, ProviderError>;

    /// Brings a stopped object up; returns once it is ready for `exec`. Already up is success.
    ///
    /// # Errors
    /// Any; [`ProviderError::Present`] when the external id carries another sandbox id.
    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError>;

    /// Takes an object down and keeps its workspace; returns once no process of it is left.
    /// Already down is success.
    ///
    /// # Errors
    /// As for `start`.
    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError>;

    /// Removes an object and its workspace, in whatever state it is. Success says that removal
    /// was accepted; only [`ProviderError::Absent`], here or from a later call, says it is gone.
    ///
    /// # Errors
    /// As for `start`; [`ProviderError::Absent`] when there is no such object (any more).
    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError>;

    /// Starts a command in a running object. Dropping the [`Execution`] ends the command and
    /// every process it started that is still in its session.
    ///
    /// # Errors
    /// [`WorkError`]; `NotRunning` where the object is not up.
    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError>;

    /// Starts a command at a terminal in a running object. Dropping the [`Terminal`] hangs up.
    ///
    /// # Errors
    /// [`WorkError`]; `NotRunning` where the object is not up.
    async fn terminal(
        &self,
        _target: Target,
        _request: TerminalRequest,
    ) -> Result<Terminal, WorkError> {
        Err(WorkError::Unsupported("terminals"))
    }

    /// Connects to the server that listens on a TCP port of the object's own loopback.
    ///
    /// # Errors
    /// [`WorkError`]; `NotListening` where nobody accepts there.
    async fn connect(&self, _target: Target, _port: u16) -> Result<Box<dyn Stream>, WorkError> {
        Err(WorkError::Unsupported("ports"))
    }

    /// Lists what is at `path` in the workspace: the entry itself for a file, its entries down to
    /// `depth` levels for a directory, at most [`LIST_ENTRIES_MAX`].
    ///
    /// # Errors
    /// [`WorkError`].
    async fn list_files(
        &self,
        target: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError>;

    /// Opens a regular file in the workspace for reading, whole or a part of it.
    ///
    /// # Errors
    /// [`WorkError`]; `OutOfRange` where nothing of the part is there.
    async fn read_file(
        &self,
        target: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError>;

    /// Writes a regular file in the workspace whole: it replaces what was there once `content`
    /// has ended; an `Err` chunk leaves the old file as it was. Missing directories are made.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn write_file(
        &self,
        target: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError>;

    /// The limits that strike in running objects from now on, for whoever asks first; `None` to all
    /// others, and where it can't tell. One that goes on striking is told again after a while.
    fn limit_events(&self) -> Option<mpsc::Receiver<LimitEvent>> {
        None
    }

    /// What is to be told to the people of running objects from now on, for whoever asks first;
    /// `None` to all others, and where there never is anything.
    fn notices(&self) -> Option<mpsc::Receiver<Notice>> {
        None
    }

    /// What went out of all objects; `None` where that does not go through the server.
    fn egress(&self) -> Option<Egress> {
        None
    }

    /// The room for objects, as of a moment ago. Must not block. Where it says that there is a
    /// shortage, nothing is asked to be made or started until it is over.
    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    /// The limits of an object, up or not, where they can differ from its template's and from what
    /// [`Health`] says of all; `None` elsewhere, and where there is no such object.
    async fn limits(&self, _target: Target) -> Option<LimitsInForce> {
        None
    }

    /// Deletes a file, a link (not what it points at) or a directory with all that is in it.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn delete_file(&self, target: Target, path: WorkspacePath) -> Result<(), WorkError>;

    /// Makes a directory and what is missing above it. One that is there already is success.
    ///
    /// # Errors
    /// [`WorkError`]; `Exists` where something else is there.
    async fn make_directory(
        &self,
        _target: Target,
        _path: WorkspacePath,
    ) -> Result<Written, WorkError> {
        Err(WorkError::Unsupported("files"))
    }

    /// Moves a file, a link (not what it points at) or a directory within the workspace, in one
    /// step. Missing directories above the new place are made. What is at the new place gives way
    /// only where `overwrite` says so, and a directory only where it is empty.
    ///
    /// # Errors
    /// [`WorkError`]; `Exists` where something is there that does not give way.
    async fn move_file(
        &self,
        _target: Target,
        _from: WorkspacePath,
        _to: WorkspacePath,
        _overwrite: bool,
    ) -> Result<Written, WorkError> {
        Err(WorkError::Unsupported("files"))
    }

    /// Sets the permission bits (`0o777` at most) of a file or directory; a link is followed
    /// within the workspace.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn set_file_mode(
        &self,
        _target: Target,
        _path: WorkspacePath,
        _mode: u32,
    ) -> Result<(), WorkError> {
        Err(WorkError::Unsupported("files"))
    }

    /// A directory of the workspace as a tar archive: links as links, sockets, FIFOs and devices
    /// left out. An `Err` chunk breaks it off.
    ///
    /// # Errors
    /// [`WorkError`].
    async fn pack_directory(
        &self,
        _target: Target,
        _path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        Err(WorkError::Unsupported("archives"))
    }

    /// Takes a tar archive into a directory of the workspace, which is made where it is missing.
    /// Files and links that are there give way; nothing outside of the directory is touched. It
    /// is not one step: an archive that is refused or breaks off leaves what came before.
    ///
    /// # Errors
    /// [`WorkError`]; `BadArchive` names the entry and what is wrong with it.
    async fn unpack_directory(
        &self,
        _target: Target,
        _path: WorkspacePath,
        _archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        Err(WorkError::Unsupported("archives"))
    }
}

/// Most entries that one [`SandboxProvider::list_files`] returns; more sets `truncated`.
pub const LIST_ENTRIES_MAX: usize = 10_000;

/// How strongly a provider keeps two objects of one name apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniqueness {
    /// The provider refuses a second object of the same name, also under concurrent creates.
    EnforcedNames,
    /// It does not: an unanswered create is only looked for, never asked again before it must
    /// have settled.
    None,
}

impl Uniqueness {
    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EnforcedNames => "enforced_names",
            Self::None => "none",
        }
    }
}

/// What never changes about a provider while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// How strongly names are kept apart.
    pub uniqueness: Uniqueness,
    /// How long after a call's deadline its effect may still appear.
    pub late_effect_window: Duration,
    /// Whether running objects die with this server's process (`local`).
    pub dies_with_server: bool,
}

/// Whether a provider can work now, and what it enforces.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// What it is behind this adapter (an engine's id, an organisation); a changed one is
    /// somebody else. `None` where it could not be asked.
    pub identity: Option<String>,
    /// Why it cannot work now and what to do, for people; `None` where it can.
    pub trouble: Option<String>,
    /// How sandboxes are kept apart from the host.
    pub isolation: Isolation,
}

/// How a provider keeps sandboxes apart from the host and from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// `namespaces`, `simulated`, `none`, …
    pub kind: &'static str,
    /// Each limit and how it holds: `enforced`, `per process`, `watched` or `none`.
    pub limits: Vec<(&'static str, &'static str)>,
    /// `enforced` where a system-call filter is in force, else `none`.
    pub seccomp: &'static str,
    /// What of the network can be reached: `none`, or [`Isolation::BY_TEMPLATE`].
    pub network: &'static str,
}

impl Isolation {
    /// The word where each sandbox's template says what it reaches.
    pub const BY_TEMPLATE: &'static str = "template";

    /// The most that sandboxes made from these templates of the provider reach, in a word.
    pub fn network_of<'a>(
        &self,
        templates: impl IntoIterator<Item = &'a Template>,
    ) -> &'static str {
        if self.network != Self::BY_TEMPLATE {
            return self.network;
        }
        let kinds = templates.into_iter().map(|template| template.network.kind());
        kinds.max().unwrap_or_default().as_str()
    }
}

/// What an object says about whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// `issuebox.instance`
    pub instance: InstanceId,
    /// `issuebox.account`
    pub account: AccountName,
    /// `issuebox.home`
    pub home: HomeId,
    /// `issuebox.issue`
    pub issue: IssueId,
    /// `issuebox.sandbox`
    pub sandbox: SandboxId,
    /// `issuebox.generation`
    pub generation: Generation,
    /// `issuebox.mode`
    pub mode: Mode,
}

impl Labels {
    /// The labels as keys and values, in a fixed order.
    pub fn to_pairs(&self) -> [(&'static str, String); 7] {
        [
            ("issuebox.instance", self.instance.to_string()),
            ("issuebox.account", self.account.to_string()),
            ("issuebox.home", self.home.to_string()),
            ("issuebox.issue", self.issue.to_string()),
            ("issuebox.sandbox", self.sandbox.to_string()),
            ("issuebox.generation", self.generation.to_string()),
            ("issuebox.mode", self.mode.to_string()),
        ]
    }

    /// Reads labels back through a look-up by key; `None` where one is missing or malformed, so
    /// that a half-labelled object counts as foreign.
    pub fn from_pairs<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            instance: InstanceId::trusted(get("issuebox.instance")?),
            account: AccountName::trusted(get("issuebox.account")?),
            home: HomeId(get("issuebox.home")?.parse().ok()?),
            issue: IssueId::parse(get("issuebox.issue")?).ok()?,
            sandbox: SandboxId::trusted(get("issuebox.sandbox")?),
            generation: Generation(get("issuebox.generation")?.parse().ok()?),
            mode: Mode::parse(get("issuebox.mode")?)?,
        })
    }
}

/// One object at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The name it has.
    pub name: ObjectName,
    /// Whose it is; `None` where it does not carry our labels.
    pub labels: Option<Labels>,
    /// Its state.
    pub state: ObjectState,
}

/// What `create` makes.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// The object's name.
    pub name: ObjectName,
    /// Its labels.
    pub labels: Labels,
    /// What it is made from.
    pub template: Template,
    /// When to give up.
    pub deadline: Timestamp,
}

/// What `find` looks for.
#[derive(Clone, Debug)]
pub struct ObjectKey {
    /// The object's name.
    pub name: ObjectName,
    /// Whose objects.
    pub instance: InstanceId,
    /// Which home's.
    pub home: HomeId,
}

/// One object, and the sandbox id that must be on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The sandbox id expected on it.
    pub expected: SandboxId,
}

/// A lifecycle call on a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCall {
    /// Which object.
    pub target: Target,
    /// Without grace: what would be asked to end first is killed at once.
    pub force: bool,
    /// When to give up.
    pub deadline: Timestamp,
}

/// Why a lifecycle call did not do what was asked. Each says what may follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider was reached and has no such object. Only this is absence.
    #[error("the provider has no such object")]
    Absent,
    /// The name or external id belongs to an object of another sandbox; nothing was changed.
    #[error("the provider has another object there: {}", .0.name)]
    Present(Box<Object>),
    /// The provider said no and made nothing; asking again without a change does not help.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// Not reached, not understood, or no answer in time: *what happened is unknown*. Look, then
    /// try again, not before `retry_after` where given.
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
    /// The command could not be started (not found, not executable, no such directory).
    #[error("the command could not be started: {0}")]
    CannotStart(String),
    /// The sandbox has no room or refuses (disk full, permission, too many processes).
    #[error("refused inside the sandbox: {0}")]
    Refused(String),
    /// Nobody accepts connections on that port.
    #[error("nothing in the sandbox listens on that port")]
    NotListening,
    /// The provider does not offer this.
    #[error("this provider does not offer {0}")]
    Unsupported(&'static str),
    /// The provider could not be reached or failed; for people.
    #[error("the provider failed: {0}")]
    Broken(String),
}

/// A command to run. Nothing in it passes through a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Working directory; `None` for the workspace. Relative ones are below the workspace,
    /// absolute ones are inside the sandbox.
    pub cwd: Option<String>,
    /// Added to the sandbox's own environment.
    pub env: Vec<(String, String)>,
    /// What the command reads; then end of file.
    pub stdin: Bytes,
    /// After this the command and all of its session are killed; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// A running command's output. Dropping it ends the command.
#[derive(Debug)]
pub struct Execution {
    /// Output in order, then exactly one [`ExecEvent::Exit`], then the end. Ending without an
    /// `Exit` means that the sandbox went away under the command.
    pub events: mpsc::Receiver<ExecEvent>,
}

/// One piece of what a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent {
    /// Bytes it wrote to standard output.
    Stdout(Bytes),
    /// Bytes it wrote to standard error.
    Stderr(Bytes),
    /// It ended. A command killed by signal n has exit code 128 + n.
    Exit {
        /// Its exit code.
        code: i32,
        /// Whether it was killed because its time was up.
        timed_out: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_a_round_trip_and_half_labels_are_foreign() {
        let labels = Labels {
            instance: InstanceId::trusted("i"),
            account: AccountName::default_account(),
            home: HomeId(3),
            issue: IssueId::from_github(5_000_000_000),
            sandbox: SandboxId::trusted("s"),
            generation: Generation(2),
            mode: Mode::Strong,
        };
        let pairs = labels.to_pairs();
        let get = |key: &str| pairs.iter().find(|p| p.0 == key).map(|p| p.1.as_str());
        assert_eq!(Labels::from_pairs(get), Some(labels));
        let without = |key: &str| get(key).filter(|_| key != "issuebox.generation");
        assert_eq!(Labels::from_pairs(without), None);
    }
}
