//! PID 1 of a sandbox: it serves the server's requests until the server, the launcher or a stop ends it.
//! Every process in its pid namespace ends with it.
//!
//! It has one thread and one loop. Slow work (listing and deleting trees) is done by a fork, which sends
//! the answer itself. No command can block the loop: it waits for no process and writes only to the
//! server, which always reads.
//!
//! PID 1 keeps three descriptors beside the workspace and those of requests under way: the socket; the
//! sandbox's lock, so that a killed launcher does not free it early; and the door of the control group in
//! which memory is limited. It is not dumpable, so no process of the sandbox can reach them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use rustix::thread::UnshareFlags;

use super::super::frame::{Answer, FileWork, PACKET_LEN_MAX, Request, Setup};
use super::super::packet;
use super::given::GivenPrograms;
use super::netlink::ListenerSender;
use super::seccomp::Filters;
use super::start::{self, Order, Starting, Streams};
use super::sys::{self, Fork};
use super::work_group::{Door, WorkGroup};
use super::workspace::TakenWorkspace;
use super::{NameStep, SetupError, WORKSPACE, check, confine, connect, network, view, ways};
use crate::sabotage::{Bug, on};
use crate::sandbox::command_defaults::WorkingDirectory;
use crate::sandbox::confined::files::Files;
use crate::sandbox::confined::{RequestFailure, WorkFailure};
use crate::sandbox::reach::{self, Reach};
use crate::sandbox::sessions;
use crate::sandbox::terminal_pair;

/// The pause between two looks at a killed session with processes left. The kernel is ending them, but
/// it signals PID 1 only for its own children.
const RECHECK: Duration = Duration::from_millis(2);

/// A command whose end has not been answered yet.
struct CommandLeader {
    id: u64,
    pid: Pid,
    order: Order,
    /// Reports the start; `None` once it is known whether the command runs.
    report: Option<OwnedFd>,
    /// Whether its end is that of its whole session.
    killed: bool,
    /// Its exit code, while the rest of its session has not ended.
    ended: Option<i32>,
}

/// A fork that works on files and sends the answer itself.
struct Worker {
    id: u64,
    pid: Pid,
}

struct Init<'a> {
    socket: &'a OwnedFd,
    reach: Reach,
    signals: OwnedFd,
    files: Files,
    commands: Vec<CommandLeader>,
    workers: Vec<Worker>,
    stop_at: Option<Instant>,
    /// The control group of commands and forks; `None` if memory is not limited for all together.
    work: Option<Door>,
}

/// What PID 1 has of its launcher for as long as it sets the sandbox up.
pub struct OfLauncher {
    /// A pidfd of it.
    pub launcher: OwnedFd,
    /// Takes the listener for netlink sockets.
    pub netlink: ListenerSender,
    /// The host's network namespace.
    pub host_network: PathBuf,
}

/// Runs as PID 1: sets the sandbox up, sends *ready*, serves, and exits.
pub fn run(
    socket: &OwnedFd,
    lock: OwnedFd,
    setup: &Setup,
    shown: (TakenWorkspace, GivenPrograms),
    work: Option<WorkGroup>,
    filters: &Filters,
    beside: OfLauncher,
) -> ! {
    let prepared = || prepare(socket, &lock, setup, shown, work, filters, beside);
    let code = catch_unwind(AssertUnwindSafe(|| match prepared() {
        Ok((mut init, listeners)) => {
            let beside: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
            if let Err(errno) = packet::send(socket, &Answer::Ready.encode(), &beside) {
                let failed = Answer::SetupFailed {
                    step: "send the listening sockets".into(),
                    errno: errno.raw_os_error(),
                };
                // The server may have ended.
                let _ = packet::send(socket, &failed.encode(), &[]);
                return 1;
            }
            // From here on only the server can accept their connections.
            drop(listeners);
            init.serve();
            0
        }
        Err(SetupError { step, errno }) => {
            // The server may have ended.
            let _ = packet::send(socket, &Answer::SetupFailed { step, errno }.encode(), &[]);
            1
        }
    }));
    sys::exit_now(code.unwrap_or(101))
}

