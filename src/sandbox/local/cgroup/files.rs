//! The values of a control group's files for a limit, and how to read its counters. Pure.

use super::{CgroupVersion, Controller};
use crate::types::Resources;

/// The period of a CPU quota, in microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;

/// The smallest quota of the kernel, in microseconds.
const QUOTA_US_MIN: u64 = 1_000;

/// In version 1, the bytes of TCP and UDP buffers in MiB: they count apart from memory. Measured
/// with 16: a hundred connections over loopback move 500 MB in 0.9 s, without a limit in 0.4 s.
const BUFFERS_MB_MIN: u64 = 16;

/// The same as a part of the memory.
const BUFFERS_PART: u64 = 8;

/// One value for one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file's name.
    pub file: &'static str,
    /// What is written into it.
    pub value: String,
    /// Whether the limit depends on it. The others are files that a kernel without swap lacks.
    pub is_needed: bool,
}

fn needed(file: &'static str, value: impl ToString) -> Setting {
    Setting { file, value: value.to_string(), is_needed: true }
}

fn if_present(file: &'static str, value: impl ToString) -> Setting {
    Setting { file, value: value.to_string(), is_needed: false }
}

/// The settings that enforce a sandbox's limits on a controller, in the order to write them.
pub fn settings(
    controller: Controller,
    version: CgroupVersion,
    resources: &Resources,
) -> Vec<Setting> {
    let memory = resources.memory_mb.saturating_mul(1 << 20);
    let buffers = (resources.memory_mb / BUFFERS_PART).max(BUFFERS_MB_MIN).saturating_mul(1 << 20);
    let quota = quota_us(resources.cpu);
    match (controller, version) {
        // Memory plus swap must not be below memory, so memory goes first.
        (Controller::Memory, CgroupVersion::First) => vec![
            needed("memory.limit_in_bytes", memory),
            if_present("memory.memsw.limit_in_bytes", memory),
            if_present("memory.swappiness", 0),
            needed("memory.kmem.tcp.limit_in_bytes", buffers),
        ],
        (Controller::Memory, CgroupVersion::Second) => {
            vec![needed("memory.max", memory), if_present("memory.swap.max", 0)]
        }
        (Controller::Cpu, CgroupVersion::First) => {
            vec![needed("cpu.cfs_period_us", PERIOD_US), needed("cpu.cfs_quota_us", quota)]
        }
        (Controller::Cpu, CgroupVersion::Second) => {
            vec![needed("cpu.max", format!("{quota} {PERIOD_US}"))]
        }
        (Controller::Pids, CgroupVersion::First | CgroupVersion::Second) => {
            vec![needed("pids.max", resources.processes)]
        }
    }
}

/// The file of version 2 that exists while the group has the controller.
pub fn limit(controller: Controller) -> &'static str {
    match controller {
        Controller::Memory => "memory.max",
        Controller::Cpu => "cpu.max",
        Controller::Pids => "pids.max",
    }
}

/// The quota of this many processors.
fn quota_us(cpu: f64) -> u64 {
    let quota = (cpu * 100_000.0).round();
    // The cast takes the nearest integer.
    (quota as u64).max(QUOTA_US_MIN)
}

/// The file that counts limit events, and the word before the count; `None` if the limit only
/// slows processes down.
pub fn counter(
    controller: Controller,
    version: CgroupVersion,
) -> Option<(&'static str, &'static str)> {
    match (controller, version) {
        (Controller::Memory, CgroupVersion::First) => Some(("memory.oom_control", "oom_kill")),
        (Controller::Memory, CgroupVersion::Second) => Some(("memory.events", "oom_kill")),
        (Controller::Pids, CgroupVersion::First | CgroupVersion::Second) => {
            Some(("pids.events", "max"))
        }
        (Controller::Cpu, CgroupVersion::First | CgroupVersion::Second) => None,
    }
}

/// The count after a word in a file of words and counts.
pub fn count(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// The dirty and written-back bytes in a group's `memory.stat`.
pub fn unwritten(version: CgroupVersion, stat: &str) -> Option<u64> {
    let [waiting, leaving] = match version {
        CgroupVersion::First => ["dirty", "writeback"],
        CgroupVersion::Second => ["file_dirty", "file_writeback"],
    };
    Some(count(stat, waiting)?.saturating_add(count(stat, leaving)?))
}

/// Whether the process `own` is alone in a group, by the group's `cgroup.procs`. Only then can it
/// move into a leaf, since a group with other processes can't delegate controllers.
pub fn is_alone(procs: &str, own: &str) -> bool {
    procs.lines().all(|pid| pid == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(controller: Controller, version: CgroupVersion, cpu: f64) -> String {
        let resources = Resources { cpu, memory_mb: 512, processes: 64, disk_mb: 1 };
        let settings = settings(controller, version, &resources);
        let line = |s: &Setting| format!("{}={}", s.file, s.value);
        settings.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn limits_are_written_in_the_kernel_s_units() {
        use CgroupVersion::{First, Second};
        use Controller::{Cpu, Memory, Pids};
        for (controller, version, cpu, expected) in [
            (
                Memory,
                First,
                1.0,
                "memory.limit_in_bytes=536870912 memory.memsw.limit_in_bytes=536870912 \
                 memory.swappiness=0 memory.kmem.tcp.limit_in_bytes=67108864",
            ),
            (Memory, Second, 1.0, "memory.max=536870912 memory.swap.max=0"),
            (Cpu, First, 1.5, "cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000"),
            (Cpu, Second, 0.5, "cpu.max=50000 100000"),
            (Cpu, Second, 0.001, "cpu.max=1000 100000"),
            (Pids, First, 1.0, "pids.max=64"),
            (Pids, Second, 1.0, "pids.max=64"),
        ] {
            assert_eq!(written(controller, version, cpu), expected);
        }
    }

    #[test]
    fn a_server_is_alone_only_if_no_other_process_is_in_its_group() {
        for (procs, expected) in
            [("7\n", true), ("", true), ("7\n8\n", false), ("8\n", false), ("77\n", false)]
        {
            assert_eq!(is_alone(procs, "7"), expected, "{procs:?}");
        }
    }

    #[test]
    fn counts_are_found_by_their_whole_word() {
        let events = "low 0\nhigh 1\nmax 22\noom 3\noom_kill 4\noom_group_kill 5\n";
        assert_eq!(count(events, "oom_kill"), Some(4));
        assert_eq!(count(events, "max"), Some(22));
        assert_eq!(count(events, "oom_k"), None);
        assert_eq!(count("oom_kill x\n", "oom_kill"), None);
        assert_eq!(count("", "max"), None);
    }

    #[test]
    fn unwritten_bytes_are_dirty_ones_and_those_under_writeback() {
        let first = "cache 9\ndirty 40\nwriteback 2\ntotal_dirty 7\n";
        assert_eq!(unwritten(CgroupVersion::First, first), Some(42));
        let second = "file 9\nfile_dirty 30\nfile_writeback 3\n";
        assert_eq!(unwritten(CgroupVersion::Second, second), Some(33));
        assert_eq!(unwritten(CgroupVersion::Second, first), None);
    }
}
