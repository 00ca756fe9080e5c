//! Drops everything that a sandbox does not need, for good.
//!
//! The order matters: emptying the bounding set needs capabilities; the parent-death signal comes
//! late, because changes of identity clear it; the system-call filter comes last, because it
//! refuses calls that earlier steps need.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::super::frame::Setup;
use super::super::limits::open_files_max;
use super::seccomp::Filters;
use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};
use crate::sandbox::reach::Reach;

/// Settings of a sandbox's own network, for sockets that no control group counts: the longest TCP
/// buffers that grow by themselves, and what else one socket may hold (the kernel's default until
/// 6.8, where it became six times that).
const OF_NETWORK: [(&str, &str); 3] = [
    ("ipv4/tcp_rmem", "4096 131072 1048576"),
    ("ipv4/tcp_wmem", "4096 16384 1048576"),
    ("core/optmem_max", "20480"),
];

/// A sandbox's part of what the kernel counts for its host user, if it shares that with the server
/// and with other sandboxes: one of so many.
const SHARE: u64 = 4;

/// What commands are limited in and PID 1 is not; set when PID 1 confines itself.
static OF_COMMANDS: OnceLock<CommandLimits> = OnceLock::new();

struct CommandLimits {
    /// Most open files, by the machine.
    open_files: u64,
    /// Most bytes of data of one process, where no control group counts memory.
    data: Option<u64>,
}

/// Confines this process and all its future children. The view is already entered. Returns the
/// listener for [netlink sockets](super::netlink).
pub fn confine(setup: &Setup, filters: &Filters) -> Result<Option<OwnedFd>, SetupError> {
    sethostname(b"sandbox").step("name the host")?;
    match setup.reach {
        Reach::Loopback | Reach::Git | Reach::Proxy if on(Bug::NetworkShared) => {}
        Reach::Loopback | Reach::Git | Reach::Proxy => {
            sys::raise_loopback().step("raise the loopback interface")?;
            for (name, value) in OF_NETWORK {
                match fs::write(format!("/proc/sys/net/{name}"), value) {
                    // Older kernels have it once for the whole machine.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    written => written.step(&format!("set net/{name}"))?,
                }
            }
        }
        // The host's interface is not ours to raise.
        Reach::Host => {}
    }
    sys::fresh_keyring().step("leave the session keyring")?;
    // No process of the sandbox can become root of a further namespace: many kernel bugs were
    // reachable only from there. Nothing inside can undo this.
    fs::write("/proc/sys/user/max_user_namespaces", "0").step("forbid user namespaces")?;
    limits(setup)?;
    if setup.shares_counters {
        share()?;
    }
    give_up_capabilities()?;
    if !on(Bug::PrivilegesGained) {
        set_no_new_privs(true).step("set no new privileges")?;
    }
    if !on(Bug::DumpableInside) {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).step("make PID 1 not dumpable")?;
    }
    if !on(Bug::OutlivesLauncher) {
        set_parent_process_death_signal(Some(Signal::KILL)).step("tie PID 1 to its launcher")?;
    }
    // Installing filters sets *no new privileges* too.
    if on(Bug::CallsNotFiltered) || on(Bug::PrivilegesGained) {
        return Ok(None);
    }
    filters.install().map(Some)
}

fn limits(setup: &Setup) -> Result<(), SetupError> {
    let both = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let bytes = |mb: u64| mb.saturating_mul(1 << 20);
    let allowed =
        |resource, value: u64| getrlimit(resource).maximum.map_or(value, |m| value.min(m));
    // 1 byte is no core file, and unlike 0 it also keeps the kernel from starting the host's program
    // for cores as root (`fs/coredump.c`, where `core_pattern` begins with `|`).
    setrlimit(Resource::Core, both(allowed(Resource::Core, 1))).step("forbid core files")?;
    let processes = allowed(Resource::Nproc, u64::from(setup.processes_max));
    setrlimit(Resource::Nproc, both(processes)).step("limit processes")?;
    let longest = allowed(Resource::Fsize, bytes(setup.disk_mb_max));
    setrlimit(Resource::Fsize, both(longest)).step("limit the size of files")?;
    // Nothing else sets it.
    let _ = OF_COMMANDS.set(CommandLimits {
        open_files: open_files_max(setup.processes_max, file_max()?),
        data: setup.data_mb_max.map(|data| allowed(Resource::Data, bytes(data))),
    });
    // All that the server may have, too: see `limit_command`.
    let open_files = getrlimit(Resource::Nofile).maximum;
    let open_files = Rlimit { current: open_files, maximum: open_files };
    setrlimit(Resource::Nofile, open_files).step("raise the limit of open files")
}

