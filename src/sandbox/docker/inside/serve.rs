//! PID 1 of a container: serves the server's calls until it is asked to stop.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getrlimit, kill_process,
    set_dumpable_behavior, setrlimit,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::mux::{Mux, MuxStream};
use super::super::wire::{
    self, HelperReply, HelperRequest, OutputPiece, PROTOCOL, REQUEST_LEN_MAX,
};
use super::commands::{Commands, Keeping, log_line};
use super::peer::PeerCheck;
use super::{READY, SOCKET, files, ports, terminal};
use crate::sandbox::reach::Reach;
use crate::sandbox::{
    Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, WorkError, WorkspacePath,
};

/// The pause between two looks for processes that were asked to end.
const RECHECK: Duration = Duration::from_millis(10);

/// Open files of one process, unless the engine allows fewer.
const OPEN_FILES: u64 = 65_536;

/// How long a thread for work that blocks is kept. New ones may not be had: the sandbox's processes are
/// limited.
const THREAD_KEPT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Threads for work that blocks; those that are started first are always there.
const THREADS_MAX: usize = 16;
const THREADS_FIRST: usize = 3;

/// Runs the helper.
pub fn run(reach: Reach) -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    limit(Resource::Nofile, OPEN_FILES)?;
    limit(Resource::Core, 0)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS_MAX)
        .thread_keep_alive(THREAD_KEPT)
        .build()?;
    let served = runtime.block_on(serve(reach));
    // Work that blocks ends with the process.
    runtime.shutdown_background();
    served
}

/// Lowers a limit of this process and of every command. The engine may not be allowed to raise it.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = Some(getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most)));
    Ok(setrlimit(resource, Rlimit { current: most, maximum: most })?)
}

async fn serve(reach: Reach) -> io::Result<()> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(SOCKET)?)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (mut children, mut stop) = (signal(SignalKind::child())?, signal(SignalKind::terminate())?);
    let helper = Arc::new(Helper {
        commands: Arc::new(Commands::new(reach)),
        stopping: CancellationToken::new(),
        server: watch::Sender::new(None),
    });
    let peers = PeerCheck::default();
    ports::listen(reach, &helper.server)?;
    start_threads().await;
    log_line(READY);
    loop {
        tokio::select! {
            _ = children.recv() => helper.commands.starter.reaper().reap(),
            _ = stop.recv() => break,
            accepted = listener.accept() => {
                if let Ok((socket, _)) = accepted {
                    let (helper, admitted) = (Arc::clone(&helper), peers.admit(socket));
                    tokio::spawn(async move {
                        if let Some(socket) = admitted.await {
                            helper.attend(socket).await;
                        }
                    });
                }
            }
        }
    }
    helper.stopping.cancel();
    signal_all(Signal::TERM);
    // The engine kills what takes too long.
    while signal_all_is_pending() {
        tokio::time::sleep(RECHECK).await;
        helper.commands.starter.reaper().reap();
    }
    Ok(())
}

/// Starts the first threads for work that blocks, while there is room for them.
async fn start_threads() {
    let barrier = Arc::new(std::sync::Barrier::new(THREADS_FIRST));
    let wait = |_| {
        let barrier = Arc::clone(&barrier);
        tokio::task::spawn_blocking(move || barrier.wait())
    };
    futures_util::future::join_all((0..THREADS_FIRST).map(wait)).await;
}

/// The processes of this user but PID 1 itself. Those of root are the ways of the server to it.
fn others() -> Vec<Pid> {
    let Ok(table) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = rustix::process::geteuid().as_raw();
    let is_own = |entry: &std::fs::DirEntry| {
        use std::os::unix::fs::MetadataExt;
        entry.metadata().is_ok_and(|found| found.uid() == own)
    };
    let pid = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        // Zombies have no arguments, and end when they are reaped.
        let lives = std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| !line.is_empty());
        (pid != 1 && lives && is_own(&entry)).then(|| Pid::from_raw(pid))?
    };
    table.filter_map(|entry| pid(entry.ok()?)).collect()
}

fn signal_all(signal: Signal) {
    for pid in others() {
        // One that has ended meanwhile needs no signal.
        let _ = kill_process(pid, signal);
    }
}

fn signal_all_is_pending() -> bool {
    !others().is_empty()
}

/// What every connection shares.
struct Helper {
    commands: Arc<Commands>,
    stopping: CancellationToken,
    /// The newest connection of the server.
    server: watch::Sender<Option<Mux>>,
}

impl Helper {
    /// Serves one connection of a server.
    async fn attend(self: Arc<Self>, socket: UnixStream) {
        let (mux, mut calls) = Mux::start(socket, yamux::Mode::Server);
        self.server.send_replace(Some(mux.clone()));
        while let Some(call) = calls.recv().await {
            tokio::spawn(Arc::clone(&self).answer(call));
        }
        drop(mux);
        // One that has ended is not kept.
        self.server.send_if_modified(|newest| {
            let is_gone = newest.as_ref().is_some_and(Mux::is_gone);
            if is_gone {
                *newest = None;
            }
            is_gone
        });
    }

    /// Answers one call. An error of its stream concerns only its two ends.
    async fn answer(self: Arc<Self>, mut call: MuxStream) {
        let request = wire::receive::<HelperRequest>(&mut call, REQUEST_LEN_MAX).await;
        let Ok(Some(request)) = request else { return };
        if self.stopping.is_cancelled() {
            let _ = wire::send(&mut call, &HelperReply::Stopping).await;
        } else {
            let _ = self.carry_out(request, &mut call).await;
        }
        let _ = call.shutdown().await;
    }

