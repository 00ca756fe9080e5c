//! Lets an ordinary user's process act for a sandbox's host user, too.
//!
//! It enters a user namespace in which both users are mapped to themselves. There it is what root is
//! for their files alone: it gives files to the sandbox's user, becomes that user, or removes its
//! files. Only `newuidmap` and `newgidmap` may write such maps; they check `/etc/subuid` and
//! `/etc/subgid`, and must start outside of the new namespace.
//!
//! The server starts its own binary with [`MAPPED_COMMAND`](super::MAPPED_COMMAND) to remove the files
//! of a sandbox, or only to see whether the maps can be written.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, WaitOptions, getegid, geteuid, getppid, set_dumpable_behavior, waitpid,
};
use rustix::thread::{UnshareFlags, set_thread_groups};

use super::sys::{self, Fork};
use super::{NameStep, SetupError, launch};
use crate::sandbox::confined::remove;

/// The directories of the two programs; the last is NixOS's.
const DIRECTORIES: [&str; 3] = ["/usr/bin", "/bin", "/run/wrappers/bin"];

/// The path of `newuidmap` or `newgidmap`; `None` if it is not installed.
pub fn mapping_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.exists())
}

/// Enters a user namespace with the user of this process and with this uid and gid, without
/// supplementary groups. The process keeps its user.
pub(super) fn enter(id: u32) -> Result<(), SetupError> {
    let step = "map the sandbox's own uid";
    let (wait, go) = pipe_with(PipeFlags::CLOEXEC).step(step)?;
    let child = match sys::fork().step(step)? {
        Fork::Child => {
            drop(go);
            let is_made = rustix::io::read(&wait, &mut [0]) == Ok(1);
            let is_mapped = is_made
                && map("newuidmap", geteuid().as_raw(), id)
                && map("newgidmap", getegid().as_raw(), id);
            sys::exit_now(i32::from(!is_mapped))
        }
        Fork::Parent(child) => child,
    };
    drop(wait);
    sys::unshare(UnshareFlags::NEWUSER).step("make a user namespace")?;
    // Otherwise its files in /proc belong to root, and the programs refuse them.
    set_dumpable_behavior(DumpableBehavior::Dumpable).step("become dumpable")?;
    rustix::io::write(&go, b"!").step(step)?;
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            ended => break ended.step(step)?,
        }
    };
    let is_mapped = status.is_some_and(|(_, status)| status.exit_status() == Some(0));
    if !is_mapped {
        return Err(Errno::PERM).step(step);
    }
    set_thread_groups(&[]).step("give up supplementary groups")
}

/// Maps two ids of the parent to themselves. What the program says goes to standard error.
fn map(program: &str, own: u32, id: u32) -> bool {
    let Some(path) = mapping_program(program) else { return false };
    let mut command = Command::new(path);
    command.arg(getppid().map_or(0, |pid| pid.as_raw_nonzero().get()).to_string());
    for mapped in [own, id] {
        command.args([&mapped.to_string(), &mapped.to_string(), "1"]);
    }
    command.status().is_ok_and(|status| status.success())
}

/// Runs as the helper: acts for the host id that is the first argument, and removes the tree that the
/// second names in the directory that is its standard input.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let id = arguments.next().and_then(|id| id.to_str()?.parse().ok());
    let Some(id) = id else { return ExitCode::from(2) };
    let removed = launch::take_socket().step("take the directory").and_then(|directory| {
        enter(id)?;
        let Some(name) = arguments.next() else { return Ok(()) };
        match remove::remove(&directory, name.as_bytes()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.step("remove the files"),
        }
    });
    let Err(SetupError { step, errno }) = removed else { return ExitCode::SUCCESS };
    let why = std::io::Error::from_raw_os_error(errno);
    // The server may have ended.
    let _ = writeln!(std::io::stderr(), "cannot {step}: {why}");
    ExitCode::FAILURE
}