/// Leaves the rest of what the kernel counts for the host user to the server and to other sandboxes
/// of that user. A sandbox of root's server has a host user of its own, and all of it. What a process
/// of an ordinary user's namespace takes counts for that user, too, whichever uid it has there (each
/// level of `inc_ucount` in `kernel/ucount.c`).
fn share() -> Result<(), SetupError> {
    for name in ["instances", "watches"] {
        let step = format!("limit inotify {name}");
        let of_user = match fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{name}")) {
            // This kernel has no inotify.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            of_user => of_user.step(&step)?,
        };
        let of_user: u64 = of_user.trim().parse().map_err(|_| SetupError::check(&step))?;
        let own = (of_user / SHARE).to_string();
        fs::write(format!("/proc/sys/user/max_inotify_{name}"), own).step(&step)?;
    }
    for resource in [Resource::Sigpending, Resource::Msgqueue] {
        if let Some(of_user) = getrlimit(resource).maximum {
            let own = Some(of_user / SHARE);
            setrlimit(resource, Rlimit { current: own, maximum: own })
                .step("limit signals and queues")?;
        }
    }
    Ok(())
}

/// Limits what only commands are limited in. In a command's fork, as its last step before it is
/// executed: an allocation behind this can fail.
///
/// - *Open files.* The kernel refuses to pass descriptors while those of the sender's *user* that
///   are on their way exceed the sender's limit (`ETOOMANYREFS`, `unix(7)`). The server and every
///   other sandbox can be the same user. With a part of their limit, no command gets that many on
///   the way.
/// - *Data.* An allocator may ask the kernel for an arena that is larger than the sandbox's memory,
///   of which it touches little (`RLIMIT_DATA` in `getrlimit(2)` counts what is mapped). PID 1 that
///   is refused one ends, and the sandbox with it.
pub fn limit_command() -> Result<(), Errno> {
    let Some(CommandLimits { open_files: most, data }) = OF_COMMANDS.get() else {
        // No command is started before PID 1 is confined.
        return Err(Errno::PERM);
    };
    let all = getrlimit(Resource::Nofile).maximum;
    let open_files = Some(all.map_or(*most, |all| (all / SHARE).min(*most)));
    setrlimit(Resource::Nofile, Rlimit { current: open_files, maximum: open_files })?;
    match *data {
        Some(_) => setrlimit(Resource::Data, Rlimit { current: *data, maximum: *data }),
        None => Ok(()),
    }
}

/// The open files of the whole machine.
fn file_max() -> Result<u64, SetupError> {
    let step = "read the machine's limit of open files";
    let max = fs::read_to_string("/proc/sys/fs/file-max").step(step)?;
    max.trim().parse().map_err(|_| SetupError::check(step))
}

fn give_up_capabilities() -> Result<(), SetupError> {
    // Up to the kernel's last capability; the library may not have names for all.
    let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap").step("count capabilities")?;
    let last: u32 = last.trim().parse().map_err(|_| SetupError::check("count capabilities"))?;
    let last = if on(Bug::BoundingSetKept) { 0 } else { last.min(63) };
    for number in 0..=last {
        remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number))
            .step("empty the bounding set")?;
    }
    clear_ambient_capability_set().step("empty the ambient set")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    if on(Bug::CapabilitiesKept) {
        return Ok(());
    }
    set_capabilities(None, none).step("give up capabilities")
}
