//! Control groups: the limits on what all processes of a sandbox use together.
//!
//! Each sandbox has its own group below the server's group, in every hierarchy it needs: one per
//! controller in cgroup version 1, a single one in version 2. The server makes the group and
//! passes open handles of it to the launcher (see [`Group`]). It removes the group after the last
//! process, and at its start the groups that a killed server left.
//!
//! At its start the server probes each controller: it makes a group with limits and removes it. A
//! controller that does not work is reported with the reason.
//!
//! In version 2 a group with processes can't have limited groups below it. If the server is alone
//! in its group, as under systemd with `Delegate=`, it first moves into a leaf; otherwise there
//! are no limits. Without `Delegate=` the group belongs to systemd, which may switch controllers
//! off whenever it reloads. So the server checks this each time it matters. A lost controller
//! stays lost until the next start, since running sandboxes have lost the values in their groups.

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

/// The prefix of all group names of this program.
const PREFIX: &str = "issuebox-";

/// The pause between two checks whether a group is empty.
const END_LOOK: Duration = Duration::from_millis(5);

/// The reason when a controller that was in force is no longer.
pub const TAKEN_AWAY: &str = "it was removed from the server's control group, as systemd does without \
    Delegate=yes; set that for the service, and restart it";

/// The leaf that the server itself moves into when it must.
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
    /// Memory comes first: in version 2 it decides the layout of a group that others share.
    const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The kernel's name of the controller.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

/// The two cgroup versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    First,
    /// One hierarchy.
    Second,
}

/// A controller that can be used, and the directory below which groups are made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Usable {
    controller: Controller,
    version: CgroupVersion,
    below: PathBuf,
}

/// The control groups that this server can make.
#[derive(Debug)]
pub struct Cgroups {
    /// The prefix of this provider's group names.
    prefix: String,
    usable: Vec<Usable>,
    /// Why the others are not usable.
    missing: Vec<(Controller, String)>,
    /// Usable ones that were lost since.
    lost: Mutex<Vec<Controller>>,
}

