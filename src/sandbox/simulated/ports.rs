//! Connections to the servers that simulated processes play.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

use super::SimulatedProvider;
use super::process::SimProcess;
use super::program::{Program, Serves};
use crate::sandbox::{PortAccess, Target, WorkError};

/// Bytes on their way in either direction.
const BUFFER_LEN: usize = 64 * 1024;

/// The longest head of an HTTP request, in bytes.
const HEAD_LEN_MAX: usize = 16 * 1024;

/// Connects to the process of an object that serves a port.
pub(super) fn connect(
    provider: &SimulatedProvider,
    target: &Target,
    port: u16,
) -> Result<PortAccess, WorkError> {
    provider.running(target)?;
    let (process, serves) = provider
        .processes
        .running(&target.external_id)?
        .into_iter()
        .find_map(|process| match process.program() {
            Program::Server(of, serves) if of == port => Some((process, serves)),
            Program::Server(..)
            | Program::Echo
            | Program::Cat
            | Program::Tee
            | Program::Sleep(_)
            | Program::Zeros(_)
            | Program::Shell => None,
        })
        .ok_or(WorkError::NotListening)?;
    let (near, far) = duplex(BUFFER_LEN);
    tokio::spawn(async move {
        let served = async {
            match serves {
                Serves::Echo => echo(far).await,
                Serves::Http => answer(far).await,
            }
        };
        tokio::select! {
            biased;
            () = ended(&process) => {}
            // An error means that the client has gone.
            _ = served => {}
        }
    });
    Ok(PortAccess::Stream(Box::new(near)))
}

/// Returns when a process has ended.
async fn ended(process: &Arc<SimProcess>) {
    let mut changes = process.changes();
    while matches!(process.exit(), Ok(None)) {
        // It is held here, so it goes on reporting changes.
        let _ = changes.changed().await;
    }
}

/// Writes back what it reads.
async fn echo(stream: DuplexStream) -> std::io::Result<()> {
    let (mut from, mut to) = split(stream);
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

/// Answers one HTTP request with its first line.
async fn answer(mut stream: DuplexStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_LEN_MAX {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let begin = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        line.len() + 1
    );
    stream.write_all(&[begin.as_bytes(), line, b"\n"].concat()).await?;
    stream.shutdown().await
}
