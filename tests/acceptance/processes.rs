//! The processes of a place on this machine: its server, its launchers, those in sandboxes.
//!
//! A place has its own program file, so a process that executes it belongs to the place, whatever
//! its root directory is. Commands execute something else and are known by a marker among their
//! arguments. Only root sees the program of a process that is not dumpable, as launchers and what
//! they fork are; without root, what is left of them shows in the sandboxes' locks alone.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use issuebox::clock::{IdSource, SystemIds};

use crate::process::Place;

/// A process of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub arguments: String,
}

/// An argument that marks a process as this test's: `sleep` takes it for a time.
pub fn marker() -> String {
    let id = SystemIds.request_id();
    let digits = u64::from_str_radix(&id[id.len() - 12..], 16).expect("hexadecimal");
    format!("90000{digits}")
}

/// The processes that execute the place's program, or have the marker among their arguments.
pub fn of(place: &Place, marker: &str) -> Vec<Process> {
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let program = identity(&place.binary()).expect("a program");
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let process = |dir: &Path| {
        let pid = dir.file_name()?.to_str()?.parse().ok()?;
        let arguments = std::fs::read(dir.join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let is_meant = identity(&dir.join("exe")) == Some(program) || arguments.contains(marker);
        let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
        // The name before it may hold anything, also a parenthesis.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let is_dead = fields.next()? == "Z";
        let parent = fields.next()?.parse().ok()?;
        (is_meant && !is_dead).then_some(Process { pid, parent, arguments })
    };
    entries.filter_map(|entry| process(&entry.expect("an entry").path())).collect()
}

/// The processes with the marker.
pub fn with(marker: &str, all: &[Process]) -> usize {
    all.iter().filter(|process| process.arguments.contains(marker)).count()
}

/// Those that do not descend from `owner`.
pub fn without_owner(all: &[Process], owner: u32) -> Vec<Process> {
    let parent = |pid: u32| all.iter().find(|process| process.pid == pid).map(|p| p.parent);
    let is_owned = |process: &&Process| {
        let mut at = Some(process.pid);
        while let Some(pid) = at.filter(|pid| *pid != owner) {
            at = parent(pid);
        }
        at == Some(owner)
    };
    all.iter().filter(|process| !is_owned(process)).cloned().collect()
}

/// The sandboxes' directories of a place, and whether something holds their locks.
pub fn local_objects(place: &Place) -> Vec<(String, bool)> {
    let objects = place.data().join("local/objects");
    let entries = std::fs::read_dir(objects).into_iter().flatten();
    let mut all: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let lock = std::fs::File::open(entry.path().join("lock")).expect("a lock");
            let name = entry.file_name().into_string().expect("UTF-8");
            (name, is_held(&lock.into()))
        })
        .collect();
    all.sort();
    all
}

fn is_held(lock: &OwnedFd) -> bool {
    rustix::fs::flock(lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
}
