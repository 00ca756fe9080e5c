//! A program of e2fsprogs: where it is, and running it with a bound on its time and on what it says.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Where these programs are, beside the directories of `PATH`, which often lacks them.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// How much of what a program says is kept, in bytes: its first words say what is wrong.
const SAID_LEN_MAX: usize = 1_024;

/// Where a program is; `None` where it is not installed.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).chain(SYSTEM_PROGRAMS.map(PathBuf::from));
    named.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|at| at.is_file())
}

/// Runs a program to its end, at most for so long; how it ended, and what it said. One that takes
/// longer is killed, and waited for.
///
/// # Errors
/// `TimedOut`; what starting it answers.
pub fn run(mut command: Command, time_max: Duration) -> io::Result<(ExitStatus, String)> {
    let (mut said, theirs) = io::pipe()?;
    command.stdout(theirs.try_clone()?).stderr(theirs);
    let mut child = command.spawn()?;
    // It has the pipe's other end too.
    drop(command);
    let waited = wait(&child, &mut said, Instant::now() + time_max);
    if waited.is_err() {
        // It may have ended in this moment.
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((status, waited?))
}

/// Waits until a child has ended, and returns what it has said.
fn wait(child: &Child, said: &mut io::PipeReader, until: Instant) -> io::Result<String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pidfd = pidfd_open(pid.ok_or(ErrorKind::InvalidData)?, PidfdFlags::empty())?;
    rustix::io::ioctl_fionbio(said.as_fd(), true)?;
    let (mut kept, mut is_open) = (Vec::new(), true);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        let mut polled = vec![PollFd::new(&pidfd, PollFlags::IN)];
        if is_open {
            polled.push(PollFd::new(said, PollFlags::IN));
        }
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_ended = polled.first().is_some_and(|pidfd| !pidfd.revents().is_empty());
        is_open = is_open && take(said, &mut kept)?;
        if has_ended {
            return Ok(String::from_utf8_lossy(&kept).trim().to_owned());
        }
    }
}

/// Takes what there is to read, and keeps the first of it; whether there may be more.
fn take(said: &mut io::PipeReader, kept: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 1_024];
    match said.read(&mut piece) {
        Ok(0) => Ok(false),
        Ok(len) => {
            let room = SAID_LEN_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&piece[..len.min(room)]);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, time_max: Duration) -> io::Result<(ExitStatus, String)> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, time_max)
    }

    #[test]
    fn what_a_program_says_is_kept_up_to_a_bound_and_never_waited_for_longer_than_it() {
        let (status, said) = shell("echo words; echo more >&2; exit 3", LONG).expect("ran");
        assert_eq!((status.code(), said.as_str()), (Some(3), "words\nmore"));
        let (status, said) = shell("head -c 1000000 /dev/zero; exit 1", LONG).expect("ran");
        assert_eq!((status.code(), said.len()), (Some(1), SAID_LEN_MAX));
        // What it leaves behind holds the pipe open.
        let (status, said) = shell("sleep 9999 >&2 & echo $!", LONG).expect("ran");
        assert!(status.success());
        let left = said.parse().ok().and_then(Pid::from_raw).expect("a pid");
        rustix::process::kill_process(left, rustix::process::Signal::KILL).expect("killed");
    }

    #[test]
    fn one_that_does_not_end_is_killed_and_waited_for() {
        let ended = shell("exec sleep 86399", Duration::from_millis(50));
        assert_eq!(ended.expect_err("killed").kind(), ErrorKind::TimedOut);
        let mut children = std::fs::read_dir("/proc").expect("/proc").flatten();
        let is_left = children.any(|at| {
            let args = std::fs::read(at.path().join("cmdline")).unwrap_or_default();
            args == b"sleep\x0086399\0"
        });
        assert!(!is_left);
        assert!(find("sh").is_some_and(|at| at.is_absolute()) && find("no-such-program").is_none());
    }
}
