//! Starts one command: a fork that leads a session of its own, with the server's pipes or a
//! terminal as its standard streams and nothing else of PID 1.
//!
//! Nothing here waits for the fork: other processes of the sandbox run as the same user and could
//! stop it on its way. How the start went arrives over a pipe that closes at the execution.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, ioctl_tiocsctty, setsid};

use super::sys::{self, Fork};
use super::work_group::Door;
use super::{HOME, WORKSPACE, confine, explain, shortened, ways};
use crate::sandbox::command_defaults::WorkingDirectory;
use crate::sandbox::confined::{RequestFailure, WorkFailure};

/// The environment that every command begins with; a request's own values come over it.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", HOME),
    ("USER", "agent"),
    ("LOGNAME", "agent"),
    ("SHELL", "/bin/sh"),
    ("LANG", "C.UTF-8"),
    ("TMPDIR", "/tmp"),
    ("PWD", WORKSPACE),
];

/// The most that the kernel takes (`/proc/<pid>/oom_score_adj`).
const CHOSEN_FIRST: &str = "1000";

/// What is to be started.
pub struct Order {
    /// Program and arguments.
    pub argv: Vec<Bytes>,
    /// Where it starts.
    pub cwd: WorkingDirectory,
    /// `KEY=value` each.
    pub env: Vec<Bytes>,
}

/// What a command's standard streams are.
pub enum Streams {
    /// What it reads, writes and complains to.
    Pipes([OwnedFd; 3]),
    /// A terminal, which becomes its session's.
    Terminal(OwnedFd),
}

impl Streams {
    fn all(&self) -> [&OwnedFd; 3] {
        match self {
            Self::Pipes(pipes) => pipes.each_ref(),
            Self::Terminal(terminal) => [terminal; 3],
        }
    }
}

/// A fork on its way to becoming a command.
pub struct Starting {
    /// Its process.
    pub pid: Pid,
    /// Ends without a byte where the command runs; else says what went wrong.
    pub report: OwnedFd,
}

/// What a fork reports that could not become its command.
const REPORT_LEN: usize = 5;
const AT_GROUP: u8 = b'g';
const AT_DIRECTORY: u8 = b'd';
const AT_EXECUTION: u8 = b'x';

/// Forks a command with its three standard streams, which goes where its `work` is.
pub fn start(
    order: &Order,
    streams: &Streams,
    work: Option<&Door>,
) -> Result<Starting, RequestFailure> {
    let cannot = |message: &str| RequestFailure::new(WorkFailure::CannotStart, message);
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| cannot("an argument contains NUL"));
    let argv = order.argv.iter().map(|a| text(a)).collect::<Result<Vec<_>, _>>()?;
    let program = order.argv.first().filter(|p| !p.is_empty());
    let program = program.ok_or_else(|| cannot("there is no command"))?;
    let env = environment(&order.env);
    let candidates =
        candidates(program, &env).iter().map(|c| text(c)).collect::<Result<Vec<_>, _>>()?;
    let env = env.iter().map(|e| text(e)).collect::<Result<Vec<_>, _>>()?;

    let refused = |errno: Errno| match errno {
        Errno::AGAIN => {
            RequestFailure::new(WorkFailure::Refused, "too many processes in the sandbox")
        }
        other => RequestFailure::new(WorkFailure::Refused, explain(other)),
    };
    let (report, reporter) = pipe_with(PipeFlags::CLOEXEC).map_err(refused)?;
    match sys::fork().map_err(refused)? {
        Fork::Parent(pid) => Ok(Starting { pid, report }),
        Fork::Child => {
            // Nothing may unwind into PID 1's loop: this process must not go on as PID 1.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let (at, errno) = match work.map_or(Ok(()), Door::enter) {
                    Ok(()) => become_command(order, streams, &candidates, &argv, &env),
                    Err(errno) => (AT_GROUP, errno),
                };
                let mut report = [at, 0, 0, 0, 0];
                report[1..].copy_from_slice(&errno.raw_os_error().to_le_bytes());
                // Where PID 1 does not read any more the sandbox is ending.
                let _ = rustix::io::write(reporter.as_fd(), &report);
            }));
            sys::exit_now(127)
        }
    }
}

/// In the fork: becomes the command, or says where that failed.
fn become_command(
    order: &Order,
    streams: &Streams,
    candidates: &[CString],
    argv: &[CString],
    env: &[CString],
) -> (u8, Errno) {
    let prepare = || -> Result<(), Errno> {
        setsid()?;
        match streams {
            Streams::Pipes(_) => {}
            Streams::Terminal(terminal) => ioctl_tiocsctty(terminal)?,
        }
        for (stream, to) in streams.all().into_iter().zip(0..) {
            sys::place_descriptor(stream.as_fd(), to)?;
        }
        sys::end_at_execution_from(3)?;
        sys::reset_signals();
        Ok(())
    };
    if let Err(errno) = prepare() {
        return (AT_EXECUTION, errno);
    }
    if let Err(errno) = enter(&order.cwd) {
        return (AT_DIRECTORY, errno);
    }
    if let Err(errno) = confine::limit_command() {
        return (AT_EXECUTION, errno);
    }
    let mut found = Errno::NOENT;
    for candidate in candidates {
        match sys::execute(candidate, argv, env) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => found = Errno::ACCESS,
            other => return (AT_EXECUTION, other),
        }
    }
    (AT_EXECUTION, found)
}

