//! A PID 1 that was taken over: what the server makes of all it could say.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::process::Command;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::super::launching::{Launcher, Listeners};
use super::super::{exec, files};
use super::*;
use crate::sandbox::confined::listing::WireEntry;
use crate::sandbox::{ExecRequest, FilePart, LIST_ENTRIES_MAX, WorkspacePath};
use crate::types::{ExternalId, SandboxId};

/// Only what is broken takes this long.
const WAIT: Duration = Duration::from_secs(20);

/// A link whose other end is the test's.
fn taken_over() -> (Arc<Link>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    rustix::io::ioctl_fionbio(&theirs, false).expect("set");
    let child = Command::new("true").spawn().expect("started");
    let pid = Pid::from_raw(child.id().try_into().expect("a pid")).expect("a pid");
    let arrived = Arrived {
        socket: watched(ours).expect("watched"),
        pidfd: pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd"),
        launcher: Launcher::of(child),
        device: 0,
        listeners: Listeners::default(),
    };
    let target = Target {
        external_id: ExternalId::trusted("taken-over@1"),
        expected: SandboxId::trusted("s"),
    };
    (Link::new(arrived, target, 1, CommandDefaults::default(), |_| {}), theirs)
}

/// Says something, with so many descriptors beside it.
fn say(socket: &OwnedFd, bytes: &[u8], descriptors: usize) {
    let null = File::open("/dev/null").expect("opened");
    let many = vec![null.as_fd(); descriptors];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
    // One that has been cut off is not heard any more.
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
}

/// The next request, and what is beside it.
async fn hear(socket: &OwnedFd) -> (Request, Vec<OwnedFd>) {
    let socket = socket.try_clone().expect("copied");
    let heard = tokio::task::spawn_blocking(move || {
        let (mut buffer, mut beside) = (vec![0; PACKET_LEN_MAX], Vec::new());
        let len = packet::receive(&socket, &mut buffer, &mut beside).expect("received");
        (Request::decode(&buffer[..len]).expect("a request"), beside)
    });
    tokio::time::timeout(WAIT, heard).await.expect("must come").expect("no panic")
}

#[tokio::test]
async fn a_launcher_that_can_t_finish_ends_the_sandbox_and_says_why() {
    let step = format!("switch the barriers on{}", "!".repeat(1_000));
    for (errno, why) in [(0, "switch the barriers on!!"), (5, "could not switch the barriers on!!")]
    {
        let (link, theirs) = taken_over();
        say(&theirs, &Answer::SetupFailed { step: step.clone(), errno }.encode(), 0);
        tokio::time::timeout(WAIT, link.gone()).await.expect("it is ended");
        let reason = link.trouble().expect("with a reason");
        assert!(reason.starts_with(&format!("setting it up was not finished: {why}")), "{reason}");
        assert!(reason.len() < 300, "{reason}");
    }
    let (link, theirs) = taken_over();
    say(&theirs, &Answer::Ready.encode(), 0);
    tokio::time::timeout(WAIT, link.gone()).await.expect("it is ended");
    assert_eq!(link.trouble(), None);
}

#[tokio::test]
async fn what_it_must_not_say_ends_the_sandbox() {
    let started = Answer::Started { id: 1 }.encode();
    let opened = Answer::Opened { id: 1 }.encode();
    for (said, bytes, descriptors, times) in [
        ("no message", vec![99], 0, 1),
        ("a request", Request::Stop { grace_ms: 1 }.encode(), 0, 1),
        ("half a message", started[..1].to_vec(), 0, 1),
        ("more than a message", [&started[..], &[0]].concat(), 0, 1),
        ("that it is ready, again", Answer::Ready.encode(), 0, 1),
        ("that it has another PID 1", Answer::Forked { device: 0 }.encode(), 1, 1),
        ("that it has opened what is not there", opened.clone(), 0, 1),
        ("that it has opened two files", opened, 2, 1),
        ("more with a descriptor", started.clone(), 1, 1),
        ("more with more descriptors than fit", started.clone(), 60, 1),
        ("more than a packet", vec![3; PACKET_LEN_MAX + 1], 0, 1),
        ("more answers than any request has", started, 0, ANSWERS_MAX + 1),
    ] {
        let (link, theirs) = taken_over();
        let _call = link.call(|id| Request::Kill { id }, &[]).await.expect("sent");
        for _ in 0..times {
            say(&theirs, &bytes, descriptors);
        }
        tokio::time::timeout(WAIT, link.gone()).await.expect(said);
        assert!(!link.is_up(), "{said}");
        let next = link.call(|id| Request::Kill { id }, &[]).await.map(drop);
        assert_eq!(next, Err(WorkError::NotRunning), "{said}");
    }
}

