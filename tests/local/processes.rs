//! Detached processes: their output from any offset, their input, signals, and what ends them.

use std::time::Duration;

use bytes::Bytes;
use issuebox::sandbox::{
    Lifecycle, Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, ProcessId, ProcessSpec,
    Processes, Signal, StdinMode, WorkError,
};
use issuebox::types::SandboxId;

use crate::common::{Local, Sandbox, WAIT, call, marker, processes_with};

fn spec(script: &str) -> ProcessSpec {
    ProcessSpec {
        command: ["sh", "-c", script].map(str::to_owned).into(),
        cwd: None,
        env: Vec::new(),
        stdin: StdinMode::Empty,
        timeout: None,
        keep: 1 << 20,
        overflow: Overflow::DropOldest,
        tag: None,
    }
}

/// What a reader received.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The bytes that were missing.
    gap: Option<(u64, u64)>,
    /// The offset after the last byte.
    end: u64,
    exit: Option<ProcessExit>,
}

impl Sandbox<'_> {
    async fn spawn(&self, spec: ProcessSpec) -> ProcessId {
        self.provider.spawn(self.target.clone(), spec).await.expect("started")
    }

    async fn wait(&self, id: &ProcessId) -> Result<ProcessExit, WorkError> {
        let wait = self.provider.wait(self.target.clone(), id.clone());
        tokio::time::timeout(WAIT, wait).await.expect("must end")
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) {
        let sent = self.provider.signal(self.target.clone(), id.clone(), signal).await;
        sent.expect("sent");
    }

    async fn write_stdin(&self, id: &ProcessId, text: &'static str) -> Result<(), WorkError> {
        self.provider.write_stdin(self.target.clone(), id.clone(), Bytes::from(text)).await
    }

    /// Reads from an offset until at least `len` bytes have come, or to the end. Checks that offsets have
    /// no hole and no overlap.
    async fn read_output(&self, id: &ProcessId, from: u64, len: usize) -> Received {
        let output = self.provider.attach(self.target.clone(), id.clone(), Offset(from)).await;
        let mut events = output.expect("attached").events;
        let mut received = Received { end: from, ..Received::default() };
        while received.stdout.len() + received.stderr.len() < len {
            let event = tokio::time::timeout(WAIT, events.recv()).await.expect("must come");
            match event {
                Some(ProcessEvent::Output { from, stream, bytes }) => {
                    assert!(received.end == from.0 && !bytes.is_empty() && received.exit.is_none());
                    received.end += bytes.len() as u64;
                    match stream {
                        OutputStream::Stdout => received.stdout.extend(bytes),
                        OutputStream::Stderr => received.stderr.extend(bytes),
                    }
                }
                Some(ProcessEvent::Gap { from, to }) => {
                    assert!(received.end == from.0 && to > from && received.exit.is_none());
                    received.gap = Some((from.0, to.0));
                    received.end = to.0;
                }
                Some(ProcessEvent::Exit(exit)) => received.exit = Some(exit),
                None => break,
            }
        }
        received
    }

    async fn read_to_end(&self, id: &ProcessId, from: u64) -> Received {
        self.read_output(id, from, usize::MAX).await
    }
}

const DONE: ProcessExit = ProcessExit { code: 0, timed_out: false };