fn prepare<'a>(
    socket: &'a OwnedFd,
    lock: &OwnedFd,
    setup: &Setup,
    (workspace, given): (TakenWorkspace, GivenPrograms),
    work: Option<WorkGroup>,
    filters: &Filters,
    OfLauncher { launcher, netlink, host_network }: OfLauncher,
) -> Result<(Init<'a>, Vec<OwnedFd>), SetupError> {
    for (space, step) in [
        (UnshareFlags::NEWNS, "make a mount namespace"),
        (UnshareFlags::NEWIPC, "make an ipc namespace"),
        (UnshareFlags::NEWUTS, "make a uts namespace"),
    ] {
        sys::unshare(space).step(step)?;
    }
    let work = match work {
        Some(group) => Some(group.enclose()?),
        None => {
            sys::unshare(UnshareFlags::NEWCGROUP).step("make a cgroup namespace")?;
            None
        }
    };
    rustix::process::setsid().step("start PID 1's session")?;
    view::enter(setup, workspace, given)?;
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step("open /dev/null")?;
    for standard in 0..=2 {
        sys::place_descriptor(null.as_fd(), standard).step("close the standard streams")?;
    }
    drop(null);
    let files = Files::below(WORKSPACE).step("open /workspace")?;
    let signals = sys::child_signals().step("watch children")?;
    if let Some(listener) = confine::confine(setup, filters)? {
        netlink.send(&listener)?;
    }
    // The launcher may have ended before its death could signal PID 1.
    if is_ready(&launcher, PollFlags::IN) {
        return Err(SetupError::check("the launcher has gone"));
    }
    if on(Bug::DescriptorInherited) {
        std::mem::forget(launcher);
    } else {
        drop(launcher);
    }
    let listeners = network::listen_for_server(setup.reach)?;
    let own = [socket, lock, &signals].map(AsRawFd::as_raw_fd).into_iter();
    let open =
        own.chain([files.root().as_raw_fd()]).chain(listeners.iter().map(AsRawFd::as_raw_fd));
    let door = work.as_ref().map(Door::descriptor);
    check::check(&open.collect::<Vec<_>>(), door, setup, &host_network)?;
    let (commands, workers) = (Vec::new(), Vec::new());
    let reach = setup.reach;
    Ok((Init { socket, reach, signals, files, commands, workers, stop_at: None, work }, listeners))
}

fn is_ready(descriptor: &OwnedFd, flags: PollFlags) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(descriptor, flags)], Some(&now)), Ok(1..))
}

