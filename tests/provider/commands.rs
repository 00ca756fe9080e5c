//! Short commands: their output to the byte, their end, and what is left of them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use issuebox::sandbox::{ExecEvent, ExecRequest, WorkError};
use issuebox::types::ObjectState;

use crate::subject::{Subject, WAIT, ended, request};

contract!(
    output_is_exact_however_it_is_cut,
    two_hundred_megabytes_pass_through_a_bounded_memory,
    twenty_commands_at_once_do_not_mix,
    a_command_whose_time_is_up_is_killed,
    a_caller_that_goes_away_ends_its_command,
    a_command_that_needs_no_input_need_not_read_it,
    a_shell_tells_its_outputs_codes_and_surroundings,
    a_child_in_the_background_does_not_delay_the_answer,
    a_program_that_is_not_there_cannot_be_started,
);

/// Every byte value, in pieces that no boundary divides.
async fn output_is_exact_however_it_is_cut(subject: &Subject) {
    let target = subject.target().await;
    for len in [0, 1, 4_095, 65_537, 1_000_003] {
        let bytes: Vec<u8> = (0..len).map(|n: u32| (n * 7 + n / 256) as u8).collect();
        let call = ExecRequest { stdin: Bytes::from(bytes.clone()).into(), ..request(&["cat"]) };
        let execution = subject.provider.processes.exec(target.clone(), call).await;
        let ended = ended(execution.expect("started")).await;
        assert_eq!((ended.stdout.len(), ended.exit), (bytes.len(), Some((0, false))));
        assert!(ended.stdout == bytes && ended.stderr.is_empty(), "{len} bytes");
    }
}

/// Output that was not read yet makes the command wait, and is not held in memory.
async fn two_hundred_megabytes_pass_through_a_bounded_memory(subject: &Subject) {
    const LEN: usize = 200_000_000;
    if !is_alone() {
        return;
    }
    let target = subject.target().await;
    let before = memory();
    let mut execution =
        subject.exec(&target, &["head", "-c", &LEN.to_string(), "/dev/zero"]).await.expect("runs");
    let (mut got, mut most, mut exit) = (0, 0, None);
    while let Some(event) = execution.events.recv().await {
        match event {
            ExecEvent::Stdout(bytes) => {
                got += bytes.len();
                most = most.max(memory());
            }
            ExecEvent::Stderr(bytes) => panic!("{bytes:?}"),
            ExecEvent::Exit { code, .. } => exit = Some(code),
        }
    }
    assert_eq!((got, exit), (LEN, Some(0)));
    assert!(most < before + (64 << 20), "{most} bytes, {before} before");
}

/// Whether this test has its process for itself, so that the memory of the process is its own. If not,
/// the test is run in a process of its own, and must pass there.
fn is_alone() -> bool {
    const ALONE: &str = "ISSUEBOX_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let this = std::thread::current();
    let name = this.name().expect("the harness names threads after their tests");
    let mut test = std::process::Command::new(std::env::current_exe().expect("known"));
    let ended = test
        .args(["--include-ignored", "--exact", name])
        .env(ALONE, "1")
        .output()
        .expect("started");
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// What this process has in memory, in bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages: usize = pages.split(' ').nth(1).expect("resident").parse().expect("a number");
    pages * 4096
}

async fn twenty_commands_at_once_do_not_mix(subject: &Subject) {
    let target = subject.target().await;
    let run = async |n: usize| {
        let text = format!("{n} ").repeat(1_000 + n);
        let call = ExecRequest { stdin: Bytes::from(text.clone()).into(), ..request(&["cat"]) };
        let execution = subject.provider.processes.exec(target.clone(), call).await;
        let ended = ended(execution.expect("started")).await;
        assert!(ended.stdout == text.as_bytes(), "of {n}");
        assert_eq!(ended.exit, Some((0, false)), "of {n}");
    };
    join_all((0..20).map(run)).await;
}

