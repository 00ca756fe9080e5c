//! `issuebox top` on a pseudo-terminal, against a whole server.

use std::process::ExitStatus;

use crate::process::{Place, TOKEN};
use crate::pty::OnTerminal;
use rustix::process::Signal;

/// Takes the alternate screen, and gives it back.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// The view on a terminal of its own.
fn start(place: &Place, url: &str) -> OnTerminal {
    let mut command = place.command(&["top", "--server", url]);
    command.env("ISSUEBOX_TOKEN", TOKEN);
    OnTerminal::start(command)
}

/// How it ended; then the terminal is as it was before.
async fn ended(mut top: OnTerminal) -> ExitStatus {
    let status = top.ended().await;
    top.shows(LEAVE, 0).await;
    let text = top.text();
    assert!(text.rfind(LEAVE) > text.rfind(ENTER), "{text:?}");
    assert!(text.contains("\u{1b}[?25h"), "the cursor is back: {text:?}");
    status
}

#[tokio::test]
async fn it_shows_changes_as_they_come_and_leaves_the_terminal_as_it_was() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let mut top = start(&place, &server.url);
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
    top.resize(30, 5);
    // The last line, at its new position.
    top.shows("\u{1b}[5;1H", before).await;

    server.stop().await;
    top.shows("NOT LIVE", before).await;
    top.press("q");
    assert!(ended(top).await.success());
}

#[tokio::test]
async fn signals_end_it_and_give_the_terminal_back() {
    let place = Place::simulated("");
    let server = place.serve().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let top = start(&place, &server.url);
        top.shows("q quit", 0).await;
        top.signal(signal);
        assert_eq!(ended(top).await.code(), Some(code));
    }
}

#[tokio::test]
async fn without_a_terminal_it_names_other_verbs() {
    let place = Place::simulated("");
    let mut command = place.command(&["top", "--server", "http://127.0.0.1:1"]);
    let ran = command.env("ISSUEBOX_TOKEN", TOKEN).output().await.expect("it runs");
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(2), &b""[..]));
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(err.contains("issuebox ls") && err.contains("issuebox events"), "{err}");
}
