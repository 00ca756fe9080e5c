//! Commands: how they are started, and the detached processes with their output.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::wire::{CommandOrder, HelperReply};
use super::reaper::Reaper;
use super::{HOME, WORKSPACE};
use crate::clock::{IdSource, SystemIds};
use crate::sandbox::command_pipes::OutputPipe;
use crate::sandbox::confined::{RequestFailure, WorkFailure, broken, explain, pipe, shortened};
use crate::sandbox::kept_output::KeptOutput;
use crate::sandbox::reach::{self, Reach};
use crate::sandbox::{
    ENDED_KEPT, ExecEvent, OUTPUT_KEPT_MAX, OutputStream, Overflow, ProcessExit, WorkError,
    sessions,
};

/// The environment of every command, over the image's and below the template's.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("HOME", HOME),
    ("USER", "agent"),
    ("LOGNAME", "agent"),
    ("TMPDIR", "/tmp"),
    ("PWD", WORKSPACE),
];

/// The same where the image does not say otherwise.
const ENVIRONMENT_OTHERWISE: [(&str, &str); 3] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("SHELL", "/bin/sh"),
    ("LANG", "C.UTF-8"),
];

/// Where git's settings are: in the helper's own volume, which no command can change.
const GIT_SETTINGS: &[u8] = b"GIT_CONFIG_SYSTEM=/.issuebox/gitconfig";

/// The kernel ends commands before the helper when memory runs out (`/proc/<pid>/oom_score_adj`).
const CHOSEN_FIRST: &str = "1000";

/// The pause between two looks at a killed session with processes left.
const RECHECK: Duration = Duration::from_millis(2);

/// The number of the first process of a life of the container; each later one's is one more. It is the
/// nanosecond of the life's begin, so that no number is used again in a later life, however short
/// the earlier one was.
fn first_number() -> u64 {
    SystemIds.unix_ns().unsigned_abs()
}

/// Starts commands as the helper's own user.
pub struct CommandStarter {
    reach: Reach,
    reaper: Reaper,
}

impl CommandStarter {
    /// A starter for commands that are connected to this.
    pub fn new(reach: Reach) -> Self {
        Self { reach, reaper: Reaper::default() }
    }

    /// The children of PID 1.
    pub const fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// Starts a command that leads a session of its own. With a terminal, all three streams are that.
    ///
    /// # Errors
    /// `CommandNotFound`, `CannotStart`, `Refused`.
    pub fn start(
        &self,
        order: &CommandOrder,
        streams: [OwnedFd; 3],
        has_terminal: bool,
    ) -> Result<(Pid, oneshot::Receiver<i32>), RequestFailure> {
        let cannot = |message: String| RequestFailure::new(WorkFailure::CannotStart, message);
        let [program, arguments @ ..] = &*order.argv else {
            return Err(cannot("there is no command".into()));
        };
        let [stdin, stdout, stderr] = streams;
        let mut command = Command::new(OsStr::from_bytes(program));
        command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        command.env_clear().envs(self.environment(&order.env));
        command.current_dir(directory(order, &stderr).map_err(cannot)?);
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
        lead_session(&mut command, has_terminal);
        let shown = shortened(String::from_utf8_lossy(program).into_owned());
        let (pid, ended) = self.reaper.start(&mut command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RequestFailure::new(
                WorkFailure::CommandNotFound,
                format!("{shown}: command not found"),
            ),
            io::ErrorKind::WouldBlock => {
                RequestFailure::new(WorkFailure::Refused, "too many processes in the sandbox")
            }
            _ => {
                let errno = rustix::io::Errno::from_io_error(&error);
                let why = errno.map_or_else(|| error.to_string(), explain);
                cannot(format!("{shown}: {why}"))
            }
        })?;
        // One that has ended by now, or made itself unreadable, is chosen like the helper.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), CHOSEN_FIRST);
        Ok((pid, ended))
    }

    /// The environment of a command, each variable once.
    fn environment(&self, own: &[Bytes]) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let text = |(name, value): (&str, &str)| (name.into(), value.into());
        let image = std::env::vars_os();
        let otherwise = ENVIRONMENT_OTHERWISE.into_iter().map(text);
        let fixed = ENVIRONMENT.into_iter().map(text);
        let has_git = matches!(self.reach, Reach::Git | Reach::Proxy);
        let git = has_git.then(|| Bytes::from_static(GIT_SETTINGS));
        let own = git.into_iter().chain(own.iter().cloned()).collect();
        // The reach's variables come first and name another place for git's settings.
        let own = reach::environment(self.reach, own).into_iter().filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&entry[..at], &entry[at + 1..]);
            Some((OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into()))
        });
        // Of two, `Command::envs` takes the last.
        otherwise.chain(image).chain(fixed).chain(own).collect()
    }
}

