//! Passes bytes between the standard streams and the helper's socket.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use super::SOCKET;
use super::peer::greet;

/// How long the helper may take to listen after the container's start.
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// Longest piece, in bytes.
const PIECE_LEN: usize = 64 * 1024;

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs until either side ends.
pub fn run() -> io::Result<()> {
    let socket = connected()?;
    greet(&socket)?;
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let (mut to_helper, mut from_helper) = (socket.try_clone()?, socket);
    thread::spawn(move || {
        // The helper ends the connection when it reads the end.
        let _ = copy(&mut input, &mut to_helper);
        let _ = to_helper.shutdown(Shutdown::Both);
    });
    copy(&mut from_helper, &mut output)
}

/// Copies until the end. Not by `io::copy`, which splices: the kernel holds a pipe locked while it waits
/// for the socket, so the engine could not read what is in the pipe already.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_LEN];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&piece[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the helper, which may have just been started.
fn connected() -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(SOCKET)?;
    let end = Instant::now() + LISTEN_WAIT;
    loop {
        match UnixStream::connect_addr(&address) {
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < end =>
            {
                thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}