#[tokio::test]
async fn answers_to_nobody_are_not_kept_and_hold_up_nobody() {
    let (link, theirs) = taken_over();
    let mut call = link.call(|id| Request::Kill { id }, &[]).await.expect("sent");
    let flood = std::thread::spawn(move || {
        for id in 1_000..21_000 {
            say(&theirs, &Answer::Opened { id }.encode(), 1);
        }
        say(&theirs, &Answer::Done { id: 1, flag: true }.encode(), 0);
        theirs
    });
    let answer = tokio::time::timeout(WAIT, call.answer()).await.expect("must come");
    assert_eq!(answer.expect("an answer").0, Answer::Done { id: 1, flag: true });
    assert!(link.is_up());
    drop(flood.join());
    tokio::time::timeout(WAIT, link.gone()).await.expect("its end is noticed");
}

#[tokio::test]
async fn a_listing_that_lies_is_not_believed() {
    let entry = |path: &[u8]| WireEntry::of(path, &rustix::fs::stat("/").expect("there")).encode();
    for (reason, bytes, times) in [
        ("makes no sense", vec![9; 64], 1),
        ("not asked for", entry(b"b/x"), 1),
        ("not asked for", entry(b"a/../../etc"), 1),
        ("not asked for", entry(b"/etc"), 1),
        ("more than it may", entry(b"a/x"), LIST_ENTRIES_MAX + 1),
    ] {
        let (link, theirs) = taken_over();
        let path = WorkspacePath::parse(b"a").expect("a path");
        let asked = tokio::spawn(async move { files::list(&link, &path, 9).await.map(drop) });
        let (_, mut beside) = hear(&theirs).await;
        let mut pipe = File::from(beside.pop().expect("a pipe"));
        let writing = std::thread::spawn(move || {
            for _ in 0..times {
                // The reader stops at the first entry that it refuses.
                let _ = pipe.write_all(&bytes);
            }
        });
        let listed = tokio::time::timeout(WAIT, asked).await.expect("must end").expect("no panic");
        let is_named = matches!(&listed, Err(WorkError::Broken(why)) if why.contains(reason));
        assert!(is_named, "{reason}: {listed:?}");
        writing.join().expect("no panic");
    }
}

#[tokio::test]
async fn what_it_opens_is_a_regular_file_of_the_workspace_or_nothing() {
    for path in ["/dev/zero", "/proc/self/status", "/", "/etc/passwd"] {
        let (link, theirs) = taken_over();
        let asked = tokio::spawn(async move {
            let path = WorkspacePath::parse(b"a").expect("a path");
            files::read(&link, &path, FilePart::Whole).await.map(drop)
        });
        let (Request::Read { id, .. }, _) = hear(&theirs).await else { panic!("must read") };
        let file = File::open(path).expect("opened");
        packet::send(&theirs, &Answer::Opened { id }.encode(), &[file.as_fd()]).expect("sent");
        let read = tokio::time::timeout(WAIT, asked).await.expect("must end").expect("no panic");
        let is_named =
            matches!(&read, Err(WorkError::Broken(why)) if why.contains("other than a file"));
        assert!(is_named, "{path}: {read:?}");
    }
}

#[tokio::test]
async fn a_command_that_ended_before_it_started_is_not_believed() {
    let (link, theirs) = taken_over();
    let request = ExecRequest {
        command: vec!["true".into()],
        cwd: None,
        env: Vec::new(),
        stdin: bytes::Bytes::new().into(),
        timeout: None,
    };
    let asked = tokio::spawn(async move { exec::start(&link, request).await.map(drop) });
    let (Request::Exec { id, .. }, _) = hear(&theirs).await else { panic!("must execute") };
    say(&theirs, &Answer::Exited { id, code: 0 }.encode(), 0);
    let run = tokio::time::timeout(WAIT, asked).await.expect("must end").expect("no panic");
    assert!(matches!(&run, Err(WorkError::Broken(_))), "{run:?}");
    // What it may have started all the same is to be killed.
    assert_eq!(hear(&theirs).await.0, Request::Kill { id });
}
