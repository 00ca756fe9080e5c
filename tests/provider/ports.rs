//! Ports: the way to a server in an object, for providers that declare them.

use std::time::Duration;

use issuebox::sandbox::{
    Capability, Overflow, PortAccess, ProcessId, ProcessSpec, Signal, StdinMode, Stream, Target,
    WorkError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::timeout;

use crate::subject::{Subject, WAIT, target};

contract!(
    a_port_on_which_nothing_listens_is_closed,
    a_server_is_reached_by_any_number_of_connections_until_it_ends,
    a_connection_ends_with_its_object,
);

async fn a_port_on_which_nothing_listens_is_closed(subject: &Subject) {
    if !subject.offers(Capability::Ports) {
        return;
    }
    let object = subject.make("ports", "s1").await;
    match subject.provider.processes.port(target(&object), 3000).await {
        Err(error) => assert_eq!(error, WorkError::NotListening),
        // Only a request would show it.
        Ok(PortAccess::Http(_)) => assert!(!subject.offers(Capability::Tunnels)),
        Ok(PortAccess::Stream(_)) => panic!("nothing listens there"),
    }
    subject.stop(&target(&object)).await;
    let stopped = subject.provider.processes.port(target(&object), 3000).await;
    assert_eq!(stopped.err(), Some(WorkError::NotRunning));
}

/// The port of [`echo_server`].
pub const PORT: u16 = 3000;

/// A server on [`PORT`] that writes back what it reads, on each connection until its end.
pub fn echo_server(subject: &Subject) -> Vec<String> {
    const SCRIPT: &str = "$SIG{CHLD} = 'IGNORE'; \
        $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 3000, \
                                          Listen => 5, ReuseAddr => 1) or die; \
        while ($stream = $listener->accept) { \
            if (!fork) { \
                $stream->autoflush(1); \
                while (sysread($stream, $bytes, 65536)) { print $stream $bytes } \
                exit \
            } \
            close $stream \
        }";
    let command: &[&str] = match subject.has_shell {
        // Perl is in every Debian.
        true => &["perl", "-MIO::Socket::INET", "-e", SCRIPT],
        false => &["socat", "TCP-LISTEN:3000,fork", "EXEC:cat"],
    };
    command.iter().map(ToString::to_string).collect()
}

/// Starts the server; `None` where no stream leads to one.
async fn serve(subject: &Subject, target: &Target) -> Option<ProcessId> {
    if !subject.offers(Capability::Tunnels) || !subject.offers(Capability::DetachedProcesses) {
        return None;
    }
    let spec = ProcessSpec {
        command: echo_server(subject),
        cwd: None,
        env: Vec::new(),
        stdin: StdinMode::Empty,
        timeout: None,
        keep: 1 << 20,
        overflow: Overflow::DropOldest,
        tag: None,
    };
    Some(subject.provider.processes.spawn(target.clone(), spec).await.expect("started"))
}

async fn connect(subject: &Subject, target: &Target) -> Result<Box<dyn Stream>, WorkError> {
    match subject.provider.processes.port(target.clone(), PORT).await? {
        PortAccess::Stream(stream) => Ok(stream),
        PortAccess::Http(access) => panic!("tunnels are declared: {access:?}"),
    }
}

/// Connects once the server listens.
pub async fn connected(subject: &Subject, target: &Target) -> Box<dyn Stream> {
    let connecting = async {
        loop {
            match connect(subject, target).await {
                Ok(stream) => return stream,
                Err(error) => assert_eq!(error, WorkError::NotListening),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(WAIT, connecting).await.expect("it listens")
}

/// Waits until no server listens any more.
pub async fn closed(subject: &Subject, target: &Target) {
    let closing = async {
        while connect(subject, target).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(WAIT, closing).await.expect("it does not listen any more");
    assert_eq!(connect(subject, target).await.err(), Some(WorkError::NotListening));
}

/// Sends these bytes, closes its half, and reads what comes back to the end.
async fn sent_and_back(stream: Box<dyn Stream>, bytes: &[u8]) -> Vec<u8> {
    let (mut from, mut to) = split(stream);
    let mut back = Vec::new();
    let send = async {
        to.write_all(bytes).await.expect("sent");
        to.shutdown().await.expect("half closed");
    };
    let both = async { tokio::join!(send, from.read_to_end(&mut back)) };
    timeout(WAIT, both).await.expect("in time").1.expect("read to the end");
    back
}

async fn a_server_is_reached_by_any_number_of_connections_until_it_ends(subject: &Subject) {
    let target = subject.target().await;
    let Some(server) = serve(subject, &target).await else { return };
    let mut open = connected(subject, &target).await;
    let texts: [Vec<u8>; 3] =
        [1, 65_537, 3_000_001].map(|len| (0..len).map(|n: u32| (n * 7 + n / 256) as u8).collect());
    let one = async |text: &Vec<u8>| {
        let back = sent_and_back(connect(subject, &target).await.expect("connected"), text).await;
        assert!(back == *text, "{} of {} bytes come back", back.len(), text.len());
    };
    tokio::join!(one(&texts[0]), one(&texts[1]), one(&texts[2]));
    // The first one was open all the time.
    open.write_all(b"still here").await.expect("sent");
    let mut back = [0; 10];
    timeout(WAIT, open.read_exact(&mut back)).await.expect("in time").expect("read");
    assert_eq!(&back, b"still here");
    let other = subject.provider.processes.port(target.clone(), PORT + 1).await;
    assert_eq!(other.err(), Some(WorkError::NotListening));
    let kill = subject.provider.processes.signal(target.clone(), server, Signal::Kill);
    kill.await.expect("sent");
    let end = timeout(WAIT, open.read(&mut back)).await.expect("it ends with its server");
    assert!(!end.is_ok_and(|len| len > 0));
    closed(subject, &target).await;
}

async fn a_connection_ends_with_its_object(subject: &Subject) {
    let target = subject.target().await;
    let Some(_server) = serve(subject, &target).await else { return };
    let mut open = connected(subject, &target).await;
    subject.stop(&target).await;
    let end = timeout(WAIT, open.read(&mut [0; 1])).await.expect("it ends with its object");
    assert!(!end.is_ok_and(|len| len > 0));
    assert_eq!(connect(subject, &target).await.err(), Some(WorkError::NotRunning));
    subject.start(&target).await;
    assert_eq!(connect(subject, &target).await.err(), Some(WorkError::NotListening));
}