impl Cgroups {
    /// Finds out which controllers are usable. `identity` is the provider's; it is in the groups'
    /// names.
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
        // Once for all: in version 2, switching one controller on changes the list.
        let offered = second.as_deref().map(offered_by).unwrap_or_default();
        for controller in Controller::ALL {
            let first = found.first.iter().find(|(name, _)| name == controller.as_str());
            let (version, below) = match (first, &second) {
                (Some((_, below)), _) => (CgroupVersion::First, below.clone()),
                (None, Some(below)) if offered.contains(&controller) => {
                    (CgroupVersion::Second, below.clone())
                }
                (None, Some(_) | None) => {
                    let why = "this process's control group has no such controller";
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

    /// Makes a group like a sandbox's, and removes it.
    fn probe(&self, usable: &Usable) -> io::Result<()> {
        let resources = Resources { cpu: 0.5, memory_mb: 64, processes: 16, disk_mb: 0 };
        let name = format!("{}trial", self.prefix);
        // A server that was killed while it probed has left it.
        let _ = group::remove_now(&usable.below.join(&name));
        let group = Group::default().with(usable, &name, &resources)?;
        drop(group.doors()?);
        Ok(())
    }

    /// Whether every sandbox has this controller in force.
    pub fn has(&self, controller: Controller) -> bool {
        self.usable.iter().any(|usable| usable.controller == controller && self.keeps(usable))
    }

    /// The version by which a controller is in force; `None` if it is not.
    pub fn version_of(&self, controller: Controller) -> Option<CgroupVersion> {
        let is_it = |usable: &&Usable| usable.controller == controller && self.keeps(usable);
        self.usable.iter().find(is_it).map(|usable| usable.version)
    }

    /// Whether a usable controller still is.
    fn keeps(&self, usable: &Usable) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.contains(&usable.controller) {
            return false;
        }
        let is_on = usable.is_on();
        if !is_on {
            lost.push(usable.controller);
            let (controller, below) = (usable.controller.as_str(), usable.below.display());
            tracing::error!(%controller, %below, "a cgroup controller was taken away, so running sandboxes are without its limit: {TAKEN_AWAY}");
        }
        is_on
    }

    /// Why a controller is not in force; `None` if it is.
    pub fn why_not(&self, controller: Controller) -> Option<&str> {
        let missing = self.missing.iter().find(|(missing, _)| *missing == controller);
        match missing {
            Some((_, why)) => Some(why),
            None => (!self.has(controller)).then_some(TAKEN_AWAY),
        }
    }

    /// Makes a group with these limits. Use each `name` once: when a sandbox restarts, its last
    /// group may still exist.
    ///
    /// # Errors
    /// The kernel's error; then no group is left.
    pub fn make(&self, name: &str, resources: &Resources) -> io::Result<Group> {
        let name = format!("{}{name}", self.prefix);
        self.usable
            .iter()
            .filter(|usable| self.keeps(usable))
            .try_fold(Group::default(), |group, usable| group.with(usable, &name, resources))
    }

    /// Removes the groups of an earlier server. No process of it runs any more.
    pub fn clear(&self) {
        for dir in self.own() {
            remove(vec![dir]);
        }
    }

    /// Removes every group of this provider, waiting up to `at_most` for its sandboxes, which are
    /// already ending. The next start removes what is left.
    pub fn clear_within(&self, at_most: Duration) {
        let begin = Instant::now();
        loop {
            // A busy group is tried again, and so is one that its sandbox's own end removes
            // meanwhile.
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
    /// Why memory can't be limited for a part of a sandbox: in version 1 a hierarchy with further
    /// controllers would remove those processes from the other limits.
    fn clash(&self, first: &[(String, PathBuf)]) -> Option<String> {
        match (self.controller, self.version) {
            (Controller::Memory, CgroupVersion::First) => {}
            (Controller::Memory, CgroupVersion::Second)
            | (Controller::Cpu | Controller::Pids, CgroupVersion::First | CgroupVersion::Second) => {
                return None;
            }
        }
        let others = [Controller::Cpu, Controller::Pids].map(Controller::as_str);
        let other = first.iter().find(|(name, at)| *at == self.below && others.contains(&&**name));
        other.map(|(name, _)| {
            format!("it is mounted together with the controller {name}; mount it alone")
        })
    }

    /// Whether the groups below have this controller. True unless the kernel denies it.
    fn is_on(&self) -> bool {
        match self.version {
            CgroupVersion::First => true,
            CgroupVersion::Second => fs::read_to_string(self.below.join("cgroup.subtree_control"))
                .map_or(true, |on| on.split_whitespace().any(|on| on == self.controller.as_str())),
        }
    }

    /// Enables this controller for the groups below.
    fn prepare(&self) -> io::Result<()> {
        match self.version {
            CgroupVersion::First => Ok(()),
            CgroupVersion::Second => switch_on(&self.below, self.controller),
        }
    }
}

/// Where groups are made in version 2: beside the server's leaf if it has one.
fn base_of(own: &Path) -> PathBuf {
    match (own.file_name(), own.parent()) {
        (Some(name), Some(parent)) if name == SERVER_LEAF => parent.to_owned(),
        _ => own.to_owned(),
    }
}

/// The controllers available to a group of version 2.
fn offered_by(dir: &Path) -> Vec<Controller> {
    let offered = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let is_offered = |c: &Controller| offered.split_whitespace().any(|name| name == c.as_str());
    Controller::ALL.into_iter().filter(is_offered).collect()
}

/// Enables a controller for the groups below `dir`. If necessary the server moves out of `dir`,
/// which it can only if it is alone there.
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
            "other processes are in the server's control group; start it in its own group, as \
             systemd does with `Delegate=yes`",
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
