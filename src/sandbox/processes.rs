//! Commands in a sandbox: processes that outlive a connection, short commands, terminals, ports.

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    ExecRequest, Execution, Offset, PortAccess, ProcessExit, ProcessId, ProcessOutput, ProcessSpec,
    Signal, Target, Terminal, TerminalRequest, WorkError,
};

/// The most bytes of a process's output that a provider must be able to keep, and what the server
/// asks for unless a caller says less: 16 MiB.
pub const OUTPUT_KEPT_MAX: u64 = 16 << 20;

/// How many bytes of output that a reader was given already are kept at least, whatever is written
/// after them. A provider never reads more than this ahead of a reader, so a reader that connects again
/// finds what was on its way to it.
pub const REREAD_LEN: u64 = 256 * 1024;

/// The most bytes of one [`Processes::write_stdin`].
pub const STDIN_CHUNK_MAX: usize = 64 * 1024;

/// Processes of one object that have ended and are still kept, with their output. When another one
/// ends, the provider forgets the one that ended first.
pub const ENDED_KEPT: usize = 16;

/// Runs commands in a running object.
///
/// # Guarantees
/// - Every call checks that the external id carries the expected sandbox id.
/// - A process of `spawn` runs until it ends, is killed, or its object goes down. It does not depend
///   on the connection that started it. If the object outlives the server
///   ([`Descriptor::dies_with_server`](super::Descriptor::dies_with_server) is false), so do the
///   process, its number, and the output that is kept of it.
/// - **Each byte of output has one offset** and every reader receives it once, at that offset. A
///   reader that connects again with the [next offset](super::ProcessEvent::Output) misses and repeats
///   nothing, as long as the bytes are still kept; otherwise it receives a [`Gap`](super::ProcessEvent::Gap) that
///   says which bytes are missing.
/// - No output is held in memory without a bound, at the provider and in the server.
/// - A time limit, `signal` and a dropped `exec` reach the whole session of the process.
///
/// # Errors
/// Every call can fail with [`WorkError::NotRunning`] when the object is not up (or not the expected
/// one) and with [`WorkError::Broken`] when the provider fails. Calls that name a process fail with
/// [`WorkError::NoSuchProcess`] when the object has none of that id, or has forgotten it (it keeps
/// the last [`ENDED_KEPT`] that have ended).
#[async_trait]
pub trait Processes: Send + Sync + 'static {
    /// Starts a command; returns once it runs. Needs
    /// [`Capability::DetachedProcesses`](super::Capability::DetachedProcesses), as do the calls on
    /// the id that this returns. Dropping the future may leave the process running.
    ///
    /// # Errors
    /// [`WorkError::CommandNotFound`], [`WorkError::CannotStart`], [`WorkError::Refused`] (too many processes, no room).
    async fn spawn(&self, target: Target, spec: ProcessSpec) -> Result<ProcessId, WorkError>;

    /// The newest process that was started with this tag. So a caller that lost the answer of `spawn`, or
    /// that was restarted, finds what it has started.
    ///
    /// # Errors
    /// As for every call. None is `Ok(None)`, also if it is forgotten.
    async fn tagged(&self, target: Target, tag: &str) -> Result<Option<ProcessId>, WorkError>;

    /// The output of a process from an offset on, and then what it writes from now on. Any number of
    /// readers may follow one process, also after its end. Dropping the result changes nothing for
    /// the process.
    ///
    /// # Errors
    /// [`WorkError::OutOfRange`] when the offset lies beyond what the process has written.
    async fn attach(
        &self,
        target: Target,
        id: ProcessId,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError>;

    /// Writes at most [`STDIN_CHUNK_MAX`] bytes to the process's standard input; returns once the
    /// provider has taken all of them, and waits while the process does not read. The provider holds
    /// a bounded number of bytes that the process has not read yet. Concurrent writes do not mix
    /// their bytes, but come in any order. Dropping the future can leave a part written.
    ///
    /// # Errors
    /// [`WorkError::StdinClosed`] when it was closed, was never open, or the process has ended.
    async fn write_stdin(
        &self,
        target: Target,
        id: ProcessId,
        bytes: Bytes,
    ) -> Result<(), WorkError>;

    /// Closes the process's standard input: after what was written it reads end of file. Closed
    /// already is success.
    async fn close_stdin(&self, target: Target, id: ProcessId) -> Result<(), WorkError>;

    /// Sends a signal to the process and every process of its session. One that has ended already
    /// is success.
    async fn signal(&self, target: Target, id: ProcessId, signal: Signal) -> Result<(), WorkError>;

    /// Waits for the end of a process.
    ///
    /// # Errors
    /// [`WorkError::NotRunning`] when the object goes down first.
    async fn wait(&self, target: Target, id: ProcessId) -> Result<ProcessExit, WorkError>;

    /// Runs a short command: starts it, passes its output on, and kills its session when the
    /// [`Execution`] is dropped. Every provider offers this. The command waits while its output is
    /// not read, so none is lost. A provider without a quicker way uses [`exec_by_spawn`](super::exec_by_spawn).
    ///
    /// # Errors
    /// As for `spawn`.
    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError>;

    /// Starts a command at a terminal. Dropping the [`Terminal`] hangs up. Needs
    /// [`Capability::Terminal`](super::Capability::Terminal).
    ///
    /// # Errors
    /// As for `spawn`.
    async fn terminal(
        &self,
        target: Target,
        request: TerminalRequest,
    ) -> Result<Terminal, WorkError>;

    /// A way to the server that listens on a TCP port of the object's own loopback. Needs
    /// [`Capability::Ports`](super::Capability::Ports).
    ///
    /// # Errors
    /// [`WorkError::NotListening`] when nothing accepts there; an HTTP way may show that only when
    /// it is used.
    async fn port(&self, target: Target, port: u16) -> Result<PortAccess, WorkError>;
}