impl Init<'_> {
    /// Serves until the server has ended, or every process has ended after a stop, or its grace is over.
    fn serve(&mut self) {
        let (mut buffer, mut descriptors) = (vec![0; PACKET_LEN_MAX], Vec::new());
        loop {
            if self.stop_at.is_some_and(|at| Instant::now() >= at) {
                return;
            }
            let Ok(woken) = self.wait() else { return };
            for id in woken.reports {
                self.settle_report(id);
            }
            if woken.children && self.reap().is_break() {
                return;
            }
            self.settle_killed();
            if woken.request {
                let request = packet::receive_request(self.socket, &mut buffer, &mut descriptors);
                match request.map(|bytes| bytes.as_deref().map(Request::decode)) {
                    Ok(Some(Some(request))) => {
                        self.handle(request, std::mem::take(&mut descriptors))
                    }
                    // The server has ended, or its request cannot be decoded.
                    Ok(None | Some(None)) | Err(_) => return,
                }
            }
        }
    }

    fn wait(&self) -> Result<Woken, Errno> {
        let reports: Vec<(u64, &OwnedFd)> =
            self.commands.iter().filter_map(|c| Some((c.id, c.report.as_ref()?))).collect();
        let mut polled = vec![
            PollFd::new(self.socket, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        polled.extend(reports.iter().map(|(_, report)| PollFd::new(*report, PollFlags::IN)));
        let recheck = self.commands.iter().any(|c| c.ended.is_some()).then_some(RECHECK);
        let stop = self.stop_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = recheck.into_iter().chain(stop).min().map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_woken = |at: usize| !polled[at].revents().is_empty();
        Ok(Woken {
            request: is_woken(0),
            children: is_woken(1),
            reports: (2..polled.len())
                .filter(|at| is_woken(*at))
                .map(|at| reports[at - 2].0)
                .collect(),
        })
    }

    fn send(&self, answer: &Answer) {
        // If the server has ended, the loop notices it when it reads.
        let _ = packet::send(self.socket, &answer.encode(), &[]);
    }

    /// Answers a request with a descriptor, or that it can't be passed.
    fn give(&self, id: u64, descriptor: &OwnedFd) {
        let answer = Answer::Opened { id }.encode();
        if let Err(errno) = packet::send(self.socket, &answer, &[descriptor.as_fd()]) {
            self.fail(id, errno.into());
        }
    }

    fn fail(&self, id: u64, failure: RequestFailure) {
        self.send(&Answer::Failed { id, kind: failure.kind, message: failure.message });
    }

    fn handle(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
        if request.needs_directories() {
            ways::open_all();
        }
        match request {
            Request::Setup(_) => {}
            Request::Exec { id, argv, cwd, env } => {
                let order = self.order(argv, cwd, env);
                if let Err(failure) = self.exec(id, order, descriptors) {
                    self.fail(id, failure);
                }
            }
            Request::Terminal { id, argv, cwd, env, columns, rows } => {
                let order = self.order(argv, cwd, env);
                if let Err(failure) = self.terminal(id, order, columns, rows) {
                    self.fail(id, failure);
                }
            }
            Request::Kill { id } => {
                if let Some(command) = self.commands.iter_mut().find(|c| c.id == id) {
                    command.killed = true;
                    sessions::kill(command.pid);
                }
            }
            Request::Signal { id, number } => {
                let command = self.commands.iter().find(|c| c.id == id);
                if let (Some(command), Some(signal)) = (command, Signal::from_named_raw(number)) {
                    sessions::signal(command.pid, signal);
                }
            }
            Request::HangUp { id } => {
                if let Some(command) = self.commands.iter_mut().find(|c| c.id == id) {
                    command.killed = true;
                    self.send(&Answer::Done { id, flag: true });
                }
            }
            Request::Read { id, path } => match self.files.read(&path) {
                Ok(file) => self.give(id, &file),
                Err(failure) => self.fail(id, failure),
            },
            Request::Write { id, path } => match self.files.write(id, &path) {
                Ok(file) => self.give(id, &file),
                Err(failure) => self.fail(id, failure),
            },
            Request::Finish { id, write, keep } => match self.files.finish(write, keep) {
                Ok(flag) => self.send(&Answer::Done { id, flag }),
                Err(failure) => self.fail(id, failure),
            },
            Request::List { id, path, depth } => {
                let out = descriptors.pop();
                self.fork_worker(id, |files| match out {
                    Some(out) => files.list(&path, depth, &out),
                    None => Err(RequestFailure::new(WorkFailure::Broken, "a listing needs a pipe")),
                });
            }
            Request::Delete { id, path } => {
                self.fork_worker(id, |files| files.delete(&path).map(|()| false));
            }
            Request::Connect { id, port, v6 } => match connect::connect(port, v6) {
                Ok(socket) => self.give(id, &socket),
                Err(failure) => self.fail(id, failure),
            },
            Request::Files { id, work } => self.work_on_files(id, work, descriptors.pop()),
            // A fork under way is killed too.
            Request::KillAll => sys::signal_everyone(Signal::KILL),
            Request::Stop { grace_ms } => self.stop(Duration::from_millis(u64::from(grace_ms))),
        }
    }

    /// Asks every process to end, and notes when the rest is killed.
    fn stop(&mut self, grace: Duration) {
        self.stop_at = Some(Instant::now() + grace);
        sys::signal_everyone(Signal::TERM);
        // A stopped process can't handle SIGTERM.
        sys::signal_everyone(Signal::CONT);
        // Without children no signal wakes the loop.
        if self.reap().is_break() {
            self.stop_at = Some(Instant::now());
        }
    }

    /// The command to start, with the variables that the network adds.
    fn order(&self, argv: Vec<Bytes>, cwd: WorkingDirectory, env: Vec<Bytes>) -> Order {
        Order { argv, cwd, env: reach::environment(self.reach, env) }
    }

    fn work_on_files(&mut self, id: u64, work: FileWork, pipe: Option<OwnedFd>) {
        let done = match work {
            FileWork::MakeDirectory { path } => self.files.make_directory(&path),
            FileWork::Move { from, to, overwrite } => self.files.relocate(&from, &to, overwrite),
            FileWork::SetMode { path, mode } => self.files.set_mode(&path, mode),
            FileWork::Pack { path } => {
                return self.fork_worker(id, |files| files.pack(&path, pipe));
            }
            FileWork::Walk { path } => {
                return self.fork_worker(id, |files| files.walk(&path, pipe));
            }
            FileWork::Unpack { path } => {
                return self.fork_worker(id, |files| files.unpack(&path, pipe));
            }
        };
        match done {
            Ok(flag) => self.send(&Answer::Done { id, flag }),
            Err(failure) => self.fail(id, failure),
        }
    }

    fn exec(&mut self, id: u64, order: Order, streams: Vec<OwnedFd>) -> Result<(), RequestFailure> {
        let streams: [OwnedFd; 3] = streams.try_into().map_err(|_| {
            RequestFailure::new(WorkFailure::Broken, "a command needs three streams")
        })?;
        let starting = start::start(&order, &Streams::Pipes(streams), self.work.as_ref())?;
        self.attend(id, order, starting);
        Ok(())
    }

    /// Starts a command at a terminal. PID 1 keeps neither side of it: the server has the only master,
    /// so closing that hangs up.
    fn terminal(
        &mut self,
        id: u64,
        order: Order,
        columns: u16,
        rows: u16,
    ) -> Result<(), RequestFailure> {
        let (master, slave) = terminal_pair::open(columns, rows)?;
        let starting = start::start(&order, &Streams::Terminal(slave), self.work.as_ref())?;
        self.give(id, &master);
        self.attend(id, order, starting);
        Ok(())
    }

    /// Adds a started command to those that are waited for.
    fn attend(&mut self, id: u64, order: Order, starting: Starting) {
        let Starting { pid, report } = starting;
        let report = Some(report);
        self.commands.push(CommandLeader { id, pid, order, report, killed: false, ended: None });
    }

    /// Forks a worker for slow work. It sends the answer itself and exits.
    fn fork_worker(&mut self, id: u64, work: impl FnOnce(&Files) -> Result<bool, RequestFailure>) {
        match sys::fork() {
            Err(Errno::AGAIN) => {
                self.fail(
                    id,
                    RequestFailure::new(WorkFailure::Refused, "too many processes in the sandbox"),
                );
            }
            Err(errno) => self.fail(id, errno.into()),
            Ok(Fork::Parent(pid)) => self.workers.push(Worker { id, pid }),
            Ok(Fork::Child) => {
                // A file that becomes too long is an error to report, and must not kill the worker.
                sys::survive_long_files();
                // A panic must not unwind into the loop: this process must not go on as PID 1.
                let work = || {
                    self.work.as_ref().map_or(Ok(()), Door::enter)?;
                    work(&self.files)
                };
                let done = catch_unwind(AssertUnwindSafe(|| match work() {
                    Ok(flag) => self.send(&Answer::Done { id, flag }),
                    Err(failure) => self.fail(id, failure),
                }));
                sys::exit_now(i32::from(done.is_err()))
            }
        }
    }

    /// Reads whether a command runs, and answers that.
    fn settle_report(&mut self, id: u64) {
        let Some(at) = self.commands.iter().position(|c| c.id == id) else { return };
        let Some(report) = self.commands[at].report.take() else { return };
        match start::outcome(&report, &self.commands[at].order) {
            Ok(()) => {
                self.send(&Answer::Started { id });
                start::end_before_pid_1(self.commands[at].pid);
            }
            Err(failure) => {
                self.commands.remove(at);
                self.fail(id, failure);
            }
        }
    }

    /// Reaps every child that has ended. Breaks if none is left after a stop.
    fn reap(&mut self) -> std::ops::ControlFlow<()> {
        let mut signal = [0; 128];
        while rustix::io::read(&self.signals, &mut signal).is_ok() {}
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.ended(pid, status),
                Err(Errno::INTR) => {}
                Ok(None) => return std::ops::ControlFlow::Continue(()),
                // Every process of the namespace descends from PID 1: without children it is empty.
                Err(_) if self.stop_at.is_some() => return std::ops::ControlFlow::Break(()),
                Err(_) => return std::ops::ControlFlow::Continue(()),
            }
        }
    }

    fn ended(&mut self, pid: Pid, status: WaitStatus) {
        let signalled = status.terminating_signal().map(|signal| 128 + signal);
        let code = status.exit_status().or(signalled).unwrap_or(255);
        if let Some(at) = self.workers.iter().position(|worker| worker.pid == pid) {
            let Worker { id, .. } = self.workers.swap_remove(at);
            if code != 0 {
                let why = match status.terminating_signal() {
                    Some(9) => "it was killed in the sandbox, as where that has no memory left",
                    Some(_) | None => "it was broken off in the sandbox",
                };
                self.fail(id, RequestFailure::new(WorkFailure::Broken, why));
            }
        }
        // The leader of a command that waits for the rest of its session has been reaped. Another
        // process may have its pid by now.
        let leader = |c: &CommandLeader| c.pid == pid && c.ended.is_none();
        let Some(at) = self.commands.iter().position(leader) else { return };
        let id = self.commands[at].id;
        self.settle_report(id);
        if let Some(command) = self.commands.get_mut(at).filter(|c| c.id == id) {
            command.ended = Some(code);
        }
    }

    /// Answers the commands that have ended. A killed one has ended when no process of its session is
    /// left; no other session can have its number before that.
    fn settle_killed(&mut self) {
        let (ended, left) =
            std::mem::take(&mut self.commands).into_iter().partition::<Vec<_>, _>(|c| {
                c.ended.is_some() && !(c.killed && sessions::is_alive(c.pid))
            });
        self.commands = left;
        for CommandLeader { id, ended, .. } in ended {
            if let Some(code) = ended {
                self.send(&Answer::Exited { id, code });
            }
        }
    }
}

/// What woke the loop.
struct Woken {
    request: bool,
    children: bool,
    reports: Vec<u64>,
}
