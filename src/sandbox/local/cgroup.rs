//! Limits on what all processes of a sandbox take together: control groups.
//!
//! Each sandbox has a group of its own below the one that the server runs in, in every hierarchy
//! that is needed: one for each controller in version 1, a single one in version 2. The server makes
//! the group and hands its doors to the launcher ([`Group`] says who goes through which). With the
//! last process the group is removed, and what a server that was killed left behind is at the next
//! start.
//!
//! Which controllers can be used is found out once, at the start, by making a group with limits and
//! removing it again. What can't be used is said, with the reason, and never assumed.
//!
//! In version 2 a group that has processes can't have limited groups below it. Where the server is
//! alone in its group, as under systemd with `Delegate=`, it goes into a leaf of its own first;
//! where it is not, there are no limits. And without `Delegate=` the group is systemd's, which can
//! switch controllers off again whenever it is told to read its files: this is looked for each time
//! that it matters, and a controller that was lost stays lost until the next start, since sandboxes
//! that run have lost what was written into their groups.

mod files;
mod find;
mod group;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::types::Resources;
use group::remove;

pub use group::Group;

/// What begins the name of every group of ours.
const PREFIX: &str = "issuebox-";

/// The pause between two looks whether a group has become empty.
const END_LOOK: Duration = Duration::from_millis(5);

/// Why a controller is not in force that once was.
pub const TAKEN_AWAY: &str = "it was taken from the server's control group, as systemd does without \
    Delegate=yes: set that for the service, and start it again";

/// The leaf that the server itself goes into where it must.
const SERVER_LEAF: &str = "issuebox-server";

/// What a controller limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Memory of every kind, page cache and tmpfs included.
    Memory,
    /// Time on the processors.
    Cpu,
    /// Processes and threads.
    Pids,
}

impl Controller {
    /// Memory comes first: where it shares a group with others, that is laid out for it.
    const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The kernel's name for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

/// The two versions that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    First,
    /// One hierarchy.
    Second,
}

/// A controller that can be used, and the directory below which groups are made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Usable {
    controller: Controller,
    version: Version,
    below: PathBuf,
}

/// The control groups that this server can make.
#[derive(Debug)]
pub struct Cgroups {
    /// Begins the names of this provider's groups.
    prefix: String,
    usable: Vec<Usable>,
    /// Why the others can't be used.
    missing: Vec<(Controller, String)>,
    /// Which of the usable have been taken away since.
    lost: Mutex<Vec<Controller>>,
}

impl Cgroups {
    /// Finds out what can be used. `identity` is the provider's own: it begins the groups' names.
    pub fn open(identity: &str) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let found = find::find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        Self::try_out(identity, &found)
    }

    fn try_out(identity: &str, found: &find::OwnGroups) -> Self {
        let mut cgroups = Self {
            prefix: format!("{PREFIX}{identity}-"),
            usable: Vec::new(),
            missing: Vec::new(),
            lost: Mutex::default(),
        };
        let second = found.second.as_deref().map(base_of);
        // Together, since the second version's controllers are switched on by one another's side.
        let offered = second.as_deref().map(offered_by).unwrap_or_default();
        for controller in Controller::ALL {
            let first = found.first.iter().find(|(name, _)| name == controller.as_str());
            let (version, below) = match (first, &second) {
                (Some((_, below)), _) => (Version::First, below.clone()),
                (None, Some(below)) if offered.contains(&controller) => {
                    (Version::Second, below.clone())
                }
                (None, Some(_) | None) => {
                    let why = "there is no such controller in this process's control group";
                    cgroups.missing.push((controller, why.into()));
                    continue;
                }
            };
            let usable = Usable { controller, version, below };
            if let Some(why) = usable.clash(&found.first) {
                cgroups.missing.push((controller, why));
                continue;
            }
            match usable.prepare().and_then(|()| cgroups.probe(&usable)) {
                Ok(()) => cgroups.usable.push(usable),
                Err(error) => {
                    let why = format!("{}: {error}", usable.below.display());
                    cgroups.missing.push((controller, why));
                }
            }
        }
        cgroups
    }

    /// Makes a group as a sandbox would have it, and removes it.
    fn probe(&self, usable: &Usable) -> io::Result<()> {
        let resources = Resources { cpu: 0.5, memory_mb: 64, processes: 16, disk_mb: 0 };
        let name = format!("{}trial", self.prefix);
        // A server that was killed in this moment has left it.
        let _ = group::remove_now(&usable.below.join(&name));
        let group = Group::default().with(usable, &name, &resources)?;
        drop(group.doors()?);
        Ok(())
    }

    /// Whether a controller is in force in every sandbox.
    pub fn has(&self, controller: Controller) -> bool {
        self.usable.iter().any(|usable| usable.controller == controller && self.keeps(usable))
    }

    /// Whether a controller that could be used still can.
    fn keeps(&self, usable: &Usable) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.contains(&usable.controller) {
            return false;
        }
        let is_on = usable.is_on();
        if !is_on {
            lost.push(usable.controller);
            let (controller, below) = (usable.controller.as_str(), usable.below.display());
            tracing::error!(%controller, %below, "sandboxes have lost a limit: {TAKEN_AWAY}");
        }
        is_on
    }

    /// Why a controller is not in force; `None` where it is.
    pub fn why_not(&self, controller: Controller) -> Option<&str> {
        let missing = self.missing.iter().find(|(missing, _)| *missing == controller);
        match missing {
            Some((_, why)) => Some(why),
            None => (!self.has(controller)).then_some(TAKEN_AWAY),
        }
    }

    /// Makes a group with these limits. A `name` is used once: where the same sandbox is started
    /// again, its last group may not have been removed yet.
    ///
    /// # Errors
    /// What the kernel answers; nothing is left then.
    pub fn make(&self, name: &str, resources: &Resources) -> io::Result<Group> {
        let name = format!("{}{name}", self.prefix);
        self.usable
            .iter()
            .filter(|usable| self.keeps(usable))
            .try_fold(Group::default(), |group, usable| group.with(usable, &name, resources))
    }

    /// Removes what an earlier server left. Nothing of it runs any more.
    pub fn clear(&self) {
        for dir in self.own() {
            remove(vec![dir]);
        }
    }

    /// Removes every group of this provider, whose sandboxes have been told to end, and waits for
    /// them as long as `at_most`. What is left then is removed at the next start.
    pub fn clear_within(&self, at_most: Duration) {
        let begin = Instant::now();
        loop {
            // One that is busy, or that its sandbox's own end removes meanwhile, is looked at again.
            let is_left = |dir: &PathBuf| group::remove_now(dir).is_err() && dir.exists();
            if self.own().iter().filter(|dir| is_left(dir)).count() == 0
                || begin.elapsed() > at_most
            {
                return;
            }
            thread::sleep(END_LOOK);
        }
    }

    /// The groups of this provider.
    fn own(&self) -> Vec<PathBuf> {
        let mut own = Vec::new();
        let mut below: Vec<&Path> = self.usable.iter().map(|usable| &*usable.below).collect();
        below.dedup();
        for dir in below {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let is_ours =
                    entry.file_name().to_str().is_some_and(|n| n.starts_with(&self.prefix));
                if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    own.push(entry.path());
                }
            }
        }
        own
    }
}

