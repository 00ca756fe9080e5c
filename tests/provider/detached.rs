//! Processes that outlive a connection: attach from any position, input, signals, and how much is
//! kept. For providers that declare them.

use std::time::Duration;

use bytes::Bytes;
use issuebox::sandbox::{
    Capability, ENDED_KEPT, Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, ProcessId,
    ProcessOutput, ProcessSpec, Signal, StdinMode, Target, WorkError,
};
use issuebox::types::SandboxId;

use crate::subject::{Subject, WAIT};

contract!(
    every_byte_is_received_once_from_any_position_by_any_number_of_readers,
    input_is_streamed_and_its_end_is_seen,
    input_that_nothing_reads_any_more_is_refused,
    a_signal_ends_a_process_and_its_code_says_which,
    a_process_whose_time_is_up_is_killed_and_says_so,
    the_oldest_output_is_dropped_and_the_gap_is_named,
    output_that_must_not_be_lost_waits_for_a_reader,
    a_process_that_ended_is_kept_for_a_while,
    a_process_is_found_by_its_tag,
    a_process_is_only_its_own_sandbox_s,
    a_stop_ends_processes_and_their_numbers_never_come_back,
);

/// A subject's process interface with one object in it; `None` if it declares no such processes.
struct Detached<'a> {
    subject: &'a Subject,
    target: Target,
}

impl<'a> Detached<'a> {
    async fn of(subject: &'a Subject) -> Option<Self> {
        let is_offered = subject.offers(Capability::DetachedProcesses);
        let target = subject.target().await;
        is_offered.then_some(Self { subject, target })
    }

