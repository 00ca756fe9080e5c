//! The server's end of one running sandbox: requests out, answers in, and its end.
//!
//! One task reads answers for as long as the sandbox lives. It never waits for a caller: each request has
//! room for its answers, and a sandbox that sends more than fit is ended. PID 1 may be hostile. An
//! answer that cannot be decoded, and a descriptor that was not requested, end the sandbox.
//!
//! [`Link::gone`] means that *no process of the sandbox is left*: the launcher has been waited for, and
//! the pidfd of PID 1 says that its pid namespace is empty. The end of the socket alone does not mean
//! that, because PID 1 could have closed it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, watch};

use super::frame::{Answer, PACKET_LEN_MAX, Request};
use super::launching::Arrived;
use super::packet::{self, Outgoing};
use super::processes::ProcessTable;
use crate::sandbox::command_defaults::CommandDefaults;
use crate::sandbox::confined::RequestFailure;
pub use crate::sandbox::confined::{broken, pipe};
use crate::sandbox::descriptors::watched;
use crate::sandbox::{Target, WorkError};

/// How long PID 1 may take for an answer that needs microseconds. After that the call fails; the sandbox
/// itself goes on until it is stopped.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long a stop waits for PID 1 after the grace period, before it ends the sandbox from outside.
const STOP_SLACK: Duration = Duration::from_secs(1);

/// Most answers that any request has: *opened*, *started*, *done* for its hang-up, then *exited*.
const ANSWERS_MAX: usize = 4;

/// Longest text about its end that the server takes from a sandbox, in characters.
const TROUBLE_LEN_MAX: usize = 200;

/// An answer, and the descriptor beside it.
pub type AnswerWithFd = (Answer, Option<OwnedFd>);

/// Where the answers to each request go; `None` once the sandbox is ending.
type PendingRequests = Option<HashMap<u64, mpsc::Sender<AnswerWithFd>>>;

/// A running sandbox.
pub struct Link {
    /// The object and its sandbox id.
    pub target: Target,
    /// The device that the workspace is on: files that PID 1 opens must be on it.
    pub device: u64,
    /// The longest file that a command can write, in MiB.
    pub disk_mb_max: u64,
    /// The processes that outlive the connection that started them.
    pub processes: ProcessTable,
    /// What its template gives every command.
    pub defaults: CommandDefaults,
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<PendingRequests>,
    next_id: AtomicU64,
    disk_limit_events: AtomicU64,
    /// Whether a call asked for its end.
    is_end_asked: AtomicBool,
    /// Why its launcher ended it.
    trouble: OnceLock<String>,
    struck: Notify,
    gone: watch::Receiver<bool>,
}

