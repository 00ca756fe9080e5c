//! Frames of a client that are longer than a message may be, found by their heads while the bytes
//! pass.
//!
//! The library behind [`actix_ws`] keeps a frame until its last byte has arrived, and only then
//! compares its length with the bound. So one frame of a client could take any memory. Here its bytes
//! are dropped as they arrive, and the reader learns of it at once by a pong without content, which
//! takes the frame's place (RFC 6455, section 5.5.3, allows one at any time).

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::dev;
use actix_web::error::PayloadError;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};

/// The longest head of a frame, in bytes: two, eight of length, four of mask (section 5.2).
const HEAD_LEN_MAX: usize = 14;

/// A masked pong without content.
const PONG: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];

/// What a client did that the library does not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slip {
    /// Nothing.
    #[default]
    None,
    /// It sent a message that is too long, which was dropped.
    Dropped,
    /// Of the bytes that follow, no message's beginning is known, or a part of their message is missing.
    Lost,
}

/// Where the guard leaves what it found.
pub type Slips = Rc<Cell<Slip>>;

/// Guards the body of a request that becomes a WebSocket.
pub fn guarded(body: dev::Payload, len_max: u64, slips: Slips) -> dev::Payload {
    let guarded =
        GuardedBody { body, frames: FrameGuard { len_max, state: FrameState::head(), slips } };
    dev::Payload::Stream { payload: guarded.boxed_local() }
}

struct GuardedBody {
    body: dev::Payload,
    frames: FrameGuard,
}

impl Stream for GuardedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.body.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    let passed = self.frames.pass(bytes);
                    if !passed.is_empty() {
                        return Poll::Ready(Some(Ok(passed)));
                    }
                }
                other => return other,
            }
        }
    }
}

enum FrameState {
    /// In the head of a frame; so many bytes of it are here.
    Head([u8; HEAD_LEN_MAX], usize),
    /// In a frame that passes, with so many bytes left.
    Passing(u64),
    /// In a frame that is dropped.
    Dropping(u64),
    /// Behind what cannot be read.
    Lost,
}

impl FrameState {
    const fn head() -> Self {
        Self::Head([0; HEAD_LEN_MAX], 0)
    }

    /// The state in a frame's content.
    const fn within(left: u64, is_dropped: bool) -> Self {
        match (left, is_dropped) {
            (0, _) => Self::head(),
            (left, true) => Self::Dropping(left),
            (left, false) => Self::Passing(left),
        }
    }
}

struct FrameGuard {
    len_max: u64,
    state: FrameState,
    slips: Slips,
}

impl FrameGuard {
    /// The bytes that pass.
    fn pass(&mut self, mut bytes: Bytes) -> Bytes {
        // Usually a piece lies within a frame, or is nothing but whole ones that are short.
        let mut passed = BytesMut::with_capacity(bytes.len());
        while !bytes.is_empty() {
            match &mut self.state {
                FrameState::Passing(left) | FrameState::Dropping(left) => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    let (left, piece) = (*left - len as u64, bytes.split_to(len));
                    let is_dropped = matches!(self.state, FrameState::Dropping(_));
                    if is_dropped {
                        // A client that sends is alive.
                        passed.extend_from_slice(&PONG);
                    } else {
                        passed.extend_from_slice(&piece);
                    }
                    self.state = FrameState::within(left, is_dropped);
                }
                FrameState::Head(head, len) => {
                    head[*len] = bytes.split_to(1)[0];
                    *len += 1;
                    if let Some(content) = content_len(&head[..*len]) {
                        let head = Bytes::copy_from_slice(&head[..*len]);
                        self.begin(&head, content, &mut passed);
                    }
                }
                FrameState::Lost => bytes.clear(),
            }
        }
        passed.freeze()
    }

    /// Decides about a frame by its head.
    fn begin(&mut self, head: &[u8], content: u64, passed: &mut BytesMut) {
        let has_reserved_bits = head[0] & 0x70 != 0;
        // A text or binary message in one frame.
        let is_whole = matches!(head[0], 0x81 | 0x82);
        self.state = match content > self.len_max {
            false if !has_reserved_bits => {
                passed.extend_from_slice(head);
                FrameState::within(content, false)
            }
            true if is_whole => {
                passed.extend_from_slice(&PONG);
                self.slips.set(Slip::Dropped);
                FrameState::within(content, true)
            }
            _ => {
                passed.extend_from_slice(&PONG);
                self.slips.set(Slip::Lost);
                FrameState::Lost
            }
        };
    }
}

