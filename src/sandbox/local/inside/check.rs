//! PID 1's check of its own isolation before it reports *ready*.
//!
//! It asks the kernel, not the code that set things up. A step that silently did less than it
//! should is found here, and then there is no sandbox.

use std::fs;
use std::os::fd::RawFd;
use std::path::Path;

use rustix::process::{DumpableBehavior, Signal, dumpable_behavior, parent_process_death_signal};

use super::super::frame::Setup;
use super::seccomp::FILTERS;
use super::view::HIDDEN;
use super::{INNER_ID, NameStep, SetupError, WORKSPACE, held, network};
use crate::sandbox::reach::Reach;

/// The end of the message, after `uid` or `gid`, about an inner id that is 0 outside.
pub const HOST_ROOT: &str = "0 of the host is mapped into the sandbox";

/// The only writable mounts.
const WRITABLE: [&str; 5] = [WORKSPACE, "/tmp", "/home", "/dev/shm", "/proc"];

/// Checks everything that is visible from inside. `descriptors` are all that may be open, beside
/// the `door` of the workers' control group; `host_network` is the host's network namespace, which
/// only the order may allow.
pub fn check(
    descriptors: &[RawFd],
    door: Option<RawFd>,
    setup: &Setup,
    host_network: &Path,
) -> Result<(), SetupError> {
    let read = |path: &str| fs::read_to_string(path).step(&format!("read {path}"));
    let failed = |what: Option<String>| what.map_or(Ok(()), |what| Err(SetupError::check(what)));
    failed(status_trouble(&read("/proc/self/status")?))?;
    failed(map_trouble("uid", &read("/proc/self/uid_map")?))?;
    failed(map_trouble("gid", &read("/proc/self/gid_map")?))?;
    let mounts = read("/proc/self/mountinfo")?;
    failed(mount_trouble(&mounts))?;
    failed(hidden_trouble(&mounts, |path| fs::symlink_metadata(path).is_ok()))?;
    if setup.has_work_group {
        failed(group_trouble(&read("/proc/self/cgroup")?))?;
    }
    match setup.reach {
        Reach::Loopback | Reach::Git | Reach::Proxy => {
            let is_host = network::namespace()? == host_network;
            failed(is_host.then(|| "the sandbox has the host's network".to_owned()))?;
            failed(network_trouble(&read("/proc/self/net/dev")?))?;
        }
        Reach::Host => {}
    }
    let dumpable = dumpable_behavior().step("read the dumpable flag")?;
    if dumpable != DumpableBehavior::NotDumpable {
        return Err(SetupError::check("PID 1 is dumpable"));
    }
    let death = parent_process_death_signal().step("read the parent-death signal")?;
    if death != Some(Signal::KILL) {
        return Err(SetupError::check("PID 1 would outlive its launcher"));
    }
    descriptor_trouble(&[descriptors, door.as_slice()].concat())?;
    held::check(&mounts, door)
}

/// The first wrong privilege in `/proc/self/status`.
fn status_trouble(status: &str) -> Option<String> {
    let value = |key: &str| {
        status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if value(set).is_none_or(|bits| bits.is_empty() || bits.bytes().any(|b| b != b'0')) {
            return Some(format!("{set} is not empty"));
        }
    }
    if value("NoNewPrivs") != Some("1") {
        return Some("NoNewPrivs is not set".into());
    }
    let filtered = value("Seccomp") == Some("2");
    // Kernels before 5.9 do not count.
    let filters = value("Seccomp_filters").map_or(Ok(FILTERS), str::parse);
    if !filtered || !filters.is_ok_and(|count| count >= FILTERS) {
        return Some("system calls are not filtered".into());
    }
    let ids = [INNER_ID; 4].map(|id| id.to_string()).join("\t");
    (value("Uid") != Some(&ids) || value("Gid") != Some(&ids))
        .then(|| format!("PID 1 is not uid and gid {INNER_ID}"))
}

/// What is wrong in a `uid` or `gid` map: it must map one id, and not the host's root.
fn map_trouble(kind: &str, map: &str) -> Option<String> {
    let ids: Vec<&str> = map.split_ascii_whitespace().collect();
    match ids[..] {
        [inner, "0", "1"] if inner == INNER_ID.to_string() => Some(format!("{kind} {HOST_ROOT}")),
        [inner, _, "1"] if inner == INNER_ID.to_string() => None,
        _ => Some(format!("the {kind} map is {:?}", ids.join(" "))),
    }
}

/// What is wrong in `/proc/self/mountinfo`: a mount that is wrongly writable, or allows set-uid
/// programs or devices.
fn mount_trouble(mounts: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let has = |option| options.split(',').any(|o| o == option);
        let device = point.starts_with("/dev/") && point != "/dev/shm";
        if !has("ro") && !WRITABLE.contains(&point) {
            Some(format!("{point} is writable"))
        } else if !has("nosuid") {
            Some(format!("{point} honours set-uid"))
        } else if !has("nodev") && !device {
            Some(format!("{point} opens devices"))
        } else {
            None
        }
    })
}

/// What of `/proc` should be covered and is not; `exists` says what this kernel has.
fn hidden_trouble(mounts: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let covers = |path: &str| mounts.lines().any(|line| line.split(' ').nth(4) == Some(path));
    let paths = HIDDEN.iter().map(|name| format!("/proc/{name}"));
    paths
        .into_iter()
        .find(|path| exists(path) && !covers(path))
        .map(|path| format!("{path} is not covered"))
}

