//! Finds this process's control groups in what the kernel reports. Pure.

use std::path::{Path, PathBuf};

/// The control groups of this process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnGroups {
    /// Each controller of version 1, and this process's directory in its hierarchy.
    pub first: Vec<(String, PathBuf)>,
    /// This process's directory in the one hierarchy of version 2.
    pub second: Option<PathBuf>,
}

/// Reads `/proc/self/cgroup` and `/proc/self/mountinfo`.
pub fn find(cgroup: &str, mountinfo: &str) -> OwnGroups {
    let mounts: Vec<CgroupMount<'_>> = mountinfo.lines().filter_map(mount).collect();
    let mut found = OwnGroups::default();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let place = |kind: &str, controller: Option<&str>| {
            let fits = |mount: &&CgroupMount<'_>| {
                mount.kind == kind
                    && controller.is_none_or(|c| mount.options.split(',').any(|o| o == c))
            };
            mounts.iter().filter(fits).find_map(|mount| mount.place_of(path))
        };
        if number == "0" && controllers.is_empty() {
            found.second = place("cgroup2", None);
            continue;
        }
        for controller in controllers.split(',') {
            let at = place("cgroup", Some(controller));
            found.first.extend(at.map(|at| (controller.to_owned(), at)));
        }
    }
    found
}

/// A mounted file system, as `mountinfo` shows it.
struct CgroupMount<'a> {
    /// Which directory of the file system is mounted.
    root: &'a str,
    /// The mount point.
    point: String,
    kind: &'a str,
    options: &'a str,
}

impl CgroupMount<'_> {
    /// The path at which a directory of the file system is visible; `None` if it is outside of the
    /// mounted part, as in a container that sees only its own part.
    fn place_of(&self, path: &str) -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(self.root).ok()?;
        let is_plain = below.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        is_plain.then(|| Path::new(&self.point).join(below))
    }
}

fn mount(line: &str) -> Option<CgroupMount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
    Some(CgroupMount { root, point: unescaped(point), kind, options })
}

/// `mountinfo` writes spaces and the like as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) => {
                out.push(char::from(byte));
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
        30 29 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs rw,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 /jobs /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n\
        33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn each_controller_of_version_1_is_found_in_its_own_hierarchy() {
        let cgroup = "5:memory:/jobs/a:b\n4:cpu,cpuacct:/\n3:pids:/x\n0::/user/1\n";
        let found = find(cgroup, FIRST);
        assert_eq!(
            found.first,
            [
                ("memory".into(), "/sys/fs/cgroup/mem ory/a:b".into()),
                ("cpu".into(), "/sys/fs/cgroup/cpu,cpuacct".into()),
                ("cpuacct".into(), "/sys/fs/cgroup/cpu,cpuacct".into()),
            ],
            "and pids, which is not mounted, is not"
        );
        assert_eq!(found.second, Some("/sys/fs/cgroup/unified/user/1".into()));
    }

    #[test]
    fn a_directory_outside_of_the_mount_is_not_found() {
        // Another part is mounted, or the process is above the mounted part.
        for path in ["/other", "/", "/jobsnot", "/jobs/../x"] {
            assert_eq!(find(&format!("5:memory:{path}\n"), FIRST), OwnGroups::default(), "{path}");
        }
        let mounts = "31 30 0:27 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/\n", mounts).second, None);
        let mounts = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/../other\n", mounts).second, None);
        assert_eq!(find("", ""), OwnGroups::default());
        assert_eq!(find("garbage\n0:", "garbage - \n"), OwnGroups::default());
    }
}