/// The directory that a command starts in. One that the caller has named must be there. In place of a
/// default it is the workspace, or as a last resort the root; the command's standard error says so.
fn directory(order: &CommandOrder, stderr: &OwnedFd) -> Result<std::path::PathBuf, String> {
    open_workspace();
    let wanted = std::path::Path::new(WORKSPACE).join(OsStr::from_bytes(&order.cwd.path));
    let enter = |path: &std::path::Path| {
        openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|_| rustix::fs::access(path, rustix::fs::Access::EXEC_OK))
    };
    let Err(errno) = enter(&wanted) else { return Ok(wanted) };
    let shown = match &order.cwd.path[..] {
        [] => WORKSPACE.to_owned(),
        path => shortened(String::from_utf8_lossy(path).into_owned()),
    };
    if order.cwd.is_named {
        return Err(format!("directory {shown}: {}", explain(errno)));
    }
    let instead = if enter(WORKSPACE.as_ref()).is_ok() { WORKSPACE } else { "/" };
    let note = format!(
        "issuebox: cannot enter the working directory {shown}: {}; the command starts in {instead}\n",
        explain(errno)
    );
    // The pipe is empty and has room.
    let _ = rustix::io::write(stderr, note.as_bytes());
    Ok(instead.into())
}

/// Gives the workspace back the rights of its owner, which a command may have taken away.
pub fn open_workspace() {
    let Ok(found) = fs::metadata(WORKSPACE) else { return };
    let mode = found.mode() & 0o7777;
    if mode & 0o700 != 0o700 {
        // One that belongs to another user stays as it is.
        let _ = fs::set_permissions(WORKSPACE, Permissions::from_mode(mode | 0o700));
    }
}

