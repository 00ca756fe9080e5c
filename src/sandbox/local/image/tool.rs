//! Finds and runs a program of e2fsprogs, with a timeout and a bound on the output that is kept.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Directories of these programs that `PATH` often lacks.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// How much of the output is kept, in bytes: the first words name the failure.
const OUTPUT_LEN_MAX: usize = 1_024;

/// The path of a program; `None` if it is not installed.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).chain(SYSTEM_PROGRAMS.map(PathBuf::from));
    named.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|at| at.is_file())
}

/// Runs a program with a timeout; returns its status and output. After the timeout it is killed
/// and reaped.
///
/// # Errors
/// `TimedOut`; the error of starting it.
pub fn run(mut command: Command, time_max: Duration) -> io::Result<(ExitStatus, String)> {
    let (mut output, theirs) = io::pipe()?;
    command.stdout(theirs.try_clone()?).stderr(theirs);
    let mut child = command.spawn()?;
    // The command holds the other end of the pipe too.
    drop(command);
    let waited = wait(&child, &mut output, Instant::now() + time_max);
    if waited.is_err() {
        // It may have just ended.
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((status, waited?))
}

/// Waits until a child has ended, and returns its output.
fn wait(child: &Child, output: &mut io::PipeReader, until: Instant) -> io::Result<String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pidfd = pidfd_open(pid.ok_or(ErrorKind::InvalidData)?, PidfdFlags::empty())?;
    rustix::io::ioctl_fionbio(output.as_fd(), true)?;
    let (mut kept, mut is_open) = (Vec::new(), true);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        let mut polled = vec![PollFd::new(&pidfd, PollFlags::IN)];
        if is_open {
            polled.push(PollFd::new(output, PollFlags::IN));
        }
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_ended = polled.first().is_some_and(|pidfd| !pidfd.revents().is_empty());
        is_open = is_open && take(output, &mut kept)?;
        if has_ended {
            return Ok(String::from_utf8_lossy(&kept).trim().to_owned());
        }
    }
}

/// Reads what is available and keeps the beginning; returns whether more may come.
fn take(output: &mut io::PipeReader, kept: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 1_024];
    match output.read(&mut piece) {
        Ok(0) => Ok(false),
        Ok(len) => {
            let room = OUTPUT_LEN_MAX.saturating_sub(kept.len());
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
    fn output_is_kept_up_to_a_bound_and_a_background_process_is_not_waited_for() {
        let (status, output) = shell("echo words; echo more >&2; exit 3", LONG).expect("ran");
        assert_eq!((status.code(), output.as_str()), (Some(3), "words\nmore"));
        let (status, output) = shell("head -c 1000000 /dev/zero; exit 1", LONG).expect("ran");
        assert_eq!((status.code(), output.len()), (Some(1), OUTPUT_LEN_MAX));
        // A background process holds the pipe open.
        let (status, output) = shell("sleep 9999 >&2 & echo $!", LONG).expect("ran");
        assert!(status.success());
        let left = output.parse().ok().and_then(Pid::from_raw).expect("a pid");
        rustix::process::kill_process(left, rustix::process::Signal::KILL).expect("killed");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_reaped() {
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
