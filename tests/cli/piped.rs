//! `issuebox exec -i`: input that is streamed to a command, against a whole server.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::process::{Place, Server, TOKEN};

/// More than the program, the server and its sandbox together can hold.
const LARGE: u64 = 1 << 30;

/// More than a pipe holds, and less than [`LARGE`].
const STILL_TO_COME: u64 = 4 << 20;

/// The most memory that either program may have used at once, in KiB.
const MEMORY_KB_MAX: u64 = 300 * 1024;

fn start(place: &Place, server: &Server, args: &[&str]) -> Child {
    let mut command: Command = place.command(&["exec", "--server", &server.url]);
    command.args(args).env("ISSUEBOX_TOKEN", TOKEN);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true).spawn().expect("it starts")
}

async fn line(child: &mut Child) -> String {
    let stdout = child.stdout.as_mut().expect("piped");
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(stdout.read_u8().await.expect("a byte"));
    }
    String::from_utf8(line).expect("text")
}

/// The peak of a process's memory, in KiB.
fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_arrives_before_the_next_is_sent() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("1").await;
    let mut child = start(&place, &server, &["-i", "1", "--", "cat"]);
    for text in ["one\n", "two\n"] {
        let stdin = child.stdin.as_mut().expect("piped");
        stdin.write_all(text.as_bytes()).await.expect("taken");
        // The command has it, and nothing else was sent meanwhile.
        assert_eq!(line(&mut child).await, text);
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().await.expect("it ends");
    assert_eq!((output.status.code(), output.stdout), (Some(0), Vec::new()));

    let mut child = start(&place, &server, &["-i", "1", "--", "tee", "/dev/stderr"]);
    let bytes: Vec<u8> = (0..=255).collect();
    child.stdin.take().expect("piped").write_all(&bytes).await.expect("taken");
    let output = child.wait_with_output().await.expect("it ends");
    assert_eq!((output.stdout, output.stderr), (bytes.clone(), bytes));
    let mut child = start(&place, &server, &["-i", "--timeout", "1", "1", "--", "cat"]);
    let open_input = child.stdin.take();
    let output = child.wait_with_output().await.expect("it ends");
    assert_eq!(output.status.code(), Some(137));
    assert!(String::from_utf8_lossy(&output.stderr).contains("reached its timeout"));
    drop(open_input);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a gigabyte through a real sandbox; run by .ci/run"]
async fn a_gigabyte_passes_in_bounded_memory() {
    let Some(place) = Place::local(None).await else { return };
    let server = place.serve().await;
    server.running("1").await;
    let mut child = start(&place, &server, &["-i", "1", "--", "cat"]);
    let (mut stdin, mut stdout) =
        (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let write = async move {
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..LARGE >> 20 {
            stdin.write_all(&piece).await.expect("taken");
        }
    };
    let read = async {
        let (mut count, mut piece, mut peaks) = (0, vec![0; 1 << 20], None);
        loop {
            match stdout.read(&mut piece).await.expect("readable") {
                0 => return (count, peaks.expect("measured")),
                len => count += len as u64,
            }
            if peaks.is_none() && count > LARGE - STILL_TO_COME {
                // Both programs still run: no pipe holds what is still to come.
                let now = [child.id().expect("it runs"), server.pid].map(peak_kb);
                peaks = Some(now);
            }
        }
    };
    let ((), (count, peaks)) = tokio::join!(write, read);
    assert_eq!(count, LARGE);
    assert!(peaks.iter().all(|peak| *peak < MEMORY_KB_MAX), "{peaks:?}");
    assert!(child.wait().await.expect("it ends").success());
    server.stop().await;
}
