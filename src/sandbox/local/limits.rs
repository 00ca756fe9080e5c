//! What a sandbox may use: which limits hold on this machine, and how.
//!
//! | limit | with a control group | without |
//! |---|---|---|
//! | memory | *enforced*: everything together, page cache and tmpfs included | *per process*: what is private to it |
//! | cpu | *enforced*: a share of the processors | *none* |
//! | processes | *enforced* | *enforced*: each sandbox has a user namespace of its own, in which they are counted |
//! | disk | see below | see below |
//! | open files, file size | *per process* | the same |
//!
//! Files in memory (`/tmp`, the home, `/dev/shm`) count as memory, belong to no process, and are together
//! smaller than it (see `scratch_mb`). Shared memory of the old kind (`shmget`) counts too and can fill
//! all of it; then every further command is ended by the limit until the sandbox is stopped and started.
//!
//! The disk as a whole, bytes and names, is *enforced* where root can mount images (`image.rs`). Where
//! it can't, the length of one file is limited to as much, and the whole is *watched*: its launcher
//! walks through the workspace once in a while (`inside/watchdog.rs`), and where that has become too
//! large all that runs in it is killed. Between two looks it can become larger, and files that are
//! open and have no name any more are not seen. So who requires limits is refused.
//!
//! What happens when one strikes: `limit_events.rs`.

use super::cgroup::{Cgroups, Controller};
use super::frame::Setup;
use crate::sandbox::{Enforcement, Enforcements, LimitKind};
use crate::types::Resources;

/// How much the number of processes may exceed the control group's before the sandbox's own user
/// namespace stops it: where both would stop at the same, the one that is not counted comes first.
const PROCESSES_SLACK: u32 = 16;

/// What a shell and a small program need, in MiB, with room to spare.
const RESERVE_MB_MIN: u64 = 16;

/// Why the disk of a sandbox is only watched that was made where images could not be mounted.
pub const MADE_WITHOUT: &str = "it was made without an image: delete it and make it again";

/// The limits, and how each holds.
pub fn holds(cgroups: &Cgroups, why_no_image: Option<&str>) -> Enforcements {
    use Enforcement::{Enforced, PerProcess, Watched};
    let with = |controller, without| if cgroups.has(controller) { Enforced } else { without };
    Enforcements::from([
        (LimitKind::Cpu, with(Controller::Cpu, Enforcement::None)),
        (LimitKind::Memory, with(Controller::Memory, PerProcess)),
        (LimitKind::Processes, Enforced),
        (LimitKind::Disk, if why_no_image.is_none() { Enforced } else { Watched }),
        (LimitKind::OpenFiles, PerProcess),
        (LimitKind::FileSize, PerProcess),
    ])
}

/// The limits of a template that are not enforced for a sandbox as a whole, in words with the
/// reason of each; `None` where all are.
pub fn not_enforced(cgroups: &Cgroups, why_no_image: Option<&str>) -> Option<String> {
    let why = |limit| match limit {
        LimitKind::Cpu => cgroups.why_not(Controller::Cpu),
        LimitKind::Memory => cgroups.why_not(Controller::Memory),
        LimitKind::Disk => why_no_image,
        LimitKind::Processes | LimitKind::OpenFiles | LimitKind::FileSize => None,
    };
    let is_asked = |limit| !matches!(limit, LimitKind::OpenFiles | LimitKind::FileSize);
    let missing: Vec<String> = holds(cgroups, why_no_image)
        .into_iter()
        .filter(|(limit, _)| is_asked(*limit))
        .filter_map(|(limit, how)| {
            let how = match how {
                Enforcement::Enforced => return None,
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

/// Sets the part of the order that is about limits.
pub fn ask(cgroups: &Cgroups, resources: &Resources, setup: Setup) -> Setup {
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

/// How much of its memory a sandbox may fill with files: what is left is for the command that
/// removes them, since no command's end gives any of that back.
fn scratch_mb(memory_mb: u64) -> u32 {
    let reserve = (memory_mb / 8).max(RESERVE_MB_MIN).min(memory_mb / 2);
    u32::try_from(memory_mb - reserve).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_memory_leave_room_for_who_removes_them() {
        for (memory, scratch) in
            [(16, 8), (32, 16), (64, 48), (512, 448), (1024, 896), (16_777_216, 14_680_064)]
        {
            assert_eq!(scratch_mb(memory), scratch, "of {memory} MB");
        }
    }
}
