//! A new file without a name until it is complete, and how it replaces an old one.
//!
//! If the sandbox ends meanwhile, the kernel removes the nameless file. Replacing an existing file
//! takes a temporary name and a rename; a sandbox killed between these two calls keeps the
//! complete file under the temporary name. On a file system without `O_TMPFILE` the file has the
//! temporary name from the start.
//!
//! Only free names are used, so only files made here are removed.
//!
//! Nothing here keeps the file open for writing: forks of this process would hold it too, and a
//! program that is open for writing can't be executed (`ETXTBSY`).

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// The prefix of temporary names.
const FIRST_NAME: &str = ".issuebox-new-";

/// Most names that are tried; more collisions are made on purpose.
const NAMES_MAX: usize = 64;

/// A new regular file in a directory, removed unless it is placed.
pub(super) struct Fresh {
    /// The file, opened with `O_PATH`.
    file: OwnedFd,
    /// Its directory.
    pub directory: OwnedFd,
    /// Its temporary name, if it has one.
    name: Cell<Option<String>>,
}

impl Fresh {
    /// Makes a file, and returns it with a descriptor for writing.
    pub fn make(directory: OwnedFd, mode: Mode) -> Result<(Self, OwnedFd), Errno> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(&directory, ".", flags, mode) {
            Ok(writer) => Self::of(writer, directory, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(directory, mode),
            Err(errno) => Err(errno),
        }
    }

    fn named(directory: OwnedFd, mode: Mode) -> Result<(Self, OwnedFd), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (writer, name) = free_name(|name| openat(&directory, name, flags, mode))?;
        Self::of(writer, directory, Some(name))
    }

    fn of(
        writer: OwnedFd,
        directory: OwnedFd,
        name: Option<String>,
    ) -> Result<(Self, OwnedFd), Errno> {
        let file =
            openat(CWD, by_descriptor(&writer), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok((Self { file, directory, name: Cell::new(name) }, writer))
    }

    /// Gives the file its name, replacing a file or link there.
    pub fn place(self, name: &[u8]) -> Result<(), Errno> {
        match self.name.take() {
            Some(first) => {
                let placed = renameat(&self.directory, &first, &self.directory, name);
                if placed.is_err() {
                    self.name.set(Some(first));
                }
                placed
            }
            None => {
                let file = by_descriptor(&self.file);
                place(&self.directory, name, |name| {
                    linkat(CWD, &*file, &self.directory, name, AtFlags::SYMLINK_FOLLOW)
                })
            }
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // A command may have removed it already.
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

/// The path of an open file without a name.
fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Makes something under a name, replacing a file or link there. `make` must fail if the name is
/// taken.
pub(super) fn place(
    directory: &OwnedFd,
    name: &[u8],
    make: impl Fn(&[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match make(name) {
        Err(Errno::EXIST) => {}
        done => return done,
    }
    let ((), first) = free_name(|first| make(first.as_bytes()))?;
    let placed = renameat(directory, &first, directory, name);
    // Renaming a link to the same file does nothing; and a failure must leave nothing.
    let _ = unlinkat(directory, &first, AtFlags::empty());
    placed
}

/// Makes something under a free temporary name.
fn free_name<T>(make: impl Fn(&str) -> Result<T, Errno>) -> Result<(T, String), Errno> {
    for number in 0..NAMES_MAX {
        // A killed sandbox, or a concurrent write, uses other names.
        let now = clock_gettime(ClockId::Monotonic);
        let name = format!("{FIRST_NAME}{:x}{:08x}-{number}", now.tv_sec, now.tv_nsec);
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, name)),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).expect("opened").into()
    }

    fn names(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).expect("readable");
        let text = |name: std::ffi::OsString| name.into_string().expect("text");
        let mut names: Vec<_> = names.map(|e| text(e.expect("readable").file_name())).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_takes_its_place_whole_or_not_at_all() {
        for make in [Fresh::make, Fresh::named] {
            let place = tempfile::tempdir().expect("a directory");
            let path = place.path();
            // A foreign file with such a name.
            let theirs = format!("{FIRST_NAME}0-0");
            fs::write(path.join(&theirs), "theirs").expect("written");
            fs::create_dir(path.join("directory")).expect("made");
            let as_it_was = names(path);
            let fresh = |text: &str| {
                let (fresh, writer) = make(open(path), Mode::from_raw_mode(0o644)).expect("made");
                File::from(writer).write_all(text.as_bytes()).expect("written");
                fresh
            };
            drop(fresh("given up"));
            assert_eq!(fresh("no directory").place(b"directory"), Err(Errno::ISDIR));
            assert_eq!(names(path), as_it_was);
            for text in ["one", "two"] {
                assert_eq!(fresh(text).place(b"file"), Ok(()));
                assert_eq!(fs::read_to_string(path.join("file")).expect("there"), text);
            }
            assert_eq!(names(path).len(), as_it_was.len() + 1);
            assert_eq!(fs::read_to_string(path.join(theirs)).expect("there"), "theirs");
        }
    }

    #[test]
    fn a_file_on_its_way_has_no_name() {
        let place = tempfile::tempdir().expect("a directory");
        let mode = Mode::from_raw_mode(0o644);
        let (fresh, _writer) = Fresh::make(open(place.path()), mode).expect("made");
        assert_eq!(names(place.path()), [""; 0]);
        assert_eq!(fresh.place(b"file"), Ok(()));
        assert_eq!(names(place.path()), ["file"]);
    }

    #[test]
    fn a_program_can_be_executed_as_soon_as_its_writer_is_done() {
        for make in [Fresh::make, Fresh::named] {
            let place = tempfile::tempdir().expect("a directory");
            let mode = Mode::from_raw_mode(0o755);
            let (fresh, writer) = make(open(place.path()), mode).expect("made");
            File::from(writer).write_all(b"#!/bin/sh\nexit 7\n").expect("written");
            // As in a fork that was made meanwhile.
            let forked = fresh.file.try_clone().expect("copied");
            assert_eq!(fresh.place(b"program"), Ok(()));
            let ended = std::process::Command::new(place.path().join("program")).status();
            assert_eq!(ended.expect("executed").code(), Some(7));
            drop(forked);
        }
    }
}
