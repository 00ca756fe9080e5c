//! Launches a sandbox in an object's directory, until its PID 1 reports *ready*.
//!
//! Only the *ready* frame counts as started. If a step fails, the launcher ends, or the caller
//! gives up, this future closes the socket; the launcher then ends, and with it everything it
//! made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::cgroup::Group;
use super::frame::{Answer, PACKET_LEN_MAX, Reach, Request, Setup};
use super::packet;
use super::proxy_socket;
use super::spawner::LauncherSpawner;
use super::watched::watched;

/// How long a launcher may take to end after its socket has closed.
const END_WAIT: Duration = Duration::from_secs(2);

/// A sandbox that is ready.
pub struct Arrived {
    /// The server's end of the sandbox's socket.
    pub socket: AsyncFd<OwnedFd>,
    /// Its launcher.
    pub launcher: Launcher,
    /// A pidfd of its PID 1.
    pub pidfd: OwnedFd,
    /// The device of its workspace.
    pub device: u64,
    /// The listening socket inside for its proxy, if it has one.
    pub listener: Option<TcpListener>,
}

/// Why a sandbox did not become ready. None of its processes runs any more.
#[derive(Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// The step that failed.
    pub step: String,
    /// The system's error number; 0 if a check failed.
    pub errno: i32,
}

impl LaunchError {
    pub fn new(step: &str, error: &io::Error) -> Self {
        Self { step: step.into(), errno: error.raw_os_error().unwrap_or(0) }
    }

    /// The system's error; `None` if a check failed.
    pub fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(&io::Error::from_raw_os_error(self.errno))
    }
}

/// A launcher's process. It ends by itself when its socket hangs up; this reaps it.
///
/// It holds the control group until then: a group with a process in it can't be removed.
pub struct Launcher {
    child: Option<Child>,
    runtime: Handle,
    group: Arc<Group>,
}

impl Launcher {
    /// A process that a test started in place of a launcher.
    #[cfg(test)]
    pub fn of(child: Child) -> Self {
        Self { child: Some(child), runtime: Handle::current(), group: Arc::default() }
    }

    /// Returns once the process has ended.
    pub async fn ended(mut self) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        let waited = self.runtime.spawn_blocking(move || child.wait()).await;
        waited.ok()?.ok()
    }

    /// Returns once the process has ended, which its closed socket asks for. Kills it after a
    /// timeout: it may wait for the lock, with nothing made yet.
    async fn end(self) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().try_into().ok()?));
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut ended = pin!(self.ended());
        if tokio::time::timeout(END_WAIT, &mut ended).await.is_err() {
            // It may have just ended.
            let _ = pidfd.map(|pidfd| pidfd_send_signal(pidfd, Signal::KILL));
            ended.await;
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let group = Arc::clone(&self.group);
            self.runtime.spawn_blocking(move || {
                let _ended = child.wait();
                drop(group);
            });
        }
    }
}

/// Launches a sandbox in an object's directory.
///
/// # Errors
/// [`LaunchError`].
pub async fn launch(
    spawner: &LauncherSpawner,
    setup: &Setup,
    object: &OwnedFd,
    group: &Arc<Group>,
) -> Result<Arrived, LaunchError> {
    let doors =
        group.doors().map_err(|error| LaunchError::new("open the control group", &error))?;
    let waiting = spawner.launcher().await?;
    let lock = spawner.lock(object).map_err(|error| LaunchError::new("open the lock", &error))?;
    let (socket, child) = waiting.into_parts();
    let group = Arc::clone(group);
    let launcher = Launcher { child: Some(child), runtime: Handle::current(), group };
    let socket = watched(socket).map_err(|error| LaunchError::new("watch the socket", &error))?;
    let work = doors.work.iter().flat_map(|(enter, leave)| [enter, leave]);
    let beside: Vec<_> =
        [object, &lock].into_iter().chain(work).chain(&doors.all).map(AsFd::as_fd).collect();
    match shake_hands(&socket, setup, &beside).await {
        Ok((Forked { pidfd, device }, listener)) => {
            Ok(Arrived { socket, launcher, pidfd, device, listener })
        }
        Err(error) => {
            drop(socket);
            launcher.end().await;
            Err(error)
        }
    }
}

/// The launcher's message once PID 1 exists.
struct Forked {
    pidfd: OwnedFd,
    device: u64,
}

/// Sends the order and waits for *forked* and *ready*, which two processes send in either order.
async fn shake_hands(
    socket: &AsyncFd<OwnedFd>,
    setup: &Setup,
    order_beside: &[BorrowedFd<'_>],
) -> Result<(Forked, Option<TcpListener>), LaunchError> {
    let order = Request::Setup(setup.clone()).encode();
    // The socket is new and empty, so this does not block.
    packet::send(socket.get_ref(), &order, order_beside)
        .map_err(|errno| LaunchError::new("send the launcher its order", &errno.into()))?;
    let (mut buffer, mut beside) = (vec![0; PACKET_LEN_MAX], Vec::new());
    let (mut forked, mut ready) = (None, None);
    loop {
        let mut readable = socket
            .readable()
            .await
            .map_err(|error| LaunchError::new("watch the socket", &error))?;
        let receive = |socket: &AsyncFd<OwnedFd>| {
            Ok(packet::receive(socket.get_ref(), &mut buffer, &mut beside)?)
        };
        let len = match readable.try_io(receive) {
            Ok(received) => {
                received.map_err(|error| LaunchError::new("receive from the launcher", &error))?
            }
            Err(_would_block) => continue,
        };
        match Answer::decode(&buffer[..len]) {
            Some(Answer::Forked { device }) => {
                forked = beside.pop().map(|pidfd| Forked { pidfd, device });
            }
            Some(Answer::Ready) => ready = Some(listener(setup.reach, &mut beside)?),
            Some(Answer::SetupFailed { step, errno }) => return Err(LaunchError { step, errno }),
            // It can come before *ready*, and is sent again later when the disk is still full.
            Some(Answer::DiskFull) => {}
            Some(
                Answer::Started { .. }
                | Answer::Exited { .. }
                | Answer::Opened { .. }
                | Answer::Done { .. }
                | Answer::Failed { .. },
            )
            | None => {
                return Err(LaunchError { step: "receive from the launcher".into(), errno: 0 });
            }
        }
        match (forked.take(), ready.take()) {
            (Some(forked), Some(listener)) => return Ok((forked, listener)),
            waited_for => (forked, ready) = waited_for,
        }
    }
}

/// The proxy's socket, which must come with *ready* if and only if there is a proxy.
fn listener(reach: Reach, beside: &mut Vec<OwnedFd>) -> Result<Option<TcpListener>, LaunchError> {
    let step = "take the proxy's socket";
    match (reach, beside.pop()) {
        _ if !beside.is_empty() => Err(LaunchError { step: step.into(), errno: 0 }),
        (Reach::Loopback | Reach::Host, None) => Ok(None),
        (Reach::Git | Reach::Proxy, Some(socket)) => {
            proxy_socket::take(socket).map(Some).map_err(|error| LaunchError::new(step, &error))
        }
        (Reach::Loopback | Reach::Host, Some(_)) | (Reach::Git | Reach::Proxy, None) => {
            Err(LaunchError { step: step.into(), errno: 0 })
        }
    }
}
