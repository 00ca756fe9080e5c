//! What a process of the sandbox holds of the host's files, as the kernel's links in `/proc/self`
//! show it: the program that it executes, open descriptors, its directories, its mappings.
//!
//! A process with such a file open can change it as far as its *mount* allows: its mode, times and
//! attributes, if the file is the sandbox user's. So each must be on a mount of the sandbox's own
//! view, which the rest of the check looks at, or on one that is read-only.

use std::collections::HashSet;
use std::fs;
use std::os::fd::RawFd;

use rustix::fs::{AtFlags, CWD, StatVfsMountFlags, StatxFlags, readlink, statvfs, statx};
use rustix::io::Errno;

use super::{NameStep, SetupError};

/// The links that each process has.
const SINGLE: [&str; 3] = ["/proc/self/exe", "/proc/self/cwd", "/proc/self/root"];

/// The directory of links to mapped files. The kernel lets only privileged processes of the host's
/// user namespace follow them (`proc(5)`); where it let this process, they would count.
const MAPPINGS: &str = "/proc/self/map_files";

/// Checks every link. `mounts` is this process's own mountinfo; `door` is the file of a control
/// group, which is no file of the host's disks and is only written to.
pub fn check(mounts: &str, door: Option<RawFd>) -> Result<(), SetupError> {
    let own: HashSet<u64> =
        mounts.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    let door = door.map(|fd| format!("/proc/self/fd/{fd}"));
    let is_other = |link: &String| Some(link) != door.as_ref();
    let open = names("/proc/self/fd")?.into_iter().filter(is_other);
    for link in SINGLE.map(String::from).into_iter().chain(open) {
        refuse_if(can_be_changed(&link, &own), &link)?;
    }
    for link in names(MAPPINGS)? {
        match can_be_changed(&link, &own) {
            // The kernel refuses by what the process may, whichever file it is.
            Err(Errno::PERM) => break,
            found => refuse_if(found, &link)?,
        }
    }
    Ok(())
}

fn refuse_if(can_be_changed: Result<bool, Errno>, link: &str) -> Result<(), SetupError> {
    if can_be_changed.step(&format!("look at {link}"))? {
        return Err(SetupError::check(format!(
            "{link} is on a mount of the host that can be changed"
        )));
    }
    Ok(())
}

fn names(directory: &str) -> Result<Vec<String>, SetupError> {
    let step = || format!("list {directory}");
    let entries = fs::read_dir(directory).step(&step())?;
    entries
        .map(|entry| {
            let entry = entry.step(&step())?;
            Ok(format!("{directory}/{}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

/// Whether a link leads to a file on a mount that is neither this process's own nor read-only.
fn can_be_changed(link: &str, own: &HashSet<u64>) -> Result<bool, Errno> {
    let target = match readlink(link, Vec::new()) {
        Ok(target) => target,
        // The listing's own descriptor is closed by now.
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    // Sockets, pipes and the like have no path.
    if !target.as_bytes().starts_with(b"/") {
        return Ok(false);
    }
    let found = statx(CWD, link, AtFlags::empty(), StatxFlags::MNT_ID)?;
    let has_mount = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if has_mount && own.contains(&found.stx_mnt_id) {
        return Ok(false);
    }
    Ok(!statvfs(link)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}