async fn a_command_whose_time_is_up_is_killed(subject: &Subject) {
    let target = subject.target().await;
    let timeout = Some(Duration::from_millis(300));
    let script = "(setsid sleep 1000 &) ; sleep 1000 & sleep 1000";
    let command: &[&str] =
        if subject.has_shell { &["sh", "-c", script] } else { &["sleep", "1000"] };
    let call = ExecRequest { timeout, ..request(command) };
    let execution = subject.provider.processes.exec(target.clone(), call).await;
    let ended = tokio::time::timeout(WAIT, ended(execution.expect("started"))).await;
    assert_eq!(ended.expect("in time").exit, Some((137, true)));
    if subject.has_shell {
        // Only what made a session of its own is left.
        nothing_sleeps(subject, &target, 1).await;
    }
}

async fn a_caller_that_goes_away_ends_its_command(subject: &Subject) {
    if !subject.has_shell {
        return;
    }
    let target = subject.target().await;
    let script = "sleep 1000 & echo begun; sleep 1000";
    let mut execution = subject.exec(&target, &["sh", "-c", script]).await.expect("started");
    assert_eq!(execution.events.recv().await, Some(ExecEvent::Stdout("begun\n".into())));
    drop(execution);
    nothing_sleeps(subject, &target, 0).await;
}

/// Waits until at most so many `sleep` are left.
async fn nothing_sleeps(subject: &Subject, target: &issuebox::sandbox::Target, at_most: usize) {
    // Those of this sandbox, whose home they have: a model's sandboxes see other processes, too.
    let script = "for it in /proc/[0-9]*; do \
                      if [ \"$(cat $it/comm)\" = sleep ] && grep -qzx \"HOME=$HOME\" $it/environ; \
                      then echo; fi; \
                  done 2>/dev/null | wc -l";
    let looking = async {
        loop {
            let ended = subject.run(target, &["sh", "-c", script]).await;
            let count: usize = String::from_utf8_lossy(&ended.stdout).trim().parse().expect("one");
            if count <= at_most {
                return;
            }
        }
    };
    tokio::time::timeout(WAIT, looking).await.expect("it is gone");
}

async fn a_command_that_needs_no_input_need_not_read_it(subject: &Subject) {
    let target = subject.target().await;
    let stdin = Bytes::from(vec![b'x'; 4 << 20]).into();
    let call = ExecRequest { stdin, ..request(&["echo", "unread"]) };
    let execution = subject.provider.processes.exec(target.clone(), call).await;
    let ended = tokio::time::timeout(WAIT, ended(execution.expect("started"))).await;
    let ended = ended.expect("in time");
    assert_eq!((ended.stdout, ended.exit), (b"unread\n".to_vec(), Some((0, false))));
}

async fn a_shell_tells_its_outputs_codes_and_surroundings(subject: &Subject) {
    if !subject.has_shell {
        return;
    }
    let target = subject.target().await;
    let script = "echo out; echo err >&2; pwd; echo $A; exit 7";
    let call = ExecRequest {
        env: vec![("A".into(), "a b".into())],
        cwd: Some(".".into()),
        ..request(&["sh", "-c", script])
    };
    let execution = subject.provider.processes.exec(target.clone(), call).await;
    let done = ended(execution.expect("started")).await;
    assert_eq!(done.exit, Some((7, false)));
    assert_eq!(done.stderr, b"err\n");
    let stdout = String::from_utf8(done.stdout).expect("text");
    assert!(stdout.starts_with("out\n/") && stdout.ends_with("\na b\n"), "{stdout}");
    let killed = subject.run(&target, &["sh", "-c", "kill -TERM $$"]).await;
    assert_eq!(killed.exit, Some((143, false)));
}

async fn a_child_in_the_background_does_not_delay_the_answer(subject: &Subject) {
    if !subject.has_shell {
        return;
    }
    let target = subject.target().await;
    let script = "sleep 1000 & echo answered";
    let ended = tokio::time::timeout(WAIT, subject.run(&target, &["sh", "-c", script])).await;
    let ended = ended.expect("it waits for no child");
    assert_eq!((ended.stdout, ended.exit), (b"answered\n".to_vec(), Some((0, false))));
}

async fn a_program_that_is_not_there_cannot_be_started(subject: &Subject) {
    if !subject.has_shell {
        return;
    }
    let target = subject.target().await;
    let answer = subject.exec(&target, &["no-such-program"]).await;
    assert!(matches!(answer, Err(WorkError::CommandNotFound(_))), "{answer:?}");
    assert_eq!(subject.find("work").await[0].state, ObjectState::Running);
}
