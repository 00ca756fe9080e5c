//! The limits of a sandbox: which of them this machine enforces, and how.
//!
//! | limit | with a control group | without |
//! |---|---|---|
//! | memory | *enforced*: see `memory_counts` | *per process*: private memory |
//! | cpu | *enforced*: a share of the processors | *none* |
//! | processes | *enforced* | *enforced*: they are counted in each sandbox's own user namespace |
//! | disk | see below | see below |
//! | open files, file size | *per process* | the same |
//! | what the kernel counts by user | *enforced* if the sandbox has a host uid of its own (`own_uids.rs`), else *none* | the same |
//!
//! Files in memory (`/tmp`, the home, `/dev/shm`) count as memory, belong to no process, and are
//! bounded below the limit (see `scratch_mb`). System V shared memory (`shmget`) counts too and
//! can fill the whole limit; then the limit kills every further command until the sandbox
//! restarts.
//!
//! The disk, bytes and inodes, is *enforced* if root can mount images (`image.rs`). Otherwise it
//! is *watched*: one file may be as long as the limit, and the launcher measures the workspace
//! from time to time (`inside/watchdog.rs`). When it is too large, every process in the sandbox is
//! killed. Between two measurements it can grow further, and open files without a name are not
//! seen. So sandboxes are refused if the configuration requires limits.
//!
//! `limit_events.rs` handles a limit that is hit.

use std::ops::RangeInclusive;

use super::cgroup::{CgroupVersion, Cgroups, Controller};
use super::frame::Setup;
use crate::sandbox::{Enforcement, Enforcements, LimitKind};
use crate::types::Resources;

/// How far the user namespace's process limit exceeds the control group's. Only the group's limit
/// is counted, so it must be hit first.
const PROCESSES_SLACK: u32 = 16;

/// The memory of a shell and a small program, in MiB, with room to spare.
const RESERVE_MB_MIN: u64 = 16;

/// The open files of one process: the least, which programs take for granted, and the most, enough
/// for builds and servers.
const OPEN_FILES: RangeInclusive<u64> = 1024..=65_536;

/// The part of the machine's open files (`fs.file-max`) that all processes of a sandbox may have
/// together.
const OPEN_FILES_PART: u64 = 4;

/// Why the disk limit of a sandbox from before images is only watched.
pub const MADE_WITHOUT: &str = "it was made without an image; delete it and make it again";

/// Why a sandbox from before own uids shares the server's.
pub const MADE_SHARED: &str = "it was made with the server's uid; delete it and make it again";

/// The limits, and how each is enforced.
pub fn holds(
    cgroups: &Cgroups,
    why_no_image: Option<&str>,
    why_shared: Option<&str>,
) -> Enforcements {
    use Enforcement::{Enforced, PerProcess, Watched};
    let with = |controller, without| if cgroups.has(controller) { Enforced } else { without };
    Enforcements::from([
        (LimitKind::Cpu, with(Controller::Cpu, Enforcement::None)),
        (LimitKind::Memory, with(Controller::Memory, PerProcess)),
        (LimitKind::Processes, Enforced),
        (LimitKind::Disk, if why_no_image.is_none() { Enforced } else { Watched }),
        (LimitKind::OpenFiles, PerProcess),
        (LimitKind::FileSize, PerProcess),
        (LimitKind::UserCounters, if why_shared.is_none() { Enforced } else { Enforcement::None }),
    ])
}

/// What the limit on memory counts, by the version of the control group; `None` without one.
pub fn memory_counts(version: Option<CgroupVersion>) -> &'static str {
    match version {
        Some(CgroupVersion::First) => {
            "all memory of its commands together, with page cache, files in memory, pipes and UNIX \
             sockets; buffers of TCP and UDP are limited apart, to an eighth of it, at least 16 MB; \
             netlink sockets to about 64 MB"
        }
        Some(CgroupVersion::Second) => {
            "all memory of its commands together, with page cache, files in memory, pipes, and \
             buffers of UNIX, TCP and UDP sockets; netlink sockets are limited apart, to about 64 MB"
        }
        None => {
            "the private memory of each process; files in memory have a limit of their own, netlink \
             sockets about 64 MB, and shared memory and other buffers none"
        }
    }
}

