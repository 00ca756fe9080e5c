//! `issuebox exec -it` on a pseudo-terminal, against a whole server with real sandboxes.

use crate::process::{Place, Server, TOKEN, until};
use crate::pty::OnTerminal;
use rustix::process::Signal;
use tokio::process::Command;

fn command(place: &Place, server: &Server, args: &[&str]) -> Command {
    let mut command = place.command(&["exec", "--server", &server.url]);
    command.args(args).env("ISSUEBOX_TOKEN", TOKEN).env("TERM", "vt220");
    command
}

fn start(place: &Place, server: &Server, args: &[&str]) -> OnTerminal {
    OnTerminal::start(command(place, server, args))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_in_a_sandbox_behaves_like_a_local_one() {
    let Some(place) = Place::local(None).await else { return };
    let server = place.serve().await;
    server.running("1").await;
    let mut shell = start(&place, &server, &["-it", "-e", "A=b c", "-w", "/tmp", "1"]);
    // What is typed before it runs waits for it.
    shell.press("echo $((40+2)) $TERM $A $(pwd) $(tty) size $(stty size)\r");
    shell.shows("42 vt220 b c /tmp /dev/pts/0 size 20 100\r\n", 0).await;
    assert!(shell.is_raw());
    // Until the size has arrived, which nothing but the size says.
    shell.press("until [ \"$(stty size)\" = '11 77' ]; do sleep 0.01; done; echo re''sized\r");
    shell.resize(77, 11);
    shell.shows("resized", 0).await;
    shell.press("sleep 1000\r");
    shell.shows("sleep 1000", 0).await;
    until("it sleeps", || async {
        let seen = server.sh("claude-issue-1", "cat /proc/[0-9]*/comm").await;
        seen["stdout"].as_str().is_some_and(|names| names.lines().any(|name| name == "sleep"))
    })
    .await;
    shell.press("\x03");
    for byte in "printf '<%s>\\n' 'ä€'\r".as_bytes() {
        shell.press([*byte]);
    }
    shell.shows("<ä€>", 0).await;
    shell.press("cd /workspace\r");
    shell.shows("agent@claude-issue-1:/workspace$ ", 0).await;
    // A plain shell shows the same. It reads what is typed once it has shown its prompt.
    let before = shell.text().len();
    shell.press("sh; echo le''ft\r");
    shell.shows("agent@claude-issue-1:/workspace$ ", before).await;
    shell.press("mkdir src; cd src\r");
    shell.shows("agent@claude-issue-1:/workspace/src$ ", 0).await;
    shell.press("exit\r");
    shell.shows("left", 0).await;
    shell.press("exit 7\r");
    assert_eq!(shell.ended().await.code(), Some(7), "{}", shell.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_restores_the_terminal_and_hangs_up_the_command() {
    let Some(place) = Place::local(None).await else { return };
    let server = place.serve().await;
    server.running("1").await;
    let args = ["-it", "1", "--", "sh", "-c", "echo begun; exec sleep 1000"];
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut shell = start(&place, &server, &args);
        shell.shows("begun", 0).await;
        assert!(shell.is_raw());
        shell.signal(signal);
        assert_eq!(shell.ended().await.code(), Some(code));
        until("the command has gone", || async {
            let names = server.sh("claude-issue-1", "cat /proc/[0-9]*/comm").await;
            !names["stdout"].as_str().unwrap_or_default().contains("sleep")
        })
        .await;
    }
    let mut failing = start(&place, &server, &["-it", "1", "--", "no-such-command"]);
    assert_eq!(failing.ended().await.code(), Some(127));
    failing.shows("no-such-command: command not found", 0).await;
    // Nothing is typed into this one, so a key must still be able to be a signal to the program.
    let mut shown = start(&place, &server, &["-t", "1", "--", "sh", "-c", "tty; echo begun; cat"]);
    shown.shows("begun", 0).await;
    assert!(shown.text().starts_with("/dev/pts/") && !shown.is_raw(), "{}", shown.text());
    shown.signal(Signal::INT);
    assert_eq!(shown.ended().await.code(), Some(130));
    let mut shell = start(&place, &server, &args);
    shell.shows("begun", 0).await;
    server.stop().await;
    assert_eq!(shell.ended().await.code(), Some(1));
    shell.shows("the server is shutting down", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_end_it_although_its_output_is_not_read() {
    let Some(place) = Place::local(None).await else { return };
    let server = place.serve().await;
    server.running("1").await;
    let start = |script: &str| {
        let command = command(&place, &server, &["-t", "1", "--", "sh", "-c", script]);
        let (unread, output) = std::io::pipe().expect("a pipe");
        (unread, OnTerminal::start_with(command, Some(output.into())))
    };
    let wrote = async |name: &str| {
        until(name, || async {
            let seen = server.sh("claude-issue-1", "ls").await;
            seen["stdout"].as_str().is_some_and(|names| names.contains(name))
        })
        .await;
    };
    // More than anything on the way holds.
    let (unread, mut endless) = start("touch begun; yes");
    wrote("begun").await;
    endless.signal(Signal::TERM);
    assert_eq!(endless.ended().await.code(), Some(143));
    drop(unread);
    // More than its pipe holds, and less than it keeps.
    let (unread, mut kept) = start("head -c 3000000 /dev/zero; touch kept; sleep 1000");
    wrote("kept").await;
    server.stop().await;
    assert_eq!(kept.ended().await.code(), Some(1));
    kept.shows("the server is shutting down", 0).await;
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_says_what_to_do_and_a_simulated_one_is_like_any_other() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("1").await;
    let ended = command(&place, &server, &["-it", "1"]).output().await.expect("it runs");
    assert_eq!(ended.status.code(), Some(2));
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(err.contains("standard input is not a terminal") && err.contains("-i alone"), "{err}");
    let mut shell = start(&place, &server, &["-it", "1"]);
    shell.press("echo some words\r");
    shell.shows("\nsome words\r\n", 0).await;
    shell.press("exit 7\r");
    assert_eq!(shell.ended().await.code(), Some(7));
    server.stop().await;
}
