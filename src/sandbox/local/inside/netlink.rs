//! Netlink sockets of a sandbox: the launcher makes each of them, so many at once and no more.
//!
//! The kernel charges what waits in a netlink socket to no control group. A sandbox with many
//! sockets could fill the machine's memory past its own limit. Refusing all of them is no way out:
//! the C library lists network interfaces by netlink, and node's `os.networkInterfaces()`, which
//! development servers call, throws where it can't (measured with glibc 2.36 and node 20).
//!
//! So a filter leaves `socket(AF_NETLINK, …, NETLINK_ROUTE)` to the launcher, which stands outside
//! of the filter and in the sandbox's network namespace. It makes the socket and puts it into the
//! process that asked. The number is exact: an epoll set drops a socket when the last reference to
//! it is gone, wherever that was, and the kernel lists the set's members.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};

use super::super::packet;
use super::{NameStep, SetupError, sys};

/// The most bytes that wait in all netlink sockets of a sandbox together, if the kernel's own bound
/// of one allows that many.
const WAITING_MAX: u64 = 64 << 20;

/// The least and the most sockets at once. Listing interfaces takes one for less than a millisecond.
const SOCKETS: std::ops::RangeInclusive<u64> = 4..=16;

/// The kernel's bound of one socket's buffer, of which it allows twice as much.
const BUFFER_MAX: &str = "/proc/sys/net/core/rmem_max";

/// The flags beside a socket's type.
const TYPE_FLAGS: u64 = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK).bits() as u64;

/// Makes netlink sockets for a sandbox.
pub struct NetlinkMaker {
    /// First PID 1's end, then the listener that arrives over it.
    waiting: OwnedFd,
    has_listener: bool,
    /// The sockets that are still open.
    open: OwnedFd,
    /// The kernel's list of them.
    listed: File,
    at_once: usize,
}

/// Sends the listener to the launcher.
pub struct ListenerSender(OwnedFd);

impl ListenerSender {
    /// Sends it, once.
    pub fn send(self, listener: &OwnedFd) -> Result<(), SetupError> {
        packet::send(&self.0, b"l", &[listener.as_fd()]).step("hand over netlink sockets")
    }
}

impl NetlinkMaker {
    /// A maker, and what PID 1 sends its listener with.
    pub fn new() -> Result<(Self, ListenerSender), SetupError> {
        let step = "count netlink sockets";
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (waiting, far) = socketpair(AddressFamily::UNIX, kind, flags, None).step(step)?;
        let open = epoll::create(epoll::CreateFlags::CLOEXEC).step(step)?;
        // Opened now: later this process may not be allowed to.
        let listed = format!("/proc/self/fdinfo/{}", open.as_raw_fd());
        let listed = File::open(listed).step(step)?;
        let buffer = fs::read_to_string(BUFFER_MAX).ok().and_then(|max| max.trim().parse().ok());
        let at_once = at_once(buffer.unwrap_or(u64::MAX));
        Ok((Self { waiting, has_listener: false, open, listed, at_once }, ListenerSender(far)))
    }

    /// Readable when there is something to [serve](Self::serve).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// Takes the listener, or answers one process. An error is that process's own end, or PID 1's,
    /// which is noticed elsewhere.
    pub fn serve(&mut self) -> Result<(), Errno> {
        if !self.has_listener {
            let mut descriptors = Vec::new();
            packet::receive(&self.waiting, &mut [0; 8], &mut descriptors)?;
            self.waiting = descriptors.pop().ok_or(Errno::BADMSG)?;
            self.has_listener = true;
            return Ok(());
        }
        let call = sys::take_call(&self.waiting)?;
        match self.make(call.arguments[1]) {
            Ok((socket, ends_at_execution)) => {
                let given = sys::answer_with(&self.waiting, &call, &socket, ends_at_execution);
                match given {
                    // The process has no descriptor left.
                    Err(errno @ Errno::MFILE) => sys::refuse_call(&self.waiting, &call, errno),
                    given => given,
                }
            }
            Err(errno) => sys::refuse_call(&self.waiting, &call, errno),
        }
    }

    /// Makes a socket of this type with its flags, and whether it ends at an execution.
    fn make(&self, kind: u64) -> Result<(OwnedFd, bool), Errno> {
        if self.open_now() >= self.at_once {
            return Err(Errno::NOBUFS);
        }
        let flags = u32::try_from(kind & TYPE_FLAGS).unwrap_or_default();
        let flags = SocketFlags::from_bits_truncate(flags);
        let kind = u32::try_from(kind & u64::from(u32::MAX) & !TYPE_FLAGS);
        let kind = SocketType::from_raw(kind.map_err(|_| Errno::INVAL)?);
        // 0, `NETLINK_ROUTE`, is the usual protocol.
        let own = flags | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, kind, own, None)?;
        let (data, none) = (epoll::EventData::new_u64(0), epoll::EventFlags::empty());
        epoll::add(&self.open, &socket, data, none)?;
        Ok((socket, flags.contains(SocketFlags::CLOEXEC)))
    }

    /// How many are open in the sandbox. If that can't be read, as if all were.
    fn open_now(&self) -> usize {
        let mut text = [0; 8192];
        match self.listed.read_at(&mut text, 0) {
            Ok(len) => members(&text[..len]),
            Err(_) => usize::MAX,
        }
    }
}

/// The members of an epoll set, by its file in `/proc`.
fn members(listed: &[u8]) -> usize {
    listed.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"tfd:")).count()
}

/// How many sockets may be open at once, by the bound of one socket's buffer.
fn at_once(buffer_max: u64) -> usize {
    let many = WAITING_MAX / buffer_max.saturating_mul(2).max(1);
    usize::try_from(many.clamp(*SOCKETS.start(), *SOCKETS.end())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_buffers_make_fewer_sockets() {
        // The kernel's default, and two that administrators set for fast networks.
        for (buffer, expected) in
            [(212_992, 16), (4 << 20, 8), (64 << 20, 4), (u64::MAX, 4), (0, 16)]
        {
            assert_eq!(at_once(buffer), expected, "of {buffer} bytes");
        }
    }

    #[test]
    fn sockets_count_until_the_last_copy_is_closed() {
        let (maker, _sender) = NetlinkMaker::new().expect("made");
        let copies: Vec<_> = (0..maker.at_once)
            .map(|_| maker.make(3).expect("a socket").0.try_clone().expect("a copy"))
            .collect();
        assert_eq!(maker.make(3).err(), Some(Errno::NOBUFS));
        drop(copies);
        assert_eq!(maker.open_now(), 0);
        let (_socket, ends) = maker.make(3 | TYPE_FLAGS).expect("a socket");
        assert!(ends);
        assert_eq!(maker.make(1).err(), Some(Errno::SOCKTNOSUPPORT));
    }
}
