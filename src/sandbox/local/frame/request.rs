//! What the server asks for, as bytes.

use super::codec::{Reader, put_bool, put_bytes, put_list, put_path, put_u32, put_u64};
use super::{FileWork, Reach};

/// How a sandbox is set up. Sent once, to the launcher. Beside it: the object's directory,
/// and the doors of its control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The host uid and gid to become first; `None` to stay who the server is.
    pub host_id: Option<u32>,
    /// Most processes and threads.
    pub processes_max: u32,
    /// Most that the workspace takes, in MiB; no file is longer than that.
    pub disk_mb_max: u64,
    /// Most memory of its own for one process, in MiB; `None` where all processes together are
    /// limited already.
    pub data_mb_max: Option<u64>,
    /// What `/tmp`, `/home` and `/dev/shm` hold together, in MiB.
    pub scratch_mb: u32,
    /// Whether those who work in it step into a control group of their own. Its two doors, in and
    /// out, follow the directory then.
    pub has_work_group: bool,
    /// What it is connected to. One with a proxy sends the proxy's socket beside its *ready*.
    pub reach: Reach,
}

/// What the server asks for. Each `id` is the server's, used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Set the sandbox up.
    Setup(Setup),
    /// Start a command. Beside it: what it reads, writes and complains to.
    Exec {
        /// The request.
        id: u64,
        /// Program and arguments.
        argv: Vec<Vec<u8>>,
        /// Working directory, taken from the workspace; empty for the workspace itself.
        cwd: Vec<u8>,
        /// `KEY=value` each, added to the sandbox's own.
        env: Vec<Vec<u8>>,
    },
    /// Start a command at a terminal of its own, which comes back beside *opened*; then as a command.
    Terminal {
        /// The request.
        id: u64,
        /// Program and arguments.
        argv: Vec<Vec<u8>>,
        /// Working directory, as for a command.
        cwd: Vec<u8>,
        /// `KEY=value` each, added to the sandbox's own.
        env: Vec<Vec<u8>>,
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
    /// A command's terminal is about to be closed. From now on it has ended once nothing of its
    /// session is left, not with its leader; so that the rest can still be killed. Answered by *done*,
    /// unless it has ended.
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
    /// Kill everything that runs in it but PID 1.
    KillAll,
    /// End: ask every process to, and go once all have gone or the time is up.
    Stop {
        /// How long processes are given, in milliseconds.
        grace_ms: u32,
    },
}

impl Request {
    /// The request as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Setup(setup) => {
                out.push(0);
                put_bool(&mut out, setup.host_id.is_some());
                put_u32(&mut out, setup.host_id.unwrap_or(0));
                put_u32(&mut out, setup.processes_max);
                put_u64(&mut out, setup.disk_mb_max);
                put_bool(&mut out, setup.data_mb_max.is_some());
                put_u64(&mut out, setup.data_mb_max.unwrap_or(0));
                put_u32(&mut out, setup.scratch_mb);
                put_bool(&mut out, setup.has_work_group);
                out.push(setup.reach.code());
            }
            Self::Exec { id, argv, cwd, env } => {
                out.push(1);
                put_u64(&mut out, *id);
                put_list(&mut out, argv);
                put_bytes(&mut out, cwd);
                put_list(&mut out, env);
            }
            Self::Terminal { id, argv, cwd, env, columns, rows } => {
                out.push(10);
                put_u64(&mut out, *id);
                put_list(&mut out, argv);
                put_bytes(&mut out, cwd);
                put_list(&mut out, env);
                put_u32(&mut out, u32::from(*columns));
                put_u32(&mut out, u32::from(*rows));
            }
            Self::Kill { id } => {
                out.push(2);
                put_u64(&mut out, *id);
            }
            Self::HangUp { id } => {
                out.push(11);
                put_u64(&mut out, *id);
            }
            Self::List { id, path, depth } => {
                out.push(3);
                put_u64(&mut out, *id);
                put_bytes(&mut out, path);
                put_u32(&mut out, *depth);
            }
            Self::Read { id, path } => put_path(&mut out, 4, *id, path),
            Self::Write { id, path } => put_path(&mut out, 5, *id, path),
            Self::Finish { id, write, keep } => {
                out.push(6);
                put_u64(&mut out, *id);
                put_u64(&mut out, *write);
                put_bool(&mut out, *keep);
            }
            Self::Delete { id, path } => put_path(&mut out, 7, *id, path),
            Self::Files { id, work } => {
                out.push(9);
                put_u64(&mut out, *id);
                work.put(&mut out);
            }
            Self::Connect { id, port, v6 } => {
                out.push(12);
                put_u64(&mut out, *id);
                put_u32(&mut out, u32::from(*port));
                put_bool(&mut out, *v6);
            }
            Self::KillAll => out.push(13),
            Self::Stop { grace_ms } => {
                out.push(8);
                put_u32(&mut out, *grace_ms);
            }
        }
        out
    }

    /// Reads a request; `None` where the bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let request = match from.u8()? {
            0 => {
                let (some, id) = (from.bool()?, from.u32()?);
                let processes_max = from.u32()?;
                let disk_mb_max = from.u64()?;
                let (is_limited, data_mb) = (from.bool()?, from.u64()?);
                Self::Setup(Setup {
                    host_id: some.then_some(id),
                    processes_max,
                    disk_mb_max,
                    data_mb_max: is_limited.then_some(data_mb),
                    scratch_mb: from.u32()?,
                    has_work_group: from.bool()?,
                    reach: Reach::from_code(from.u8()?)?,
                })
            }
            1 => Self::Exec {
                id: from.u64()?,
                argv: from.list()?,
                cwd: from.bytes()?.to_vec(),
                env: from.list()?,
            },
            2 => Self::Kill { id: from.u64()? },
            3 => Self::List { id: from.u64()?, path: from.bytes()?.to_vec(), depth: from.u32()? },
            4 => Self::Read { id: from.u64()?, path: from.bytes()?.to_vec() },
            5 => Self::Write { id: from.u64()?, path: from.bytes()?.to_vec() },
            6 => Self::Finish { id: from.u64()?, write: from.u64()?, keep: from.bool()? },
            7 => Self::Delete { id: from.u64()?, path: from.bytes()?.to_vec() },
            8 => Self::Stop { grace_ms: from.u32()? },
            9 => Self::Files { id: from.u64()?, work: FileWork::take(&mut from)? },
            10 => Self::Terminal {
                id: from.u64()?,
                argv: from.list()?,
                cwd: from.bytes()?.to_vec(),
                env: from.list()?,
                columns: u16::try_from(from.u32()?).ok()?,
                rows: u16::try_from(from.u32()?).ok()?,
            },
            11 => Self::HangUp { id: from.u64()? },
            12 => Self::Connect {
                id: from.u64()?,
                port: from.u32()?.try_into().ok()?,
                v6: from.bool()?,
            },
            13 => Self::KillAll,
            _ => return None,
        };
        from.end()?;
        Some(request)
    }
}
