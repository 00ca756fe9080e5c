//! Who is at the other end of a connection to the helper: only the container's root is let in.
//!
//! The kernel says who connected (`SO_PEERCRED`), but gVisor answers with the credentials of the process
//! that asks, the helper. So the connecting side also sends its credentials with a first
//! byte (`SCM_CREDENTIALS`), which both kernels verify. Commands cannot become root: the container has
//! no capability and forbids new privileges.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred, recvmsg, sendmsg,
};
use rustix::process::{getgid, getpid, getuid};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What the connecting side writes first.
const GREETING: [u8; 1] = [b'i'];

/// How long the greeting may take.
const GREETING_WAIT: Duration = Duration::from_secs(5);

/// How many connections are waited for at a time whose other end the kernel does not call root. The
/// oldest gives way: the server greets at once.
const UNKNOWN_MAX: usize = 64;

/// Sends the greeting with this process's credentials.
///
/// # Errors
/// Those of `sendmsg`.
pub fn greet(socket: &StdStream) -> io::Result<()> {
    let own = UCred { pid: getpid(), uid: getuid(), gid: getgid() };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmCredentials(own));
    let bytes = [IoSlice::new(&GREETING)];
    retry_on_intr(|| sendmsg(socket, &bytes, &mut beside, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Lets root in.
#[derive(Default)]
pub struct PeerCheck {
    /// What ends the wait for each of the last connections whose other end may be a command.
    unknown: Mutex<VecDeque<CancellationToken>>,
}

impl PeerCheck {
    /// Waits for the greeting of a connection that was accepted; `None` if it is not root's.
    pub fn admit(&self, socket: UnixStream) -> impl Future<Output = Option<UnixStream>> + use<> {
        let peer = socket.peer_cred().ok().map(|peer| peer.uid());
        let gives_way = CancellationToken::new();
        if peer != Some(0) {
            self.wait_for_unknown(gives_way.clone());
        }
        async move {
            let greeting = timeout(GREETING_WAIT, greeting(&socket));
            let sender = gives_way.run_until_cancelled(greeting).await?.ok()?.ok()?;
            is_root(peer, sender).then_some(socket)
        }
    }

    fn wait_for_unknown(&self, gives_way: CancellationToken) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.push_back(gives_way);
        if unknown.len() > UNKNOWN_MAX
            && let Some(oldest) = unknown.pop_front()
        {
            oldest.cancel();
        }
    }
}

/// Whether it is root, by the user who connected and by the one who greeted.
fn is_root(peer: Option<u32>, sender: Option<u32>) -> bool {
    peer == Some(0) || sender == Some(0)
}

/// Reads the greeting. Returns the user who sent it, if the kernel says who that was.
async fn greeting(socket: &UnixStream) -> io::Result<Option<u32>> {
    set_socket_passcred(socket, true)?;
    socket.async_io(Interest::READABLE, || received(socket)).await
}

fn received(socket: &UnixStream) -> io::Result<Option<u32>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = GREETING;
    let mut into = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = retry_on_intr(|| recvmsg(socket, &mut into, &mut beside, flags))?;
    if got.bytes != GREETING.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let sender = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.uid.as_raw()),
        _ => None,
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pair() -> (StdStream, UnixStream) {
        let (one, other) = StdStream::pair().expect("a pair");
        other.set_nonblocking(true).expect("not blocking");
        (one, UnixStream::from_std(other).expect("a socket"))
    }

    #[tokio::test]
    async fn a_greeting_says_who_sent_it() {
        let (one, other) = pair();
        greet(&one).expect("sent");
        assert_eq!(greeting(&other).await.expect("received"), Some(getuid().as_raw()));
    }

    #[tokio::test]
    async fn a_greeting_without_credentials_is_no_root_s() {
        let (mut one, other) = pair();
        one.write_all(&GREETING).expect("sent");
        assert_ne!(greeting(&other).await.expect("received"), Some(0));
    }

    #[test]
    fn only_root_is_let_in() {
        for (peer, sender) in [(Some(0), Some(65_534)), (Some(1000), Some(0))] {
            assert!(is_root(peer, sender), "{peer:?} {sender:?}");
        }
        for (peer, sender) in [(Some(1000), Some(1000)), (Some(1000), None), (None, None)] {
            assert!(!is_root(peer, sender), "{peer:?} {sender:?}");
        }
    }

    #[tokio::test]
    async fn the_oldest_unknown_connection_gives_way() {
        let check = PeerCheck::default();
        let waits: Vec<_> = (0..=UNKNOWN_MAX).map(|_| CancellationToken::new()).collect();
        waits.iter().for_each(|wait| check.wait_for_unknown(wait.clone()));
        let ended: Vec<_> = waits.iter().map(CancellationToken::is_cancelled).collect();
        assert!(ended[0] && !ended[1..].contains(&true), "{ended:?}");
    }

    #[tokio::test]
    async fn no_connection_is_let_in_without_a_greeting() {
        let (one, other) = pair();
        drop(one);
        assert!(PeerCheck::default().admit(other).await.is_none());
    }
}
