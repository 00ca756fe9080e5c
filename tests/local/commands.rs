//! Commands: streams, exit codes, timeouts, and what they leave behind.

use std::time::{Duration, Instant};

use bytes::Bytes;
use issuebox::sandbox::{ExecEvent, ExecInput, ExecRequest, Lifecycle, WorkError};

use crate::common::{Ended, Local, WAIT, call, collect, marker, processes_with, request, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_its_streams_input_environment_directory_and_exit_code() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("streams").await;
    sandbox.sh("mkdir -p sub").await;
    let script = "cat; pwd; echo $KEY $HOME; echo oops >&2; exit 7";
    let ended = sandbox
        .run(ExecRequest {
            cwd: Some("sub".into()),
            env: vec![("KEY".into(), "a value".into())],
            stdin: Bytes::from("input\n").into(),
            ..request(&["sh", "-c", script])
        })
        .await;
    let stdout = "input\n/workspace/sub\na value /home/agent\n".to_string();
    assert_eq!(ended, Ended { code: 7, timed_out: false, stdout, stderr: "oops\n".into() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_start_reports_why() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("start").await;
    sandbox.write(b"plain", "text").await.expect("written");
    sandbox.sh("printf 'no header' > noformat; chmod +x noformat").await;
    let with_cwd = |cwd: &str| ExecRequest { cwd: Some(cwd.into()), ..request(&["true"]) };
    let with_env =
        |key: &str| ExecRequest { env: vec![(key.into(), "v".into())], ..request(&["true"]) };
    for (wrong, why) in [
        (request(&["no-such-command"]), "no-such-command: command not found"),
        (request(&["./nothing"]), "./nothing: command not found"),
        (request(&["./plain"]), "./plain: permission denied"),
        (request(&["./noformat"]), "./noformat: exec format error"),
        (request(&[""]), "there is no command"),
        (request(&[]), "there is no command"),
        (request(&["echo", "a\0b"]), "an argument contains NUL"),
        (with_cwd("/nowhere"), "directory /nowhere: no such file or directory"),
        (with_cwd("plain"), "directory plain: not a directory"),
        (with_env("A=B"), "an environment variable's name is empty or contains '='"),
    ] {
        let error = sandbox.exec(wrong).await.expect_err("can't start");
        let expected = match why.ends_with("command not found") {
            true => WorkError::CommandNotFound(why.into()),
            false => WorkError::CannotStart(why.into()),
        };
        assert_eq!(error, expected);
    }
    assert_eq!(sandbox.sh("echo still here").await, "still here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_may_be_long_up_to_what_linux_takes() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("long").await;
    let long = "x".repeat(100_000);
    let mut command = vec!["sh", "-c", "echo $#"];
    command.extend([long.as_str(); 12]);
    assert_eq!(sandbox.run(request(&command)).await.stdout, "11\n");
    command.extend([long.as_str(); 60]);
    let error = sandbox.exec(request(&command)).await.expect_err("too long");
    assert!(matches!(error, WorkError::CannotStart(_)), "{error:?}");
    assert_eq!(sandbox.sh("echo still here").await, "still here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_killed_by_a_signal_has_128_and_its_number() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("signal").await;
    assert_eq!(sandbox.run(request(&["sh", "-c", "kill -TERM $$"])).await.code, 143);
    // Rust's runtime ignores this signal; commands must not.
    assert_eq!(sandbox.run(request(&["sh", "-c", "kill -PIPE $$"])).await.code, 141);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_when_it_ends_and_not_when_its_pipes_close() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("background").await;
    let mark = marker();
    let begin = Instant::now();
    let ended = sandbox.run(request(&["sh", "-c", &format!("sleep {mark} & echo begun")])).await;
    assert!(begin.elapsed() < WAIT, "the command must return without it");
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "begun\n"));
    // It may not have executed its program yet; then it has no arguments.
    while processes_with(&mark).len() != 1 {
        assert!(begin.elapsed() < WAIT, "a background process lives on");
        tokio::task::yield_now().await;
    }
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert_eq!(processes_with(&mark), [0; 0], "no background process outlives a stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_leaves_no_process_of_the_session() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("timeout").await;
    let mark = marker();
    // Job control puts each into its own process group; the traps ignore SIGTERM and SIGHUP.
    let script = format!(
        "set -m; trap '' TERM HUP INT; sleep {mark} & (sleep {mark} & sleep {mark}) & \
         echo begun; sleep {mark}"
    );
    let ended = sandbox
        .run(ExecRequest {
            timeout: Some(Duration::from_millis(300)),
            ..request(&["bash", "-c", &script])
        })
        .await;
    assert_eq!((ended.code, ended.timed_out), (137, true));
    assert_eq!(ended.stdout, "begun\n");
    assert_eq!(processes_with(&mark), [0; 0], "no process is left when the end is reported");
    assert_eq!(sandbox.sh("echo still here").await, "still here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_an_execution_ends_its_session_and_nothing_else() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("drop").await;
    let (mark, other) = (marker(), marker());
    sandbox.sh(&format!("sleep {other} >/dev/null 2>&1 &")).await;
    let script = format!("sleep {mark} & sleep {mark}");
    let execution = sandbox.exec(request(&["sh", "-c", &script])).await.expect("started");
    until("the command's processes", || processes_with(&mark).len() >= 3).await;
    drop(execution);
    until("the end of the command", || processes_with(&mark).is_empty()).await;
    until("the other command", || processes_with(&other).len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_while_a_command_starts_ends_it() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("giveup").await;
    let mark = marker();
    for micros in (0..40).map(|turn| turn * 100) {
        let command = ["sleep", &mark];
        let exec = sandbox.exec(request(&command));
        // Whether it started or not, there is no receiver.
        let _ = tokio::time::timeout(Duration::from_micros(micros), exec).await;
    }
    // Answered after all of those requests, so none of them is still under way.
    sandbox.sh("true").await;
    until("the end of them all", || processes_with(&mark).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_yes_blocks_only_itself() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("yes").await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(sandbox.exec(request(&["yes", "unread"])).await.expect("started"));
    }
    for _ in 0..5 {
        assert_eq!(sandbox.sh("echo heard").await, "heard\n");
    }
    let mut read = unread.pop().expect("one of them");
    let mut len = 0;
    while len < 4_000_000 {
        match read.events.recv().await.expect("endless") {
            ExecEvent::Stdout(bytes) => len += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_is_reported_even_if_output_was_unread() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("late").await;
    let mark = marker();
    let execution = sandbox
        .exec(ExecRequest {
            timeout: Some(Duration::from_millis(200)),
            ..request(&["sh", "-c", &format!("yes {mark}")])
        })
        .await
        .expect("started");
    until("the end of the command", || processes_with(&mark).is_empty()).await;
    let ended = collect(execution).await.expect("its end");
    assert!(ended.timed_out);
    assert!(ended.stdout.starts_with(&mark));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_was_written_before_the_end_arrives() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("output").await;
    let ended = sandbox
        .run(request(&["sh", "-c", "head -c 3000000 /dev/zero; head -c 60000 /dev/zero >&2"]))
        .await;
    assert_eq!((ended.stdout.len(), ended.stderr.len()), (3_000_000, 60_000));
    let input = "y".repeat(1_000_000);
    let ended = sandbox
        .run(ExecRequest { stdin: Bytes::from(input.clone()).into(), ..request(&["cat"]) })
        .await;
    assert!(ended.stdout == input, "the same bytes come back");
    // A command that does not read its input ends all the same.
    let ended =
        sandbox.run(ExecRequest { stdin: Bytes::from(input).into(), ..request(&["true"]) }).await;
    assert_eq!(ended.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_commands_run_side_by_side() {
    let Some(local) = Local::new().await else { return };
    let sandbox = &local.sandbox("parallel").await;
    // Each waits for all others: they end only if all twenty run at once.
    let script = |n: usize| {
        format!("touch at-{n}; until [ $(ls at-* | wc -l) -ge 20 ]; do sleep 0.02; done; echo {n}")
    };
    let scripts: Vec<String> = (0..20).map(script).collect();
    let all = scripts.iter().map(|script| sandbox.sh(script));
    let ended = futures_util::future::join_all(all).await;
    let expected: Vec<String> = (0..20).map(|n| format!("{n}\n")).collect();
    assert_eq!(ended, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_processes_are_refused_and_the_sandbox_goes_on() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("forks").await;
    let mark = marker();
    // Starts 300 processes; the limit is 128.
    let script = format!("for n in $(seq 300); do sleep {mark} & done; wait");
    let execution = sandbox.exec(request(&["bash", "-c", &script])).await.expect("started");
    until("the limit", || processes_with(&mark).len() > 100).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(processes_with(&mark).len() <= 128, "no more than the limit");
    drop(execution);
    until("the end of the command", || processes_with(&mark).is_empty()).await;
    assert_eq!(sandbox.sh("echo still here").await, "still here\n");
}

#[tokio::test]
async fn standard_streams_are_opened_again_by_their_names() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("names").await;
    let mut command = request(&["sh", "-c", "cat /dev/stdin > /dev/stdout; echo no > /dev/stderr"]);
    command.stdin = Bytes::from("yes\n").into();
    let ended = sandbox.run(command).await;
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (0, "yes\n", "no\n"));
}

#[tokio::test]
async fn a_command_gets_signals_that_the_servers_parent_ignored() {
    // A shell ignores signals for its background jobs. A process of its own writes this script, so
    // that no fork of another test holds it open for writing while it is executed.
    let script =
        "printf '#!/bin/sh\\ntrap \"\" INT QUIT HUP\\nexec %s \"$@\"\\n' \"$1\" > $2; chmod 700 $2";
    let Some(local) = Local::with(|config| {
        let path = config.dir.with_extension("launcher");
        let written = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .args([&config.launcher, &path])
            .status();
        assert!(written.expect("sh is there").success());
        config.launcher = path;
    })
    .await
    else {
        return;
    };
    let sandbox = local.sandbox("signals").await;
    for (signal, code) in [("INT", 130), ("QUIT", 131), ("HUP", 129)] {
        let ended =
            sandbox.run(request(&["sh", "-c", &format!("kill -{signal} $$; echo on")])).await;
        assert_eq!((ended.code, &*ended.stdout), (code, ""), "{signal}");
    }
    drop(sandbox);
    let launcher = local.dir.path().with_extension("launcher");
    drop(local);
    std::fs::remove_file(launcher).expect("it was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_arrives_piece_by_piece_while_the_command_runs() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("typed").await;
    let (sender, stdin) = ExecInput::channel();
    let mut execution =
        sandbox.exec(ExecRequest { stdin, ..request(&["cat"]) }).await.expect("started");
    for line in ["one\n", "two\n", "three\n"] {
        sender.send(Bytes::from(line)).await.expect("it reads");
        // The next line is sent once this one has come back.
        let mut echo = Vec::new();
        while echo.len() < line.len() {
            match execution.events.recv().await {
                Some(ExecEvent::Stdout(bytes)) => echo.extend(bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(echo, line.as_bytes());
    }
    drop(sender);
    assert_eq!(collect(execution).await.map(|ended| ended.code), Some(0), "it reads end of file");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gigabyte_of_input_passes_and_is_not_held_for_a_command_that_does_not_read() {
    const PIECE: usize = 1 << 20;
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("long-input").await;
    let (sender, stdin) = ExecInput::channel();
    let count = sandbox.exec(ExecRequest { stdin, ..request(&["wc", "-c"]) }).await;
    let counted = tokio::spawn(collect(count.expect("started")));
    let piece = Bytes::from(vec![b'x'; PIECE]);
    for _ in 0..1024 {
        sender.send(piece.clone()).await.expect("it reads");
    }
    drop(sender);
    assert_eq!(counted.await.expect("no panic").expect("an exit").stdout, "1073741824\n");

    let (sender, stdin) = ExecInput::channel();
    let sleeping = sandbox.exec(ExecRequest { stdin, ..request(&["sleep", "1000"]) }).await;
    let sleeping = sleeping.expect("started");
    let full = async { while sender.send(piece.clone()).await.is_ok() {} };
    let waits = tokio::time::timeout(Duration::from_millis(300), full).await;
    assert!(waits.is_err(), "the sender waits");
    assert_eq!(sender.capacity(), 0, "one piece waits, and one is being written");
    drop(sleeping);
    sender.closed().await;
}
