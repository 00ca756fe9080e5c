//! A program on a pseudo-terminal of its own. A test that uses it has `process` beside it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::{Child, Command};

use crate::process::{WAIT, until};

/// A program on a terminal.
pub struct OnTerminal {
    child: Child,
    /// The keyboard.
    keys: File,
    /// The terminal as the program sees it.
    terminal: OwnedFd,
    /// All that was written to it.
    written: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    /// Starts a program on a terminal of 100 columns and 20 rows.
    pub fn start(command: Command) -> Self {
        Self::start_with(command, None)
    }

    /// The same, with a standard output of its own.
    pub fn start_with(mut command: Command, output: Option<Stdio>) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name, flags, Mode::empty()).expect("opened");
        let given = || Stdio::from(terminal.try_clone().expect("a copy"));
        command.stdin(given()).stdout(output.unwrap_or_else(given)).stderr(given());
        resize(&terminal, 100, 20);
        let child = command.spawn().expect("it starts");
        // What the command keeps would keep the terminal open.
        drop(command);
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let mut output = File::from(master.try_clone().expect("a copy"));
        let kept = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                kept.lock().expect("not poisoned").extend_from_slice(&bytes[..len]);
            }
        });
        Self { child, keys: File::from(master), terminal, written }
    }

    /// All that was written to it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("not poisoned")).into_owned()
    }

    /// Returns once this text was written after so many bytes.
    pub async fn shows(&self, text: &str, after: usize) {
        until(text, || async { self.text().get(after..).is_some_and(|new| new.contains(text)) })
            .await;
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.expect("it runs"), signal).expect("it has not been waited for");
    }

    pub fn press(&mut self, keys: impl AsRef<[u8]>) {
        self.keys.write_all(keys.as_ref()).expect("pressed");
    }

    /// Gives it another size, and tells the program, whose controlling terminal it is not.
    pub fn resize(&self, columns: u16, rows: u16) {
        resize(&self.terminal, columns, rows);
        self.signal(Signal::WINCH);
    }

    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).expect("a terminal").local_modes.contains(LocalModes::ICANON)
    }

    /// How it ended; then the terminal is as it was before.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(WAIT, self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("it must end: {:?}", self.text()));
        assert!(!self.is_raw(), "lines are edited again");
        status.expect("waited for")
    }
}

fn resize(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("resized");
}
