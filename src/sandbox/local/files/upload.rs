//! What comes from outside into a file of the workspace, which the server itself writes.
//!
//! So in the kernel's books it is the server's and not the sandbox's for as long as it is in memory
//! only, and the watch over the host's disk does not see it (`host_disk`). Therefore it is brought to
//! the disk as it comes: of each upload at most [`UNSYNCED_LEN_MAX`] is not, and the rest is seen as the
//! image's growth. (What is unpacked from an archive the sandbox writes by itself.)

use std::io;

use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::sandbox::local::link::broken;
use crate::sandbox::{ChunkReceiver, WorkError};

/// Most bytes of an upload that may not be on the disk yet. Small beside the room that is kept free
/// on the host's disk, and enough that waiting for the disk is seldom.
const UNSYNCED_LEN_MAX: u64 = 16 << 20;

/// Where an upload goes.
pub(in super::super) trait UploadSink {
    /// Writes all of it, into memory at least.
    async fn write(&mut self, chunk: &[u8]) -> io::Result<()>;

    /// Returns once all that was written is on the disk.
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

/// Writes all that comes, up to the longest that a file may be, and to the disk.
///
/// # Errors
/// [`WorkError::Refused`] where it is too long or there is no room for it; what else there is where it
/// breaks off.
pub(in super::super) async fn fill(
    mut target: impl UploadSink,
    mut content: ChunkReceiver,
    mb_max: u64,
) -> Result<(), WorkError> {
    let mut room = mb_max.saturating_mul(1 << 20);
    let mut unsynced = 0;
    while let Some(chunk) = content.recv().await {
        let chunk = chunk.map_err(|why| broken(format!("the content broke off: {why}")))?;
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

    /// What was written, and how much of it was not on the disk at most and is not now.
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
    async fn little_of_an_upload_is_in_memory_only_and_nothing_at_its_end() {
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
