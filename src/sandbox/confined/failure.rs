//! Why work in a confined place failed: its kind and a message of bounded length, as it is sent from
//! inside a sandbox, and as callers get it.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::sandbox::WorkError;

/// Longest message of a failure, in bytes.
pub const MESSAGE_LEN_MAX: usize = 1024;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkFailure {
    /// There is nothing at that path.
    NoSuchFile,
    /// The path leads out of the workspace, or through a link that is not followed.
    NotAllowed,
    /// What is there has the wrong kind.
    WrongKind,
    /// There is no such program.
    CommandNotFound,
    /// The command could not be started for another reason.
    CannotStart,
    /// No room on the disk, no permission, too many processes.
    Refused,
    /// Anything else.
    Broken,
    /// There is something already.
    Exists,
    /// The archive is malformed, or has an entry that is refused.
    BadArchive,
    /// No process accepts connections on that port.
    NotListening,
    /// The process that does the work lacks file descriptors or memory now, whatever the file is.
    Shortage,
}

/// A failed operation.
#[derive(Debug)]
pub struct RequestFailure {
    /// The kind of the failure.
    pub kind: WorkFailure,
    /// The message for people.
    pub message: String,
}

impl RequestFailure {
    /// A failure with its message.
    pub fn new(kind: WorkFailure, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Adds the entry of a directory or an archive to the message.
    pub fn about(self, entry: &[u8]) -> Self {
        let Self { kind, message } = self;
        Self { kind, message: format!("{}: {message}", quoted(entry)) }
    }
}

/// A name in a message.
pub fn quoted(name: &[u8]) -> String {
    shortened(format!("{:?}", String::from_utf8_lossy(name)))
}

impl From<std::io::Error> for RequestFailure {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::new(WorkFailure::BadArchive, error.to_string()),
        }
    }
}

impl From<Errno> for RequestFailure {
    fn from(errno: Errno) -> Self {
        let kind = match errno {
            Errno::NOENT => WorkFailure::NoSuchFile,
            Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL => {
                WorkFailure::NotAllowed
            }
            Errno::EXIST => WorkFailure::Exists,
            Errno::NOTDIR | Errno::ISDIR | Errno::NXIO => WorkFailure::WrongKind,
            Errno::ACCESS
            | Errno::PERM
            | Errno::FBIG
            | Errno::NOSPC
            | Errno::DQUOT
            | Errno::ROFS
            | Errno::AGAIN
            | Errno::MLINK
            | Errno::BUSY
            | Errno::NOTEMPTY => WorkFailure::Refused,
            Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS | Errno::NOMEM => {
                WorkFailure::Shortage
            }
            _ => WorkFailure::Broken,
        };
        let message = match errno {
            Errno::XDEV => "it leads out of the workspace".into(),
            Errno::LOOP => "it leads through a link that is not followed".into(),
            Errno::FBIG => too_long(),
            other => explain(other),
        };
        Self { kind, message }
    }
}

impl From<RequestFailure> for WorkError {
    fn from(RequestFailure { kind, message }: RequestFailure) -> Self {
        match kind {
            WorkFailure::NoSuchFile => Self::NoSuchFile,
            WorkFailure::NotAllowed => Self::PathNotAllowed(message),
            WorkFailure::BadArchive => Self::BadArchive(message),
            WorkFailure::Exists => Self::Exists(message),
            WorkFailure::WrongKind => Self::WrongKind(message),
            WorkFailure::CommandNotFound => Self::CommandNotFound(message),
            WorkFailure::CannotStart => Self::CannotStart(message),
            WorkFailure::Refused => Self::Refused(message),
            WorkFailure::NotListening => Self::NotListening,
            WorkFailure::Shortage => Self::Shortage(message),
            WorkFailure::Broken => Self::Broken(message),
        }
    }
}

/// The message about a file that would exceed this process's limit.
fn too_long() -> String {
    match getrlimit(Resource::Fsize).current {
        Some(max) => format!("a file may not be longer than {} MB, the disk limit", max >> 20),
        None => explain(Errno::FBIG),
    }
}

/// The error for a failure of the server's own.
pub fn broken(error: impl std::fmt::Display) -> WorkError {
    WorkError::Broken(error.to_string())
}

/// Longest name of something in a message, in bytes. A message may hold two and the reason, which
/// comes last and must not be cut off.
const NAME_LEN_MAX: usize = 320;

/// A name as it is shown in a message: of a long one its beginning and its end.
pub fn shortened(name: String) -> String {
    if name.len() <= NAME_LEN_MAX {
        return name;
    }
    const GAP: &str = "…";
    let half = (NAME_LEN_MAX - GAP.len()) / 2;
    let head = name.floor_char_boundary(half);
    let tail = name.ceil_char_boundary(name.len() - half);
    format!("{}{GAP}{}", &name[..head], &name[tail..])
}

/// The system's words for an error.
pub fn explain(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        assert_eq!(shortened("n".repeat(NAME_LEN_MAX)), "n".repeat(NAME_LEN_MAX));
        for letter in ["n", "é", "漢", "🎉"] {
            for len in [NAME_LEN_MAX + 1, 9_000] {
                let long = format!("a/{}/z", letter.repeat(len));
                let short = shortened(long);
                assert!(short.len() <= NAME_LEN_MAX && short.len() > NAME_LEN_MAX - 9, "{short}");
                assert!(short.starts_with("a/") && short.ends_with("/z"), "{short}");
                assert!(short.contains(&format!("{letter}…{letter}")), "{short}");
            }
        }
    }
}
