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
use super::frame::{Answer, PACKET_LEN_MAX, Request, Setup};
use super::packet;
use super::passed_socket;
use super::spawner::LauncherSpawner;
use crate::sandbox::descriptors::watched;
use crate::sandbox::reach::{MODELS_PORT, PROXY_PORT, Reach};

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
    /// The listening sockets inside.
    pub listeners: Listeners,
}

/// The listening sockets inside of a sandbox, whose connections the server accepts.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For the gateway to the models; `None` with the host's network.
    pub models: Option<TcpListener>,
    /// For its proxy, if it has one.
    pub proxy: Option<TcpListener>,
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
        Ok((Forked { pidfd, device }, listeners)) => {
            Ok(Arrived { socket, launcher, pidfd, device, listeners })
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
) -> Result<(Forked, Listeners), LaunchError> {
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
            Some(Answer::Ready) => ready = Some(listeners(setup.reach, &mut beside)?),
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
            (Some(forked), Some(listeners)) => return Ok((forked, listeners)),
            waited_for => (forked, ready) = waited_for,
        }
    }
}

/// The listening sockets: those that come with *ready* must be those that this sandbox has.
fn listeners(reach: Reach, beside: &mut Vec<OwnedFd>) -> Result<Listeners, LaunchError> {
    let (has_models, has_proxy) = match reach {
        Reach::Host => (false, false),
        Reach::Loopback => (true, false),
        Reach::Git | Reach::Proxy => (true, true),
    };
    let mut sockets = beside.drain(..);
    let mut take = |is_there: bool, port, step| match is_there.then(|| sockets.next()) {
        Some(Some(socket)) => {
            let taken = passed_socket::take(socket, port);
            taken.map(Some).map_err(|error| LaunchError::new(step, &error))
        }
        Some(None) => Err(LaunchError { step: step.into(), errno: 0 }),
        None => Ok(None),
    };
    let models = take(has_models, MODELS_PORT, "take the socket of the gateway to the models")?;
    let proxy = take(has_proxy, PROXY_PORT, "take the proxy's socket")?;
    match sockets.next() {
        Some(_) => Err(LaunchError { step: "take the listening sockets".into(), errno: 0 }),
        None => Ok(Listeners { models, proxy }),
    }
}