impl Link {
    /// Serves a sandbox that has just become ready. `on_gone` runs when no process of it is left.
    pub fn new(
        arrived: Arrived,
        target: Target,
        disk_mb_max: u64,
        defaults: CommandDefaults,
        on_gone: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> Arc<Self> {
        let Arrived { socket, launcher, pidfd, device, listeners: _ } = arrived;
        let (tell, gone) = watch::channel(false);
        let link = Arc::new(Self {
            target,
            device,
            disk_mb_max,
            processes: ProcessTable::default(),
            defaults,
            socket,
            waiting: Mutex::new(Some(HashMap::new())),
            next_id: AtomicU64::new(1),
            disk_limit_events: AtomicU64::new(0),
            is_end_asked: AtomicBool::new(false),
            trouble: OnceLock::new(),
            struck: Notify::new(),
            gone,
        });
        let reading = Arc::clone(&link);
        tokio::spawn(async move {
            reading.read().await;
            reading.cut();
            reading.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
            launcher.ended().await;
            // Readable when the last process of the namespace has ended, also if the launcher was
            // killed and could not wait for that itself.
            if let Ok(pidfd) = watched(pidfd) {
                let _ = pidfd.readable().await;
            }
            on_gone(&reading);
            // There may be no waiter.
            let _ = tell.send(true);
        });
        link
    }

    /// Whether it takes requests: it has not begun to end, as far as the server knows.
    pub fn is_up(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether no process of it is left.
    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    /// How often the workspace has become full, as the sandbox reports it.
    pub fn disk_limit_events(&self) -> u64 {
        self.disk_limit_events.load(Ordering::Relaxed)
    }

    /// Why its launcher ended it after it had become ready; `None` if the launcher did not. The text is
    /// the sandbox's and can be anything.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.get().map(String::as_str)
    }

    /// Returns when the workspace has become full. One task can wait for that.
    pub async fn struck(&self) {
        self.struck.notified().await;
    }

    /// Returns when no process of it is left.
    pub async fn gone(&self) {
        // Only a runtime that shuts down drops the sender, and this future with it.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    /// Whether a call asked for its end, as far as it has ended or is ending.
    pub fn is_end_asked(&self) -> bool {
        self.is_end_asked.load(Ordering::Relaxed)
    }

    /// Ends it at once, as a call asks for, and returns when no process of it is left.
    pub async fn end(&self) {
        self.is_end_asked.store(true, Ordering::Relaxed);
        self.cut();
        self.gone().await;
    }

    /// Asks every process in it to end, as a call asks for, kills the remaining ones after `grace`, and
    /// returns when none is left.
    pub async fn stop(&self, grace: Duration) {
        self.is_end_asked.store(true, Ordering::Relaxed);
        let grace_ms = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
        // A PID 1 that takes no requests or does not follow them is ended below.
        let ended = async {
            let _ = self.send(&Request::Stop { grace_ms }, &[]).await;
            self.gone().await;
        };
        if tokio::time::timeout(grace + STOP_SLACK, ended).await.is_err() {
            self.cut();
            self.gone().await;
        }
    }

    /// Ends it from outside at once: the launcher sees its socket hang up and kills PID 1.
    pub fn cut(&self) {
        // If it is closed already, there is nothing to do.
        let _ = shutdown(self.socket.get_ref(), Shutdown::Both);
    }

    /// Sends a request that has answers.
    ///
    /// # Errors
    /// [`WorkError::NotRunning`] if the sandbox is ending, [`WorkError::CannotStart`] if the request is
    /// too long.
    pub async fn call(
        self: &Arc<Self>,
        request: impl FnOnce(u64) -> Request,
        beside: &[BorrowedFd<'_>],
    ) -> Result<Call, WorkError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answers) = mpsc::channel(ANSWERS_MAX);
        match &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(waiting) => waiting.insert(id, answer),
            None => return Err(WorkError::NotRunning),
        };
        let call = Call { id, link: Arc::clone(self), answers };
        self.send(&request(id), beside).await?;
        Ok(call)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// As for [`Link::call`].
    pub async fn send(
        &self,
        request: &Request,
        beside: &[BorrowedFd<'_>],
    ) -> Result<(), WorkError> {
        let too_long = || WorkError::CannotStart("arguments and environment are too long".into());
        let outgoing = Outgoing::new(request.encode()).map_err(|_| too_long())?;
        loop {
            let mut ready = self.socket.writable().await.map_err(broken)?;
            let send = |socket: &AsyncFd<OwnedFd>| Ok(outgoing.send(socket.get_ref(), beside)?);
            match ready.try_io(send) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => return Err(not_sent(&error)),
                Err(_would_block) => {}
            }
        }
    }

    /// Reads answers until the sandbox ends or sends an answer that is not allowed.
    async fn read(&self) {
        let (mut buffer, mut beside) = (vec![0; PACKET_LEN_MAX], Vec::new());
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return };
            let receive = |socket: &AsyncFd<OwnedFd>| {
                Ok(packet::receive(socket.get_ref(), &mut buffer, &mut beside)?)
            };
            match ready.try_io(receive) {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(len)) if self.hand_over(&buffer[..len], &mut beside) => {}
                Ok(Ok(_)) => {
                    let object = &self.target.external_id;
                    match self.trouble() {
                        Some(trouble) => tracing::warn!(
                            object.external_id = %object, trouble, "a sandbox is ended"
                        ),
                        None => tracing::warn!(
                            object.external_id = %object,
                            "a sandbox answered what it was not asked and is ended"
                        ),
                    }
                    return;
                }
                Err(_would_block) => {}
            }
            // A sandbox that never stops sending must not block other tasks of this thread.
            tokio::task::consume_budget().await;
        }
    }

    /// Gives an answer to the call that waits for it. Returns false if the sandbox must be ended: the
    /// answer is not allowed, or its launcher cannot go on.
    fn hand_over(&self, packet: &[u8], beside: &mut Vec<OwnedFd>) -> bool {
        let Some(answer) = Answer::decode(packet) else { return false };
        if answer == Answer::DiskFull && beside.is_empty() {
            self.disk_limit_events.fetch_add(1, Ordering::Relaxed);
            self.struck.notify_one();
            return true;
        }
        if let Answer::SetupFailed { step, errno } = answer {
            // The launcher does its last steps while the sandbox runs already.
            let step: String = step.chars().take(TROUBLE_LEN_MAX).collect();
            let what = match errno {
                0 => step,
                errno => format!("could not {step}: {}", std::io::Error::from_raw_os_error(errno)),
            };
            let _first = self.trouble.set(format!("setting it up was not finished: {what}"));
            return false;
        }
        let Some(id) = answer.id() else { return false };
        let descriptor = beside.pop();
        let is_expected = matches!(answer, Answer::Opened { .. }) == descriptor.is_some();
        if !is_expected || !beside.is_empty() {
            return false;
        }
        match &*self.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            // The caller has gone, or the sandbox is ending.
            None => true,
            Some(waiting) => match waiting.get(&id) {
                None => true,
                Some(place) => place.try_send((answer, descriptor)).is_ok(),
            },
        }
    }
}