impl Usable {
    /// Why memory can't be limited for a part of a sandbox: in version 1 a hierarchy that counts
    /// more than memory would take those processes out of the other limits.
    fn clash(&self, first: &[(String, PathBuf)]) -> Option<String> {
        match (self.controller, self.version) {
            (Controller::Memory, Version::First) => {}
            (Controller::Memory, Version::Second)
            | (Controller::Cpu | Controller::Pids, Version::First | Version::Second) => {
                return None;
            }
        }
        let others = [Controller::Cpu, Controller::Pids].map(Controller::as_str);
        let other = first.iter().find(|(name, at)| *at == self.below && others.contains(&&**name));
        other.map(|(name, _)| format!("it is mounted together with the controller {name}"))
    }

    /// Whether groups below have this controller. Only what the kernel says counts as a no.
    fn is_on(&self) -> bool {
        match self.version {
            Version::First => true,
            Version::Second => fs::read_to_string(self.below.join("cgroup.subtree_control"))
                .map_or(true, |on| on.split_whitespace().any(|on| on == self.controller.as_str())),
        }
    }

    /// Sees to it that groups below can have this controller.
    fn prepare(&self) -> io::Result<()> {
        match self.version {
            Version::First => Ok(()),
            Version::Second => switch_on(&self.below, self.controller),
        }
    }
}

/// Where groups are made in version 2: beside the server's leaf where it went into one.
fn base_of(own: &Path) -> PathBuf {
    match (own.file_name(), own.parent()) {
        (Some(name), Some(parent)) if name == SERVER_LEAF => parent.to_owned(),
        _ => own.to_owned(),
    }
}

/// The controllers that a group of version 2 has.
fn offered_by(dir: &Path) -> Vec<Controller> {
    let offered = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let is_offered = |c: &Controller| offered.split_whitespace().any(|name| name == c.as_str());
    Controller::ALL.into_iter().filter(is_offered).collect()
}

/// Switches a controller on for the groups below `dir`, out of which the server goes where it is
/// alone there.
fn switch_on(dir: &Path, controller: Controller) -> io::Result<()> {
    let switch = dir.join("cgroup.subtree_control");
    let name = controller.as_str();
    if fs::read_to_string(&switch)?.split_whitespace().any(|on| on == name) {
        return Ok(());
    }
    match fs::write(&switch, format!("+{name}")) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
        written => return written,
    }
    let own = std::process::id().to_string();
    if !files::is_alone(&fs::read_to_string(dir.join("cgroup.procs"))?, &own) {
        return Err(io::Error::other(
            "other processes are in the server's control group: start it in one of its own, as \
             systemd does with Delegate=yes",
        ));
    }
    let leaf = dir.join(SERVER_LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::write(leaf.join("cgroup.procs"), own)?;
    fs::write(&switch, format!("+{name}"))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
