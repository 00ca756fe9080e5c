//! Watches the free room of the host's disk that holds all workspaces, and acts before it is full.
//!
//! Images are sparse, so the sum of all disk limits can exceed the disk. A full host disk is worse
//! than a full workspace: the kernel has accepted writes that it can't carry out, unsynced data is
//! lost, and the file systems in the images turn read-only. So there are two marks above *full*:
//! - Below the *reserve* no sandbox is made or started ([`HostDisk::shortage`]). Running sandboxes
//!   and all other actions, deleting above all, go on.
//! - Below half the reserve the sandbox that wrote most is ended, then the next, while the room
//!   shrinks. Several are ended at once if twice the recent growth of the others does not fit; and
//!   above half the reserve if all could fill the rest within three looks. Below an eighth all are
//!   ended, so that they can still be unmounted in order ([`marks`]). Each gets a limit event with
//!   the room that was left.
//!
//! The watch returns to normal by itself when there is room again. It never deletes anything.
//!
//! # What is counted
//! The bytes free for users other than root, minus what sandboxes have written that is not on disk
//! yet, including ended ones. A control group counts its sandbox's unwritten bytes; without
//! groups, all unwritten bytes of the machine count. The server's own writes for a sandbox are in
//! no sandbox's count, so the server syncs them as it goes (`files/upload.rs`). Writes to a
//! directory reduce the free bytes at once.
//!
//! The growth of a sandbox is the sum of both, over [`WINDOW`] and between two looks. It is
//! unknown for workspaces that are directories: they are ended together at the last mark.
//!
//! # Cost
//! One system call a second while nothing runs. While something runs, that and one small file of
//! the kernel four times a second; when the room is [`NEAR`] the marks, twenty times, and once
//! more per running sandbox. If all sandboxes together write more than a quarter of the reserve
//! between two looks (with the default, 5 GB/s on a disk of 4 to 20 GB and 20 GB/s on a large
//! one), the watch may be too late.

mod marks;
mod written;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use self::marks::{Grown, Marks};
use super::cgroup::Group;
use super::link::Link;
use crate::sandbox::{
    Capacity, DiskRoom, EventSender, Labels, LimitEffect, LimitEvent, ProviderEvent,
};
use crate::types::Reserve;

/// The pause between two looks while nothing runs, while something runs, and while the room is
/// [`NEAR`] the marks.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY_NEAR: Duration = Duration::from_millis(50);

/// This much above twice the reserve, in bytes, is near: more than memory buffers between two
/// looks.
const NEAR: u64 = 1 << 30;

/// The window of growth: longer than the kernel delays writes.
const WINDOW: Duration = Duration::from_secs(10);

/// A running sandbox under watch.
pub struct WatchedSandbox {
    /// Its link.
    pub link: Weak<Link>,
    /// Its labels.
    pub labels: Labels,
    /// Its image; `None` if its workspace is a directory.
    pub image: Option<PathBuf>,
    /// Its control group.
    pub group: Weak<Group>,
}

/// The watch over the host's disk; it ends when this is dropped.
pub struct HostDisk {
    shared: Arc<DiskShared>,
    /// Wakes the watching thread; dropping it ends the thread.
    wakes: mpsc::Sender<()>,
}

struct DiskShared {
    dir: PathBuf,
    reserve: Reserve,
    /// The free bytes.
    free: AtomicU64,
    /// The free bytes minus those not on disk yet, at the last look; the maximum when that is far
    /// from the marks.
    room: AtomicU64,
    kept_free: AtomicU64,
    running: Mutex<HashMap<u64, WatchedSandbox>>,
    next_key: AtomicU64,
}

impl WatchedSandbox {
    /// Whether a process of it may still run or write.
    fn is_there(&self) -> bool {
        self.link.upgrade().is_some_and(|link| !link.is_gone())
    }
}