    async fn carry_out(&self, request: HelperRequest, call: &mut MuxStream) -> io::Result<()> {
        let reply = match request {
            HelperRequest::Hello { protocol: PROTOCOL } => HelperReply::Done,
            HelperRequest::Hello { protocol } => failed(WorkError::Refused(format!(
                "its helper speaks version {PROTOCOL} of the protocol and the server version \
                 {protocol}; push or copy out what it has, then delete it and make it again"
            ))),
            HelperRequest::Spawn { order, has_stdin, timeout_ms, keep, waits, tag } => {
                let timeout = timeout_ms.map(Duration::from_millis);
                let overflow = if waits { Overflow::Wait } else { Overflow::DropOldest };
                let keeping = Keeping { keep, overflow, tag };
                match self.commands.spawn(&order, has_stdin, timeout, keeping) {
                    Ok(number) => HelperReply::Spawned { number },
                    Err(error) => failed(error),
                }
            }
            HelperRequest::Tagged { tag } => {
                HelperReply::Found { number: self.commands.tagged(&tag) }
            }
            HelperRequest::Attach { number, from } => return self.attach(number, from, call).await,
            HelperRequest::WriteStdin { number, bytes } => {
                self.commands.write_stdin(number, bytes).await
            }
            HelperRequest::CloseStdin { number } => self.commands.close_stdin(number),
            HelperRequest::Signal { number, signal } => self.commands.signal(number, signal),
            HelperRequest::Wait { number } => match self.commands.output(number) {
                Err(reply) => reply,
                Ok(output) => match output.ended().await {
                    Ok(ProcessExit { code, timed_out }) => HelperReply::Exited { code, timed_out },
                    Err(error) => failed(error),
                },
            },
            HelperRequest::Terminal { order, columns, rows } => {
                return terminal::run(&self.commands.starter, &order, (columns, rows), call).await;
            }
            HelperRequest::Connect { port } => return ports::connect(port, call).await,
            other => return files::answer(other, call).await,
        };
        wire::send(call, &reply).await
    }

    /// Sends the output of a process.
    async fn attach(&self, number: u64, from: u64, call: &mut MuxStream) -> io::Result<()> {
        let followed = match self.commands.output(number) {
            Ok(output) => output.follow(Offset(from)).map_err(failed),
            Err(reply) => Err(reply),
        };
        let mut output = match followed {
            Ok(output) => output,
            Err(reply) => return wire::send(call, &reply).await,
        };
        wire::send(call, &HelperReply::Done).await?;
        let (mut from_server, mut to_server) = tokio::io::split(call);
        let pass_on = async {
            while let Some(event) = output.events.recv().await {
                wire::send(&mut to_server, &piece(event)).await?;
            }
            Ok(())
        };
        // The server sends nothing more: an end says that its reader is gone.
        let gone = tokio::io::AsyncReadExt::read_u8(&mut from_server);
        tokio::select! {
            passed = pass_on => passed,
            _ = gone => Ok(()),
        }
    }
}

fn piece(event: ProcessEvent) -> OutputPiece {
    match event {
        ProcessEvent::Output { from, stream, bytes } => {
            OutputPiece::Output { from: from.0, is_stderr: stream == OutputStream::Stderr, bytes }
        }
        ProcessEvent::Gap { from, to } => OutputPiece::Gap { from: from.0, to: to.0 },
        ProcessEvent::Exit(ProcessExit { code, timed_out }) => {
            OutputPiece::Exit { code, timed_out }
        }
    }
}

/// The reply for work that failed.
pub fn failed(error: WorkError) -> HelperReply {
    use crate::sandbox::confined::WorkFailure as Kind;
    let (kind, message) = match error {
        WorkError::NotRunning => return HelperReply::Stopping,
        WorkError::OutOfRange { size } => return HelperReply::OutOfRange { size },
        WorkError::NoSuchProcess => return HelperReply::NoSuchProcess,
        WorkError::StdinClosed => return HelperReply::StdinClosed,
        WorkError::NoSuchFile => (Kind::NoSuchFile, String::new()),
        WorkError::NotListening => (Kind::NotListening, String::new()),
        WorkError::PathNotAllowed(why) => (Kind::NotAllowed, why),
        WorkError::Exists(what) => (Kind::Exists, what),
        WorkError::BadArchive(why) => (Kind::BadArchive, why),
        WorkError::WrongKind(what) => (Kind::WrongKind, what),
        WorkError::CommandNotFound(what) => (Kind::CommandNotFound, what),
        WorkError::CannotStart(why) => (Kind::CannotStart, why),
        WorkError::Refused(why) => (Kind::Refused, why),
        WorkError::Shortage(why) => (Kind::Shortage, why),
        WorkError::Broken(why) => (Kind::Broken, why),
        other @ WorkError::Unsupported(_) => (Kind::Broken, other.to_string()),
    };
    HelperReply::Failed { kind, message }
}

/// A path of a request.
pub fn path(bytes: &[u8]) -> Result<WorkspacePath, WorkError> {
    WorkspacePath::parse(bytes).map_err(WorkError::PathNotAllowed)
}
