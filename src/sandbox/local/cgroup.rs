//! Limits on what all processes of a sandbox take together: control groups.
//!
//! Each sandbox has a group of its own below the one that the server runs in, in every hierarchy
//! that is needed: one for each controller in version 1, a single one in version 2. The server makes
//! the group and hands its door to the launcher, which steps in before it gives up being root; PID 1
//! and all commands are born there. With the last process the group is removed, and what a server
//! that was killed left behind is at the next start.
//!
//! Which controllers can be used is found out once, at the start, by making a group with limits and
//! removing it again. What can't be used is said, with the reason, and never assumed.
//!
//! In version 2 a group that has processes can't have limited groups below it. Where the server is
//! alone in its group, as under systemd with `Delegate=`, it goes into a leaf of its own first;
//! where it is not, there are no limits.

mod files;
mod find;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::types::Resources;

/// What begins the name of every group of ours.
const PREFIX: &str = "issuebox-";

/// How long a group may take to become empty once its sandbox has been told to end, and the pause
/// between two looks.
const END_WAIT: Duration = Duration::from_secs(5);
const END_LOOK: Duration = Duration::from_millis(5);

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
}

impl Cgroups {
    /// Finds out what can be used. `identity` is the provider's own: it begins the groups' names.
    pub fn open(identity: &str) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let found = find::find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        Self::try_out(identity, &found)
    }

    fn try_out(identity: &str, found: &find::Found) -> Self {
        let mut cgroups = Self {
            prefix: format!("{PREFIX}{identity}-"),
            usable: Vec::new(),
            missing: Vec::new(),
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
            match usable.prepare().and_then(|()| cgroups.trial(&usable)) {
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
    fn trial(&self, usable: &Usable) -> io::Result<()> {
        let resources = Resources { cpu: 0.5, memory_mb: 64, processes: 16, disk_mb: 0 };
        let name = format!("{}trial", self.prefix);
        // A server that was killed in this moment has left it.
        let _ = fs::remove_dir(usable.below.join(&name));
        let group = Group { dirs: vec![] }.with(usable, &name, &resources)?;
        drop(group.doors()?);
        Ok(())
    }

    /// Whether a controller is in force in every sandbox.
    pub fn has(&self, controller: Controller) -> bool {
        self.usable.iter().any(|usable| usable.controller == controller)
    }

    /// Why a controller is not in force; `None` where it is.
    pub fn why_not(&self, controller: Controller) -> Option<&str> {
        self.missing.iter().find(|(missing, _)| *missing == controller).map(|(_, why)| why.as_str())
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
            .try_fold(Group { dirs: vec![] }, |group, usable| group.with(usable, &name, resources))
    }

    /// Removes what an earlier server left. Nothing of it runs any more.
    pub fn clear(&self) {
        for dir in self.own() {
            remove(&dir);
        }
    }

    /// Removes every group of this provider, whose sandboxes have been told to end, and waits for
    /// them as long as `at_most`. What is left then is removed at the next start.
    pub fn clear_within(&self, at_most: Duration) {
        let begin = Instant::now();
        loop {
            // One that is busy, or that its sandbox's own end removes meanwhile, is looked at again.
            let is_left = |dir: &PathBuf| fs::remove_dir(dir).is_err() && dir.exists();
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

/// A sandbox's control group; removed when dropped, which must be after its last process has ended.
pub struct Group {
    dirs: Vec<(Vec<Controller>, Version, PathBuf)>,
}

impl Group {
    /// No group at all.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { dirs: Vec::new() }
    }

    /// Makes the group's directory for one more controller.
    fn with(mut self, usable: &Usable, name: &str, resources: &Resources) -> io::Result<Self> {
        let dir = usable.below.join(name);
        match self.dirs.iter_mut().find(|(_, _, known)| *known == dir) {
            Some((controllers, _, _)) => controllers.push(usable.controller),
            None => {
                fs::create_dir(&dir).map_err(|error| named(&dir, &error))?;
                self.dirs.push((vec![usable.controller], usable.version, dir.clone()));
            }
        }
        for setting in files::settings(usable.controller, usable.version, resources) {
            let path = dir.join(setting.file);
            match fs::OpenOptions::new().write(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound && !setting.is_needed => continue,
                Err(error) => return Err(named(&path, &error)),
                Ok(mut file) => file
                    .write_all(setting.value.as_bytes())
                    .map_err(|error| named(&path, &error))?,
            }
        }
        Ok(self)
    }

    /// The files through which a process steps into the group by writing `0`.
    ///
    /// # Errors
    /// What opening them answers.
    pub fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let door = |(_, version, dir): &(Vec<Controller>, Version, PathBuf)| {
            let file = match version {
                // A process of one thread steps through this one without holding up the forks of
                // every other process of the machine, which takes milliseconds.
                Version::First => "tasks",
                Version::Second => "cgroup.procs",
            };
            File::options().write(true).open(dir.join(file)).map(OwnedFd::from)
        };
        self.dirs.iter().map(door).collect()
    }

    /// How often a controller's limit has struck; `None` where that is not counted.
    pub fn strikes(&self, controller: Controller) -> Option<u64> {
        let (_, version, dir) = self.dirs.iter().find(|(all, _, _)| all.contains(&controller))?;
        let (file, word) = files::counter(controller, *version)?;
        files::count(&fs::read_to_string(dir.join(file)).ok()?, word)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dirs.iter().map(|(_, _, dir)| dir)).finish()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, _, dir) in &self.dirs {
            remove(dir);
        }
    }
}

/// Removes a group, and ends what should not be in it any more where the kernel offers that.
///
/// Where the server ends, its sandboxes are still ending when it lets go of their groups. Nothing
/// tells of the moment in which a group of version 1 is empty, so it is tried for a while.
fn remove(dir: &Path) {
    let is_busy = |removed: &io::Result<()>| {
        removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
    };
    let removed = fs::remove_dir(dir);
    if !is_busy(&removed) {
        return tell(dir, removed);
    }
    // Only version 2 has this file.
    let kill = File::options().write(true).open(dir.join("cgroup.kill"));
    let _ = kill.and_then(|mut file| file.write_all(b"1"));
    let dir = dir.to_owned();
    let try_again = move || {
        let begin = Instant::now();
        let mut removed = fs::remove_dir(&dir);
        while is_busy(&removed) && begin.elapsed() < END_WAIT {
            thread::sleep(END_LOOK);
            removed = fs::remove_dir(&dir);
        }
        tell(&dir, removed);
    };
    // Without a thread it is left to the next start.
    let _ = thread::Builder::new().name("local-cgroup".into()).spawn(try_again);
}

fn tell(dir: &Path, removed: io::Result<()>) {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let dir = dir.display();
            tracing::warn!(%dir, %error, "a sandbox's control group stays until the next start");
        }
        Ok(()) | Err(_) => {}
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
