//! Writes uploaded content into a file of the workspace, on the server's side.
//!
//! The kernel charges these writes to the server, not to the sandbox, so the watch over the host's
//! disk (`host_disk`) does not see unwritten ones. Therefore the server syncs as it goes: at most
//! [`UNSYNCED_LEN_MAX`] of each upload is not on disk, and the rest is visible as growth of the
//! image. (An archive is unpacked by the sandbox itself.)

use std::io;

use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::broken;
use crate::sandbox::{ChunkReceiver, WorkError};

/// Most bytes of an upload that are not on disk yet: small beside the reserve of the host's disk,
/// and large enough that syncs are rare.
const UNSYNCED_LEN_MAX: u64 = 16 << 20;

/// The destination of an upload.
pub trait UploadSink {
    /// Writes all of it, at least to memory.
    async fn write(&mut self, chunk: &[u8]) -> io::Result<()>;

    /// Returns once everything written is on disk.
    async fn sync(&mut self) -> io::Result<()>;
}

impl UploadSink for File {
    async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.write_all(chunk).await
    }

    async fn sync(&mut self) -> io::Result<()> {
        self.sync_data().await
    }
}

/// Writes and syncs the content, up to the maximum length of a file.
///
/// # Errors
/// [`WorkError::Refused`] if it is too long or there is no room; other errors if it is
/// interrupted.
pub async fn fill(
    mut target: impl UploadSink,
    mut content: ChunkReceiver,
    mb_max: u64,
) -> Result<(), WorkError> {
    let mut room = mb_max.saturating_mul(1 << 20);
    let mut unsynced = 0;
    while let Some(chunk) = content.recv().await {
        let chunk = chunk.map_err(|why| broken(format!("the content was interrupted: {why}")))?;
        let len = chunk.len() as u64;
        room = room.checked_sub(len).ok_or_else(|| too_long(mb_max))?;
        if unsynced + len > UNSYNCED_LEN_MAX {
            target.sync().await.map_err(no_room)?;
            unsynced = 0;
        }
        target.write(&chunk).await.map_err(no_room)?;
        unsynced += len;
    }
    target.sync().await.map_err(no_room)
}

fn too_long(mb_max: u64) -> WorkError {
    WorkError::Refused(format!("a file may not be longer than {mb_max} MB, the disk limit"))
}

fn no_room(error: io::Error) -> WorkError {
    WorkError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::sync::mpsc;

    use super::*;

    /// Counts the written bytes, and the unsynced ones: the maximum and now.
    #[derive(Default)]
    struct Noted {
        written: u64,
        unsynced: u64,
        unsynced_max: u64,
    }

    impl UploadSink for &mut Noted {
        async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
            self.written += chunk.len() as u64;
            self.unsynced += chunk.len() as u64;
            self.unsynced_max = self.unsynced_max.max(self.unsynced);
            Ok(())
        }

        async fn sync(&mut self) -> io::Result<()> {
            self.unsynced = 0;
            Ok(())
        }
    }

    #[tokio::test]
    async fn few_bytes_of_an_upload_are_unsynced_and_none_at_its_end() {
        const CHUNK: Bytes = Bytes::from_static(&[0; 300_000]);
        let (sender, content) = mpsc::channel(1);
        let send = async move {
            for _ in 0..200 {
                sender.send(Ok(CHUNK)).await.expect("taken");
            }
        };
        let mut noted = Noted::default();
        let (filled, ()) = tokio::join!(fill(&mut noted, content, 100), send);
        assert_eq!(filled, Ok(()));
        assert_eq!((noted.written, noted.unsynced), (60_000_000, 0));
        let chunk_len = CHUNK.len() as u64;
        assert!((UNSYNCED_LEN_MAX - chunk_len..=UNSYNCED_LEN_MAX).contains(&noted.unsynced_max));
    }
}