/// Why a request was not sent. Without room in the kernel nothing is known of the sandbox.
fn not_sent(error: &std::io::Error) -> WorkError {
    match Errno::from_io_error(error) {
        Some(
            errno @ (Errno::TOOMANYREFS
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::NOMEM),
        ) => broken(format_args!("the request could not be sent to the sandbox: {errno}")),
        Some(_) | None => WorkError::NotRunning,
    }
}

/// A request whose answers are awaited. Dropping it forgets them.
pub struct Call {
    /// The request's id.
    pub id: u64,
    /// The sandbox that it was sent to.
    pub link: Arc<Link>,
    answers: mpsc::Receiver<AnswerWithFd>,
}

impl Call {
    /// The next answer, which PID 1 gives at once. `Failed` becomes the error that it stands for.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn answer(&mut self) -> Result<AnswerWithFd, WorkError> {
        self.answer_within(ANSWER_WAIT).await
    }

    /// The next answer, which may take as long as `wait`.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn answer_within(&mut self, wait: Duration) -> Result<AnswerWithFd, WorkError> {
        match tokio::time::timeout(wait, self.answer_at_last()).await {
            Ok(answer) => answer,
            Err(_) => Err(WorkError::Broken("the sandbox does not answer".into())),
        }
    }

    /// The next answer, however long it takes.
    ///
    /// # Errors
    /// [`WorkError`].
    pub async fn answer_at_last(&mut self) -> Result<AnswerWithFd, WorkError> {
        match self.answers.recv().await {
            Some((Answer::Failed { kind, message, .. }, _)) => {
                Err(RequestFailure { kind, message }.into())
            }
            Some(reply) => Ok(reply),
            None => Err(WorkError::NotRunning),
        }
    }

    /// Returns when the sandbox is ending. A task that holds a file of the workspace must close it then,
    /// because the workspace stays busy until all are closed.
    pub async fn ending(&mut self) {
        while self.answers.recv().await.is_some() {}
    }

    /// The next answer, however long it takes; `None` if the sandbox has ended.
    pub async fn next(&mut self) -> Option<Answer> {
        self.answers.recv().await.map(|(answer, _)| answer)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut waiting = self.link.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = &mut *waiting {
            waiting.remove(&self.id);
        }
    }
}

/// The error for an answer that does not belong to its request.
pub fn nonsense() -> WorkError {
    broken("the sandbox gave an answer that makes no sense")
}

/// The descriptors of some ends, to be sent.
pub fn ends<const N: usize>(ends: [&OwnedFd; N]) -> [BorrowedFd<'_>; N] {
    ends.map(AsFd::as_fd)
}

#[cfg(test)]
mod hostile;
