//! What a command is started with, checked, and the pipe that one of its outputs comes from.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use rustix::io::{Errno, ioctl_fionread};
use tokio::net::unix::pipe::Receiver;

use super::confined::broken;
use super::{ExecEvent, WorkError};

/// Longest piece of output, in bytes.
pub const PIECE_LEN_MAX: usize = 32 * 1024;

/// Refuses text that would change its meaning in a list of C strings.
///
/// # Errors
/// [`WorkError::CannotStart`].
pub fn check(
    command: &[String],
    cwd: Option<&str>,
    env: &[(String, String)],
) -> Result<(), WorkError> {
    let refuse = |message: &str| Err(WorkError::CannotStart(message.into()));
    if command.first().is_none_or(String::is_empty) {
        return refuse("there is no command");
    }
    if env.iter().any(|(key, _)| key.is_empty() || key.contains('=')) {
        return refuse("an environment variable's name is empty or contains '='");
    }
    let texts = command.iter().chain(env.iter().flat_map(|(k, v)| [k, v])).map(String::as_str);
    if texts.chain(cwd).any(|text| text.contains('\0')) {
        return refuse("an argument contains NUL");
    }
    Ok(())
}

/// One output stream of a command.
pub struct OutputPipe {
    /// `None` once it has ended.
    pipe: Option<Receiver>,
    event: fn(Bytes) -> ExecEvent,
}

impl OutputPipe {
    /// The stream that comes from this pipe; each piece becomes such an event.
    ///
    /// # Errors
    /// [`WorkError::Broken`] if tokio cannot watch the pipe.
    pub fn new(pipe: OwnedFd, event: fn(Bytes) -> ExecEvent) -> Result<Self, WorkError> {
        Ok(Self { pipe: Some(Receiver::from_owned_fd(pipe).map_err(broken)?), event })
    }

    /// The next piece. Never returns after the stream has ended.
    pub async fn next(&mut self) -> ExecEvent {
        while let Some(pipe) = &self.pipe {
            if pipe.readable().await.is_err() {
                self.pipe = None;
                break;
            }
            let mut buffer = vec![0; PIECE_LEN_MAX];
            match pipe.try_read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(len) => {
                    buffer.truncate(len);
                    return (self.event)(buffer.into());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.pipe = None,
            }
        }
        std::future::pending().await
    }

    /// The bytes that are in the pipe now, up to `len_max`; `None` if it is empty. Asks the kernel
    /// itself: tokio may not know yet about the newest bytes.
    pub fn read(&self, len_max: usize) -> Option<ExecEvent> {
        let mut buffer = vec![0; len_max.min(PIECE_LEN_MAX)];
        let len = loop {
            match rustix::io::read(self.pipe.as_ref()?, &mut buffer) {
                Err(Errno::INTR) => {}
                got => break got.unwrap_or(0),
            }
        };
        buffer.truncate(len);
        (len > 0).then(|| (self.event)(buffer.into()))
    }

    /// How many bytes are in the pipe now.
    pub fn waiting(&self) -> usize {
        let len = self.pipe.as_ref().and_then(|pipe| ioctl_fionread(pipe.as_fd()).ok());
        len.and_then(|len| usize::try_from(len).ok()).unwrap_or(0)
    }
}
