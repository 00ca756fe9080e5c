//! What the server, the launcher and PID 1 say to each other, as bytes.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket, with the descriptors it speaks of
//! beside it. Requests come from the server and are trusted. Answers come from inside the sandbox
//! and are not: decoding them never allocates more than the packet holds, takes nothing but
//! exactly what was announced, and has no default for what it does not know.

mod answer;
mod codec;
mod file_work;
mod reach;
mod request;

pub use answer::{Answer, WorkFailure};
pub use file_work::FileWork;
pub use reach::{PROXY_PORT, Reach};
pub use request::{Request, Setup};

/// Longest packet, in bytes. Well below the smallest default socket buffer (208 KiB), so that a
/// packet never has to wait for one that is larger than the buffer.
pub const PACKET_LEN_MAX: usize = 64 * 1024;

/// Longest request at all, in bytes: what Linux takes as arguments and environment of one program
/// (a quarter of an 8 MiB stack), and room for the rest.
pub const REQUEST_LEN_MAX: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
