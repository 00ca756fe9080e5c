//! The one thread that starts launchers.
//!
//! It lives as long as the provider, because what the kernel ties to "the parent" it ties to the
//! *thread* that made the process. The launcher is started by `posix_spawn`, which does not copy
//! the server's memory map: it costs the same whatever the server holds.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::inside::HIDDEN_COMMAND;

struct Job {
    socket: OwnedFd,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// A handle to the thread; the thread ends when the handle is dropped.
pub struct Spawner {
    jobs: mpsc::Sender<Job>,
}

impl Spawner {
    /// Starts the thread, which will start `launcher`.
    pub fn new(launcher: PathBuf) -> io::Result<Self> {
        let (jobs, orders) = mpsc::channel::<Job>();
        let run = move || {
            for Job { socket, reply } in orders {
                // Where nobody waits any more the launcher finds its socket closed, and ends.
                let _ = reply.send(spawn(&launcher, socket));
            }
        };
        thread::Builder::new().name("local-spawner".into()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Starts a launcher with `socket` as its standard input.
    ///
    /// # Errors
    /// What starting the process answers.
    pub async fn spawn(&self, socket: OwnedFd) -> io::Result<Child> {
        let (reply, answer) = oneshot::channel();
        let ended = || io::Error::other("the spawning thread has ended");
        self.jobs.send(Job { socket, reply }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn spawn(launcher: &PathBuf, socket: OwnedFd) -> io::Result<Child> {
    Command::new(launcher)
        .arg(HIDDEN_COMMAND)
        .env_clear()
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