#[tokio::test(flavor = "multi_thread")]
async fn a_process_goes_on_without_readers_and_each_reader_receives_every_byte_once() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("detached").await;
    let script = "echo begun; read line; echo got $line; echo trouble >&2; exit 3";
    let id = sandbox.spawn(ProcessSpec { stdin: StdinMode::Open, ..spec(script) }).await;
    let first = sandbox.read_output(&id, 0, 6).await;
    assert_eq!((first.stdout.as_slice(), first.end), (b"begun\n".as_slice(), 6));
    // That reader has gone; another one waits while the process does.
    let follow = async { sandbox.read_to_end(&id, first.end).await };
    let write = async { sandbox.write_stdin(&id, "this\n").await.expect("it reads") };
    let (rest, ()) = tokio::join!(follow, write);
    assert_eq!(
        (rest.stdout.as_slice(), rest.stderr.as_slice()),
        (&b"got this\n"[..], &b"trouble\n"[..])
    );
    let exit = ProcessExit { code: 3, timed_out: false };
    assert_eq!((rest.exit, rest.end), (Some(exit), 23));
    assert_eq!(sandbox.wait(&id).await, Ok(exit));

    let all = sandbox.read_to_end(&id, 0).await;
    for from in 0..=all.end {
        let part = sandbox.read_to_end(&id, from).await;
        let len = part.stdout.len() + part.stderr.len();
        assert_eq!((len as u64, part.end, part.exit), (all.end - from, all.end, Some(exit)));
        assert!(all.stdout.ends_with(&part.stdout) && all.stderr.ends_with(&part.stderr));
    }
    let beyond = sandbox.provider.attach(sandbox.target.clone(), id.clone(), Offset(24)).await;
    assert_eq!(beyond.map(drop), Err(WorkError::OutOfRange { size: 23 }));
    assert_eq!(sandbox.write_stdin(&id, "x").await, Err(WorkError::StdinClosed));
    sandbox.signal(&id, Signal::Terminate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_reconnect_anywhere_lose_and_repeat_nothing() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("reconnecting").await;
    let script = "i=0; while [ $i -lt 20000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let id = sandbox.spawn(spec(script)).await;
    let reconnecting = async {
        let mut all = Received::default();
        for len in (1..).map(|n| n * 37 % 5_000 + 1) {
            let part = sandbox.read_output(&id, all.end, len).await;
            all.stdout.extend(part.stdout);
            all.stderr.extend(part.stderr);
            (all.end, all.exit) = (part.end, part.exit);
            assert_eq!(part.gap, None);
            if all.exit.is_some() {
                break;
            }
        }
        all
    };
    let (reconnected, steady) = tokio::join!(reconnecting, sandbox.read_to_end(&id, 0));
    let lines = |name: &str| -> String { (0..20_000).map(|i| format!("{name} {i}\n")).collect() };
    assert!(steady.stdout == lines("out").as_bytes() && steady.stderr == lines("err").as_bytes());
    assert_eq!(steady.exit, Some(DONE));
    assert!(reconnected == steady, "both have received the same");
    assert!(sandbox.read_to_end(&id, 0).await == steady, "and so does one who comes afterwards");
}

