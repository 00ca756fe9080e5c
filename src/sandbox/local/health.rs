//! Whether this host can make sandboxes, found out by making one.
//!
//! Kernel settings explain a failure but do not predict it: only a ready sandbox counts. Each
//! known failure of a step has a remedy; an unknown one is reported with the system's error.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::io::Errno;

use super::image;
use super::inside::HOST_ROOT;
use super::launching::LaunchError;

/// How long a good result is cached.
pub const GOOD_FOR: Duration = Duration::from_secs(600);

/// How long a bad result is cached: an operator may be fixing the cause.
pub const BAD_FOR: Duration = Duration::from_secs(10);

/// The message for people: which step failed, why, and what to do.
pub fn explain(error: &LaunchError) -> String {
    let step = &error.step;
    let Some(errno) = error.errno() else {
        let what = format!("cannot make local sandboxes: {step}");
        return if step.ends_with(HOST_ROOT) { format!("{what}. {NOT_AS_ROOT}") } else { what };
    };
    let why = std::io::Error::from(errno);
    let what = format!("cannot make local sandboxes: cannot {step}: {why}");
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    match remedy(step, errno, is_chroot(), setting) {
        Some(remedy) => format!("{what}. {remedy}"),
        None => what,
    }
}

/// A sandbox of an ordinary user's server has the user's own ids.
const NOT_AS_ROOT: &str = "The server runs as an ordinary user in root's group: give it a group \
    of its own, in a container with `--user UID:GID`";

/// Whether this process's root is a chroot, as far as it is visible: the root is not a mount, or
/// differs from the first process's root.
fn is_chroot() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_root = |line: &str| line.split(' ').nth(4) == Some("/");
    if !mounts.is_empty() && !mounts.lines().any(is_root) {
        return true;
    }
    // Only root may read it.
    let place = |path: &str| fs::metadata(path).map(|at| (at.dev(), at.ino())).ok();
    place("/proc/1/root/.").is_some_and(|first| Some(first) != place("/"))
}

/// The remedy for a failed step; `setting` reads a kernel setting by its path.
fn remedy(
    step: &str,
    errno: Errno,
    is_chroot: bool,
    setting: impl Fn(&str) -> Option<String>,
) -> Option<&'static str> {
    let is = |path: &str, value: &str| setting(path).as_deref() == Some(value);
    let makes_namespace = step.starts_with("make a") && step.ends_with("namespace");
    let restricted = is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1");
    match (step, errno) {
        (_, Errno::NOSPC) if makes_namespace => Some(
            "The kernel allows too few namespaces: set `sysctl user.max_user_namespaces` (and its \
             siblings) to 10000 or so",
        ),
        (_, Errno::NOSYS | Errno::INVAL) if makes_namespace => {
            Some("This kernel was built without namespaces; use provider \"docker\"")
        }
        (_, Errno::PERM)
            if makes_namespace && is("/proc/sys/kernel/unprivileged_userns_clone", "0") =>
        {
            Some("Allow user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1`")
        }
        (_, Errno::PERM | Errno::ACCESS) if restricted => Some(
            "AppArmor forbids this without a profile: install deploy/apparmor/issuebox \
             (with the binary's own path in it) as /etc/apparmor.d/issuebox, and load it with \
             `apparmor_parser -r /etc/apparmor.d/issuebox`",
        ),
        (_, Errno::PERM) if makes_namespace && is_chroot => Some(
            "This is a chroot, where the kernel allows no user namespaces: run the server outside \
             of it, or use systemd's RootDirectory= or a container instead",
        ),
        (_, Errno::PERM) if makes_namespace => Some(
            "In a container, allow user namespaces: `--security-opt seccomp=unconfined --security-opt \
             systempaths=unconfined`",
        ),
        ("give up supplementary groups", Errno::PERM) => Some(
            "The server is root in a user namespace without other users: run it as an \
             ordinary user there, or map a range of uids and gids into it",
        ),
        ("mount /proc", Errno::PERM) => Some(
            "Parts of /proc are hidden, as in a container: start the container with \
             `--security-opt systempaths=unconfined`",
        ),
        (
            "take the sandbox's own uid"
            | "take the sandbox's own gid"
            | "give the workspace to the sandbox's user",
            Errno::INVAL,
        ) => Some(
            "The host uids of sandboxes are not mapped into this container: give root numbers in \
             /etc/subuid and /etc/subgid that /proc/self/uid_map has, or run the server as an \
             ordinary user",
        ),
        ("map the sandbox's own uid", _) => Some(
            "newuidmap refuses the sandbox's uid: /etc/subuid and /etc/subgid must give it to the \
             server's user",
        ),
        (_, Errno::NOSYS) => Some("Linux 5.12 or newer is needed"),
        ("start the launcher", _) => Some("The server's program file must exist and be executable"),
        _ => image::remedy(step, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_failure_has_its_remedy() {
        let none = |_: &str| None;
        let namespace = "make a user namespace";
        let find = |step, errno| remedy(step, errno, false, none).unwrap_or_default();
        assert!(find(namespace, Errno::NOSPC).contains("max_user_namespaces"));
        assert!(find(namespace, Errno::PERM).contains("seccomp=unconfined"));
        assert!(find("mount /proc", Errno::PERM).contains("systempaths=unconfined"));
        assert!(find("restrict the workspace", Errno::NOSYS).contains("5.12"));
        let apparmor = |path: &str| path.contains("apparmor").then(|| "1".to_string());
        let found =
            remedy("make mounts private", Errno::ACCESS, false, apparmor).unwrap_or_default();
        assert!(found.contains("AppArmor"));
        assert!(find("give up supplementary groups", Errno::PERM).contains("ordinary user"));
        let chroot = remedy(namespace, Errno::PERM, true, none).unwrap_or_default();
        assert!(chroot.contains("chroot"));
        assert!(!is_chroot(), "tests run outside of a chroot");
    }

    #[test]
    fn an_unknown_failure_is_reported_with_its_step() {
        let error = LaunchError { step: "dance".into(), errno: Errno::IO.raw_os_error() };
        assert!(explain(&error).contains("cannot dance: Input/output error"));
        let error = LaunchError { step: "PID 1 is dumpable".into(), errno: 0 };
        assert!(explain(&error).ends_with("PID 1 is dumpable"));
        let error = LaunchError { step: format!("gid {HOST_ROOT}"), errno: 0 };
        assert!(explain(&error).ends_with("`--user UID:GID`"));
    }
}