/// Enters the directory that a command starts in. One that the caller has named must be entered. In
/// place of a default it may be the workspace, or as a last resort the root; the command's standard
/// error says so.
fn enter(cwd: &WorkingDirectory) -> Result<(), Errno> {
    let workspace = ways::enter_workspace();
    let entered = match cwd.path.is_empty() {
        true => workspace,
        // An absolute path needs no workspace.
        false => rustix::process::chdir(&cwd.path),
    };
    let Err(errno) = entered else { return Ok(()) };
    if cwd.is_named {
        return Err(errno);
    }
    let instead = match workspace {
        Ok(()) => WORKSPACE,
        Err(_) => {
            rustix::process::chdir("/")?;
            "/"
        }
    };
    let note = format!(
        "issuebox: cannot enter the working directory {}: {}; the command starts in {instead}\n",
        named(&cwd.path),
        explain(errno)
    );
    // The reader may be gone.
    let _ = rustix::io::write(rustix::stdio::stderr(), note.as_bytes());
    Ok(())
}

/// The name of a working directory in a message.
fn named(path: &[u8]) -> String {
    match path {
        [] => WORKSPACE.to_owned(),
        path => shortened(OsStr::from_bytes(path).display().to_string()),
    }
}

/// Has the kernel choose a command and all that it starts, and not PID 1, where memory runs out. It
/// chooses by what processes hold themselves, which says nothing of files in memory.
pub fn end_before_pid_1(command: Pid) {
    let score = format!("/proc/{}/oom_score_adj", command.as_raw_nonzero());
    // One that has ended by now, or made itself unreadable, is chosen like PID 1.
    let _ = std::fs::write(score, CHOSEN_FIRST);
}

/// What a report says: nothing where the command runs.
pub fn outcome(report: &OwnedFd, order: &Order) -> Result<(), RequestFailure> {
    let mut bytes = [0; REPORT_LEN];
    let (at, errno) = match rustix::io::read(report, &mut bytes) {
        Ok(REPORT_LEN) => {
            let errno = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            let error = std::io::Error::from_raw_os_error(errno);
            (bytes[0], Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
        Ok(_) => return Ok(()),
        Err(errno) => (AT_EXECUTION, errno),
    };
    let name = |bytes: &[u8]| shortened(OsStr::from_bytes(bytes).display().to_string());
    let cannot = WorkFailure::CannotStart;
    let (kind, message) = match (at, errno) {
        (AT_GROUP, errno) => {
            (cannot, format!("the sandbox's memory could not be limited: {}", explain(errno)))
        }
        (AT_DIRECTORY, errno) => {
            (cannot, format!("directory {}: {}", named(&order.cwd.path), explain(errno)))
        }
        (_, Errno::NOENT) => {
            let message = format!("{}: command not found", name(&order.argv[0]));
            (WorkFailure::CommandNotFound, message)
        }
        (_, errno) => (cannot, format!("{}: {}", name(&order.argv[0]), explain(errno))),
    };
    Err(RequestFailure::new(kind, message))
}

/// The whole environment, each key once.
fn environment(own: &[Bytes]) -> Vec<Bytes> {
    let mut all: Vec<Bytes> =
        ENVIRONMENT.iter().map(|(key, value)| format!("{key}={value}").into()).collect();
    for entry in own {
        match all.iter_mut().find(|known| key_of(known) == key_of(entry)) {
            Some(known) => known.clone_from(entry),
            None => all.push(entry.clone()),
        }
    }
    all
}

fn key_of(entry: &[u8]) -> &[u8] {
    entry.split(|b| *b == b'=').next().unwrap_or(entry)
}

/// Where a program may be: at its path where it has one, else in the directories of `PATH`.
fn candidates(program: &[u8], env: &[Bytes]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path = env.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or(b"");
    path.split(|b| *b == b':')
        .map(|directory| match directory {
            [] => [b"./", program].concat(),
            _ => [directory, b"/", program].concat(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_s_environment_comes_over_the_sandbox_s() {
        let env = environment(&["HOME=/x", "K=1", "K=2=3"].map(Bytes::from));
        let of = |key: &str| {
            let found: Vec<_> = env.iter().filter(|e| key_of(e) == key.as_bytes()).collect();
            assert_eq!(found.len(), 1, "{key} must be there once");
            String::from_utf8_lossy(found[0]).into_owned()
        };
        assert_eq!(of("HOME"), "HOME=/x");
        assert_eq!(of("K"), "K=2=3");
        assert_eq!(of("USER"), "USER=agent");
    }

    #[test]
    fn programs_are_looked_for_in_path_unless_they_have_one() {
        let env = [Bytes::from("PATH=/a::/b")];
        let found: Vec<_> =
            candidates(b"x", &env).into_iter().map(|c| String::from_utf8(c).unwrap()).collect();
        assert_eq!(found, ["/a/x", "./x", "/b/x"]);
        assert_eq!(candidates(b"./x", &env), [b"./x".to_vec()]);
    }
}
