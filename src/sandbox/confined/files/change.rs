//! Quick changes to the workspace: make a directory, move, set permissions.

use std::os::fd::AsRawFd;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, chmodat, fstat, mkdirat, renameat,
    renameat_with, statat,
};
use rustix::io::Errno;

use super::{Files, RequestFailure, WorkFailure, split};

/// The mode bits that may be set: no set-uid, set-gid or sticky bit.
const MODE_MAX: u32 = 0o777;

impl Files {
    /// Makes a directory and its missing parents; returns whether it existed.
    pub fn make_directory(&self, path: &[u8]) -> Result<bool, RequestFailure> {
        if path.is_empty() {
            return Ok(true);
        }
        let (parent, name) = split(path)?;
        let parent = self.directories(parent)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(false),
            Err(Errno::EXIST) => match self.beneath(path, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(_) => Ok(true),
                Err(Errno::NOTDIR | Errno::NOENT) => {
                    Err(RequestFailure::new(WorkFailure::Exists, "it is not a directory"))
                }
                Err(errno) => Err(errno.into()),
            },
            Err(errno) => Err(errno.into()),
        }
    }

    /// Moves `from` to `to` in one step; returns whether something was replaced.
    pub fn relocate(
        &self,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
    ) -> Result<bool, RequestFailure> {
        let (from_parent, from_name) = split(from)?;
        let (to_parent, to_name) = split(to)?;
        let from_parent = self.beneath(from_parent, OFlags::PATH | OFlags::DIRECTORY)?;
        // Fails early if the source is missing, before directories are made.
        statat(&from_parent, from_name, AtFlags::SYMLINK_NOFOLLOW)?;
        let to_parent = self.directories(to_parent)?;
        let moved = if overwrite {
            let replaced = statat(&to_parent, to_name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            renameat(&from_parent, from_name, &to_parent, to_name).map(|()| replaced)
        } else {
            let flags = RenameFlags::NOREPLACE;
            renameat_with(&from_parent, from_name, &to_parent, to_name, flags).map(|()| false)
        };
        moved.map_err(|errno| match errno {
            Errno::EXIST if !overwrite => RequestFailure::new(
                WorkFailure::Exists,
                "the new place is taken; overwrite it, or choose another",
            ),
            Errno::EXIST | Errno::NOTEMPTY => RequestFailure::new(
                WorkFailure::Exists,
                "the directory at the new place is not empty",
            ),
            Errno::INVAL => {
                RequestFailure::new(WorkFailure::NotAllowed, "it would be moved into itself")
            }
            other => other.into(),
        })
    }

    /// Sets the mode bits of a file or directory; returns false.
    pub fn set_mode(&self, path: &[u8], mode: u32) -> Result<bool, RequestFailure> {
        if mode > MODE_MAX {
            return Err(RequestFailure::new(
                WorkFailure::NotAllowed,
                "only permission bits can be set",
            ));
        }
        let opened = self.beneath(path, OFlags::PATH)?;
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::RegularFile | FileType::Directory => {}
            _ => {
                return Err(RequestFailure::new(
                    WorkFailure::WrongKind,
                    "it is not a file or directory",
                ));
            }
        }
        // A file without read permission can be opened only with `O_PATH`, which `fchmod` does not
        // accept. This path names the open file, not a replacement at the same path.
        let opened = format!("/proc/self/fd/{}", opened.as_raw_fd());
        chmodat(CWD, opened, Mode::from_raw_mode(mode), AtFlags::empty())?;
        Ok(false)
    }
}
