//! The children of PID 1: those that it started, and those whose parents have ended.

use std::collections::HashMap;
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use tokio::sync::oneshot;

/// Reaps every child, and reports the ends of those that were started here.
#[derive(Default)]
pub struct Reaper(Mutex<HashMap<Pid, oneshot::Sender<i32>>>);

impl Reaper {
    fn leaders(&self) -> MutexGuard<'_, HashMap<Pid, oneshot::Sender<i32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command; returns its process, and its exit code once it has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn start(&self, command: &mut Command) -> io::Result<(Pid, oneshot::Receiver<i32>)> {
        // Held meanwhile, so that a process that ends at once, or never executes, is not reaped first.
        let mut leaders = self.leaders();
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
        let (sender, ended) = oneshot::channel();
        leaders.insert(pid, sender);
        Ok((pid, ended))
    }

    /// Reaps the children that have ended.
    pub fn reap(&self) {
        let mut leaders = self.leaders();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let (Some(code), Some(ended)) = (code_of(status), leaders.remove(&pid)) {
                // Its watcher may be gone.
                let _ = ended.send(code);
            }
        }
    }

    /// Whether a process that was started here has not been reaped.
    pub fn is_there(&self, pid: Pid) -> bool {
        self.leaders().contains_key(&pid)
    }
}

/// The exit code of an ended process: 128 + n if signal n killed it.
fn code_of(status: WaitStatus) -> Option<i32> {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))
}
