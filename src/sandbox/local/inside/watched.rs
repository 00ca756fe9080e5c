//! The launcher's watch over a workspace: whether its image is full, or its directory too large.
//!
//! The kernel notifies about neither, so it is checked from time to time, for a few milliseconds
//! at most: the launcher must also notice the end of the server.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::fstatfs;

use super::super::image;
use super::usage::{Walk, WalkProgress};
use super::watchdog::Watchdog;

/// The pause between two checks of an image or of the host's free space.
const PAUSE: Duration = Duration::from_millis(500);

/// The same for a directory, which nothing else stops from growing.
const PAUSE_DIRECTORY: Duration = Duration::from_millis(200);

/// How many pieces of a walk make one check. Each is a system call for a few hundred names at
/// most.
const PIECES: usize = 8;

/// A watched workspace.
pub enum WatchedDisk {
    /// An image, by its mount.
    Image {
        /// The launcher's own descriptor of the mount.
        mount: OwnedFd,
        /// Whether it was full at the last check.
        was_full: bool,
    },
    /// A directory.
    Directory(Box<WatchedDirectory>),
}

/// A directory on the host's disk.
pub struct WatchedDirectory {
    top: OwnedFd,
    dog: Watchdog,
    /// The walk under way, and its start.
    walk: Option<(Walk, Instant)>,
    /// When the last walk ended, and its duration.
    last: (Instant, Duration),
    /// The bytes free on the host's disk at that walk's start.
    free: u64,
}

impl WatchedDisk {
    /// Watches an image. One that is full at the start is not reported: it may be started to free
    /// space.
    pub fn image(mount: OwnedFd) -> Self {
        let was_full = is_full(&mount);
        Self::Image { mount, was_full }
    }

    /// Watches a directory with this limit.
    pub fn directory(top: OwnedFd, limit_mb: u64) -> Self {
        let dog = Watchdog::new(limit_mb.saturating_mul(1 << 20));
        let (walk, last, free) = (None, (Instant::now(), Duration::ZERO), 0);
        Self::Directory(Box::new(WatchedDirectory { top, dog, walk, last, free }))
    }

    /// The pause before the next check.
    pub fn pause(&self) -> Duration {
        match self {
            Self::Image { .. } => PAUSE,
            Self::Directory(directory) if directory.walk.is_some() => Duration::ZERO,
            Self::Directory(_) => PAUSE_DIRECTORY,
        }
    }

    /// Checks; returns whether the limit was hit since the last check.
    pub fn look(&mut self) -> bool {
        match self {
            Self::Image { mount, was_full } => {
                let is_full = is_full(mount);
                let was_full = std::mem::replace(was_full, is_full);
                is_full && !was_full
            }
            Self::Directory(directory) => directory.look(),
        }
    }
}

impl WatchedDirectory {
    fn look(&mut self) -> bool {
        let Some((walk, began)) = &mut self.walk else {
            return self.begin_if_due();
        };
        let began = *began;
        for _ in 0..PIECES {
            let seen = walk.go_on();
            if seen != WalkProgress::Part || self.dog.is_enough(walk.bytes()) {
                let bytes = walk.bytes();
                return self.end(seen, bytes, began);
            }
        }
        false
    }

    fn begin_if_due(&mut self) -> bool {
        let (ended, took) = self.last;
        let (rested, free) = (ended.elapsed(), free(&self.top));
        let lost = self.free.saturating_sub(free);
        if rested < self.dog.rest() && !self.dog.is_alarmed(lost, rested, took) {
            return false;
        }
        self.free = free;
        let began = Instant::now();
        match Walk::new(&self.top) {
            Ok(walk) => {
                self.walk = Some((walk, began));
                false
            }
            Err(_) => self.end(WalkProgress::Lost, 0, began),
        }
    }

    fn end(&mut self, seen: WalkProgress, bytes: u64, began: Instant) -> bool {
        self.walk = None;
        self.last = (Instant::now(), began.elapsed());
        self.dog.judge(seen, bytes, began.elapsed())
    }
}

/// Whether an image is full. Not if it can't be read.
fn is_full(mount: &OwnedFd) -> bool {
    image::is_full(mount).unwrap_or(false)
}

/// The bytes free on a directory's file system; 0 if it can't be read.
fn free(top: &OwnedFd) -> u64 {
    fstatfs(top)
        .map_or(0, |stat| stat.f_bfree.saturating_mul(u64::try_from(stat.f_bsize).unwrap_or(0)))
}