impl HostDisk {
    /// Starts to watch the disk of `dir`. It publishes an event for each sandbox that it ends.
    ///
    /// # Errors
    /// Fails if the room can't be read, or no thread can start.
    pub fn open(dir: &Path, reserve: Reserve, events: EventSender) -> io::Result<Self> {
        let shared = Arc::new(DiskShared {
            dir: dir.to_owned(),
            reserve,
            free: AtomicU64::new(0),
            room: AtomicU64::new(u64::MAX),
            kept_free: AtomicU64::new(0),
            running: Mutex::default(),
            next_key: AtomicU64::new(0),
        });
        shared.look()?;
        let (wakes, woken) = mpsc::channel();
        let mut watch = DiskWatch::new(Arc::clone(&shared), events);
        thread::Builder::new().name("local-disk".into()).spawn(move || {
            loop {
                match woken.recv_timeout(watch.look()) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { shared, wakes })
    }

    /// The room at the last look, minus what is not on disk yet.
    pub fn capacity(&self) -> Capacity {
        let disk = self.shared.last();
        Capacity { disk: Some(disk), shortage: shortage(disk, &self.shared.dir) }
    }

    /// Looks now; returns why no sandbox may start, `None` if there is room.
    ///
    /// # Errors
    /// The file system's error.
    pub fn shortage(&self) -> io::Result<Option<String>> {
        self.shared.look()?;
        Ok(shortage(self.shared.last(), &self.shared.dir))
    }

    /// Watches a sandbox while it runs.
    pub fn watch(&self, watched: WatchedSandbox) {
        let key = self.shared.next_key.fetch_add(1, Ordering::Relaxed);
        self.shared.running().insert(key, watched);
        // While nothing ran, looks were rare. The thread is gone only when the watch ends.
        let _ = self.wakes.send(());
    }
}

/// Why no sandbox may start on a disk; `None` if there is room.
fn shortage(DiskRoom { free, kept_free }: DiskRoom, dir: &Path) -> Option<String> {
    (free < kept_free).then(|| {
        format!(
            "the host's disk is nearly full: {} MB are free, and {} MB are needed to make or start \
             a sandbox (providers.local.disk_reserve). Free room on the disk of {}, or delete \
             sandboxes",
            free >> 20,
            kept_free >> 20,
            dir.display()
        )
    })
}

impl DiskShared {
    /// The free bytes now, without unwritten ones.
    fn look(&self) -> io::Result<DiskRoom> {
        let stat = statvfs(&self.dir)?;
        let kept_free = self.reserve.of(stat.f_blocks.saturating_mul(stat.f_frsize));
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        self.free.store(free, Ordering::Relaxed);
        self.kept_free.store(kept_free, Ordering::Relaxed);
        Ok(DiskRoom { free, kept_free })
    }

    /// The free bytes at the last look, minus unwritten ones.
    fn last(&self) -> DiskRoom {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        DiskRoom { free: of(&self.free).min(of(&self.room)), kept_free: of(&self.kept_free) }
    }

    /// Removes ended sandboxes; returns whether any is left.
    fn is_any_there(&self) -> bool {
        let mut running = self.running();
        running.retain(|_, watched| watched.is_there());
        !running.is_empty()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u64, WatchedSandbox>> {
        // The map is whole between statements.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the room, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RoomLevel {
    Roomy,
    Short,
    Low,
}

impl RoomLevel {
    const fn of(disk: DiskRoom) -> Self {
        if disk.free >= disk.kept_free {
            Self::Roomy
        } else if disk.free >= disk.ended_below() {
            Self::Short
        } else {
            Self::Low
        }
    }
}

/// The state of the watching thread.
struct DiskWatch {
    shared: Arc<DiskShared>,
    events: EventSender,
    marks: Marks,
    sizes: HashMap<u64, VecDeque<(Instant, u64)>>,
    /// Ended sandboxes that are not gone yet.
    ended: HashSet<u64>,
    level: RoomLevel,
    is_blind: bool,
}

impl DiskWatch {
    fn new(shared: Arc<DiskShared>, events: EventSender) -> Self {
        Self {
            shared,
            events,
            marks: Marks::default(),
            sizes: HashMap::new(),
            ended: HashSet::new(),
            level: RoomLevel::Roomy,
            is_blind: false,
        }
    }

    /// Looks, acts, and returns when to look again.
    fn look(&mut self) -> Duration {
        let disk = match self.shared.look() {
            Ok(disk) => disk,
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::warn!(%error, "failed to read the free room of the host's disk; retrying");
                }
                return LOOK_EVERY_IDLE;
            }
        };
        self.is_blind = false;
        if !self.shared.is_any_there() {
            self.note(disk, u64::MAX);
            return LOOK_EVERY_IDLE;
        }
        // The machine's count covers the sandboxes' and needs one read.
        let unwritten = written::unwritten();
        let far = disk.kept_free.saturating_mul(2).saturating_add(NEAR);
        if disk.free.saturating_sub(unwritten) >= far {
            self.sizes.clear();
            // Resets the marks.
            let _none = self.marks.pass::<u64>(disk, disk.free, &[]);
            self.note(disk, u64::MAX);
            return LOOK_EVERY;
        }
        let (running, of_sandboxes) = self.measure(Instant::now());
        let room = disk.free.saturating_sub(of_sandboxes.unwrap_or(unwritten));
        self.note(disk, room);
        for key in self.marks.pass(disk, room, &running) {
            self.end(key, room);
        }
        LOOK_EVERY_NEAR
    }

    /// Publishes and logs the room.
    fn note(&mut self, disk: DiskRoom, room: u64) {
        self.shared.room.store(room, Ordering::Relaxed);
        self.log(DiskRoom { free: disk.free.min(room), ..disk });
    }

    /// The growth of each running sandbox, and the bytes of all that are not on disk yet; `None`
    /// if that is unknown for any.
    fn measure(&mut self, now: Instant) -> (Vec<marks::Growth<u64>>, Option<u64>) {
        let running = self.shared.running();
        self.sizes.retain(|key, _| running.contains_key(key));
        self.ended.retain(|key| running.contains_key(key));
        let mut unwritten_sum = Some(0_u64);
        let mut growth = Vec::with_capacity(running.len());
        for (key, watched) in running.iter() {
            let unwritten = match (&watched.image, watched.group.upgrade()) {
                // Unwritten data of a directory already counts as used.
                (None, _) => Some(0),
                // It is unmounted: all is written.
                (Some(_), None) => Some(0),
                // Also of one that is ending: it is unmounted last.
                (Some(_), Some(group)) => group.unwritten(),
            };
            unwritten_sum = unwritten_sum.zip(unwritten).map(|(sum, own)| sum.saturating_add(own));
            let size = watched.image.as_ref().and_then(|image| image.metadata().ok());
            let size = size.map(|size| size.blocks().saturating_mul(512));
            let grown = size.map(|size| {
                let size = size.saturating_add(unwritten.unwrap_or(0));
                grown(self.sizes.entry(*key).or_default(), now, size)
            });
            let is_up = watched.link.upgrade().is_some_and(|link| link.is_up());
            if is_up && !self.ended.contains(key) {
                growth.push((*key, grown));
            }
        }
        (growth, unwritten_sum)
    }

    /// Kills a sandbox at once: during a graceful stop it could go on writing.
    fn end(&mut self, key: u64, room: u64) {
        let running = self.shared.running();
        let Some(watched) = running.get(&key) else { return };
        let Some(link) = watched.link.upgrade() else { return };
        let left_mb = room >> 20;
        tracing::warn!(
            object.external_id = %link.target.external_id,
            left_mb,
            "the host's disk is nearly full: ending a sandbox that writes"
        );
        link.cut();
        self.ended.insert(key);
        self.events.publish(ProviderEvent::LimitHit(LimitEvent {
            labels: watched.labels.clone(),
            reason: format!("the host's disk is nearly full: {left_mb} MB left"),
            effect: LimitEffect::Ended,
        }));
    }

    fn log(&mut self, disk: DiskRoom) {
        let (level, before) = (RoomLevel::of(disk), self.level);
        self.level = level;
        let (free_mb, needed_mb) = (disk.free >> 20, disk.kept_free >> 20);
        let dir = self.shared.dir.display();
        match level {
            RoomLevel::Roomy if before != RoomLevel::Roomy => {
                tracing::info!(%dir, free_mb, needed_mb, "the host's disk has room again");
            }
            RoomLevel::Short if before == RoomLevel::Roomy => tracing::warn!(
                %dir, free_mb, needed_mb,
                "the host's disk is nearly full: not making or starting sandboxes"
            ),
            RoomLevel::Low if before != RoomLevel::Low => tracing::warn!(
                %dir, free_mb, needed_mb,
                "the host's disk is nearly full: ending sandboxes that write"
            ),
            RoomLevel::Roomy | RoomLevel::Short | RoomLevel::Low => {}
        }
    }
}

/// Records a size, and returns the growth over the window.
fn grown(sizes: &mut VecDeque<(Instant, u64)>, now: Instant, size: u64) -> Grown {
    while sizes.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
        sizes.pop_front();
    }
    sizes.push_back((now, size));
    let least = sizes.iter().map(|(_, size)| *size).min().unwrap_or(size);
    let steps = sizes.iter().zip(sizes.iter().skip(1));
    let fastest = steps.map(|((_, before), (_, after))| after.saturating_sub(*before)).max();
    Grown { lately: size - least, fastest: fastest.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_only_within_the_window() {
        let begin = Instant::now();
        let mut sizes = VecDeque::new();
        for (seconds, size, lately, fastest) in [
            (0, 100, 0, 0),
            (1, 150, 50, 50),
            (9, 170, 70, 50),
            (11, 180, 30, 20),
            (12, 40, 0, 10),
            (13, 60, 20, 20),
        ] {
            let now = begin + Duration::from_secs(seconds);
            let by = Grown { lately, fastest };
            assert_eq!(grown(&mut sizes, now, size), by, "after {seconds} s");
        }
    }

    #[test]
    fn a_shortage_names_what_is_free_and_what_is_needed() {
        let short = |free_mb: u64| {
            let disk = DiskRoom { free: free_mb << 20, kept_free: 4096 << 20 };
            shortage(disk, Path::new("/data/local"))
        };
        insta::assert_snapshot!(
            short(512).expect("short"),
            @"the host's disk is nearly full: 512 MB are free, and 4096 MB are needed to make or start a sandbox (providers.local.disk_reserve). Free room on the disk of /data/local, or delete sandboxes"
        );
        assert_eq!(short(4096), None);
    }
}