/// The limits of a template that are not enforced for a whole sandbox, with reasons; `None` if all
/// are.
pub fn not_enforced(
    cgroups: &Cgroups,
    why_no_image: Option<&str>,
    why_shared: Option<&str>,
) -> Option<String> {
    let why = |limit| match limit {
        LimitKind::Cpu => cgroups.why_not(Controller::Cpu),
        LimitKind::Memory => cgroups.why_not(Controller::Memory),
        LimitKind::Disk => why_no_image,
        LimitKind::UserCounters => why_shared,
        LimitKind::Processes | LimitKind::OpenFiles | LimitKind::FileSize => None,
    };
    let is_in_template = |limit| !matches!(limit, LimitKind::OpenFiles | LimitKind::FileSize);
    let missing: Vec<String> = holds(cgroups, why_no_image, why_shared)
        .into_iter()
        .filter(|(limit, _)| is_in_template(*limit))
        .filter_map(|(limit, how)| {
            let how = match how {
                Enforcement::Enforced => return None,
                Enforcement::None if limit == LimitKind::UserCounters => {
                    "what the kernel counts by user is shared with the server".to_owned()
                }
                Enforcement::None => format!("{limit} is not limited"),
                Enforcement::Watched => format!("{limit} is only watched"),
                Enforcement::PerProcess => format!("{limit} is limited {how}"),
            };
            Some(match why(limit) {
                Some(why) => format!("{how} ({why})"),
                None => how,
            })
        })
        .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

/// Sets the limits in a launcher's order.
pub fn apply(cgroups: &Cgroups, resources: &Resources, setup: Setup) -> Setup {
    let slack = if cgroups.has(Controller::Pids) { PROCESSES_SLACK } else { 0 };
    Setup {
        processes_max: resources.processes.saturating_add(slack),
        disk_mb_max: resources.disk_mb,
        data_mb_max: (!cgroups.has(Controller::Memory)).then_some(resources.memory_mb),
        scratch_mb: scratch_mb(resources.memory_mb).min(setup.scratch_mb),
        has_work_group: cgroups.has(Controller::Memory),
        ..setup
    }
}

/// Most open files of one process of a sandbox, by the machine's limit `file_max`.
pub fn open_files_max(processes: u32, file_max: u64) -> u64 {
    let part = file_max / OPEN_FILES_PART / u64::from(processes.max(1));
    part.clamp(*OPEN_FILES.start(), *OPEN_FILES.end())
}

/// How much of its memory a sandbox may fill with files. The rest is for a command that removes
/// them, since no command's end frees any of it.
fn scratch_mb(memory_mb: u64) -> u32 {
    let reserve = (memory_mb / 8).max(RESERVE_MB_MIN).min(memory_mb / 2);
    u32::try_from(memory_mb - reserve).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_together_have_a_part_of_the_machine_s_open_files() {
        // What systemd sets, 24 GB, 4 GB of memory.
        for (processes, file_max, expected) in [
            (256, i64::MAX.cast_unsigned(), 65_536),
            (256, 2_466_165, 2_408),
            (16, 2_466_165, 38_533),
            (256, 400_000, 1024),
            (0, 400_000, 65_536),
        ] {
            assert_eq!(open_files_max(processes, file_max), expected, "{processes} of {file_max}");
        }
    }

    #[test]
    fn files_in_memory_leave_room_for_the_command_that_removes_them() {
        for (memory, scratch) in
            [(16, 8), (32, 16), (64, 48), (512, 448), (1024, 896), (16_777_216, 14_680_064)]
        {
            assert_eq!(scratch_mb(memory), scratch, "of {memory} MB");
        }
    }
}
