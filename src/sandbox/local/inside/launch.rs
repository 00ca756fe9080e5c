//! The launcher: takes the sandbox's lock, becomes nobody in particular, makes PID 1, watches.
//!
//! It holds the lock from before there is anything until PID 1 has been waited for, which the
//! kernel lets happen only once the whole pid namespace is empty; so *the lock is free* means
//! *nothing runs*. It ends the sandbox when the server's end of the socket is gone, however the
//! server came to its end.
//!
//! Accepted race: where the launcher itself is killed, PID 1 gets its parent-death signal. PID 1
//! holds the lock as well, but closes it a moment before the kernel has ended the rest. A server
//! that is still alive waits for PID 1's pidfd and is exact; a new one can be early by that
//! moment (milliseconds), in which processes that are already being killed may end a system call.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    DumpableBehavior, PidfdFlags, Signal, WaitOptions, getegid, geteuid, getpid, pidfd_open,
    pidfd_send_signal, set_dumpable_behavior, set_parent_process_death_signal, setsid, umask,
    waitpid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::super::frame::{Answer, PACKET_LEN_MAX, Request, Setup};
use super::super::packet;
use super::seccomp::Filters;
use super::sys::Fork;
use super::watched::WatchedDisk;
use super::work_group::WorkGroup;
use super::workspace::Workspace;
use super::{HIDDEN_COMMAND, INNER_ID, NameStep, SetupError, init, sys};
use crate::sabotage::{Bug, on};

/// How much sooner than others a sandbox's processes are chosen when memory runs out, of 1000.
const OOM_SCORE: &str = "500";

/// Runs the hidden command where this process was started for it, and says how it ended; `None`
/// where it was not. Must be called before the process has a second thread.
pub fn run_hidden_command() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != HIDDEN_COMMAND {
        return None;
    }
    Some(launch())
}

/// Is a launcher, whose standard input is the server's socket.
pub(super) fn launch() -> ExitCode {
    let socket =
        match sys::close_from(3).and_then(|()| fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)) {
            Ok(socket) => socket,
            Err(_) => return ExitCode::from(2),
        };
    sys::default_signals();
    // While there is nothing else to do yet.
    let filters = Filters::build();
    let ended = receive_setup(&socket).and_then(|order| match order {
        Some(order) => run(&socket, order, &filters?),
        None => Ok(()),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(SetupError { step, errno }) => {
            let answer = Answer::SetupFailed { step, errno };
            // Where the server has gone there is nobody to tell.
            let _ = packet::send(&socket, &answer.encode(), &[]);
            ExitCode::FAILURE
        }
    }
}

/// What is to be launched.
struct Order {
    setup: Setup,
    object: OwnedFd,
    /// The group of those who work in it.
    work: Option<WorkGroup>,
    /// The doors of the groups that all of it is in.
    doors: Vec<OwnedFd>,
}

fn receive_setup(socket: &OwnedFd) -> Result<Option<Order>, SetupError> {
    let (mut buffer, mut descriptors) = (vec![0; PACKET_LEN_MAX], Vec::new());
    let len = packet::receive(socket, &mut buffer, &mut descriptors).step("read the order")?;
    if len == 0 {
        return Ok(None);
    }
    let Some(Request::Setup(setup)) = Request::decode(&buffer[..len]) else {
        return Err(SetupError::check("the order must be a setup"));
    };
    let mut beside = descriptors.into_iter();
    let Some(object) = beside.next() else {
        return Err(SetupError::check("the order must have a directory"));
    };
    let work = if setup.has_work_group { Some(WorkGroup::take(&mut beside)?) } else { None };
    Ok(Some(Order { setup, object, work, doors: beside.collect() }))
}

