//! The launcher: takes the sandbox's lock, becomes an unprivileged user, forks PID 1, and watches it.
//!
//! It takes the lock before it makes anything, and holds it until it has waited for PID 1. The kernel ends
//! that wait only when the whole pid namespace is empty. So *the lock is free* means *nothing runs*. The
//! launcher ends the sandbox when the server's end of the socket closes, however the server ended.
//!
//! Accepted race: if the launcher itself is killed, PID 1 gets its parent-death signal. PID 1 holds the
//! lock as well, but closes it some milliseconds before the kernel has ended the rest. A server that is
//! still alive waits for PID 1's pidfd, which is exact. A new server can take the lock in those
//! milliseconds, while processes that are being killed finish a system call.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    DumpableBehavior, PidfdFlags, Signal, WaitOptions, getegid, geteuid, getpid, pidfd_open,
    pidfd_send_signal, set_dumpable_behavior, set_parent_process_death_signal, setsid, umask,
    waitpid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_name, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::super::frame::{Answer, PACKET_LEN_MAX, Request, Setup};
use super::super::packet;
use super::given::GivenPrograms;
use super::init::OfLauncher;
use super::netlink::NetlinkMaker;
use super::seccomp::Filters;
use super::sys::Fork;
use super::watched::WatchedDisk;
use super::work_group::WorkGroup;
use super::workspace::TakenWorkspace;
use super::{
    COPIES_COMMAND, HIDDEN_COMMAND, INNER_ID, MAPPED_COMMAND, NameStep, SetupError, copies, init,
    mapped, network, sys,
};
use crate::sabotage::{Bug, on};

/// How much more likely the kernel kills a sandbox's process when the host's memory runs out, of 1000.
const OOM_SCORE: &str = "500";

/// Runs the hidden command if this process was started for it, and returns its exit code; `None` if it
/// was not. Must be called before the process has a second thread.
pub fn run_hidden_command() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next()?;
    if command == HIDDEN_COMMAND {
        Some(launch())
    } else if command == COPIES_COMMAND {
        Some(copies::run(Path::new(&arguments.next()?)))
    } else if command == MAPPED_COMMAND {
        Some(mapped::run(arguments))
    } else {
        None
    }
}

/// Takes the server's socket, the standard input, and closes what else is open.
pub(super) fn take_socket() -> Result<OwnedFd, Errno> {
    sys::close_from(3).and_then(|()| fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3))
}

/// Runs as a launcher. Its standard input is the server's socket.
pub(super) fn launch() -> ExitCode {
    let Ok(socket) = take_socket() else { return ExitCode::from(2) };
    // It was executed by a descriptor, whose number is its name now. This is for people alone.
    let _ = set_name(c"issuebox");
    sys::default_signals();
    // Built before the order arrives, so that the sandbox need not wait for it.
    let filters = Filters::build();
    let ended = receive_setup(&socket).and_then(|order| match order {
        Some(order) => run(&socket, order, &filters?),
        None => Ok(()),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(SetupError { step, errno }) => {
            let answer = Answer::SetupFailed { step, errno };
            // The server may have ended.
            let _ = packet::send(&socket, &answer.encode(), &[]);
            ExitCode::FAILURE
        }
    }
}

/// What to launch.
struct LaunchOrder {
    setup: Setup,
    object: OwnedFd,
    /// The sandbox's lock, which is not taken yet.
    lock: OwnedFd,
    /// The control group of commands and workers.
    work: Option<WorkGroup>,
    /// The doors of the control groups of the whole sandbox.
    doors: Vec<OwnedFd>,
}

fn receive_setup(socket: &OwnedFd) -> Result<Option<LaunchOrder>, SetupError> {
    let (mut buffer, mut descriptors) = (vec![0; PACKET_LEN_MAX], Vec::new());
    let len = packet::receive(socket, &mut buffer, &mut descriptors).step("read the order")?;
    if len == 0 {
        return Ok(None);
    }
    let Some(Request::Setup(setup)) = Request::decode(&buffer[..len]) else {
        return Err(SetupError::check("the order must be a setup"));
    };
    let mut beside = descriptors.into_iter();
    let (Some(object), Some(lock)) = (beside.next(), beside.next()) else {
        return Err(SetupError::check("the order must have a directory and its lock"));
    };
    let work = if setup.has_work_group { Some(WorkGroup::take(&mut beside)?) } else { None };
    Ok(Some(LaunchOrder { setup, object, lock, work, doors: beside.collect() }))
}

fn run(socket: &OwnedFd, order: LaunchOrder, filters: &Filters) -> Result<(), SetupError> {
    let LaunchOrder { mut setup, object, lock, work, doors } = order;
    // A session of its own: Ctrl-C at a terminal must reach only the server, which stops its sandboxes.
    setsid().step("start a session")?;
    umask(Mode::from_raw_mode(0o022));
    // While it waits for the lock it does not see its socket hang up. Nothing is made yet that would
    // have to be undone, so until then it ends with the thread that started it.
    let tie = "tie the launcher to the server";
    set_parent_process_death_signal(Some(Signal::KILL)).step(tie)?;
    if has_hung_up(socket) {
        return Ok(());
    }
    flock(&lock, FlockOperation::LockExclusive).step("take the lock")?;
    if has_hung_up(socket) {
        return Ok(());
    }
    let workspace = TakenWorkspace::take(&object, setup.host_id)?;
    let given = GivenPrograms::new(std::mem::take(&mut setup.programs))?;
    set_parent_process_death_signal(None).step(tie)?;
    let device = workspace.device()?;
    drop(object);
    for door in doors {
        // 0 is the writing process. PID 1 and its children are born in the groups.
        rustix::io::write(&door, b"0").step("step into the control group")?;
    }
    // When the host runs out of memory, the kernel kills sandboxes before the host's services. Some
    // hosts do not have this file.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    if let Some(id) = setup.host_id.filter(|_| !on(Bug::HostRootInside)) {
        become_user(id)?;
    }
    enter_user_namespace()?;
    let (mut netlink, sender) = NetlinkMaker::new()?;
    // The launcher enters it too, since it makes sockets there.
    let host_network = network::enter_own(setup.reach)?;

    let itself = pidfd_open(getpid(), PidfdFlags::empty()).step("open a pidfd of the launcher")?;
    let child = match sys::fork().step("fork PID 1")? {
        Fork::Child => {
            drop(netlink);
            let beside = OfLauncher { launcher: itself, netlink: sender, host_network };
            init::run(socket, lock, &setup, (workspace, given), work, filters, beside)
        }
        Fork::Parent(child) => child,
    };
    drop((sender, given, work));
    let pidfd = pidfd_open(child, PidfdFlags::empty()).step("open a pidfd of PID 1")?;
    // The server counts the sandbox as up from *forked* and *ready* on.
    workspace.wait_until_safe()?;
    match packet::send(socket, &Answer::Forked { device }.encode(), &[pidfd.as_fd()]) {
        // If the server has ended, `watch` notices it.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(errno) => return Err(errno).step("send a pidfd of PID 1"),
    }
    confine_launcher(&workspace)?;
    let mut watched = workspace.watched(setup.disk_mb_max)?;

    let hung_up = watch(socket, &pidfd, &mut watched, &mut netlink);
    if hung_up {
        // PID 1 may have ended at the same moment.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    // Returns when the pid namespace is empty. Only then may the lock be freed.
    while matches!(waitpid(Some(child), WaitOptions::empty()), Err(Errno::INTR)) {}
    // The last reference to the workspace's mount: this unmounts it.
    drop(watched);
    drop(lock);
    Ok(())
}

/// Gives up the server's user for good. The kernel resets the dumpable flag and the parent-death signal when the uid
/// changes, so both are set later.
fn become_user(id: u32) -> Result<(), SetupError> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(id), rustix::fs::Gid::from_raw(id));
    set_thread_groups(&[]).step("give up supplementary groups")?;
    if !on(Bug::HostGroupInside) {
        set_thread_res_gid(gid, gid, gid).step("take the sandbox's own gid")?;
    }
    set_thread_res_uid(uid, uid, uid).step("take the sandbox's own uid")
}

