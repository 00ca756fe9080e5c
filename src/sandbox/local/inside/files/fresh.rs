//! A new file that has no name until it has come whole, and how what is new takes its place.
//!
//! Whatever ends the sandbox while a file is on its way, the kernel takes the file with it, and
//! nothing is left for anybody to tidy. Where something has to give way there are two system calls
//! from the file's first name to its own; a sandbox that is killed between them keeps a whole file
//! under the first. A file system that knows no nameless files has the name from the beginning.
//!
//! No name is taken that is in use, so nothing is removed here but what was made here.

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// What the names begin with that are there for a moment.
const FIRST_NAME: &str = ".issuebox-new-";

/// Most names that are tried; past that somebody makes them on purpose.
const NAMES_MAX: usize = 64;

/// A new regular file in a directory, which goes unless it is placed.
pub(super) struct Fresh {
    /// The file, open for writing.
    pub file: OwnedFd,
    /// Where it is to be.
    pub directory: OwnedFd,
    /// Its name, where it needs one.
    name: Cell<Option<String>>,
}

impl Fresh {
    /// Makes one.
    pub fn make(directory: OwnedFd, mode: Mode) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(&directory, ".", flags, mode) {
            Ok(file) => Ok(Self { file, directory, name: Cell::new(None) }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(directory, mode),
            Err(errno) => Err(errno),
        }
    }

    fn named(directory: OwnedFd, mode: Mode) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, name) = free_name(|name| openat(&directory, name, flags, mode))?;
        Ok(Self { file, directory, name: Cell::new(Some(name)) })
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
                // This names what is open; it has no other name that could be said.
                let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
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
        let name = format!("{FIRST_NAME}{}-{number}", std::process::id());
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
            // Somebody else's, by the name that would be the first.
            let theirs = format!("{FIRST_NAME}{}-0", std::process::id());
            fs::write(path.join(&theirs), "theirs").expect("written");
            fs::create_dir(path.join("directory")).expect("made");
            let as_it_was = names(path);
            let fresh = |text: &str| {
                let fresh = make(open(path), Mode::from_raw_mode(0o644)).expect("made");
                let mut file = File::from(fresh.file.try_clone().expect("copied"));
                file.write_all(text.as_bytes()).expect("written");
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
        let fresh = Fresh::make(open(place.path()), Mode::from_raw_mode(0o644)).expect("made");
        assert_eq!(names(place.path()), [""; 0]);
        assert_eq!(fresh.place(b"file"), Ok(()));
        assert_eq!(names(place.path()), ["file"]);
    }
}
