//! What the server and the helper in a container say to each other.
//!
//! One connection carries many streams (yamux). The server opens a stream for each call: one
//! [`HelperRequest`], one [`HelperReply`], then what the call is about. The helper opens a stream for
//! each connection that it accepts inside for a service of the server; its first byte says which
//! ([`Service`]), then come the connection's bytes.
//!
//! A message is four bytes of length (little endian) and `postcard`'s bytes. Requests come from the
//! server and are trusted. Everything from the helper is not: it comes from inside the sandbox. So its
//! messages have a bound, and whatever does not decode ends the call.

use std::io;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::sandbox::command_defaults::WorkingDirectory;
use crate::sandbox::confined::WorkFailure;

/// The version of these messages. A container keeps the helper that it was made with, so each change of
/// a message, other than a new request or reply at the end, needs the next number.
pub const PROTOCOL: u32 = 1;

/// Longest request, in bytes: what Linux takes as arguments and environment of one program, and room.
pub const REQUEST_LEN_MAX: usize = 4 << 20;

/// Longest other message, in bytes: a chunk of a file or of output, with its head.
pub const MESSAGE_LEN_MAX: usize = 256 << 10;

/// Streams of one connection, of both sides together. At more, yamux ends the connection.
pub const STREAMS_MAX: usize = 320;

/// Calls of the server at one time; more wait.
pub const CALLS_MAX: usize = 160;

/// Connections from inside to each service at one time; more wait in the socket's queue.
pub const SERVICE_CONNECTIONS_MAX: usize = 64;

/// The configuration of both ends. No stream's window grows beyond the 256 KiB that it begins with, so
/// at most this much is on its way to a reader, and a hostile end can fill at most 80 MiB.
pub fn mux_config() -> yamux::Config {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(STREAMS_MAX);
    config.set_max_connection_receive_window(Some(STREAMS_MAX * yamux::DEFAULT_CREDIT as usize));
    config
}

/// A service of the server that programs in a sandbox reach, as the first byte of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The gateway to the models.
    Models,
    /// The egress proxy, which has the git gateway.
    Proxy,
}

impl Service {
    /// Its byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Models => b'm',
            Self::Proxy => b'p',
        }
    }

    /// The service of a byte; `None` for any other byte.
    pub fn of(byte: u8) -> Option<Self> {
        [Self::Models, Self::Proxy].into_iter().find(|service| service.byte() == byte)
    }
}

/// Program and surroundings of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOrder {
    /// Program and arguments.
    pub argv: Vec<Bytes>,
    /// Where it starts.
    pub cwd: WorkingDirectory,
    /// `KEY=value` each, added to the sandbox's own.
    pub env: Vec<Bytes>,
}

/// A call of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelperRequest {
    /// Whether the helper is there and speaks this [`PROTOCOL`].
    Hello {
        /// The server's.
        protocol: u32,
    },
    /// Start a detached process.
    Spawn {
        /// What to start.
        order: CommandOrder,
        /// Whether its input stays open.
        has_stdin: bool,
        /// After this it is killed, in milliseconds.
        timeout_ms: Option<u64>,
        /// How much of its output is kept, in bytes.
        keep: u64,
        /// Whether it waits when that is full.
        waits: bool,
        /// By what it is found again.
        tag: Option<String>,
    },
    /// The newest process with a tag.
    Tagged {
        /// The tag.
        tag: String,
    },
    /// The output of a process from an offset on: [`OutputPiece`]s.
    Attach {
        /// Which process.
        number: u64,
        /// The offset.
        from: u64,
    },
    /// Write to the input of a process.
    WriteStdin {
        /// Which process.
        number: u64,
        /// What.
        bytes: Bytes,
    },
    /// Close the input of a process.
    CloseStdin {
        /// Which process.
        number: u64,
    },
    /// Send a signal to a process's session.
    Signal {
        /// Which process.
        number: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Wait for the end of a process.
    Wait {
        /// Which process.
        number: u64,
    },
    /// A command at a terminal: [`TerminalOrder`]s go in, [`TerminalPiece`]s come out. The end of the
    /// stream hangs up.
    Terminal {
        /// What to start.
        order: CommandOrder,
        /// The terminal's width, in characters.
        columns: u16,
        /// Its height.
        rows: u16,
    },
    /// Connect to a port on the loopback; then the connection's bytes.
    Connect {
        /// Which port.
        port: u16,
    },
    /// List files: [`FileChunk`]s with the entries.
    List {
        /// Where.
        path: Bytes,
        /// How many levels.
        depth: u32,
    },
    /// Read a file: [`FileChunk`]s.
    Read {
        /// Which file.
        path: Bytes,
        /// Which part.
        part: WirePart,
    },
    /// Write a file. Its [`FileChunk`]s follow, the reply comes after them.
    Write {
        /// Which file.
        path: Bytes,
    },
    /// Delete a file or a directory.
    Delete {
        /// What.
        path: Bytes,
    },
    /// Make a directory.
    MakeDirectory {
        /// Where.
        path: Bytes,
    },
    /// Move a file or a directory.
    Move {
        /// From where.
        from: Bytes,
        /// To where.
        to: Bytes,
        /// Whether what is there gives way.
        overwrite: bool,
    },
    /// Set permission bits.
    SetMode {
        /// Of what.
        path: Bytes,
        /// The bits.
        mode: u32,
    },
    /// A directory as a tar archive: [`FileChunk`]s.
    Pack {
        /// Which directory.
        path: Bytes,
    },
    /// Take a tar archive into a directory. Its [`FileChunk`]s follow, the reply comes after them.
    Unpack {
        /// Which directory.
        path: Bytes,
    },
    /// Walk through the workspace: [`FileChunk`]s with the entries.
    Walk,
}

