//! What comes back, as bytes.

use super::codec::{Reader, put_bool, put_text, put_u64};

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// PID 1 exists; from the launcher. Beside it: a pidfd of PID 1.
    Forked {
        /// The device that the workspace is on.
        device: u64,
    },
    /// The sandbox is set up and has been checked from inside. Beside it, where it has a proxy:
    /// the socket that listens for that.
    Ready,
    /// The sandbox could not be set up; nothing is left of it.
    SetupFailed {
        /// Which step failed.
        step: String,
        /// The system's error number; 0 where a check failed.
        errno: i32,
    },
    /// A command runs.
    Started {
        /// The request.
        id: u64,
    },
    /// A command ended.
    Exited {
        /// The request that started it.
        id: u64,
        /// Its exit code; 128 + n after signal n.
        code: i32,
    },
    /// A file, a terminal or a connection is open. Beside it: the file, the terminal's master side,
    /// the socket.
    Opened {
        /// The request.
        id: u64,
    },
    /// Done.
    Done {
        /// The request.
        id: u64,
        /// List: there was more. Finish and changes: there was something before.
        flag: bool,
    },
    /// Not done.
    Failed {
        /// The request.
        id: u64,
        /// What kind of trouble.
        kind: WorkFailure,
        /// What happened, for people.
        message: String,
    },
    /// The workspace has no room left, and had some before; from the launcher.
    DiskFull,
}

/// What kind of trouble kept a request from being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkFailure {
    /// There is nothing at that path.
    NoSuchFile,
    /// The path leads where it may not.
    NotAllowed,
    /// What is there has the wrong kind.
    WrongKind,
    /// The command could not be started.
    CannotStart,
    /// No room, no permission, too many processes.
    Refused,
    /// Anything else.
    Broken,
    /// There is something already.
    Exists,
    /// The archive is not one, or holds what is not taken.
    BadArchive,
    /// Nobody accepts connections there.
    NotListening,
}

impl WorkFailure {
    pub(super) const ALL: [Self; 9] = [
        Self::NoSuchFile,
        Self::NotAllowed,
        Self::WrongKind,
        Self::CannotStart,
        Self::Refused,
        Self::Broken,
        Self::Exists,
        Self::BadArchive,
        Self::NotListening,
    ];

    fn code(self) -> u8 {
        match self {
            Self::NoSuchFile => 0,
            Self::NotAllowed => 1,
            Self::WrongKind => 2,
            Self::CannotStart => 3,
            Self::Refused => 4,
            Self::Broken => 5,
            Self::Exists => 6,
            Self::BadArchive => 7,
            Self::NotListening => 8,
        }
    }
}

impl Answer {
    /// The answer as bytes; a message that is too long is cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        match self {
            Self::Forked { device } => {
                out.push(0);
                put_u64(&mut out, *device);
            }
            Self::Ready => out.push(1),
            Self::SetupFailed { step, errno } => {
                out.push(2);
                put_text(&mut out, step);
                out.extend_from_slice(&errno.to_le_bytes());
            }
            Self::Started { id } => {
                out.push(3);
                put_u64(&mut out, *id);
            }
            Self::Exited { id, code } => {
                out.push(4);
                put_u64(&mut out, *id);
                out.extend_from_slice(&code.to_le_bytes());
            }
            Self::Opened { id } => {
                out.push(5);
                put_u64(&mut out, *id);
            }
            Self::Done { id, flag } => {
                out.push(6);
                put_u64(&mut out, *id);
                put_bool(&mut out, *flag);
            }
            Self::Failed { id, kind, message } => {
                out.push(7);
                put_u64(&mut out, *id);
                out.push(kind.code());
                put_text(&mut out, message);
            }
            Self::DiskFull => out.push(15),
        }
        out
    }

    /// Reads an answer; `None` where the bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let answer = match from.u8()? {
            0 => Self::Forked { device: from.u64()? },
            1 => Self::Ready,
            2 => Self::SetupFailed { step: from.text()?, errno: from.i32()? },
            3 => Self::Started { id: from.u64()? },
            4 => Self::Exited { id: from.u64()?, code: from.i32()? },
            5 => Self::Opened { id: from.u64()? },
            6 => Self::Done { id: from.u64()?, flag: from.bool()? },
            7 => Self::Failed {
                id: from.u64()?,
                kind: *WorkFailure::ALL.get(usize::from(from.u8()?))?,
                message: from.text()?,
            },
            15 => Self::DiskFull,
            _ => return None,
        };
        from.end()?;
        Some(answer)
    }

    /// The request it answers; `None` where it answers none.
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Forked { .. } | Self::Ready | Self::SetupFailed { .. } | Self::DiskFull => None,
            Self::Started { id }
            | Self::Exited { id, .. }
            | Self::Opened { id }
            | Self::Done { id, .. }
            | Self::Failed { id, .. } => Some(*id),
        }
    }
}
