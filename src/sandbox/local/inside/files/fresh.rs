//! A new file that has no name until it has come whole, and how what is new takes its place.
//!
//! Whatever ends the sandbox while a file is on its way, the kernel takes the file with it, and
//! nothing is left for anybody to tidy. Where something has to give way there are two system calls
//! from the file's first name to its own; a sandbox that is killed between them keeps a whole file
//! under the first. A file system that knows no nameless files has the name from the beginning.
//!
//! No name is taken that is in use, so nothing is removed here but what was made here.
//!
//! Nothing here keeps the file open for writing: forks of this process would hold it too, and a program
//! that is open for writing anywhere can't be executed (`ETXTBSY`).

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// What the names begin with that are there for a moment.
const FIRST_NAME: &str = ".issuebox-new-";

/// Most names that are tried; past that somebody makes them on purpose.
const NAMES_MAX: usize = 64;

/// A new regular file in a directory, which goes unless it is placed.
pub(super) struct Fresh {
    /// The file, as a place and not to be written.
    file: OwnedFd,
    /// Where it is to be.
    pub directory: OwnedFd,
    /// Its name, where it needs one.
    name: Cell<Option<String>>,
}

impl Fresh {
    /// Makes one, and what to write to it with.
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

    /// Gives it its name; a file or link that has it gives way.
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
            // It may have been removed by a command; then there is nothing to tidy.
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

/// What names an open file that has no other name.
fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Makes something under a name, where a file or link that has it gives way. What makes it must
/// fail where there is something.
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
    // A link to the very file that is there already is not renamed; and a failure leaves nothing.
    let _ = unlinkat(directory, &first, AtFlags::empty());
    placed
}

/// Makes something under a name that nothing has.
fn free_name<T>(make: impl Fn(&str) -> Result<T, Errno>) -> Result<(T, String), Errno> {
    for number in 0..NAMES_MAX {
        // What a sandbox that was killed has left, or makes at the same time, is under another.
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
            // Somebody else's, by such a name.
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
            // As a fork has it that was made meanwhile.
            let forked = fresh.file.try_clone().expect("copied");
            assert_eq!(fresh.place(b"program"), Ok(()));
            let ended = std::process::Command::new(place.path().join("program")).status();
            assert_eq!(ended.expect("it is executed").code(), Some(7));
            drop(forked);
        }
    }
}
