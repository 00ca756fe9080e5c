//! What the server, the launcher and PID 1 say to each other, as bytes.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket, with the descriptors it speaks of
//! beside it. Requests come from the server and are trusted. Answers come from inside the sandbox
//! and are not: decoding them never allocates more than the packet holds, takes nothing but
//! exactly what was announced, and has no default for what it does not know.

mod file_work;

pub use file_work::FileWork;

/// Longest packet, in bytes. Well below the smallest default socket buffer (208 KiB), so that a
/// packet never has to wait for one that is larger than the buffer.
pub const PACKET_LEN_MAX: usize = 64 * 1024;

/// Longest request at all, in bytes: what Linux takes as arguments and environment of one program
/// (a quarter of an 8 MiB stack), and room for the rest.
pub const REQUEST_LEN_MAX: usize = 4 * 1024 * 1024;

/// Longest sentence that an answer may carry, in bytes.
const MESSAGE_LEN_MAX: usize = 1024;

/// How a sandbox is set up. Sent once, to the launcher, with the object's directory beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The host uid and gid to become first; `None` to stay who the server is.
    pub host_id: Option<u32>,
    /// Most processes and threads.
    pub processes_max: u32,
    /// Longest file, in MiB.
    pub file_mb_max: u64,
    /// Most memory of its own for one process, in MiB; `None` where all processes together are
    /// limited already.
    pub data_mb_max: Option<u64>,
    /// Size of `/tmp`, in MiB.
    pub tmp_mb: u32,
    /// Size of `/home`, in MiB.
    pub home_mb: u32,
    /// Size of `/dev/shm`, in MiB.
    pub shm_mb: u32,
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
    /// Kill a command and all of its session.
    Kill {
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
    /// End: ask every process to, and go once all have gone or the time is up.
    Stop {
        /// How long processes are given, in milliseconds.
        grace_ms: u32,
    },
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// PID 1 exists; from the launcher. Beside it: a pidfd of PID 1.
    Forked,
    /// The sandbox is set up and has been checked from inside.
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
    /// A file is open. Beside it: the file.
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
        kind: Trouble,
        /// What happened, for people.
        message: String,
    },
}

/// What kind of trouble kept a request from being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
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
}

impl Trouble {
    const ALL: [Self; 8] = [
        Self::NoSuchFile,
        Self::NotAllowed,
        Self::WrongKind,
        Self::CannotStart,
        Self::Refused,
        Self::Broken,
        Self::Exists,
        Self::BadArchive,
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
        }
    }
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
                put_u64(&mut out, setup.file_mb_max);
                put_bool(&mut out, setup.data_mb_max.is_some());
                put_u64(&mut out, setup.data_mb_max.unwrap_or(0));
                put_u32(&mut out, setup.tmp_mb);
                put_u32(&mut out, setup.home_mb);
                put_u32(&mut out, setup.shm_mb);
            }
            Self::Exec { id, argv, cwd, env } => {
                out.push(1);
                put_u64(&mut out, *id);
                put_list(&mut out, argv);
                put_bytes(&mut out, cwd);
                put_list(&mut out, env);
            }
            Self::Kill { id } => {
                out.push(2);
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
                let file_mb_max = from.u64()?;
                let (is_limited, data_mb) = (from.bool()?, from.u64()?);
                Self::Setup(Setup {
                    host_id: some.then_some(id),
                    processes_max,
                    file_mb_max,
                    data_mb_max: is_limited.then_some(data_mb),
                    tmp_mb: from.u32()?,
                    home_mb: from.u32()?,
                    shm_mb: from.u32()?,
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
            _ => return None,
        };
        from.end()?;
        Some(request)
    }
}

