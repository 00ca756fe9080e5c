//! What the server, the launcher and PID 1 say to each other, as bytes.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket, with the descriptors it speaks of
//! beside it. The bytes are `postcard`'s. Requests come from the server and are trusted. Answers come
//! from inside the sandbox and are not: decoding them never allocates more than the packet holds, and
//! accepts nothing but the bytes that encoding the same answer makes.

mod answer;
mod file_work;
mod request;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use answer::Answer;
pub use file_work::FileWork;
pub use request::{GivenFile, Request, Setup};

/// Longest packet, in bytes. Well below the smallest default socket buffer (208 KiB), so that a
/// packet never has to wait for one that is larger than the buffer.
pub const PACKET_LEN_MAX: usize = 64 * 1024;

/// Longest request at all, in bytes: what Linux takes as arguments and environment of one program
/// (a quarter of an 8 MiB stack), and room for the rest.
pub const REQUEST_LEN_MAX: usize = 4 * 1024 * 1024;

/// A message as bytes.
fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, Vec::with_capacity(64)).expect("every length is known")
}

/// Reads a message; `None` when the bytes are not exactly one.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(message)
}

#[cfg(test)]
mod tests;
