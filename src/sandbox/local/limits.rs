//! What a sandbox may use: which limits hold on this machine, how, and what happens when one strikes.
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
//! The disk as a whole, bytes and names, is *enforced* where root can mount images (`image.rs`); where
//! it can't, it is *none*: only the length of one file is limited, to as much.
//!
//! A limit that strikes is told once in a while, not each time: a fork bomb meets its limit a million
//! times. Counts are looked at [twice a second](LOOK_EVERY) and once more when the sandbox has ended,
//! since the kernel can't wake a process for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::cgroup::{Cgroups, Controller, Group};
use super::frame::Setup;
use super::link::Link;
use crate::sandbox::{Labels, Strike, StrikeEffect};
use crate::types::{Resources, inert};

/// The pause between two looks at what has struck.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A limit that goes on striking is told again after this.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Strikes that wait to be heard; past that they are told later.
pub const STRIKES_LEN: usize = 256;

/// How much the number of processes may exceed the control group's before the sandbox's own user
/// namespace stops it: where both would stop at the same, the one that is not counted comes first.
const PROCESSES_SLACK: u32 = 16;

/// What a shell and a small program need, in MiB, with room to spare.
const RESERVE_MB_MIN: u64 = 16;

/// Why the disk of a sandbox is not limited that was made where images could not be mounted.
pub const MADE_WITHOUT: &str = "it was made without an image: delete it and make it again";

/// The limits, and how each holds: `enforced`, `per process` or `none`.
pub fn holds(cgroups: &Cgroups, why_no_image: Option<&str>) -> Vec<(&'static str, &'static str)> {
    let with = |controller, without| if cgroups.has(controller) { "enforced" } else { without };
    vec![
        ("cpu", with(Controller::Cpu, "none")),
        ("memory", with(Controller::Memory, "per process")),
        ("processes", "enforced"),
        ("disk", if why_no_image.is_none() { "enforced" } else { "none" }),
        ("openFiles", "per process"),
        ("fileSize", "per process"),
    ]
}

/// The limits of a template that are not enforced for a sandbox as a whole, in words with the
/// reason of each; `None` where all are.
pub fn not_enforced(cgroups: &Cgroups, why_no_image: Option<&str>) -> Option<String> {
    let why = |limit: &str| match limit {
        "cpu" => cgroups.why_not(Controller::Cpu),
        "memory" => cgroups.why_not(Controller::Memory),
        "disk" => why_no_image,
        _ => None,
    };
    let is_asked = |limit: &str| ["cpu", "memory", "processes", "disk"].contains(&limit);
    let missing: Vec<String> = holds(cgroups, why_no_image)
        .into_iter()
        .filter(|(limit, how)| *how != "enforced" && is_asked(limit))
        .map(|(limit, how)| {
            let told = match how {
                "none" => format!("{limit} is not limited"),
                how => format!("{limit} is limited {how}"),
            };
            match why(limit) {
                Some(why) => format!("{told} ({why})"),
                None => told,
            }
        })
        .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

/// Sets the part of the order that is about limits.
pub fn ask(cgroups: &Cgroups, resources: &Resources, setup: Setup) -> Setup {
    let slack = if cgroups.has(Controller::Pids) { PROCESSES_SLACK } else { 0 };
    Setup {
        processes_max: resources.processes.saturating_add(slack),
        file_mb_max: resources.disk_mb,
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

/// Tells of each limit that strikes in a sandbox, until nothing of that runs any more.
pub async fn watch(
    link: Arc<Link>,
    group: Arc<Group>,
    labels: Labels,
    resources: Resources,
    strikes: mpsc::Sender<Strike>,
) {
    let mut tally = Tally::default();
    loop {
        let is_over = tokio::time::timeout(LOOK_EVERY, link.gone()).await.is_ok();
        for (count, limit) in [
            (group.strikes(Controller::Memory), format!("memory limit {} MB", resources.memory_mb)),
            (group.strikes(Controller::Pids), format!("process limit {}", resources.processes)),
            (Some(link.disk_strikes()), format!("disk limit {} MB", resources.disk_mb)),
        ] {
            let Some(count) = count else { continue };
            if tally.is_news(&limit, count, Instant::now()) {
                let strike = Strike {
                    labels: labels.clone(),
                    reason: format!("{limit} reached"),
                    effect: StrikeEffect::ByTemplate,
                };
                // Where nobody hears there is nobody to tell; where too much waits, the next is.
                let _ = strikes.try_send(strike);
            }
        }
        if is_over {
            if let Some(trouble) = link.trouble() {
                let reason = inert(trouble).into_owned();
                let strike = Strike { labels, reason, effect: StrikeEffect::Ended };
                // Where nobody hears, the next sweep finds it stopped.
                let _ = strikes.try_send(strike);
            }
            return;
        }
    }
}

/// What has been told.
#[derive(Default)]
struct Tally {
    told: HashMap<String, (u64, Instant)>,
}

impl Tally {
    /// Whether a count that rose is to be told now.
    fn is_news(&mut self, limit: &str, count: u64, now: Instant) -> bool {
        let is_news = match self.told.get(limit) {
            None => count > 0,
            Some((told, at)) => count > *told && now.duration_since(*at) >= TELL_EVERY,
        };
        if is_news {
            self.told.insert(limit.to_owned(), (count, now));
        }
        is_news
    }
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

    #[test]
    fn a_limit_is_told_when_it_strikes_and_again_after_a_while() {
        let begin = Instant::now();
        let mut tally = Tally::default();
        for (seconds, count, is_news) in
            [(0, 0, false), (1, 3, true), (2, 4, false), (61, 4, true), (200, 4, false)]
        {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(tally.is_news("memory", count, now), is_news, "after {seconds} s");
        }
        assert!(tally.is_news("pids", 1, begin), "each limit for itself");
    }
}
