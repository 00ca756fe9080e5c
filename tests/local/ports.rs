//! Connections to servers in a real sandbox.

use std::time::Duration;

use issuebox::sandbox::{Lifecycle, PortAccess, Processes, WorkError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::common::{Local, Sandbox, WAIT, call, request};

async fn connect(
    sandbox: &Sandbox<'_>,
    port: u16,
) -> Result<impl issuebox::sandbox::Stream, WorkError> {
    match sandbox.provider.port(sandbox.target.clone(), port).await? {
        PortAccess::Stream(stream) => Ok(stream),
        PortAccess::Http(access) => panic!("{access:?}"),
    }
}

#[tokio::test]
async fn a_port_without_a_server_is_reported_as_closed() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("closed").await;
    // The host's loopback has a server on this port, but is another interface.
    let outside = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = outside.local_addr().expect("bound").port();
    for port in [port, 1, 65_535] {
        let refused = connect(&sandbox, port).await.err();
        assert_eq!(refused, Some(WorkError::NotListening), "{port}");
    }
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert_eq!(connect(&sandbox, port).await.err(), Some(WorkError::NotRunning));
}

/// Echoes what it receives, on one address.
const SERVER: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], 3000), family=int(sys.argv[2]), backlog=1)
print('ready', flush=True)
while len(sys.argv) < 4:
    stream, _ = listener.accept()
    while piece := stream.recv(65536):
        stream.sendall(piece)
    stream.close()
import time
time.sleep(1000)
";

#[tokio::test]
#[ignore = "needs python3"]
async fn a_server_is_reached_on_either_loopback_until_it_or_its_sandbox_ends() {
    let Some(local) = Local::new().await else { return };
    for (name, address, family) in [("v4", "127.0.0.1", "2"), ("v6", "::1", "10")] {
        let sandbox = local.sandbox(name).await;
        let command = request(&["python3", "-c", SERVER, address, family]);
        let mut server = sandbox.exec(command).await.expect("started");
        timeout(WAIT, server.events.recv()).await.expect("ready").expect("ready");
        let mut stream = connect(&sandbox, 3000).await.expect("connected");
        stream.write_all(b"hello").await.expect("sent");
        let mut got = [0; 5];
        stream.read_exact(&mut got).await.expect("echoed");
        assert_eq!(&got, b"hello");
        stream.shutdown().await.expect("half closed");
        assert_eq!(stream.read(&mut got).await.expect("its end"), 0);
        let mut left = connect(&sandbox, 3000).await.expect("connected");
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        let end = timeout(WAIT, left.read(&mut got)).await.expect("it ends with the sandbox");
        assert!(!end.is_ok_and(|len| len > 0));
    }
}

#[tokio::test]
#[ignore = "needs python3"]
async fn a_server_that_does_not_accept_blocks_only_its_clients() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("full").await;
    let command = request(&["python3", "-c", SERVER, "127.0.0.1", "2", "sleep"]);
    let mut server = sandbox.exec(command).await.expect("started");
    timeout(WAIT, server.events.recv()).await.expect("ready").expect("ready");
    let mut held = Vec::new();
    let refused = loop {
        match timeout(Duration::from_secs(15), connect(&sandbox, 3000)).await.expect("bounded") {
            Ok(stream) => held.push(stream),
            Err(error) => break error,
        }
        assert!(held.len() < 100, "its accept queue is short");
    };
    assert_eq!(refused, WorkError::NotListening);
    assert_eq!(sandbox.sh("echo on").await, "on\n", "PID 1 is not blocked");
}