    async fn spawn(&self, spec: ProcessSpec) -> ProcessId {
        let spawned = self.subject.provider.processes.spawn(self.target.clone(), spec).await;
        spawned.expect("started")
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<ProcessOutput, WorkError> {
        let (target, id) = (self.target.clone(), id.clone());
        self.subject.provider.processes.attach(target, id, Offset(from)).await
    }

    /// All output from a position to the end.
    async fn read(&self, id: &ProcessId, from: u64) -> Read {
        read(self.attach(id, from).await.expect("attached"), from).await
    }

    async fn write(&self, id: &ProcessId, bytes: &[u8]) -> Result<(), WorkError> {
        let (target, bytes) = (self.target.clone(), Bytes::copy_from_slice(bytes));
        self.subject.provider.processes.write_stdin(target, id.clone(), bytes).await
    }

    async fn close(&self, id: &ProcessId) -> Result<(), WorkError> {
        self.subject.provider.processes.close_stdin(self.target.clone(), id.clone()).await
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), WorkError> {
        self.subject.provider.processes.signal(self.target.clone(), id.clone(), signal).await
    }

    async fn wait(&self, id: &ProcessId) -> Result<ProcessExit, WorkError> {
        let wait = self.subject.provider.processes.wait(self.target.clone(), id.clone());
        tokio::time::timeout(WAIT, wait).await.expect("in time")
    }
}

pub fn spec(command: &[&str]) -> ProcessSpec {
    ProcessSpec {
        command: command.iter().map(ToString::to_string).collect(),
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
struct Read {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    gaps: Vec<(u64, u64)>,
    end: u64,
    exit: Option<ProcessExit>,
}

/// Reads to the end and checks that the positions have no hole.
async fn read(mut output: ProcessOutput, from: u64) -> Read {
    let mut read = Read { end: from, ..Read::default() };
    let next = async |output: &mut ProcessOutput| {
        tokio::time::timeout(WAIT, output.events.recv()).await.expect("in time")
    };
    while let Some(event) = next(&mut output).await {
        assert_eq!(read.exit, None, "nothing comes after the exit");
        match event {
            ProcessEvent::Output { from, stream, bytes } => {
                assert_eq!(from.0, read.end, "no byte is missing or comes twice");
                assert!(!bytes.is_empty());
                read.end += bytes.len() as u64;
                match stream {
                    OutputStream::Stdout => read.stdout.extend(bytes),
                    OutputStream::Stderr => read.stderr.extend(bytes),
                }
            }
            ProcessEvent::Gap { from, to } => {
                assert_eq!(from.0, read.end);
                read.gaps.push((from.0, to.0));
                read.end = to.0;
            }
            ProcessEvent::Exit(exit) => read.exit = Some(exit),
        }
    }
    read
}

const EXITED: Option<ProcessExit> = Some(ProcessExit { code: 0, timed_out: false });

async fn every_byte_is_received_once_from_any_position_by_any_number_of_readers(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let id = detached.spawn(ProcessSpec { stdin: StdinMode::Open, ..spec(&["cat"]) }).await;
    let early = detached.attach(&id, 0).await.expect("attached");
    let text: Vec<u8> = (0..200_u32).flat_map(u32::to_le_bytes).collect();
    for piece in text.chunks(97) {
        detached.write(&id, piece).await.expect("taken");
    }
    detached.close(&id).await.expect("closed");
    let whole = read(early, 0).await;
    assert_eq!((&whole.stdout, &whole.exit), (&text, &EXITED));
    // After its end too.
    for from in [0, 1, 96, 97, 98, 400, text.len() - 1, text.len()] {
        let (one, two) =
            tokio::join!(detached.read(&id, from as u64), detached.read(&id, from as u64));
        assert_eq!((&*one.stdout, &one.exit), (&text[from..], &EXITED), "from {from}");
        assert_eq!(one, two);
    }
    let beyond = detached.attach(&id, text.len() as u64 + 1).await.map(drop);
    assert_eq!(beyond, Err(WorkError::OutOfRange { size: text.len() as u64 }));
}

/// The server's end is nothing to a process whose object outlives it.
#[tokio::test(flavor = "multi_thread")]
async fn attaching_after_a_restart_goes_on_without_a_gap_or_a_repeat() {
    let subjects = [Subject::simulated().await, Subject::local().await, Subject::daytona().await];
    for subject in subjects.into_iter().flatten() {
        attaching_after_a_restart_goes_on(subject).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn attaching_to_a_container_after_a_restart_goes_on_without_a_gap_or_a_repeat() {
    attaching_after_a_restart_goes_on(Subject::docker()).await;
}

async fn attaching_after_a_restart_goes_on(subject: Subject) {
    if subject.provider.descriptor.dies_with_server {
        return;
    }
    let Some(detached) = Detached::of(&subject).await else { return };
    let id = detached.spawn(ProcessSpec { stdin: StdinMode::Open, ..spec(&["cat"]) }).await;
    let long = detached.spawn(spec(&["sleep", "1000"])).await;
    detached.write(&id, b"before ").await.expect("taken");
    let mut reader = detached.attach(&id, 0).await.expect("attached");
    let first = reader.events.recv().await.expect("output");
    let ProcessEvent::Output { bytes, .. } = first else { panic!("{first:?}") };
    let target = detached.target.clone();
    drop(reader);
    let subject = subject.restarted();
    let detached = Detached { subject: &subject, target };
    let mut again = detached.attach(&id, bytes.len() as u64).await.expect("attached");
    detached.write(&id, b"after").await.expect("taken");
    let mut rest = bytes.to_vec();
    while rest != b"before after" {
        let event = tokio::time::timeout(WAIT, again.events.recv()).await.expect("in time");
        let Some(ProcessEvent::Output { from, bytes, .. }) = event else { panic!("{event:?}") };
        assert_eq!(from.0, rest.len() as u64);
        rest.extend(bytes);
    }
    detached.close(&id).await.expect("closed");
    assert_eq!(again.events.recv().await, Some(ProcessEvent::Exit(EXITED.expect("set"))));
    assert_eq!(detached.read(&id, 0).await.stdout, b"before after");
    detached.signal(&long, Signal::Terminate).await.expect("sent");
    assert_eq!(detached.wait(&long).await.expect("ended").code, 143);
    let next = detached.spawn(spec(&["echo", "next"])).await;
    assert!(next.number > long.number, "{next} after {long}");
}

async fn input_is_streamed_and_its_end_is_seen(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let id = detached.spawn(ProcessSpec { stdin: StdinMode::Open, ..spec(&["cat"]) }).await;
    let mut output = detached.attach(&id, 0).await.expect("attached");
    for line in ["one\n", "two\n"] {
        // Each is written back before the next one is there.
        detached.write(&id, line.as_bytes()).await.expect("taken");
        let mut got = Vec::new();
        while got != line.as_bytes() {
            let event = tokio::time::timeout(WAIT, output.events.recv()).await.expect("in time");
            let Some(ProcessEvent::Output { bytes, .. }) = event else { panic!("{event:?}") };
            got.extend(bytes);
        }
    }
    detached.close(&id).await.expect("closed");
    detached.close(&id).await.expect("closed already");
    let end = tokio::time::timeout(WAIT, output.events.recv()).await.expect("in time");
    assert_eq!(end, Some(ProcessEvent::Exit(EXITED.expect("set"))));
    assert_eq!(output.events.recv().await, None);
    assert_eq!(detached.wait(&id).await, Ok(EXITED.expect("set")));
}

async fn input_that_nothing_reads_any_more_is_refused(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let sleep = &["sleep", "1000"];
    let without = detached.spawn(spec(sleep)).await;
    let closed = detached.spawn(ProcessSpec { stdin: StdinMode::Open, ..spec(sleep) }).await;
    detached.write(&closed, b"unread").await.expect("the provider holds it");
    detached.close(&closed).await.expect("closed");
    for id in [&without, &closed] {
        assert_eq!(detached.write(id, b"x").await, Err(WorkError::StdinClosed), "{id}");
        detached.signal(id, Signal::Kill).await.expect("sent");
        assert_eq!(detached.wait(id).await.expect("ended").code, 137);
        assert_eq!(detached.write(id, b"x").await, Err(WorkError::StdinClosed), "{id}");
        detached.signal(id, Signal::Kill).await.expect("it has ended already");
    }
}

async fn a_signal_ends_a_process_and_its_code_says_which(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    for signal in Signal::ALL {
        let id = detached.spawn(spec(&["sleep", "1000"])).await;
        detached.signal(&id, signal).await.expect("sent");
        let exit = ProcessExit { code: 128 + signal.number(), timed_out: false };
        assert_eq!(detached.wait(&id).await, Ok(exit), "{}", signal.as_str());
        assert_eq!(detached.read(&id, 0).await.exit, Some(exit));
    }
    if subject.has_shell {
        // What it started itself is of its session.
        let script = "trap 'echo caught; exit 3' TERM; echo ready; sleep 1000 & wait";
        let id = detached.spawn(spec(&["sh", "-c", script])).await;
        let mut output = detached.attach(&id, 0).await.expect("attached");
        output.events.recv().await.expect("ready");
        detached.signal(&id, Signal::Terminate).await.expect("sent");
        assert_eq!(detached.wait(&id).await.expect("ended").code, 3);
        assert_eq!(detached.read(&id, 0).await.stdout, b"ready\ncaught\n");
    }
}

async fn a_process_whose_time_is_up_is_killed_and_says_so(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let timeout = Some(Duration::from_millis(200));
    let id = detached.spawn(ProcessSpec { timeout, ..spec(&["sleep", "1000"]) }).await;
    let exit = ProcessExit { code: 137, timed_out: true };
    assert_eq!(detached.read(&id, 0).await.exit, Some(exit));
    assert_eq!(detached.wait(&id).await, Ok(exit));
}

async fn the_oldest_output_is_dropped_and_the_gap_is_named(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    const LEN: u64 = 20_000_000;
    let keep = 1 << 20;
    let command = ["head", "-c", &LEN.to_string(), "/dev/zero"];
    let id = detached.spawn(ProcessSpec { keep, ..spec(&command) }).await;
    assert_eq!(detached.wait(&id).await.expect("it waits for no reader").code, 0);
    let read = detached.read(&id, 0).await;
    assert_eq!((read.end, read.exit), (LEN, EXITED));
    let [(0, to)] = *read.gaps else { panic!("{:?}", read.gaps) };
    let kept = LEN - to;
    assert!((keep..=2 * keep).contains(&kept), "{kept} bytes are kept");
    assert_eq!(read.stdout.len() as u64, kept);
    assert_eq!(detached.read(&id, to + 5).await.gaps, []);
}

async fn output_that_must_not_be_lost_waits_for_a_reader(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    const LEN: u64 = 20_000_000;
    let (keep, overflow) = (256 << 10, Overflow::Wait);
    let command = ["head", "-c", &LEN.to_string(), "/dev/zero"];
    let id = detached.spawn(ProcessSpec { keep, overflow, ..spec(&command) }).await;
    // A reader that goes away and comes back where it was.
    let mut at = 0;
    while at < LEN / 2 {
        let mut output = detached.attach(&id, at).await.expect("attached");
        for _ in 0..5 {
            let event = tokio::time::timeout(WAIT, output.events.recv()).await.expect("in time");
            let Some(ProcessEvent::Output { from, bytes, .. }) = event else { panic!("{event:?}") };
            assert_eq!(from.0, at);
            at += bytes.len() as u64;
        }
    }
    let read = detached.read(&id, at).await;
    assert_eq!((read.end, read.gaps, read.exit), (LEN, vec![], EXITED));
}

async fn a_process_is_found_by_its_tag(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let find = async |tag: &str| {
        let processes = &detached.subject.provider.processes;
        processes.tagged(detached.target.clone(), tag).await.expect("asked")
    };
    let tagged =
        |tag: &str, command: &[&str]| ProcessSpec { tag: Some(tag.into()), ..spec(command) };
    assert_eq!(find("run-a-1").await, None);
    detached.spawn(spec(&["sleep", "1000"])).await;
    let first = detached.spawn(tagged("run-a-1", &["sleep", "1000"])).await;
    let other = detached.spawn(tagged("run-a-2", &["sleep", "1000"])).await;
    assert_eq!((find("run-a-1").await, find("run-a-2").await), (Some(first), Some(other)));
    assert_eq!(find("run-a").await, None, "a part of a tag is another one");
    // The newest counts, also when it has ended.
    let newest = detached.spawn(tagged("run-a-1", &["echo", "done"])).await;
    detached.wait(&newest).await.expect("ended");
    assert_eq!(find("run-a-1").await, Some(newest));
}

async fn a_process_that_ended_is_kept_for_a_while(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let running = detached.spawn(spec(&["sleep", "1000"])).await;
    let mut ended = Vec::new();
    for n in 0..ENDED_KEPT + 4 {
        let id = detached.spawn(spec(&["echo", &n.to_string()])).await;
        detached.wait(&id).await.expect("ended");
        ended.push(id);
    }
    // A provider may notice an end a little after `wait` has returned, or when the next one starts.
    detached.spawn(spec(&["sleep", "1000"])).await;
    let (forgotten, kept) = ended.split_at(4);
    for id in forgotten {
        let forgotten = async {
            while detached.attach(id, 0).await.map(drop) != Err(WorkError::NoSuchProcess) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT, forgotten).await.expect("it is forgotten");
        assert_eq!(detached.wait(id).await, Err(WorkError::NoSuchProcess), "{id}");
    }
    for (n, id) in kept.iter().enumerate() {
        assert_eq!(detached.read(id, 0).await.stdout, format!("{}\n", n + 4).into_bytes());
    }
    detached.signal(&running, Signal::Kill).await.expect("one that runs is not forgotten");
}

async fn a_process_is_only_its_own_sandbox_s(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let id = detached.spawn(spec(&["sleep", "1000"])).await;
    assert_eq!(ProcessId::parse(&id.to_string()), Some(id.clone()));
    assert_eq!(id.sandbox, detached.target.expected);
    let none = Err(WorkError::NoSuchProcess);
    for other in [
        ProcessId { sandbox: SandboxId::trusted("another"), ..id.clone() },
        ProcessId { number: id.number + 1, ..id.clone() },
        ProcessId { number: 0, ..id.clone() },
    ] {
        assert_eq!(detached.attach(&other, 0).await.map(drop), none, "{other}");
        assert_eq!(detached.write(&other, b"x").await, none, "{other}");
        assert_eq!(detached.close(&other).await, none, "{other}");
        assert_eq!(detached.signal(&other, Signal::Kill).await, none, "{other}");
        assert_eq!(detached.wait(&other).await.map(drop), none, "{other}");
    }
    let expected = SandboxId::trusted("another");
    let target = Target { expected, ..detached.target.clone() };
    let stranger = Detached { subject, target };
    assert_eq!(stranger.signal(&id, Signal::Kill).await, Err(WorkError::NotRunning));
    assert_eq!(stranger.attach(&id, 0).await.map(drop), Err(WorkError::NotRunning));
}

async fn a_stop_ends_processes_and_their_numbers_never_come_back(subject: &Subject) {
    let Some(detached) = Detached::of(subject).await else { return };
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let id = detached.spawn(spec(&["sleep", "1000"])).await;
        let output = detached.attach(&id, 0).await.expect("attached");
        let waiting = detached.wait(&id);
        let stopping = subject.stop(&detached.target);
        let (ended, ()) = tokio::join!(waiting, stopping);
        assert_eq!(ended, Err(WorkError::NotRunning), "its object went down first");
        assert_eq!(read(output, 0).await, Read::default(), "no exit");
        assert_eq!(detached.attach(&id, 0).await.map(drop), Err(WorkError::NotRunning));
        subject.start(&detached.target).await;
        assert!(!numbers.contains(&id.number), "{id} was there: {numbers:?}");
        numbers.push(id.number);
    }
}