/// What `seq 1 COUNT` writes.
fn numbers(count: u32) -> Vec<u8> {
    (1..=count).map(|number| format!("{number}\n")).collect::<String>().into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_output_is_kept_and_a_gap_says_what_is_missing() {
    const KEEP: usize = 100_000;
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("overflowing").await;
    let script = "seq 1 2000000; printf end >&2";
    let id = sandbox.spawn(ProcessSpec { keep: KEEP as u64, ..spec(script) }).await;
    assert_eq!(sandbox.wait(&id).await, Ok(DONE), "it does not wait for a reader");
    let written = numbers(2_000_000);
    let late = sandbox.read_to_end(&id, 10).await;
    let (from, to) = late.gap.expect("a gap");
    assert_eq!((from, late.end), (10, written.len() as u64 + 3));
    assert!((KEEP..KEEP + (2 << 20)).contains(&late.stdout.len()), "{}", late.stdout.len());
    assert_eq!(late.end - to, late.stdout.len() as u64 + 3);
    assert!(written.ends_with(&late.stdout) && late.stderr == b"end");
    assert_eq!(sandbox.read_to_end(&id, late.end - 4).await.stdout, b"\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_waits_for_its_readers_loses_nothing_and_can_be_killed() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("waiting").await;
    let waiting = |script: &str| ProcessSpec { keep: 1, overflow: Overflow::Wait, ..spec(script) };
    let id = sandbox.spawn(waiting("seq 1 3000000; echo over >&2")).await;
    let all = sandbox.read_to_end(&id, 0).await;
    assert!(all.stdout == numbers(3_000_000) && all.stderr == b"over\n");
    assert_eq!((all.gap, all.exit), (None, Some(DONE)));

    let id = sandbox.spawn(waiting("echo begun; exec yes")).await;
    let begun = sandbox.read_output(&id, 0, 1).await;
    sandbox.signal(&id, Signal::Kill).await;
    assert_eq!(sandbox.wait(&id).await.map(|exit| exit.code), Ok(137), "without a reader");
    let rest = sandbox.read_to_end(&id, begun.end).await;
    assert_eq!((rest.gap, rest.exit.map(|exit| exit.code)), (None, Some(137)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_the_whole_session_and_so_does_the_time_limit() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("signals").await;
    let child = "sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.01; done'";
    let script = format!("trap 'echo leader' USR1; {child} & wait; wait; exit 5");
    let id = sandbox.spawn(spec(&script)).await;
    assert_eq!(sandbox.read_output(&id, 0, 6).await.stdout, b"ready\n");
    sandbox.signal(&id, Signal::User1).await;
    let after = sandbox.read_to_end(&id, 6).await;
    let text = String::from_utf8_lossy(&after.stdout).into_owned();
    assert!(text.contains("leader\n") && text.contains("child\n"), "{text}");
    assert_eq!(after.exit.map(|exit| exit.code), Some(5));

    let mark = marker();
    let script = format!("sleep {mark} & wait");
    let timeout = Some(Duration::from_millis(300));
    let id = sandbox.spawn(ProcessSpec { timeout, ..spec(&script) }).await;
    assert_eq!(sandbox.wait(&id).await, Ok(ProcessExit { code: 137, timed_out: true }));
    assert!(processes_with(&mark).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn input_can_be_closed_and_a_process_that_does_not_read_makes_its_writer_wait() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("input").await;
    let open = |script| ProcessSpec { stdin: StdinMode::Open, ..spec(script) };
    let id = sandbox.spawn(open("cat; echo closed")).await;
    sandbox.write_stdin(&id, "text ").await.expect("it reads");
    sandbox.provider.close_stdin(sandbox.target.clone(), id.clone()).await.expect("closed");
    assert_eq!(sandbox.write_stdin(&id, "late").await, Err(WorkError::StdinClosed));
    sandbox.provider.close_stdin(sandbox.target.clone(), id.clone()).await.expect("as before");
    assert_eq!(sandbox.read_to_end(&id, 0).await.stdout, b"text closed\n");

    let id = sandbox.spawn(open("sleep 1000")).await;
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let write = || sandbox.provider.write_stdin(sandbox.target.clone(), id.clone(), piece.clone());
    let mut taken = 0;
    while tokio::time::timeout(Duration::from_millis(200), write()).await.is_ok() {
        taken += 1;
    }
    assert!(taken <= 4, "{taken} pieces are held");
    let (waiting, ()) = tokio::join!(write(), sandbox.signal(&id, Signal::Kill));
    assert_eq!(waiting, Err(WorkError::StdinClosed));
    let id = sandbox.spawn(spec("cat")).await;
    assert_eq!(sandbox.write_stdin(&id, "x").await, Err(WorkError::StdinClosed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_every_process_and_afterwards_they_are_unknown() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("stopped").await;
    let mark = marker();
    let id = sandbox.spawn(spec(&format!("trap '' TERM; echo up; sleep {mark}"))).await;
    let (follow, ()) = tokio::join!(sandbox.read_to_end(&id, 0), async {
        sandbox.read_output(&id, 0, 3).await;
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    });
    assert_eq!((follow.stdout.as_slice(), follow.exit), (&b"up\n"[..], None));
    assert!(processes_with(&mark).is_empty());
    assert_eq!(sandbox.wait(&id).await, Err(WorkError::NotRunning));
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.wait(&id).await, Err(WorkError::NoSuchProcess));
    let again = sandbox.spawn(spec("true")).await;
    assert!(again.number > id.number);
    let of_another = ProcessId { sandbox: SandboxId::trusted("other"), number: again.number };
    assert_eq!(sandbox.wait(&of_another).await, Err(WorkError::NoSuchProcess));
    let making = std::fs::read_dir(local.dir.path().join("making")).expect("read");
    let is_output = |name: std::ffi::OsString| name.to_string_lossy().starts_with("output");
    assert!(!making.flatten().any(|entry| is_output(entry.file_name())), "the files have no name");
}
