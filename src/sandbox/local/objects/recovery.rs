//! What an earlier server left running is waited for before anything is begun.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::super::disk::Disk;

/// How long opening waits for an earlier server's sandboxes to end. They take milliseconds; one
/// that hangs in the kernel must not keep the server from starting, and is waited for again by
/// whoever wants to start or delete it.
const RECOVERY_WAIT: Duration = Duration::from_secs(5);

/// Waits until nothing of an earlier server's sandboxes runs any more.
pub fn wait_for_orphans(disk: &Arc<Disk>) -> io::Result<()> {
    let objects = disk.all()?;
    let (tell, done) = std::sync::mpsc::channel();
    let disk = Arc::clone(disk);
    std::thread::Builder::new().name("local-recovery".into()).spawn(move || {
        for stored in objects.iter().filter(|stored| stored.owned.is_some()) {
            // An object that can't be locked says so when it is worked on.
            let _ = disk.lock(stored);
        }
        // Opening may have gone on.
        let _ = tell.send(());
    })?;
    if done.recv_timeout(RECOVERY_WAIT).is_err() {
        tracing::warn!("processes of an earlier server's local sandboxes have not ended yet");
    }
    Ok(())
}
