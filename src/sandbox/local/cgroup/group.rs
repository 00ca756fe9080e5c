//! One sandbox's control group: who of it goes where, what it counts, and its end.
//!
//! All of a sandbox is limited in processes and processors, but only what *works* in it is limited
//! in memory: commands, terminals and file workers. PID 1 and the launcher are not. Files in memory
//! (`/tmp`, the home, `/dev/shm`) and shared memory of the old kind belong to no process: where they
//! fill the limit the kernel kills whoever asks for more, frees nothing by that, and would come to
//! PID 1, and the sandbox would be over. So it goes on, and whoever works in it next is ended by the
//! limit or, where there is room, can clean up.
//!
//! In version 1 memory has a hierarchy of its own, in which only those who work have a group. In
//! version 2 a group with limited memory below it can't have processes, so it has two leaves, one
//! for either kind.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{Controller, END_LOOK, Usable, Version, files, named};
use crate::types::Resources;

/// How long a group may take to become empty once its sandbox has been told to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// In version 2, who works.
const WORK_LEAF: &str = "work";

/// In version 2, who doesn't.
const REST_LEAF: &str = "rest";

/// The file through which processes step into a group of version 2.
const SECOND_DOOR: &str = "cgroup.procs";

/// The same of version 1. A process of one thread steps through this one without holding up the
/// forks of every other process of the machine, which takes milliseconds.
const FIRST_DOOR: &str = "tasks";

/// A sandbox's control group; removed when dropped, which must be after its last process has ended.
/// [Empty](Group::default) where there is none.
#[derive(Default)]
pub struct Group {
    /// What is removed in the end, with its leaves.
    dirs: Vec<PathBuf>,
    /// Where each controller counts.
    places: Vec<(Controller, Version, PathBuf)>,
    /// The doors for everybody.
    doors: Vec<PathBuf>,
    /// The doors into and out of the group in which memory is limited.
    work: Option<(PathBuf, PathBuf)>,
}

/// Open doors. Whoever writes `0` through one has stepped into its group: what counts is who opened
/// it, since Linux 5.16 and those before that were repaired.
pub struct Doors {
    /// Into the groups that all of a sandbox is in.
    pub all: Vec<OwnedFd>,
    /// Into and out of the group of those who work; `None` where memory is not limited.
    pub work: Option<(OwnedFd, OwnedFd)>,
}

impl Group {
    /// One whose directory is there already.
    #[cfg(test)]
    pub(super) fn made(dir: PathBuf) -> Self {
        let mut group = Self::default();
        group.dirs.push(dir);
        group
    }

    /// Makes what one more controller needs.
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
            (Controller::Memory, Version::First) => {
                self.work = Some((dir.join(FIRST_DOOR), below.join(FIRST_DOOR)));
                dir
            }
            (Controller::Memory, Version::Second) => {
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
                    Version::First => FIRST_DOOR,
                    Version::Second => SECOND_DOOR,
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

    /// Opens the doors.
    ///
    /// # Errors
    /// What opening them answers.
    pub fn doors(&self) -> io::Result<Doors> {
        let open = |path: &PathBuf| File::options().write(true).open(path).map(OwnedFd::from);
        let all = self.doors.iter().map(open).collect::<io::Result<_>>()?;
        let work = match &self.work {
            Some((enter, leave)) => Some((open(enter)?, open(leave)?)),
            None => None,
        };
        Ok(Doors { all, work })
    }

    /// A controller that no longer counts here, since it was taken away.
    pub fn lost(&self) -> Option<Controller> {
        let is_lost = |(controller, version, place): &&(Controller, Version, PathBuf)| match version
        {
            Version::First => false,
            Version::Second => !place.join(files::limit(*controller)).exists(),
        };
        self.places.iter().find(is_lost).map(|(controller, ..)| *controller)
    }

    /// How often a controller's limit has struck; `None` where that is not counted.
    pub fn limit_events(&self, controller: Controller) -> Option<u64> {
        let (version, place) = self.place(controller)?;
        let (file, word) = files::counter(controller, version)?;
        files::count(&fs::read_to_string(place.join(file)).ok()?, word)
    }

    /// How many bytes it has written that are not on the disk yet; `None` where that is not counted.
    pub fn unwritten(&self) -> Option<u64> {
        let (version, place) = self.place(Controller::Memory)?;
        files::unwritten(version, &fs::read_to_string(place.join("memory.stat")).ok()?)
    }

    /// Where a controller counts.
    fn place(&self, controller: Controller) -> Option<(Version, &Path)> {
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

/// Removes a group that has no processes, with its leaves.
pub(super) fn remove_now(dir: &Path) -> io::Result<()> {
    for leaf in [WORK_LEAF, REST_LEAF] {
        match fs::remove_dir(dir.join(leaf)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    fs::remove_dir(dir)
}

/// Removes groups, and ends what should not be in them any more where the kernel offers that.
///
/// Where the server ends, its sandboxes are still ending when it lets go of their groups. Nothing
/// tells of the moment in which a group of version 1 is empty, so it is tried for a while.
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
            tell(&dir, &ErrorKind::ResourceBusy.into());
        }
    };
    // Without a thread it is left to the next start.
    let _ = thread::Builder::new().name("local-cgroup".into()).spawn(try_again);
}

/// Removes what can be and keeps what still has processes.
fn keep_busy(dirs: &mut Vec<PathBuf>) {
    dirs.retain(|dir| match remove_now(dir) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => true,
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tell(dir, &error);
            false
        }
        Ok(()) | Err(_) => false,
    });
}

fn tell(dir: &Path, error: &io::Error) {
    let dir = dir.display();
    tracing::warn!(%dir, %error, "a sandbox's control group stays until the next start");
}
