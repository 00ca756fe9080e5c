//! The programs that the server gives to the sandbox, shown read-only in its view.
//!
//! Each is a single file anywhere on the host. Root copies its mount while it still is root: the
//! user that the launcher becomes may not enter the directories above. An ordinary user may copy no
//! mount of the host's, but those of the sandbox's own mount namespace, which it can do as long as
//! the sandbox runs as that user.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::symlinkat;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::frame::GivenFile;
use super::super::host_view::PROGRAMS;
use super::{NameStep, SetupError, view};

/// The programs before they are attached.
pub enum GivenPrograms {
    /// To be copied in the sandbox's own mount namespace.
    Wanted(Vec<GivenFile>),
    /// Copies that are attached nowhere.
    Taken(TakenPrograms),
}

/// Each program with a read-only copy of its mount; without one if the sandbox sees the file anyway.
pub struct TakenPrograms(Vec<(GivenFile, Option<OwnedFd>)>);

impl GivenPrograms {
    /// Takes the programs now, if this process is root.
    pub fn new(wanted: Vec<GivenFile>) -> Result<Self, SetupError> {
        match geteuid().is_root() {
            true => take(wanted).map(Self::Taken),
            false => Ok(Self::Wanted(wanted)),
        }
    }

    /// Takes those that are not taken yet. Must be called in the mount namespace of the view.
    pub fn taken(self) -> Result<TakenPrograms, SetupError> {
        match self {
            Self::Wanted(wanted) => take(wanted),
            Self::Taken(taken) => Ok(taken),
        }
    }
}

impl TakenPrograms {
    /// Shows the programs in the view's root.
    pub fn attach(self, root: BorrowedFd<'_>) -> Result<(), SetupError> {
        self.0.into_iter().try_for_each(|(GivenFile { file, inside }, mount)| {
            let inside = inside.trim_start_matches('/');
            let attached = match mount {
                Some(mount) => view::attach(&mount, root, inside, false),
                None => view::parents(root, inside).and_then(|()| symlinkat(&*file, root, inside)),
            };
            attached.step(&format!("show the program {file}"))
        })
    }
}

/// A program that is not there any more, or that this user cannot reach, is left out: it is missed only
/// by what runs it.
fn take(wanted: Vec<GivenFile>) -> Result<TakenPrograms, SetupError> {
    let mut taken = Vec::new();
    for given in wanted {
        if is_shown(&given.file) {
            taken.push((given, None));
            continue;
        }
        match view::read_only(&*given.file, false) {
            Ok(mount) => taken.push((given, Some(mount))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
            Err(errno) => return Err(errno).step(&format!("take the program {}", given.file)),
        }
    }
    Ok(TakenPrograms(taken))
}

/// Whether the file is in one of the host's program directories.
fn is_shown(file: &str) -> bool {
    PROGRAMS.iter().any(|directory| Path::new(file).starts_with(Path::new("/").join(directory)))
}
