//! `issuebox top` on a pseudo-terminal, against a whole server.

#[path = "common/process.rs"]
mod process;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use process::{Place, TOKEN, WAIT, until};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::Child;

/// Takes the alternate screen, and gives it back.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// The view on a terminal of its own.
struct Top {
    child: Child,
    /// The keyboard.
    keys: File,
    /// The terminal as the program sees it.
    terminal: OwnedFd,
    /// All that was written to it.
    written: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    fn start(place: &Place, url: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name, flags, Mode::empty()).expect("opened");
        resize(&terminal, 100, 20);
        let given = || Stdio::from(terminal.try_clone().expect("a copy"));
        let mut command = place.command(&["top", "--server", url]);
        command.env("ISSUEBOX_TOKEN", TOKEN).stdin(given()).stdout(given()).stderr(given());
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

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("not poisoned")).into_owned()
    }

    /// Returns once this text was written after so many bytes.
    async fn shows(&self, text: &str, after: usize) {
        until(text, || async { self.text().get(after..).is_some_and(|new| new.contains(text)) })
            .await;
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.expect("it runs"), signal).expect("it has not been waited for");
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("pressed");
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).expect("a terminal").local_modes.contains(LocalModes::ICANON)
    }

    /// How it ended; then the terminal is as it was before.
    async fn ended(mut self) -> ExitStatus {
        let ended = tokio::time::timeout(WAIT, self.child.wait()).await;
        let status = ended.expect("it ends").expect("waited for");
        self.shows(LEAVE, 0).await;
        let text = self.text();
        assert!(text.rfind(LEAVE) > text.rfind(ENTER), "{text:?}");
        assert!(text.contains("\u{1b}[?25h"), "the cursor is back: {text:?}");
        assert!(!self.is_raw(), "lines are edited again");
        status
    }
}

fn resize(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("resized");
}

#[tokio::test]
async fn it_shows_changes_as_they_come_and_leaves_the_terminal_as_it_was() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let mut top = Top::start(&place, &server.url);
    top.shows("no sandboxes yet", 0).await;
    top.shows("live", 0).await;
    assert!(top.text().starts_with(ENTER), "{:?}", top.text());
    assert!(top.is_raw());

    server.running("live-1").await;
    top.shows("live-1", 0).await;
    top.shows("running", 0).await;
    top.shows("1 sandbox: 1 running", 0).await;
    server.delete("/v1/sandboxes/claude-issue-live-1?wait=60").await;
    top.shows("0 sandboxes", 0).await;

    let before = top.text().len();
    resize(&top.terminal, 30, 5);
    top.signal(Signal::WINCH);
    // The last line, where it is now.
    top.shows("\u{1b}[5;1H", before).await;

    server.stop().await;
    top.shows("NOT LIVE", before).await;
    top.press("q");
    assert!(top.ended().await.success());
}

#[tokio::test]
async fn signals_end_it_and_give_the_terminal_back() {
    let place = Place::simulated("");
    let server = place.serve().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let top = Top::start(&place, &server.url);
        top.shows("q quit", 0).await;
        top.signal(signal);
        assert_eq!(top.ended().await.code(), Some(code));
    }
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_use() {
    let place = Place::simulated("");
    let mut command = place.command(&["top", "--server", "http://127.0.0.1:1"]);
    let ran = command.env("ISSUEBOX_TOKEN", TOKEN).output().await.expect("it runs");
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(2), &b""[..]));
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(told.contains("issuebox ls") && told.contains("issuebox events"), "{told}");
}
