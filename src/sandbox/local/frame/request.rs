//! The server's requests to the launcher and to PID 1.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::FileWork;
use crate::sandbox::command_defaults::WorkingDirectory;
use crate::sandbox::reach::Reach;

/// How a sandbox is set up. Sent once, to the launcher. Beside it: the object's directory,
/// and the doors of its control groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The host uid and gid to become first; `None` to keep the server's.
    pub host_id: Option<u32>,
    /// Whether the kernel counts for the server's user what it counts in each user namespace.
    pub shares_counters: bool,
    /// Most processes and threads.
    pub processes_max: u32,
    /// Most that the workspace takes, in MiB; no file is longer than that.
    pub disk_mb_max: u64,
    /// Most memory of its own for one process, in MiB; `None` if all processes together are limited
    /// already.
    pub data_mb_max: Option<u64>,
    /// What `/tmp`, `/home` and `/dev/shm` hold together, in MiB.
    pub scratch_mb: u32,
    /// Whether commands and workers enter a control group of their own. Its two doors, in and out, follow
    /// the directory then.
    pub has_work_group: bool,
    /// What it is connected to. With a proxy, *ready* has the proxy's socket beside it.
    pub reach: Reach,
    /// The content of `/etc/gitconfig`; empty for no such file.
    pub git_config: Bytes,
    /// The programs that it is given beside the host's own.
    pub programs: Vec<GivenFile>,
}

/// A program of the host that a sandbox is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenFile {
    /// The file on the host, without links.
    pub file: String,
    /// The path inside.
    pub inside: String,
}

/// A request of the server. Each `id` is the server's and used once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Set the sandbox up.
    Setup(Setup),
    /// Start a command. Beside it: its standard input, output and error.
    Exec {
        /// The request.
        id: u64,
        /// Program and arguments.
        argv: Vec<Bytes>,
        /// Where it starts.
        cwd: WorkingDirectory,
        /// `KEY=value` each, added to the sandbox's own.
        env: Vec<Bytes>,
    },
    /// Start a command at a terminal of its own, which is sent beside *opened*; then as for a command.
    Terminal {
        /// The request.
        id: u64,
        /// Program and arguments.
        argv: Vec<Bytes>,
        /// Where it starts.
        cwd: WorkingDirectory,
        /// `KEY=value` each, added to the sandbox's own.
        env: Vec<Bytes>,
        /// How wide the terminal is at first, in characters.
        columns: u16,
        /// How high it is.
        rows: u16,
    },
    /// Kill a command and all of its session.
    Kill {
        /// The request that started it.
        id: u64,
    },
    /// Send a signal to every process of a command's session; to none if it has ended.
    Signal {
        /// The request that started it.
        id: u64,
        /// The signal's number. Not SIGKILL, which is [`Kill`](Self::Kill).
        number: i32,
    },
    /// A command's terminal is about to be closed. From now on the command ends with the last process of
    /// its session instead of its leader, so that the rest can still be killed. Answered by *done*, unless
    /// it has ended.
    HangUp {
        /// The request that started it.
        id: u64,
    },
    /// List files. Beside it: where the entries are written to.
    List {
        /// The request.
        id: u64,
        /// The path in the workspace.
        path: Vec<u8>,
        /// How many levels.
        depth: u32,
    },
    /// Open a regular file for reading.
    Read {
        /// The request.
        id: u64,
        /// The path in the workspace.
        path: Vec<u8>,
    },
    /// Open a new file that will take the path's place.
    Write {
        /// The request.
        id: u64,
        /// The path in the workspace.
        path: Vec<u8>,
    },
    /// Let a new file take its place, or throw it away.
    Finish {
        /// The request.
        id: u64,
        /// The request that opened it.
        write: u64,
        /// Whether it takes its place.
        keep: bool,
    },
    /// Delete what is at a path, with all that is in it.
    Delete {
        /// The request.
        id: u64,
        /// The path in the workspace.
        path: Vec<u8>,
    },
    /// Work on files that is one request. What packs or unpacks has a pipe beside it.
    Files {
        /// The request.
        id: u64,
        /// What to do.
        work: FileWork,
    },
    /// Connect to a TCP port of the sandbox's own loopback.
    Connect {
        /// The request.
        id: u64,
        /// Which port.
        port: u16,
        /// Whether to IPv6's loopback, instead of IPv4's.
        v6: bool,
    },
    /// Kill every process but PID 1.
    KillAll,
    /// Stop: ask every process to end, and exit when all have or the time is up.
    Stop {
        /// How long processes are given, in milliseconds.
        grace_ms: u32,
    },
}

impl Request {
    /// Whether it needs the directories that commands can close.
    pub fn needs_directories(&self) -> bool {
        match self {
            Self::Exec { .. }
            | Self::Terminal { .. }
            | Self::List { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Finish { .. }
            | Self::Delete { .. }
            | Self::Files { .. } => true,
            Self::Setup(_)
            | Self::Kill { .. }
            | Self::Signal { .. }
            | Self::HangUp { .. }
            | Self::Connect { .. }
            | Self::KillAll
            | Self::Stop { .. } => false,
        }
    }

    /// The request as bytes.
    pub fn encode(&self) -> Vec<u8> {
        super::encode(self)
    }

    /// Reads a request; `None` when the bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        super::decode(bytes)
    }
}