/// Has a command lead a session of its own, at the terminal that it reads from, if that is one.
#[allow(unsafe_code, reason = "only a fork can start a session, and std has no call for it")]
fn lead_session(command: &mut Command, has_terminal: bool) {
    // SAFETY: the closure makes two system calls and touches no memory that another thread could have
    // locked at the fork.
    unsafe {
        command.pre_exec(move || {
            // gVisor answers 0 for success, which `rustix::process::setsid` cannot return.
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            if has_terminal {
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            Ok(())
        });
    }
}

/// A command and its session.
pub struct Leader {
    pid: Pid,
    is_killed: AtomicBool,
    /// Cancelled once it has ended; if it was killed, once its session has.
    over: CancellationToken,
}

impl Leader {
    /// The leader of a session that was just started.
    pub fn new(pid: Pid) -> Arc<Self> {
        Arc::new(Self { pid, is_killed: AtomicBool::new(false), over: CancellationToken::new() })
    }

    /// Returns at its end with its exit code.
    pub async fn ended(&self, exit: oneshot::Receiver<i32>) -> Option<i32> {
        let code = exit.await.ok();
        while self.is_killed.load(Ordering::Relaxed) && sessions::is_alive(self.pid) {
            tokio::time::sleep(RECHECK).await;
        }
        self.over.cancel();
        code
    }

    /// Sends a signal to every process of its session.
    pub fn signal(&self, reaper: &Reaper, signal: Signal) {
        // After that its number can be another's. No other task runs between the look and the signal.
        if !reaper.is_there(self.pid) {
            return;
        }
        if signal == Signal::KILL {
            self.is_killed.store(true, Ordering::Relaxed);
            sessions::kill(self.pid);
        } else {
            sessions::signal(self.pid, signal);
        }
    }

    /// Kills what is left of its session, also after the leader's own end, and returns once it has ended.
    pub async fn kill_rest(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
        while sessions::is_alive(self.pid) {
            sessions::kill(self.pid);
            tokio::time::sleep(RECHECK).await;
        }
    }
}

/// How much of a process's output is kept, and by what the process is found.
pub struct Keeping {
    /// At least the newest so many bytes.
    pub keep: u64,
    /// What happens beyond that.
    pub overflow: Overflow,
    /// By what it is found again.
    pub tag: Option<String>,
}

/// A detached process, until it is forgotten.
struct KeptProcess {
    leader: Arc<Leader>,
    tag: Option<String>,
    /// `None` once its input is closed.
    input: Mutex<Option<mpsc::Sender<Bytes>>>,
    output: Arc<KeptOutput>,
}

impl KeptProcess {
    fn input(&self) -> MutexGuard<'_, Option<mpsc::Sender<Bytes>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct KeptProcesses {
    running: HashMap<u64, Arc<KeptProcess>>,
    /// The numbers of those that have ended, the earliest first.
    ended: VecDeque<u64>,
}

/// The detached processes of the container.
pub struct Commands {
    /// Starts them.
    pub starter: CommandStarter,
    next: AtomicU64,
    kept: Mutex<KeptProcesses>,
}

impl Commands {
    /// None yet.
    pub fn new(reach: Reach) -> Self {
        Self {
            starter: CommandStarter::new(reach),
            next: AtomicU64::new(first_number()),
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptProcesses> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, number: u64) -> Option<Arc<KeptProcess>> {
        self.kept().running.get(&number).cloned()
    }

    /// Starts a process; answers with its number.
    ///
    /// # Errors
    /// As for [`CommandStarter::start`]; `Broken`.
    pub fn spawn(
        self: &Arc<Self>,
        order: &CommandOrder,
        has_stdin: bool,
        timeout: Option<Duration>,
        Keeping { keep, overflow, tag }: Keeping,
    ) -> Result<u64, WorkError> {
        let file = output_file().map_err(broken)?;
        let ((stdin, to_stdin), (stdout, to_stdout), (stderr, to_stderr)) =
            (pipe()?, pipe()?, pipe()?);
        let stdout = OutputPipe::new(stdout, ExecEvent::Stdout)?;
        let stderr = OutputPipe::new(stderr, ExecEvent::Stderr)?;
        let to_stdin = Sender::from_owned_fd(to_stdin).map_err(broken)?;
        let (pid, exit) = self.starter.start(order, [stdin, to_stdout, to_stderr], false)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let input = has_stdin.then(|| feed(to_stdin));
        let process = Arc::new(KeptProcess {
            leader: Leader::new(pid),
            tag,
            input: Mutex::new(input),
            output: Arc::new(KeptOutput::new(file, keep.min(OUTPUT_KEPT_MAX), overflow)),
        });
        self.kept().running.insert(number, Arc::clone(&process));
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let watch = this.watch(&process, exit, timeout);
            let keep = async {
                let kept = keep_output(&process, [stdout, stderr]).await;
                if kept.is_err() {
                    process.leader.signal(this.starter.reaper(), Signal::KILL);
                }
                kept
            };
            let (ended, kept) = tokio::join!(watch, keep);
            // A write that waits for room ends too: nothing reads it.
            drop(process.input().take());
            let ended = match kept {
                Ok(()) => ended.ok_or(WorkError::NotRunning),
                Err(error) => Err(broken(format!("its output could not be kept: {error}"))),
            };
            process.output.end(ended);
            this.ended(number);
        });
        Ok(number)
    }

    /// Waits for the end of a process, and kills it when its time is up.
    async fn watch(
        &self,
        process: &KeptProcess,
        exit: oneshot::Receiver<i32>,
        timeout: Option<Duration>,
    ) -> Option<ProcessExit> {
        let leader = &process.leader;
        let mut ended = std::pin::pin!(leader.ended(exit));
        let time_up = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let code = tokio::select! {
            biased;
            code = &mut ended => return code.map(|code| ProcessExit { code, timed_out: false }),
            () = time_up => {
                leader.signal(self.starter.reaper(), Signal::KILL);
                ended.await
            }
        };
        code.map(|code| ProcessExit { code, timed_out: true })
    }

    /// Notes that a process has ended, and forgets the first of too many.
    fn ended(&self, number: u64) {
        let mut kept = self.kept();
        kept.ended.push_back(number);
        if kept.ended.len() > ENDED_KEPT
            && let Some(first) = kept.ended.pop_front()
        {
            kept.running.remove(&first);
        }
    }

    /// The newest process with a tag.
    pub fn tagged(&self, tag: &str) -> Option<u64> {
        let kept = self.kept();
        let tagged = kept.running.iter().filter(|(_, it)| it.tag.as_deref() == Some(tag));
        tagged.map(|(number, _)| *number).max()
    }

    /// The kept output of a process.
    pub fn output(&self, number: u64) -> Result<Arc<KeptOutput>, HelperReply> {
        let process = self.find(number).ok_or(HelperReply::NoSuchProcess)?;
        Ok(Arc::clone(&process.output))
    }

    /// Passes bytes to the input of a process.
    pub async fn write_stdin(&self, number: u64, bytes: Bytes) -> HelperReply {
        let Some(process) = self.find(number) else { return HelperReply::NoSuchProcess };
        let input = process.input().clone();
        match input {
            Some(input) if input.send(bytes).await.is_ok() => HelperReply::Done,
            _ => HelperReply::StdinClosed,
        }
    }

    /// Closes the input of a process.
    pub fn close_stdin(&self, number: u64) -> HelperReply {
        let Some(process) = self.find(number) else { return HelperReply::NoSuchProcess };
        drop(process.input().take());
        HelperReply::Done
    }

    /// Sends a signal to the session of a process.
    pub fn signal(&self, number: u64, signal: i32) -> HelperReply {
        let Some(process) = self.find(number) else { return HelperReply::NoSuchProcess };
        if let Some(signal) = Signal::from_named_raw(signal) {
            process.leader.signal(self.starter.reaper(), signal);
        }
        HelperReply::Done
    }
}