/// The length of a frame's content, once its head is whole.
fn content_len(head: &[u8]) -> Option<u64> {
    let (second, more) = (*head.get(1)?, head.get(2..)?);
    let (length_len, short) = match second & 0x7f {
        126 => (2, 0),
        127 => (8, 0),
        short => (0, u64::from(short)),
    };
    let mask_len = if second & 0x80 == 0 { 0 } else { 4 };
    if more.len() < length_len + mask_len {
        return None;
    }
    Some(more[..length_len].iter().fold(short, |len, byte| len << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame of a client.
    fn frame(first: u8, content: &[u8]) -> Vec<u8> {
        let len = content.len();
        let length = match len {
            0..126 => vec![0x80 | u8::try_from(len).expect("short")],
            126..65_536 => [&[0xfe][..], &u16::try_from(len).expect("fits").to_be_bytes()].concat(),
            _ => [&[0xff][..], &(len as u64).to_be_bytes()].concat(),
        };
        [&[first][..], &length, &[0; 4], content].concat()
    }

    fn passed(bytes: &[u8], piece_len: usize) -> (Vec<u8>, Slip) {
        let slips = Slips::default();
        let mut guard =
            FrameGuard { len_max: 300, state: FrameState::head(), slips: Rc::clone(&slips) };
        let pieces = bytes.chunks(piece_len).map(Bytes::copy_from_slice);
        let passed = pieces.flat_map(|piece| guard.pass(piece)).collect();
        (passed, slips.get())
    }

    /// Removes every pong without content.
    fn without_pongs(mut bytes: &[u8]) -> Vec<u8> {
        let mut left = Vec::new();
        while let Some((first, rest)) = bytes.split_first() {
            match bytes.strip_prefix(&PONG) {
                Some(rest) => bytes = rest,
                None => {
                    left.push(*first);
                    bytes = rest;
                }
            }
        }
        left
    }

    #[test]
    fn frames_that_are_short_enough_pass_as_they_are() {
        let all = [
            frame(0x82, b"x"),
            frame(0x81, &[b'y'; 300]),
            frame(0x89, b""),
            frame(0x02, &[1; 126]),
            frame(0x80, &[2; 125]),
        ]
        .concat();
        for piece_len in [1, 2, 7, 130, 10_000] {
            assert_eq!(passed(&all, piece_len), (all.clone(), Slip::None), "{piece_len}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_dropped_and_what_follows_passes() {
        let (before, after) = (frame(0x82, b"before"), frame(0x82, b"after"));
        for too_long in [frame(0x82, &[1; 301]), frame(0x81, &[2; 70_000])] {
            let all = [&before[..], &too_long, &after].concat();
            for piece_len in [1, 3, 200, 100_000] {
                let (passed, slip) = passed(&all, piece_len);
                assert_eq!(slip, Slip::Dropped);
                assert!(passed.windows(PONG.len()).any(|window| window == PONG), "it is passed on");
                assert_eq!(without_pongs(&passed), [&before[..], &after].concat(), "{piece_len}");
            }
        }
    }

    #[test]
    fn what_breaks_a_message_or_the_order_of_bytes_is_the_end() {
        let endless = [&[0x01, 0xff][..], &[0x7f; 8], &[0; 4], &[5; 5_000]].concat();
        let odd = frame(0xc2, b"compressed");
        for bytes in [endless, frame(0x80, &[1; 301]), frame(0x8a, &[1; 301]), odd] {
            let (passed, slip) = passed(&[&bytes[..], &frame(0x82, b"x")].concat(), 100);
            assert_eq!((passed, slip), (PONG.to_vec(), Slip::Lost));
        }
        // One message that never ends takes no memory.
        let endless = [&[0x82, 0xff][..], &[0x7f; 8], &[0; 4], &[5; 5_000]].concat();
        let (passed, slip) = passed(&endless, 1_000);
        assert!(passed.len() < 10 * PONG.len() && slip == Slip::Dropped, "{}", passed.len());
    }
}
