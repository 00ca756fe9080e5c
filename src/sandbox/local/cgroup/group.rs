//! One sandbox's control group: which processes join which part, what it counts, and its removal.
//!
//! The limits on processes and CPU hold for the whole sandbox, but the memory limit only for its
//! *workers*: commands, terminals and file workers, not PID 1 and the launcher. Files in memory
//! (`/tmp`, the home, `/dev/shm`) and System V shared memory belong to no process. When they fill
//! the limit, the kernel kills whichever process asks for more, which frees nothing, so it would
//! kill PID 1 and end the sandbox. With this split the sandbox goes on: the next worker is killed
//! by the limit or, if there is room, can clean up.
//!
//! In version 1 memory has its own hierarchy, in which only the workers have a group. In version 2
//! a group with limited memory below it can't hold processes, so it has two leaves, one for each
//! kind.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{CgroupVersion, Controller, END_LOOK, Usable, files, named};
use crate::types::Resources;

/// How long a group may take to become empty after its sandbox began to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// In version 2, the leaf of the workers.
const WORK_LEAF: &str = "work";

/// In version 2, the leaf of the other processes.
const REST_LEAF: &str = "rest";

/// The file by which processes join a group of version 2.
const SECOND_DOOR: &str = "cgroup.procs";

/// The same of version 1. A process with one thread joins through it without blocking all forks of
/// the machine for milliseconds.
const FIRST_DOOR: &str = "tasks";

/// A sandbox's control group. Drop it after its last process has ended; that removes it.
/// [Empty](Group::default) if there is no group.
#[derive(Default)]
pub struct Group {
    /// The directories to remove, with their leaves.
    dirs: Vec<PathBuf>,
    /// The directory in which each controller counts.
    places: Vec<(Controller, CgroupVersion, PathBuf)>,
    /// The files by which all processes join.
    doors: Vec<PathBuf>,
    /// The files to join and to leave the group with limited memory.
    work: Option<(PathBuf, PathBuf)>,
}

/// Open files to join groups. A process that writes `0` joins the group. The kernel checks the
/// rights of the opener, since Linux 5.16 and fixed older versions.
pub struct Doors {
    /// For the groups of all processes of a sandbox.
    pub all: Vec<OwnedFd>,
    /// To join and to leave the workers' group; `None` if memory is not limited.
    pub work: Option<(OwnedFd, OwnedFd)>,
}

impl Group {
    /// A group whose directory exists already.
    #[cfg(test)]
    pub(super) fn made(dir: PathBuf) -> Self {
        let mut group = Self::default();
        group.dirs.push(dir);
        group
    }

