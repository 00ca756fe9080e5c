//! PID 1 of a sandbox: serves the server's requests until the server, the launcher or a stop ends
//! it, and with it everything in its pid namespace.
//!
//! One thread and one loop. What can take long (listing and deleting trees) is done by a fork that
//! answers by itself; nothing that a command does can hold the loop up: it waits for no process,
//! and writes only to the server, which always reads.
//!
//! PID 1 keeps three descriptors beside the workspace and what is under way: the socket, the
//! sandbox's lock, so that a killed launcher does not free it early, and the door of the group in
//! which memory is limited. It is not dumpable, so nobody inside can reach them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use rustix::thread::UnshareFlags;

use super::super::frame::{Answer, FileWork, PACKET_LEN_MAX, Reach, Request, Setup, WorkFailure};
use super::super::packet;
use super::files::{Failure, Files};
use super::seccomp::Filters;
use super::start::{self, Order, Starting, Streams};
use super::sys::{self, Fork};
use super::work_group::{Door, WorkGroup};
use super::workspace::Workspace;
use super::{NameStep, SetupError, check, confine, connect, network, session, terminal, view};
use crate::sabotage::{Bug, on};

/// How often a killed session that has not wholly ended is looked at again. Its processes are
/// already being ended by the kernel, which tells PID 1 of its own children only.
const RECHECK: Duration = Duration::from_millis(2);

/// A command whose leader has not been answered for yet.
struct CommandLeader {
    id: u64,
    pid: Pid,
    order: Order,
    /// Until it is known whether it runs.
    report: Option<OwnedFd>,
    /// Whether it has ended only once all of its session has.
    killed: bool,
    /// Its exit code, where only the rest of its session is waited for.
    ended: Option<i32>,
}

/// A fork that works on files and answers by itself.
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
    /// Where whoever works must be; `None` where memory is not limited for all together.
    work: Option<Door>,
}

/// Is PID 1: sets the sandbox up, says so, serves, and ends. `launcher` is a pidfd of it.
pub fn run(
    socket: &OwnedFd,
    lock: OwnedFd,
    setup: &Setup,
    workspace: Workspace,
    work: Option<WorkGroup>,
    filters: &Filters,
    launcher: OwnedFd,
) -> ! {
    let prepared = || prepare(socket, &lock, setup, workspace, work, filters, launcher);
    let code = catch_unwind(AssertUnwindSafe(|| match prepared() {
        Ok((mut init, listener)) => {
            let beside: Vec<_> = listener.iter().map(AsFd::as_fd).collect();
            init.say_with(&Answer::Ready, &beside);
            // From here on it is the server's alone: nobody inside can take what is the proxy's.
            drop(listener);
            init.serve();
            0
        }
        Err(SetupError { step, errno }) => {
            // Where the server has gone there is nobody to tell.
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
    workspace: Workspace,
    work: Option<WorkGroup>,
    filters: &Filters,
    launcher: OwnedFd,
) -> Result<(Init<'a>, Option<OwnedFd>), SetupError> {
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
    let host_network = network::namespace()?;
    match setup.reach {
        Reach::Loopback | Reach::Proxy if on(Bug::NetworkShared) => {}
        Reach::Loopback | Reach::Proxy => {
            sys::unshare(UnshareFlags::NEWNET).step("make a network namespace")?;
        }
        Reach::Host => {}
    }
    rustix::process::setsid().step("start PID 1's session")?;
    view::enter(setup, workspace)?;
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step("open /dev/null")?;
    for standard in 0..=2 {
        sys::place_descriptor(null.as_fd(), standard).step("close the standard streams")?;
    }
    drop(null);
    let files = Files::open().step("open /workspace")?;
    let signals = sys::child_signals().step("watch children")?;
    confine::confine(setup, filters)?;
    // A launcher that ended before its death meant anything to PID 1 is seen here.
    if is_ready(&launcher, PollFlags::IN) {
        return Err(SetupError::check("the launcher has gone"));
    }
    if on(Bug::DescriptorInherited) {
        std::mem::forget(launcher);
    } else {
        drop(launcher);
    }
    let listener = network::listen_for_proxy(setup.reach)?;
    let own = [socket, lock, &signals].map(AsRawFd::as_raw_fd).into_iter();
    let open = own
        .chain([files.root().as_raw_fd()])
        .chain(listener.as_ref().map(|l| l.as_raw_fd()))
        .chain(work.as_ref().map(Door::descriptor));
    check::check(&open.collect::<Vec<_>>(), setup, &host_network)?;
    let (commands, workers) = (Vec::new(), Vec::new());
    let reach = setup.reach;
    Ok((Init { socket, reach, signals, files, commands, workers, stop_at: None, work }, listener))
}

fn is_ready(descriptor: &OwnedFd, flags: PollFlags) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(descriptor, flags)], Some(&now)), Ok(1..))
}