fn run(socket: &OwnedFd, order: Order, filters: &Filters) -> Result<(), SetupError> {
    let Order { setup, object, work, doors } = order;
    // A session of its own: a terminal's Ctrl-C is for the server, which ends its sandboxes in order.
    setsid().step("start a session")?;
    umask(Mode::from_raw_mode(0o022));
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = openat(&object, "lock", flags, Mode::empty()).step("open the lock")?;
    // While it waits for a lock it does not see its socket hang up, and nothing is
    // made that would have to be undone: until then it ends with the thread that has started it.
    let tie = "tie the launcher to the server";
    set_parent_process_death_signal(Some(Signal::KILL)).step(tie)?;
    if has_hung_up(socket) {
        return Ok(());
    }
    flock(&lock, FlockOperation::LockExclusive).step("take the lock")?;
    if has_hung_up(socket) {
        return Ok(());
    }
    let workspace = Workspace::take(&object, setup.host_id)?;
    set_parent_process_death_signal(None).step(tie)?;
    let device = workspace.device()?;
    drop(object);
    for door in doors {
        // 0 is whoever writes it. PID 1 and all that it starts are born in the groups.
        rustix::io::write(&door, b"0").step("step into the control group")?;
    }
    // Where the whole machine runs out of memory, a sandbox goes before the host's services do.
    // Hosts without this file have nothing to choose from.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    if let Some(id) = setup.host_id.filter(|_| !on(Bug::HostRootInside)) {
        become_user(id)?;
    }
    enter_user_namespace()?;

    let itself = pidfd_open(getpid(), PidfdFlags::empty()).step("open a pidfd of the launcher")?;
    let child = match sys::fork().step("fork PID 1")? {
        Fork::Child => init::run(socket, lock, &setup, workspace, work, filters, itself),
        Fork::Parent(child) => child,
    };
    drop(work);
    let pidfd = pidfd_open(child, PidfdFlags::empty()).step("open a pidfd of PID 1")?;
    // By this the server takes it for up.
    workspace.wait_until_safe()?;
    // A server that is gone is noticed below.
    let _ = packet::send(socket, &Answer::Forked { device }.encode(), &[pidfd.as_fd()]);
    confine_launcher(&workspace)?;
    let mut watched = workspace.watched(setup.disk_mb_max)?;

    let hung_up = watch(socket, &pidfd, &mut watched);
    if hung_up {
        // PID 1 may have ended in the same moment.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    // Returns once the pid namespace is empty; only then may the lock go.
    while matches!(waitpid(Some(child), WaitOptions::empty()), Err(Errno::INTR)) {}
    // The last hold on the workspace's mount: it is unmounted here.
    drop(watched);
    drop(lock);
    Ok(())
}

/// Gives up being root for good. The kernel resets the dumpable flag and the parent-death signal
/// when the uid changes, so both are set later.
fn become_user(id: u32) -> Result<(), SetupError> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(id), rustix::fs::Gid::from_raw(id));
    set_thread_groups(&[]).step("give up supplementary groups")?;
    if !on(Bug::HostGroupInside) {
        set_thread_res_gid(gid, gid, gid).step("take the sandbox's own gid")?;
    }
    set_thread_res_uid(uid, uid, uid).step("take the sandbox's own uid")
}

/// Enters a user namespace in which this user, and nobody else, exists as [`INNER_ID`].
fn enter_user_namespace() -> Result<(), SetupError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER).step("make a user namespace")?;
    // Only of a dumpable process do the files in /proc belong to its user.
    set_dumpable_behavior(DumpableBehavior::Dumpable).step("become dumpable")?;
    fs::write("/proc/self/setgroups", "deny").step("deny setgroups")?;
    let inner = |mistaken| if mistaken { 0 } else { INNER_ID };
    let (inner_uid, inner_gid) = (inner(on(Bug::RootInside)), inner(on(Bug::RootGroupInside)));
    fs::write("/proc/self/uid_map", format!("{inner_uid} {uid} 1")).step("map the uid")?;
    fs::write("/proc/self/gid_map", format!("{inner_gid} {gid} 1")).step("map the gid")?;
    sys::unshare(UnshareFlags::NEWPID).step("make a pid namespace")
}

/// The launcher stays outside, but needs nothing there any more than to look into directories that
/// their owner has closed, which is how a sandbox could hide how much there is in them.
fn confine_launcher(workspace: &Workspace) -> Result<(), SetupError> {
    let needed = match workspace {
        Workspace::Directory => CapabilitySet::DAC_READ_SEARCH,
        Workspace::Image(..) => CapabilitySet::empty(),
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

/// Waits until the server has gone (true) or PID 1 has ended (false), and tells when the workspace
/// has become too full.
fn watch(socket: &OwnedFd, pidfd: &OwnedFd, workspace: &mut WatchedDisk) -> bool {
    loop {
        // No event is asked of the socket: what arrives on it is for PID 1. A hang-up always shows.
        let mut polled =
            [PollFd::new(socket, PollFlags::empty()), PollFd::new(pidfd, PollFlags::IN)];
        let pause = workspace.pause();
        let pause = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        match poll(&mut polled, Some(&pause)) {
            Ok(_) if !polled[1].revents().is_empty() => return false,
            Ok(_) if !polled[0].revents().is_empty() => return true,
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing can be watched any more: end it, as if the server had gone.
            Err(_) => return true,
        }
        if workspace.look() {
            // A server that has gone is noticed above.
            let _ = packet::send(socket, &Answer::DiskFull.encode(), &[]);
        }
    }
}