    /// Adds what one more controller needs.
    pub(super) fn with(
        mut self,
        usable: &Usable,
        name: &str,
        resources: &Resources,
    ) -> io::Result<Self> {
        let Usable { controller, version, below } = usable;
        let dir = below.join(name);
        let is_new = !self.dirs.contains(&dir);
        if is_new {
            fs::create_dir(&dir).map_err(|error| named(&dir, &error))?;
            self.dirs.push(dir.clone());
        }
        let place = match (controller, version) {
            (Controller::Memory, CgroupVersion::First) => {
                self.work = Some((dir.join(FIRST_DOOR), below.join(FIRST_DOOR)));
                dir
            }
            (Controller::Memory, CgroupVersion::Second) => {
                let switch = dir.join("cgroup.subtree_control");
                fs::write(&switch, "+memory").map_err(|error| named(&switch, &error))?;
                let [work, rest] = [WORK_LEAF, REST_LEAF].map(|leaf| dir.join(leaf));
                for leaf in [&work, &rest] {
                    fs::create_dir_all(leaf).map_err(|error| named(leaf, &error))?;
                }
                let rest = rest.join(SECOND_DOOR);
                self.doors.push(rest.clone());
                self.work = Some((work.join(SECOND_DOOR), rest));
                work
            }
            (Controller::Cpu | Controller::Pids, version) => {
                let door = match version {
                    CgroupVersion::First => FIRST_DOOR,
                    CgroupVersion::Second => SECOND_DOOR,
                };
                self.doors.extend(is_new.then(|| dir.join(door)));
                dir
            }
        };
        self.places.push((*controller, *version, place.clone()));
        for setting in files::settings(*controller, *version, resources) {
            let path = place.join(setting.file);
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

    /// Opens the files to join its groups.
    ///
    /// # Errors
    /// The error of opening them.
    pub fn doors(&self) -> io::Result<Doors> {
        let open = |path: &PathBuf| File::options().write(true).open(path).map(OwnedFd::from);
        let all = self.doors.iter().map(open).collect::<io::Result<_>>()?;
        let work = match &self.work {
            Some((enter, leave)) => Some((open(enter)?, open(leave)?)),
            None => None,
        };
        Ok(Doors { all, work })
    }

    /// A controller that this group has lost.
    pub fn lost(&self) -> Option<Controller> {
        let is_lost =
            |(controller, version, place): &&(Controller, CgroupVersion, PathBuf)| match version {
                CgroupVersion::First => false,
                CgroupVersion::Second => !place.join(files::limit(*controller)).exists(),
            };
        self.places.iter().find(is_lost).map(|(controller, ..)| *controller)
    }

    /// How often a controller's limit was hit; `None` if that is not counted.
    pub fn limit_events(&self, controller: Controller) -> Option<u64> {
        let (version, place) = self.place(controller)?;
        let (file, word) = files::counter(controller, version)?;
        files::count(&fs::read_to_string(place.join(file)).ok()?, word)
    }

    /// How many bytes its processes have written that are not on disk yet; `None` if that is not
    /// counted.
    pub fn unwritten(&self) -> Option<u64> {
        let (version, place) = self.place(Controller::Memory)?;
        files::unwritten(version, &fs::read_to_string(place.join("memory.stat")).ok()?)
    }

    /// The directory in which a controller counts.
    fn place(&self, controller: Controller) -> Option<(CgroupVersion, &Path)> {
        let (_, version, place) = self.places.iter().find(|(counts, ..)| *counts == controller)?;
        Some((*version, place))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.dirs).finish()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(std::mem::take(&mut self.dirs));
    }
}

/// Removes a group without processes, with its leaves.
pub(super) fn remove_now(dir: &Path) -> io::Result<()> {
    for leaf in [WORK_LEAF, REST_LEAF] {
        match fs::remove_dir(dir.join(leaf)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    fs::remove_dir(dir)
}

/// Removes groups, and kills the processes in them if the kernel supports that.
///
/// When the server ends, its sandboxes are still ending. The kernel does not report when a group
/// of version 1 becomes empty, so a thread retries for a while.
pub(super) fn remove(mut dirs: Vec<PathBuf>) {
    keep_busy(&mut dirs);
    if dirs.is_empty() {
        return;
    }
    for dir in &dirs {
        // Only version 2 has this file.
        let kill = File::options().write(true).open(dir.join("cgroup.kill"));
        let _ = kill.and_then(|mut file| file.write_all(b"1"));
    }
    let try_again = move || {
        let begin = Instant::now();
        while !dirs.is_empty() && begin.elapsed() < END_WAIT {
            thread::sleep(END_LOOK);
            keep_busy(&mut dirs);
        }
        for dir in dirs {
            warn_of_rest(&dir, &ErrorKind::ResourceBusy.into());
        }
    };
    // If the thread can't start, the next start of the server removes the groups.
    let _ = thread::Builder::new().name("local-cgroup".into()).spawn(try_again);
}

/// Removes what it can, and keeps the groups that still have processes.
fn keep_busy(dirs: &mut Vec<PathBuf>) {
    dirs.retain(|dir| match remove_now(dir) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => true,
        Err(error) if error.kind() != ErrorKind::NotFound => {
            warn_of_rest(dir, &error);
            false
        }
        Ok(()) | Err(_) => false,
    });
}

fn warn_of_rest(dir: &Path, error: &io::Error) {
    let dir = dir.display();
    tracing::warn!(%dir, %error, "cannot remove the control group of a sandbox that ended; the next start of that sandbox tries again");
}
