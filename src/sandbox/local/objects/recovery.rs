//! Waits for the sandboxes of an earlier server to end before new work starts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::super::disk::Disk;

/// How long opening waits for an earlier server's sandboxes, which need milliseconds. One that
/// hangs in the kernel must not block the server's start; the next start or delete of it waits
/// again.
const RECOVERY_WAIT: Duration = Duration::from_secs(5);

/// Waits until no sandbox of an earlier server runs.
pub fn wait_for_orphans(disk: &Arc<Disk>) -> io::Result<()> {
    let objects = disk.all()?;
    let (sender, done) = std::sync::mpsc::channel();
    let disk = Arc::clone(disk);
    std::thread::Builder::new().name("local-recovery".into()).spawn(move || {
        for stored in objects.iter().filter(|stored| stored.owned.is_some()) {
            // A lock that fails is reported by the next call for that object.
            let _ = disk.lock(stored);
        }
        // Opening may have stopped waiting.
        let _ = sender.send(());
    })?;
    if done.recv_timeout(RECOVERY_WAIT).is_err() {
        tracing::warn!("local sandboxes of an earlier server are still ending");
    }
    Ok(())
}
