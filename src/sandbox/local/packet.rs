//! Packets and descriptors over a `SOCK_SEQPACKET` socket, for both ends. A call blocks or answers
//! `WOULDBLOCK`, as the socket is set.
//!
//! A packet arrives whole or not at all, so several processes can write to one socket. If a packet has
//! more descriptors than the receiver has room for, the kernel closes them and the packet is refused.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::frame::{PACKET_LEN_MAX, REQUEST_LEN_MAX};

/// Most descriptors beside one packet: three for a command and one for a request in a memory file;
/// an object's directory, its lock, both doors of the workers' control group and those of two others.
pub const DESCRIPTORS_MAX: usize = 6;

/// The single byte of a packet whose request is in the last descriptor, because it is too long for a
/// packet. No request begins with this byte.
const IN_MEMORY_FILE: u8 = 0xff;

/// Sends one packet.
///
/// # Errors
/// What `sendmsg` answers; `MSGSIZE` if `bytes` is longer than a packet.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    if bytes.len() > PACKET_LEN_MAX {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Receives one packet into `buffer` and returns its length; 0 means that the other end is closed.
///
/// # Errors
/// What `recvmsg` answers; `BADMSG` if the packet or its descriptors did not fit.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    descriptors.clear();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut into = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    // The space is rounded up, and some more may have fitted.
    let is_too_many = descriptors.len() > DESCRIPTORS_MAX;
    if is_too_many || got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        descriptors.clear();
        return Err(Errno::BADMSG);
    }
    Ok(got.bytes)
}

/// A request as it is sent: as a packet, or in a memory file if it is too long for one.
pub struct Outgoing {
    bytes: Vec<u8>,
    memory: Option<OwnedFd>,
}

impl Outgoing {
    /// Prepares an encoded request.
    ///
    /// # Errors
    /// `2BIG` if it is longer than [`REQUEST_LEN_MAX`]; what the memory file answers.
    pub fn new(request: Vec<u8>) -> Result<Self, Errno> {
        if request.len() <= PACKET_LEN_MAX {
            return Ok(Self { bytes: request, memory: None });
        }
        if request.len() > REQUEST_LEN_MAX {
            return Err(Errno::TOOBIG);
        }
        let memory = memfd_create("request", MemfdFlags::CLOEXEC)?;
        let mut rest = &request[..];
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&memory, rest)?..];
        }
        Ok(Self { bytes: vec![IN_MEMORY_FILE], memory: Some(memory) })
    }

    /// Sends it with `descriptors`.
    ///
    /// # Errors
    /// As [`send`].
    pub fn send(&self, socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut all = descriptors.to_vec();
        all.extend(self.memory.as_ref().map(|memory| memory.as_fd()));
        send(socket, &self.bytes, &all)
    }
}

/// Receives one request, from the packet or its memory file; `None` means that the other end is closed.
///
/// # Errors
/// As [`receive`], and what reading the memory file answers.
pub fn receive_request(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<Option<Vec<u8>>, Errno> {
    let len = receive(socket, buffer, descriptors)?;
    if len == 0 {
        return Ok(None);
    }
    if buffer[..len] != [IN_MEMORY_FILE] {
        return Ok(Some(buffer[..len].to_vec()));
    }
    let memory = descriptors.pop().ok_or(Errno::BADMSG)?;
    let mut request = Vec::new();
    loop {
        let got = rustix::io::pread(&memory, &mut *buffer, request.len() as u64)?;
        if got == 0 || request.len() + got > REQUEST_LEN_MAX {
            return Ok(Some(request));
        }
        request.extend_from_slice(&buffer[..got]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket pair")
    }

    #[test]
    fn long_requests_arrive_whole() {
        let (ours, theirs) = pair();
        let request = vec![7; PACKET_LEN_MAX * 3 + 1];
        Outgoing::new(request.clone()).expect("fits").send(&ours, &[]).expect("sent");
        let (mut buffer, mut descriptors) = (vec![0; PACKET_LEN_MAX], Vec::new());
        let got = receive_request(&theirs, &mut buffer, &mut descriptors).expect("received");
        assert!(got == Some(request), "must be the same bytes");
        assert!(descriptors.is_empty(), "the memory file is not handed on");
        assert_eq!(Outgoing::new(vec![0; REQUEST_LEN_MAX + 1]).err(), Some(Errno::TOOBIG));
    }

    #[test]
    fn too_many_descriptors_are_refused_and_closed() {
        let (ours, theirs) = pair();
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let many = [writer.as_fd(); 8];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&ours, &[IoSlice::new(b"x")], &mut beside, SendFlags::empty()).expect("sent");
        let mut descriptors = Vec::new();
        let got = receive(&theirs, &mut [0; 16], &mut descriptors);
        assert_eq!(got, Err(Errno::BADMSG));
        assert!(descriptors.is_empty());
        drop(writer);
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "no writer may be left");
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(256))]

        #[test]
        fn no_bytes_and_descriptors_are_taken_in_part_or_kept(
            bytes in prop::collection::vec(any::<u8>(), 1..300),
            count in 0..9_usize,
            room in 1..300_usize,
        ) {
            let (ours, theirs) = pair();
            let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let many = vec![writer.as_fd(); count];
            prop_assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
            sendmsg(&ours, &[IoSlice::new(&bytes)], &mut beside, SendFlags::empty()).expect("sent");
            let (mut buffer, mut descriptors) = (vec![0; room], Vec::new());
            match receive(&theirs, &mut buffer, &mut descriptors) {
                Ok(len) => {
                    prop_assert_eq!(&buffer[..len], &bytes[..]);
                    prop_assert_eq!(descriptors.len(), count);
                }
                Err(errno) => {
                    prop_assert_eq!(errno, Errno::BADMSG);
                    prop_assert!(count > DESCRIPTORS_MAX || bytes.len() > room);
                    prop_assert!(descriptors.is_empty());
                }
            }
            drop((descriptors, writer, ours, theirs));
            prop_assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "one is kept");
        }
    }
}