/// What is wrong in `/proc/self/cgroup`: the namespace's root is the workers' group, and PID 1
/// must be outside of it.
fn group_trouble(groups: &str) -> Option<String> {
    let path = |line: &str| line.splitn(3, ':').nth(2).map(|path| path.starts_with("/.."));
    let is_outside = groups.lines().any(|line| path(line) == Some(true));
    (!is_outside).then(|| "PID 1 is in the group whose memory is limited".into())
}

/// What is wrong in `/proc/self/net/dev`: an interface other than loopback.
fn network_trouble(interfaces: &str) -> Option<String> {
    let names = interfaces.lines().skip(2).filter_map(|line| line.split(':').next());
    names
        .map(str::trim)
        .find(|name| *name != "lo" && !is_template(name))
        .map(|name| format!("the sandbox has the network interface {name}"))
}

/// Interfaces that some kernels create, down and without an address, in every network namespace.
fn is_template(name: &str) -> bool {
    let templates = ["tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0"];
    templates.contains(&name) || ["ip6tnl0", "ip6gre0"].contains(&name)
}

fn descriptor_trouble(allowed: &[RawFd]) -> Result<(), SetupError> {
    let listing = fs::read_dir("/proc/self/fd").step("list descriptors")?;
    let open: Vec<RawFd> =
        listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // The listing's own descriptor is closed by now.
    let still_open = |fd: &RawFd| fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok();
    match open.iter().find(|fd| **fd > 2 && !allowed.contains(fd) && still_open(fd)) {
        None => Ok(()),
        Some(fd) => Err(SetupError::check(format!("descriptor {fd} was inherited"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n\
        CapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\n\
        Seccomp:\t2\nSeccomp_filters:\t4\n";

    #[test]
    fn privileges_are_found() {
        assert_eq!(status_trouble(STATUS), None);
        for (from, to) in [
            ("CapEff:\t0000", "CapEff:\t0001"),
            ("CapBnd:\t0000", "CapBnd:\t0200"),
            ("CapBnd:\t0000\n", ""),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp:\t2", "Seccomp:\t1"),
            ("Seccomp:\t2\n", ""),
            ("Seccomp_filters:\t4", "Seccomp_filters:\t3"),
            ("Seccomp_filters:\t4", "Seccomp_filters:\tmany"),
            ("Uid:\t1000", "Uid:\t0"),
            ("Gid:\t1000", "Gid:\t0"),
        ] {
            assert!(status_trouble(&STATUS.replace(from, to)).is_some(), "{to} must be found");
        }
    }

    #[test]
    fn the_host_s_root_and_further_ids_are_found() {
        assert_eq!(map_trouble("uid", "      1000    2000123          1\n"), None);
        for bad in ["1000 0 1", "0 2000123 1", "1000 2000123 2", "1000 5 1\n1001 6 1", ""] {
            assert!(map_trouble("gid", bad).is_some(), "{bad:?} must be found");
        }
    }

    #[test]
    fn mounts_that_give_too_much_are_found() {
        let line = |point: &str, options: &str| {
            format!("36 35 98:0 /r {point} {options} master:1 - ext4 /dev/root rw")
        };
        let good = [
            line("/", "ro,nosuid,nodev,relatime"),
            line("/workspace", "rw,nosuid,nodev"),
            line("/dev/null", "ro,nosuid,noexec"),
        ];
        assert_eq!(mount_trouble(&good.join("\n")), None);
        for bad in [
            line("/usr", "rw,nosuid,nodev"),
            line("/usr", "ro,nodev"),
            line("/usr", "ro,nosuid"),
            line("/dev/shm", "rw,nosuid"),
            line("/workspace/x", "rw,nosuid,nodev"),
        ] {
            assert!(mount_trouble(&bad).is_some(), "{bad:?} must be found");
        }
    }

    #[test]
    fn what_is_left_uncovered_in_proc_is_found() {
        let line = |name: &str| format!("50 49 0:9 /x /proc/{name} ro - tmpfs tmpfs rw");
        let all: Vec<String> = HIDDEN.iter().map(|name| line(name)).collect();
        assert_eq!(hidden_trouble(&all.join("\n"), |_| true), None);
        let rest = all[1..].join("\n");
        let trouble = hidden_trouble(&rest, |_| true);
        assert_eq!(trouble.as_deref(), Some("/proc/fs is not covered"));
        assert_eq!(hidden_trouble(&rest, |path| path != "/proc/fs"), None, "it does not exist");
    }

    #[test]
    fn pid_1_in_the_workers_group_is_found() {
        for outside in ["5:pids:/\n4:memory:/..\n0::/\n", "0::/../rest\n"] {
            assert_eq!(group_trouble(outside), None, "{outside}");
        }
        for inside in ["5:pids:/\n4:memory:/\n0::/\n", "0::/\n", ""] {
            assert!(group_trouble(inside).is_some(), "{inside}");
        }
    }

    #[test]
    fn network_interfaces_are_found() {
        let head = "Inter-| Receive\n face |bytes\n";
        assert_eq!(network_trouble(&format!("{head}    lo: 0 0\n  sit0: 0\n")), None);
        assert!(network_trouble(&format!("{head}    lo: 0 0\n  eth0: 0\n")).is_some());
    }
}
