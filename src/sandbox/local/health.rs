//! Whether sandboxes can be made here, found out by making one.
//!
//! Settings of the kernel explain a failure but do not predict it: what counts is whether a whole
//! sandbox becomes ready. Each step that can fail has its remedy; one that is not known here is
//! named with the system's own words.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::io::Errno;

use super::image;
use super::inside::HOST_ROOT;
use super::launching::LaunchError;

/// How long a good answer is believed.
pub const GOOD_FOR: Duration = Duration::from_secs(600);

/// How long a bad answer is believed: somebody may be repairing what it named.
pub const BAD_FOR: Duration = Duration::from_secs(10);

/// A sentence for people: which step failed, why, and what to do.
pub fn explain(error: &LaunchError) -> String {
    let step = &error.step;
    let Some(errno) = error.errno() else {
        let what = format!("local sandboxes can't be made: {step}");
        return if step.ends_with(HOST_ROOT) { format!("{what}. {NOT_AS_ROOT}") } else { what };
    };
    let why = std::io::Error::from(errno);
    let what = format!("local sandboxes can't be made: could not {step}: {why}");
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    match remedy(step, errno, is_chroot(), setting) {
        Some(remedy) => format!("{what}. {remedy}"),
        None => what,
    }
}

/// An ordinary user's sandboxes have the user's own ids.
const NOT_AS_ROOT: &str = "The server runs as an ordinary user whose group is root's: give it one \
    of its own, in a container with `--user UID:GID`";

/// Whether this process's root is a directory of somebody else's, as far as that can be seen: it is
/// not a mount, or not what the first process has.
fn is_chroot() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_root = |line: &str| line.split(' ').nth(4) == Some("/");
    if !mounts.is_empty() && !mounts.lines().any(is_root) {
        return true;
    }
    // Only root may look there.
    let place = |path: &str| fs::metadata(path).map(|at| (at.dev(), at.ino())).ok();
    place("/proc/1/root/.").is_some_and(|first| Some(first) != place("/"))
}

/// What to do about a failed step; `setting` reads a kernel setting by its path.
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
            Some("Allow it: `sysctl -w kernel.unprivileged_userns_clone=1`")
        }
        (_, Errno::PERM | Errno::ACCESS) if restricted => Some(
            "AppArmor forbids it to programs without a profile: install deploy/apparmor/issuebox \
             (with the binary's own path in it) as /etc/apparmor.d/issuebox, and load it with \
             `apparmor_parser -r /etc/apparmor.d/issuebox`",
        ),
        (_, Errno::PERM) if makes_namespace && is_chroot => Some(
            "This is a chroot, in which the kernel makes no user namespaces: run the server outside \
             of it, or let systemd's RootDirectory= or a container make its root",
        ),
        (_, Errno::PERM) if makes_namespace => Some(
            "In a container, allow it: `--security-opt seccomp=unconfined --security-opt \
             systempaths=unconfined`",
        ),
        ("give up supplementary groups", Errno::PERM) => Some(
            "The server is root only in a user namespace that has no other users: run it as an \
             ordinary user there, or map a range of uids and gids into it",
        ),
        ("mount /proc", Errno::PERM) => Some(
            "Parts of /proc are hidden here, as in a container: start that with \
             `--security-opt systempaths=unconfined`",
        ),
        ("take the sandbox's own uid" | "take the sandbox's own gid", Errno::INVAL) => Some(
            "The configured range of host uids is not mapped into this container: choose one that \
             is (see /proc/self/uid_map)",
        ),
        (_, Errno::NOSYS) => Some("Linux 5.12 or newer is needed"),
        ("start the launcher", _) => Some("The program's own file must be there and executable"),
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
        assert!(!is_chroot(), "as far as tests run in none");
    }

    #[test]
    fn an_unknown_failure_names_its_step() {
        let error = LaunchError { step: "dance".into(), errno: Errno::IO.raw_os_error() };
        assert!(explain(&error).contains("could not dance: Input/output error"));
        let error = LaunchError { step: "PID 1 is dumpable".into(), errno: 0 };
        assert!(explain(&error).ends_with("PID 1 is dumpable"));
        let error = LaunchError { step: format!("gid {HOST_ROOT}"), errno: 0 };
        assert!(explain(&error).ends_with("`--user UID:GID`"));
    }
}