impl Init<'_> {
    /// Serves until the server has gone, every process has ended after a stop, or its time is up.
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
                    // The server has gone, or is not the server that this is PID 1 of.
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

    fn say(&self, answer: &Answer) {
        self.say_with(answer, &[]);
    }

    fn say_with(&self, answer: &Answer, beside: &[BorrowedFd<'_>]) {
        // A server that has gone is noticed when the loop reads.
        let _ = packet::send(self.socket, &answer.encode(), beside);
    }

    fn fail(&self, id: u64, failure: Failure) {
        self.say(&Answer::Failed { id, kind: failure.kind, message: failure.message });
    }

    fn handle(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
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
                    session::kill(command.pid);
                }
            }
            Request::Signal { id, number } => {
                let command = self.commands.iter().find(|c| c.id == id);
                if let (Some(command), Some(signal)) = (command, Signal::from_named_raw(number)) {
                    session::signal(command.pid, signal);
                }
            }
            Request::HangUp { id } => {
                if let Some(command) = self.commands.iter_mut().find(|c| c.id == id) {
                    command.killed = true;
                    self.say(&Answer::Done { id, flag: true });
                }
            }
            Request::Read { id, path } => match self.files.read(&path) {
                Ok(file) => self.say_with(&Answer::Opened { id }, &[file.as_fd()]),
                Err(failure) => self.fail(id, failure),
            },
            Request::Write { id, path } => match self.files.write(id, &path) {
                Ok(file) => self.say_with(&Answer::Opened { id }, &[file.as_fd()]),
                Err(failure) => self.fail(id, failure),
            },
            Request::Finish { id, write, keep } => match self.files.finish(write, keep) {
                Ok(flag) => self.say(&Answer::Done { id, flag }),
                Err(failure) => self.fail(id, failure),
            },
            Request::List { id, path, depth } => {
                let out = descriptors.pop();
                self.fork_worker(id, |files| match out {
                    Some(out) => files.list(&path, depth, &out),
                    None => Err(Failure::new(WorkFailure::Broken, "a listing needs a pipe")),
                });
            }
            Request::Delete { id, path } => {
                self.fork_worker(id, |files| files.delete(&path).map(|()| false));
            }
            Request::Connect { id, port, v6 } => match connect::connect(port, v6) {
                Ok(socket) => self.say_with(&Answer::Opened { id }, &[socket.as_fd()]),
                Err(failure) => self.fail(id, failure),
            },
            Request::Files { id, work } => self.work_on_files(id, work, descriptors.pop()),
            // A fork that is under way ends with who began it.
            Request::KillAll => sys::signal_everyone(Signal::KILL),
            Request::Stop { grace_ms } => {
                self.stop_at = Some(Instant::now() + Duration::from_millis(u64::from(grace_ms)));
                sys::signal_everyone(Signal::TERM);
                // A stopped process can't act on what it was asked.
                sys::signal_everyone(Signal::CONT);
                // With no child there is no signal to wake the loop.
                if self.reap().is_break() {
                    self.stop_at = Some(Instant::now());
                }
            }
        }
    }

    /// What is to be started, with the environment that the network gives to all.
    fn order(&self, argv: Vec<Bytes>, cwd: Vec<u8>, env: Vec<Bytes>) -> Order {
        Order { argv, cwd, env: network::environment(self.reach, env) }
    }

    fn work_on_files(&mut self, id: u64, work: FileWork, pipe: Option<OwnedFd>) {
        let done = match work {
            FileWork::MakeDirectory { path } => self.files.make_directory(&path),
            FileWork::Move { from, to, overwrite } => self.files.relocate(&from, &to, overwrite),
            FileWork::SetMode { path, mode } => self.files.set_mode(&path, mode),
            FileWork::Pack { path } => {
                return self.fork_worker(id, |files| files.pack(&path, pipe));
            }
            FileWork::Unpack { path } => {
                return self.fork_worker(id, |files| files.unpack(&path, pipe));
            }
        };
        match done {
            Ok(flag) => self.say(&Answer::Done { id, flag }),
            Err(failure) => self.fail(id, failure),
        }
    }

    fn exec(&mut self, id: u64, order: Order, streams: Vec<OwnedFd>) -> Result<(), Failure> {
        let streams: [OwnedFd; 3] = streams
            .try_into()
            .map_err(|_| Failure::new(WorkFailure::Broken, "a command needs three streams"))?;
        let starting = start::start(&order, &Streams::Pipes(streams), self.work.as_ref())?;
        self.attend(id, order, starting);
        Ok(())
    }

    /// Starts a command at a terminal. PID 1 keeps neither side of it: the server's is the only
    /// master, so that whoever closes it hangs up.
    fn terminal(&mut self, id: u64, order: Order, columns: u16, rows: u16) -> Result<(), Failure> {
        let (master, slave) = terminal::open(columns, rows)?;
        let starting = start::start(&order, &Streams::Terminal(slave), self.work.as_ref())?;
        self.say_with(&Answer::Opened { id }, &[master.as_fd()]);
        self.attend(id, order, starting);
        Ok(())
    }

    /// Waits for a command from now on.
    fn attend(&mut self, id: u64, order: Order, starting: Starting) {
        let Starting { pid, report } = starting;
        let report = Some(report);
        self.commands.push(CommandLeader { id, pid, order, report, killed: false, ended: None });
    }

    /// Forks a worker for what may take long. It answers by itself, with its own last breath.
    fn fork_worker(&mut self, id: u64, work: impl FnOnce(&Files) -> Result<bool, Failure>) {
        match sys::fork() {
            Err(Errno::AGAIN) => {
                self.fail(
                    id,
                    Failure::new(WorkFailure::Refused, "too many processes in the sandbox"),
                );
            }
            Err(errno) => self.fail(id, errno.into()),
            Ok(Fork::Parent(pid)) => self.workers.push(Worker { id, pid }),
            Ok(Fork::Child) => {
                // A file that becomes too long is an error to be told, not the worker's end.
                sys::survive_long_files();
                // Nothing may unwind into the loop: this process must not go on as PID 1.
                let work = || {
                    self.work.as_ref().map_or(Ok(()), Door::enter)?;
                    work(&self.files)
                };
                let done = catch_unwind(AssertUnwindSafe(|| match work() {
                    Ok(flag) => self.say(&Answer::Done { id, flag }),
                    Err(failure) => self.fail(id, failure),
                }));
                sys::exit_now(i32::from(done.is_err()))
            }
        }
    }

    /// Learns whether a command runs, and says so.
    fn settle_report(&mut self, id: u64) {
        let Some(at) = self.commands.iter().position(|c| c.id == id) else { return };
        let Some(report) = self.commands[at].report.take() else { return };
        match start::outcome(&report, &self.commands[at].order) {
            Ok(()) => {
                self.say(&Answer::Started { id });
                start::end_before_pid_1(self.commands[at].pid);
            }
            Err(failure) => {
                self.commands.remove(at);
                self.fail(id, failure);
            }
        }
    }

    /// Reaps every child that has ended; breaks where there is none left after a stop.
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
                self.fail(id, Failure::new(WorkFailure::Broken, why));
            }
        }
        // One that is only waiting for the rest of its session has been reaped; its number may be
        // another's by now.
        let leader = |c: &CommandLeader| c.pid == pid && c.ended.is_none();
        let Some(at) = self.commands.iter().position(leader) else { return };
        let id = self.commands[at].id;
        self.settle_report(id);
        if let Some(command) = self.commands.get_mut(at).filter(|c| c.id == id) {
            command.ended = Some(code);
        }
    }

    /// Answers for commands that have ended. One that was killed has ended once nothing of its
    /// session is left; the number can't mean another session before that.
    fn settle_killed(&mut self) {
        let (ended, left) =
            std::mem::take(&mut self.commands).into_iter().partition::<Vec<_>, _>(|c| {
                c.ended.is_some() && !(c.killed && session::is_alive(c.pid))
            });
        self.commands = left;
        for CommandLeader { id, ended, .. } in ended {
            if let Some(code) = ended {
                self.say(&Answer::Exited { id, code });
            }
        }
    }
}

/// What the loop was woken for.
struct Woken {
    request: bool,
    children: bool,
    reports: Vec<u64>,
}