/// Enters a user namespace whose only user is this one, as [`INNER_ID`].
fn enter_user_namespace() -> Result<(), SetupError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER).step("make a user namespace")?;
    // The files in /proc belong to the process's user only if it is dumpable.
    set_dumpable_behavior(DumpableBehavior::Dumpable).step("become dumpable")?;
    fs::write("/proc/self/setgroups", "deny").step("deny setgroups")?;
    let inner = |mistaken| if mistaken { 0 } else { INNER_ID };
    let (inner_uid, inner_gid) = (inner(on(Bug::RootInside)), inner(on(Bug::RootGroupInside)));
    fs::write("/proc/self/uid_map", format!("{inner_uid} {uid} 1")).step("map the uid")?;
    fs::write("/proc/self/gid_map", format!("{inner_gid} {gid} 1")).step("map the gid")?;
    sys::unshare(UnshareFlags::NEWPID).step("make a pid namespace")
}

/// Drops the launcher's privileges. It keeps one when it watches a directory: to read directories that
/// the sandbox has closed, in which it could hide files from the disk limit.
fn confine_launcher(workspace: &TakenWorkspace) -> Result<(), SetupError> {
    let needed = match workspace {
        TakenWorkspace::Directory => CapabilitySet::DAC_READ_SEARCH,
        TakenWorkspace::Image(..) => CapabilitySet::empty(),
    };
    let sets = CapabilitySets {
        effective: needed,
        permitted: needed,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).step("give up the launcher's capabilities")?;
    set_no_new_privs(true).step("set no new privileges for the launcher")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("make the launcher not dumpable")
}

fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut polled, Some(&now)), Ok(1..))
}

/// Waits until the server has ended (true) or PID 1 has ended (false). Sends *disk full* when the
/// workspace has become too full, and makes netlink sockets.
fn watch(
    socket: &OwnedFd,
    pidfd: &OwnedFd,
    workspace: &mut WatchedDisk,
    netlink: &mut NetlinkMaker,
) -> bool {
    loop {
        // No event is requested of the socket: its packets are for PID 1. A hang-up always shows.
        let asked = netlink.descriptor();
        let mut polled = [
            PollFd::new(socket, PollFlags::empty()),
            PollFd::new(pidfd, PollFlags::IN),
            PollFd::from_borrowed_fd(asked, PollFlags::IN),
        ];
        let pause = workspace.pause();
        let pause = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        match poll(&mut polled, Some(&pause)) {
            Ok(_) if !polled[1].revents().is_empty() => return false,
            Ok(_) if !polled[0].revents().is_empty() => return true,
            // An error is the end of the process that asked, or of PID 1.
            Ok(_) if polled[2].revents().contains(PollFlags::IN) => {
                let _ = netlink.serve();
            }
            Ok(_) | Err(Errno::INTR) => {}
            // Without poll nothing can be watched: end the sandbox, as if the server had ended.
            Err(_) => return true,
        }
        if workspace.look() {
            // If the server has ended, the poll above shows it.
            let _ = packet::send(socket, &Answer::DiskFull.encode(), &[]);
        }
    }
}