impl Answer {
    /// The answer as bytes; a message that is too long is cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        match self {
            Self::Forked => out.push(0),
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
        }
        out
    }

    /// Reads an answer; `None` where the bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let answer = match from.u8()? {
            0 => Self::Forked,
            1 => Self::Ready,
            2 => Self::SetupFailed { step: from.text()?, errno: from.i32()? },
            3 => Self::Started { id: from.u64()? },
            4 => Self::Exited { id: from.u64()?, code: from.i32()? },
            5 => Self::Opened { id: from.u64()? },
            6 => Self::Done { id: from.u64()?, flag: from.bool()? },
            7 => Self::Failed {
                id: from.u64()?,
                kind: *Trouble::ALL.get(usize::from(from.u8()?))?,
                message: from.text()?,
            },
            _ => return None,
        };
        from.end()?;
        Some(answer)
    }

    /// The request it answers; `None` where it answers none.
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Forked | Self::Ready | Self::SetupFailed { .. } => None,
            Self::Started { id }
            | Self::Exited { id, .. }
            | Self::Opened { id }
            | Self::Done { id, .. }
            | Self::Failed { id, .. } => Some(*id),
        }
    }
}

fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, u32::try_from(bytes.len()).expect("callers stay below REQUEST_LEN_MAX"));
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let cut = (0..=text.len().min(MESSAGE_LEN_MAX)).rev().find(|at| text.is_char_boundary(*at));
    put_bytes(out, &text.as_bytes()[..cut.unwrap_or(0)]);
}

fn put_list(out: &mut Vec<u8>, list: &[Vec<u8>]) {
    put_u32(out, u32::try_from(list.len()).expect("callers stay below REQUEST_LEN_MAX"));
    for bytes in list {
        put_bytes(out, bytes);
    }
}

fn put_path(out: &mut Vec<u8>, kind: u8, id: u64, path: &[u8]) {
    out.push(kind);
    put_u64(out, id);
    put_bytes(out, path);
}

/// Takes values off the front of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len)
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.bytes()?;
        if bytes.len() > MESSAGE_LEN_MAX {
            return None;
        }
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.u32()?;
        // Grown as entries are really there: the announced count allocates nothing.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(self.bytes()?.to_vec());
        }
        Some(list)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests() -> Vec<Request> {
        let setup = Setup {
            host_id: Some(7),
            processes_max: 1,
            file_mb_max: 5,
            data_mb_max: Some(6),
            tmp_mb: 2,
            home_mb: 3,
            shm_mb: 4,
        };
        vec![
            Request::Setup(setup.clone()),
            Request::Setup(Setup { host_id: None, data_mb_max: None, ..setup }),
            Request::Exec {
                id: 1,
                argv: vec![b"a".to_vec(), Vec::new()],
                cwd: b"d".to_vec(),
                env: vec![b"K=v".to_vec()],
            },
            Request::Kill { id: 2 },
            Request::List { id: 3, path: b"p".to_vec(), depth: 4 },
            Request::Read { id: 4, path: b"\xff".to_vec() },
            Request::Write { id: 5, path: b"p".to_vec() },
            Request::Finish { id: 6, write: 5, keep: true },
            Request::Delete { id: 7, path: b"p".to_vec() },
            Request::Stop { grace_ms: 9 },
        ]
        .into_iter()
        .chain(file_work::every().map(|work| Request::Files { id: 8, work }))
        .collect()
    }

    fn answers() -> Vec<Answer> {
        let mut answers = vec![
            Answer::Forked,
            Answer::Ready,
            Answer::SetupFailed { step: "unshare".into(), errno: 1 },
            Answer::Started { id: 1 },
            Answer::Exited { id: 1, code: 137 },
            Answer::Opened { id: 2 },
            Answer::Done { id: 3, flag: true },
        ];
        for kind in Trouble::ALL {
            answers.push(Answer::Failed { id: 4, kind, message: "é".into() });
        }
        answers
    }

    #[test]
    fn every_message_survives_a_round_trip() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn a_cut_or_lengthened_message_is_refused() {
        for bytes in answers().iter().map(Answer::encode) {
            for len in 0..bytes.len() {
                assert_eq!(Answer::decode(&bytes[..len]), None);
            }
            assert_eq!(Answer::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = Answer::Failed { id: 1, kind: Trouble::Broken, message: "é".repeat(4000) };
        let Some(Answer::Failed { message, .. }) = Answer::decode(&long.encode()) else {
            panic!("must decode");
        };
        assert_eq!(message, "é".repeat(MESSAGE_LEN_MAX / 2));
    }

    proptest! {
        #[test]
        fn no_bytes_make_decoding_panic(bytes: Vec<u8>) {
            let _ = (Answer::decode(&bytes), Request::decode(&bytes));
        }
    }
}
