//! What the launcher watches of a workspace: whether its image is full, or its directory too large.
//!
//! Nothing wakes a process for either, so it is looked at once in a while, for a few milliseconds at
//! most: the launcher must also hear that the server has gone.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::fstatfs;

use super::super::image;
use super::usage::{Walk, WalkProgress};
use super::watchdog::Watchdog;

/// The pause between two looks, whether at an image or at what the host's disk has lost.
const PAUSE: Duration = Duration::from_millis(500);

/// The same of a directory, which nothing else stops from growing.
const PAUSE_DIRECTORY: Duration = Duration::from_millis(200);

/// How many pieces of a walk are one look. Each is a system call for a few hundred names at most.
const PIECES: usize = 8;

/// What is watched.
pub enum WatchedDisk {
    /// An image, by its mount.
    Image {
        /// The launcher's own hold on it.
        mount: OwnedFd,
        /// As it was at the last look.
        was_full: bool,
    },
    /// A directory.
    Directory(Box<WatchedDirectory>),
}

/// A directory on the host's disk.
pub struct WatchedDirectory {
    top: OwnedFd,
    dog: Watchdog,
    /// The walk that is under way, and its begin.
    walk: Option<(Walk, Instant)>,
    /// When the last one ended, and how long it took.
    last: (Instant, Duration),
    /// What was free of the host's disk when it began, in bytes.
    free: u64,
}

impl WatchedDisk {
    /// Begins with an image. One that starts full is told by nobody's doing: who starts it may mean
    /// to make room.
    pub fn image(mount: OwnedFd) -> Self {
        let was_full = is_full(&mount);
        Self::Image { mount, was_full }
    }

    /// Begins with a directory that may take so much.
    pub fn directory(top: OwnedFd, limit_mb: u64) -> Self {
        let dog = Watchdog::new(limit_mb.saturating_mul(1 << 20));
        let (walk, last, free) = (None, (Instant::now(), Duration::ZERO), 0);
        Self::Directory(Box::new(WatchedDirectory { top, dog, walk, last, free }))
    }

    /// How long to do something else before the next look.
    pub fn pause(&self) -> Duration {
        match self {
            Self::Image { .. } => PAUSE,
            Self::Directory(directory) if directory.walk.is_some() => Duration::ZERO,
            Self::Directory(_) => PAUSE_DIRECTORY,
        }
    }

    /// Looks, and says whether the limit has been met since the last look.
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
            return self.begin_where_due();
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

    fn begin_where_due(&mut self) -> bool {
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
        self.dog.hear(seen, bytes, began.elapsed())
    }
}

/// Whether an image has no room left. One that can't be looked at is not known to be full.
fn is_full(mount: &OwnedFd) -> bool {
    image::is_full(mount).unwrap_or(false)
}

/// What is free of the file system that a directory is on, in bytes; 0 where it does not say.
fn free(top: &OwnedFd) -> u64 {
    fstatfs(top)
        .map_or(0, |stat| stat.f_bfree.saturating_mul(u64::try_from(stat.f_bsize).unwrap_or(0)))
}