/// Writes what is sent to the input of a process, until that is closed.
fn feed(mut pipe: Sender) -> mpsc::Sender<Bytes> {
    let (sender, mut input) = mpsc::channel::<Bytes>(1);
    tokio::spawn(async move {
        // A process need not read all of it.
        while let Some(bytes) = input.recv().await
            && pipe.write_all(&bytes).await.is_ok()
        {}
    });
    sender
}

/// Keeps the output of a process until its end: what was written before it, and no more.
async fn keep_output(process: &KeptProcess, streams: [OutputPipe; 2]) -> io::Result<()> {
    let [mut stdout, mut stderr] = streams;
    let over = &process.leader.over;
    let append = async |event: ExecEvent| match event {
        ExecEvent::Stdout(bytes) => process.output.append(OutputStream::Stdout, bytes, over).await,
        ExecEvent::Stderr(bytes) => process.output.append(OutputStream::Stderr, bytes, over).await,
        ExecEvent::Exit { .. } => Ok(()),
    };
    loop {
        let event = tokio::select! {
            biased;
            () = over.cancelled() => break,
            event = stdout.next() => event,
            event = stderr.next() => event,
        };
        append(event).await?;
    }
    // Background processes may still write.
    let left = [stdout.waiting(), stderr.waiting()];
    for (stream, mut left) in [&stdout, &stderr].into_iter().zip(left) {
        while left > 0
            && let Some(event) = stream.read(left)
        {
            left -= match &event {
                ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => bytes.len().min(left),
                ExecEvent::Exit { .. } => 0,
            };
            append(event).await?;
        }
    }
    Ok(())
}

/// A file without a name for the output of a process: on the workspace's disk, or in memory if its
/// file system has no such files. Only the helper has it, and the helper is not dumpable.
fn output_file() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    open_workspace();
    let file = openat(CWD, WORKSPACE, flags, Mode::RUSR | Mode::WUSR);
    let file = file.or_else(|_| memfd_create("issuebox-output", MemfdFlags::CLOEXEC))?;
    Ok(File::from(file))
}

/// Writes a line for people to the container's log.
pub fn log_line(text: &str) {
    // The log may not be kept.
    let _ = writeln!(io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::first_number;

    /// A container can stop and start again well within a second.
    #[test]
    fn lives_that_follow_at_once_share_no_number() {
        let (first, second) = (first_number(), first_number());
        assert!(first < second);
    }
}
