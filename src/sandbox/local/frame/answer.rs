//! What the launcher and PID 1 answer.

use serde::{Deserialize, Serialize, Serializer};

use crate::sandbox::confined::{MESSAGE_LEN_MAX, WorkFailure};

/// An answer of the launcher or of PID 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// PID 1 exists; from the launcher. Beside it: a pidfd of PID 1.
    Forked {
        /// The device that the workspace is on.
        device: u64,
    },
    /// The sandbox is set up and has been checked from inside. Beside it, but with the host's network: the
    /// socket that listens for the gateway to the models, and behind it, if it has a proxy, the one that
    /// listens for the proxy.
    Ready,
    /// The sandbox could not be set up; nothing is left of it.
    SetupFailed {
        /// Which step failed.
        #[serde(serialize_with = "cut")]
        step: String,
        /// The system's error number; 0 if a check failed.
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
        /// What kind of failure.
        kind: WorkFailure,
        /// What happened, for people.
        #[serde(serialize_with = "cut")]
        message: String,
    },
    /// The workspace has become full; from the launcher.
    DiskFull,
}

/// Writes a sentence, cut to [`MESSAGE_LEN_MAX`] bytes.
fn cut<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text[..text.floor_char_boundary(MESSAGE_LEN_MAX)])
}

impl Answer {
    /// The answer as bytes. A message that is too long is cut.
    pub fn encode(&self) -> Vec<u8> {
        super::encode(self)
    }

    /// Reads an answer; `None` when the bytes are not exactly what [`encode`](Self::encode) makes of it.
    /// This refuses numbers with leading zeros, which `postcard` takes, and messages that are too long.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        super::decode(bytes).filter(|answer: &Self| answer.encode() == bytes)
    }

    /// The request that it answers; `None` if it answers none.
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