/// Which bytes of a file are meant, as [`FilePart`](crate::sandbox::FilePart).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WirePart {
    /// All.
    Whole,
    /// From a position on.
    From(u64),
    /// Between two positions, both included.
    Between(u64, u64),
    /// So many at the end.
    Last(u64),
}

/// The helper's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelperReply {
    /// It is done, or goes on with what the call is about.
    Done,
    /// A process was started.
    Spawned {
        /// Its number.
        number: u64,
    },
    /// A process was looked for.
    Found {
        /// Its number, if there is one.
        number: Option<u64>,
    },
    /// A process has ended.
    Exited {
        /// Its exit code.
        code: i32,
        /// Whether its time was up.
        timed_out: bool,
    },
    /// A file was opened.
    Content {
        /// Its size, in bytes.
        size: u64,
        /// The first byte that comes.
        start: u64,
        /// The first one that does not.
        end: u64,
    },
    /// Something was written or made.
    Written {
        /// Whether it was there before.
        was_there: bool,
    },
    /// It failed as work does.
    Failed {
        /// How.
        kind: WorkFailure,
        /// The message, for people.
        message: String,
    },
    /// The range or the offset begins behind the end.
    OutOfRange {
        /// Where the end is.
        size: u64,
    },
    /// There is no such process.
    NoSuchProcess,
    /// The process's input is closed.
    StdinClosed,
    /// The sandbox is stopping.
    Stopping,
}

/// Some bytes of a file, an archive or a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileChunk {
    /// They; never empty.
    Bytes(Bytes),
    /// No more come.
    End {
        /// Whether there would have been more.
        is_cut: bool,
    },
    /// It broke off.
    Broken(String),
}

/// A piece of a process's output, as [`ProcessEvent`](crate::sandbox::ProcessEvent).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputPiece {
    /// Bytes.
    Output {
        /// The offset of the first one.
        from: u64,
        /// Whether they came from the standard error.
        is_stderr: bool,
        /// They.
        bytes: Bytes,
    },
    /// Bytes that are not kept any more.
    Gap {
        /// The first one.
        from: u64,
        /// The one after the last.
        to: u64,
    },
    /// The process has ended.
    Exit {
        /// Its exit code.
        code: i32,
        /// Whether its time was up.
        timed_out: bool,
    },
}

/// What is done to a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminalOrder {
    /// Bytes are typed. The next ones come after [`TerminalPiece::Taken`].
    Input(Bytes),
    /// It has another size.
    Resize {
        /// Its width.
        columns: u16,
        /// Its height.
        rows: u16,
    },
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-\.
    Quit,
    /// Kill the command's session.
    Kill,
}

/// What a terminal shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminalPiece {
    /// Bytes.
    Output(Bytes),
    /// The last input is on its way to the command.
    Taken,
    /// The command has ended.
    Exit {
        /// Its exit code.
        code: i32,
    },
}

/// Writes one message.
///
/// # Errors
/// The stream's.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(message, bytes).map_err(io::Error::other)?;
    let len = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    to.write_all(&bytes).await?;
    to.flush().await
}

/// Reads one message of at most so many bytes; `None` at the stream's end. Dropping the future may
/// lose a part of a message.
///
/// # Errors
/// The stream's; `InvalidData` if it is not a message.
pub async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    len_max: usize,
) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    let mut got = 0;
    while got < head.len() {
        match from.read(&mut head[got..]).await? {
            0 if got == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => got += len,
        }
    }
    let len = u32::from_le_bytes(head) as usize;
    if len > len_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    // Room is taken for what has come, not for what was announced.
    let mut bytes = Vec::new();
    from.take(len as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match postcard::take_from_bytes(&bytes) {
        Ok((message, [])) => Ok(Some(message)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message makes no sense")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn a_message_survives_the_way_and_a_cut_one_is_an_error() {
        let sent = HelperRequest::Read { path: "a".into(), part: WirePart::Between(1, 2) };
        let mut bytes = Vec::new();
        send(&mut bytes, &sent).await.expect("written");
        for len in 0..=bytes.len() {
            let got = receive::<HelperRequest>(&mut &bytes[..len], REQUEST_LEN_MAX).await;
            match got {
                Ok(None) => assert_eq!(len, 0),
                Ok(Some(message)) => assert_eq!((message, len), (sent.clone(), bytes.len())),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}"),
            }
        }
        let long = receive::<HelperRequest>(&mut &bytes[..], 3).await.expect_err("too long");
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
        bytes[0] += 1;
        bytes.push(0);
        let more = receive::<HelperRequest>(&mut &bytes[..], REQUEST_LEN_MAX).await;
        assert_eq!(more.expect_err("a byte too many").kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(512))]

        #[test]
        fn no_bytes_from_a_helper_break_the_server(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                // Whatever they are, each is a message or an error.
                let _ = receive::<HelperReply>(&mut &bytes[..], MESSAGE_LEN_MAX).await;
                let _ = receive::<OutputPiece>(&mut &bytes[..], MESSAGE_LEN_MAX).await;
                let _ = receive::<TerminalPiece>(&mut &bytes[..], MESSAGE_LEN_MAX).await;
                let _ = receive::<FileChunk>(&mut &bytes[..], MESSAGE_LEN_MAX).await;
            });
        }
    }
}
