//! Terminals at Daytona beside the contract: what its login shell does not leave behind.

use issuebox::sandbox::{Target, Terminal, TerminalEvent, TerminalRequest, WorkError};
use tokio::time::timeout;

use super::subject;
use crate::subject::{Subject, WAIT, at_terminal, target};

async fn opened(subject: &Subject, at: &Target, request: TerminalRequest) -> Terminal {
    subject.provider.processes.terminal(at.clone(), request).await.expect("opened")
}

/// All that a terminal shows, and its exit code.
async fn shown(mut terminal: Terminal) -> (String, Option<i32>) {
    let (mut shown, mut exit) = (Vec::new(), None);
    while let Some(event) = timeout(WAIT, terminal.events.recv()).await.expect("more") {
        match event {
            TerminalEvent::Output(bytes) => shown.extend(bytes),
            TerminalEvent::Exit { code } => exit = Some(code),
        }
    }
    (String::from_utf8(shown).expect("text"), exit)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_at_a_terminal_sees_the_environment_of_any_other_and_shows_nothing_else() {
    let (subject, _model) = subject().await;
    let target = target(&subject.make("environment", "s1").await);
    subject.write(&target, b"dir/file", "x".into()).await.expect("written");
    let script = "echo $HOME; echo $PATH; pwd; echo \"$GIVEN, it's $TERM\"; ls";
    let env = [("GIVEN", "two  words"), ("TERM", "vt100")];
    let request = TerminalRequest {
        cwd: Some("dir".into()),
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        ..at_terminal(&["sh", "-c", script])
    };
    let plain = "echo $HOME; echo $PATH; cd dir; pwd";
    let plain = subject.run(&target, &["sh", "-c", plain]).await.stdout;
    let plain = String::from_utf8(plain).expect("text").replace('\n', "\r\n");
    let expected = format!("{plain}two  words, it's vt100\r\nfile\r\n");
    assert_eq!(shown(opened(&subject, &target, request).await).await, (expected, Some(0)));
    // Neither the shell's history nor the script stays.
    let left = ["sh", "-c", "find ~ -name '*history'; find ~/.issuebox/t -name '*.*' -size +0"];
    let mut still = Vec::new();
    let gone = timeout(WAIT, async {
        while {
            still = subject.run(&target, &left).await.stdout;
            !still.is_empty()
        } {}
    });
    assert!(gone.await.is_ok(), "{} is left", String::from_utf8_lossy(&still));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_at_a_terminal_is_named() {
    let (subject, _model) = subject().await;
    let target = target(&subject.make("named", "s1").await);
    let refused = async |request: TerminalRequest| {
        subject.provider.processes.terminal(target.clone(), request).await.expect_err("refused")
    };
    let missing = refused(at_terminal(&["no-such-program"])).await;
    assert_eq!(missing, WorkError::CommandNotFound("no-such-program: not found".into()));
    let elsewhere = TerminalRequest { cwd: Some("nowhere".into()), ..at_terminal(&["true"]) };
    let WorkError::CannotStart(why) = refused(elsewhere).await else { panic!("it has no place") };
    assert!(why.starts_with("there is no directory ") && why.ends_with("/nowhere"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_dropped_leaves_nothing_running() {
    let (subject, model) = subject().await;
    let object = subject.make("dropped", "s1").await;
    let target = target(&object);
    // It does not end by SIGHUP, and neither does what it has put behind itself.
    let stays = "trap '' HUP; sleep 1000 & echo begun; sleep 1000";
    let mut terminal = opened(&subject, &target, at_terminal(&["sh", "-c", stays])).await;
    let mut begun = Vec::new();
    while !begun.ends_with(b"begun\r\n") {
        let event = timeout(WAIT, terminal.events.recv()).await.expect("in time");
        let Some(TerminalEvent::Output(bytes)) = event else { panic!("{event:?}") };
        begun.extend(bytes);
    }
    drop(terminal);
    let runs = ["sh", "-c", "grep -l ^sleep.1000 /proc/[0-9]*/cmdline 2>/dev/null | wc -l"];
    timeout(WAIT, async {
        while model.count("DELETE /process/pty/") == 0
            || subject.run(&target, &runs).await.stdout.trim_ascii() != b"0"
        {}
    })
    .await
    .expect("nothing runs, and the session is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_whose_caller_gave_up_leaves_nothing_running() {
    let (subject, model) = subject().await;
    let object = subject.make("given-up", "s1").await;
    let target = target(&object);
    let stays = at_terminal(&["sleep", "2000"]);
    let opening = subject.provider.processes.terminal(target.clone(), stays);
    let is_begun = async {
        while model.count("POST /process/pty") == 0 {
            tokio::task::yield_now().await
        }
    };
    tokio::select! {
        biased;
        () = is_begun => {}
        opened = opening => panic!("it is there already: {}", opened.is_ok()),
    }
    let runs = ["sh", "-c", "grep -l ^sleep.2000 /proc/[0-9]*/cmdline 2>/dev/null | wc -l"];
    timeout(WAIT, async {
        while model.count("DELETE /process/pty/") == 0
            || subject.run(&target, &runs).await.stdout.trim_ascii() != b"0"
        {}
    })
    .await
    .expect("nothing runs, and the session is gone");
}
