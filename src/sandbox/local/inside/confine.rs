//! Drops everything that a sandbox does not need, for good.
//!
//! The order matters: emptying the bounding set needs capabilities; the parent-death signal comes
//! late, because changes of identity clear it; the system-call filter comes last, because it
//! refuses calls that earlier steps need.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::super::frame::{Reach, Setup};
use super::super::limits::open_files_max;
use super::seccomp::Filters;
use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};

/// Settings of a sandbox's own network, for sockets that no control group counts: the longest TCP
/// buffers that grow by themselves, and what else one socket may hold (the kernel's default until
/// 6.8, where it became six times that).
const OF_NETWORK: [(&str, &str); 3] = [
    ("ipv4/tcp_rmem", "4096 131072 1048576"),
    ("ipv4/tcp_wmem", "4096 16384 1048576"),
    ("core/optmem_max", "20480"),
];

/// Confines this process and all its future children. The view is already entered. Returns the
/// listener for [netlink sockets](super::netlink).
pub fn confine(setup: &Setup, filters: &Filters) -> Result<Option<OwnedFd>, SetupError> {
    sethostname(b"sandbox").step("name the host")?;
    match setup.reach {
        Reach::Loopback | Reach::Proxy if on(Bug::NetworkShared) => {}
        Reach::Loopback | Reach::Proxy => {
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
    setrlimit(Resource::Core, both(0)).step("forbid core files")?;
    let bytes = |mb: u64| mb.saturating_mul(1 << 20);
    let allowed =
        |resource, value: u64| getrlimit(resource).maximum.map_or(value, |m| value.min(m));
    let processes = allowed(Resource::Nproc, u64::from(setup.processes_max));
    setrlimit(Resource::Nproc, both(processes)).step("limit processes")?;
    let longest = allowed(Resource::Fsize, bytes(setup.disk_mb_max));
    setrlimit(Resource::Fsize, both(longest)).step("limit the size of files")?;
    if let Some(data) = setup.data_mb_max {
        let data = allowed(Resource::Data, bytes(data));
        setrlimit(Resource::Data, both(data)).step("limit the memory of a process")?;
    }
    let open_files = allowed(Resource::Nofile, open_files_max(setup.processes_max, file_max()?));
    setrlimit(Resource::Nofile, both(open_files)).step("limit open files")
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
