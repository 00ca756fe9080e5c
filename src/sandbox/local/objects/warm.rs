//! Sandboxes that are up before anybody asks for them: the warm pool.
//!
//! Setting a sandbox up needs to know nothing of whose it will be. So once a new one has been given
//! away, another of the same make is started for nobody: in a directory without a name, with all its
//! limits, and checked from inside like any other. A create that wants one like it writes its record,
//! gives the directory its name, and has a sandbox.
//!
//! # Guarantees
//! - **Nobody's until it is named.** It is no object before: no list shows it, and it ends and goes
//!   with the server.
//! - **Given away once**, and nothing has ever run in it but PID 1.
//! - **Nothing waits for it.** Where none like it is up, a create starts its own. Others are started
//!   only while no create is under way and the host's disk has room, one at a time.
//! - **As if started now.** One that was started before the host's settings changed ([`HostView`]), or
//!   before a limit could be enforced or no longer could, is not given away, and is replaced when
//!   somebody asks for the provider's health. None waits that shares the host's network, whose settings
//!   change by themselves.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::starting::{Make, Starter, Up};
use crate::clock::IdSource;
use crate::sandbox::local::disk::{Disk, Naming, Unnamed};
use crate::sandbox::local::frame::Reach;
use crate::sandbox::local::host_disk::HostDisk;
use crate::sandbox::local::host_view::HostView;
use crate::sandbox::{CreateSpec, ProviderError};

/// A sandbox that is up and nobody's.
pub struct Ready {
    make: Make,
    seen: HostView,
    directory: Unnamed,
    up: Up,
}

impl Ready {
    /// Whether it is what a create would start now, with the same limits, and nothing has ended it.
    /// Blocks.
    fn is_as_new(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(self.up.arrived.socket.get_ref(), PollFlags::empty())];
        matches!(poll(&mut polled, Some(&now)), Ok(0))
            && self.seen == HostView::now()
            && self.directory.is_as_new()
            && self.up.group.lost().is_none()
    }

    /// Ends it; then its directory goes, which takes a few system calls.
    async fn end(self) {
        let Self { directory, up, .. } = self;
        up.end().await;
        drop(directory);
    }
}

/// Where sandboxes wait to be asked for.
pub struct Warm {
    /// How many wait at most, each of another make.
    most: usize,
    disk: Arc<Disk>,
    starter: Arc<Starter>,
    host_disk: Arc<HostDisk>,
    ids: Arc<dyn IdSource>,
    runtime: Handle,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    /// The one that was made last comes last.
    ready: Vec<Ready>,
    /// What is to wait, and does not yet; what was asked for last comes last.
    wanted: Vec<Make>,
    /// Creates that are under way.
    creates: usize,
    /// What starts the next one.
    starting: Option<AbortHandle>,
    is_closed: bool,
}

impl Pool {
    /// What is to be started now.
    fn next(&mut self) -> Option<Make> {
        if self.is_closed || self.creates > 0 {
            return None;
        }
        let ready = &self.ready;
        self.wanted.retain(|make| ready.iter().all(|ready| ready.make != *make));
        self.wanted.pop()
    }
}

/// A create that is under way. With the end of the last one it is seen to what is to wait.
pub struct Creating(Arc<Warm>);

impl Drop for Creating {
    fn drop(&mut self) {
        self.0.pool().creates -= 1;
        self.0.see_to_it();
    }
}

impl Warm {
    /// An empty pool of at most so many.
    pub fn new(
        most: usize,
        disk: Arc<Disk>,
        starter: Arc<Starter>,
        host_disk: Arc<HostDisk>,
        ids: Arc<dyn IdSource>,
        runtime: Handle,
    ) -> Self {
        Self { most, disk, starter, host_disk, ids, runtime, pool: Mutex::default() }
    }

    /// Notes that a create is under way.
    pub fn creating(self: &Arc<Self>) -> Creating {
        self.pool().creates += 1;
        Creating(Arc::clone(self))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.pool().ready.len()
    }

    /// One of this make, for whoever will name it. Blocks.
    pub fn take(&self, make: &Make) -> Option<Ready> {
        loop {
            let ready = {
                let waiting = &mut self.pool().ready;
                waiting.iter().position(|ready| ready.make == *make).map(|at| waiting.remove(at))?
            };
            if ready.is_as_new() {
                return Some(ready);
            }
            self.runtime.spawn(ready.end());
        }
    }

    /// Replaces what would not be given away any more. Blocks.
    pub fn refresh(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut self.pool().ready);
        for ready in waiting {
            if ready.is_as_new() {
                self.put(ready);
            } else {
                self.want(ready.make.clone());
                self.runtime.spawn(ready.end());
            }
        }
        self.see_to_it();
    }

    /// Makes one an object, and gives it away; it waits again where that was not to be.
    ///
    /// # Errors
    /// What the file system answers; it ends then.
    pub fn name(
        &self,
        mut ready: Ready,
        spec: &CreateSpec,
        wanted: impl FnOnce() -> bool,
    ) -> io::Result<(Naming, Option<Up>)> {
        match ready.directory.name(spec, wanted) {
            Ok(named @ Naming::Named(_)) => {
                self.want(ready.make);
                Ok((named, Some(ready.up)))
            }
            Ok(not @ (Naming::Taken | Naming::Unwanted)) => {
                self.put(ready);
                Ok((not, None))
            }
            Err(error) => {
                self.want(ready.make.clone());
                self.runtime.spawn(ready.end());
                Err(error)
            }
        }
    }

    fn put(&self, ready: Ready) {
        let too_many = {
            let mut pool = self.pool();
            pool.ready.push(ready);
            let most = if pool.is_closed { 0 } else { self.most };
            let excess = pool.ready.len().saturating_sub(most);
            pool.ready.drain(..excess).collect::<Vec<_>>()
        };
        for ready in too_many {
            self.runtime.spawn(ready.end());
        }
    }

    /// Sees to it that one of this make waits.
    pub fn keep(self: &Arc<Self>, make: Make) {
        self.want(make);
        self.see_to_it();
    }

    /// Notes that one of this make is to wait, in place of what was asked for before where that is
    /// too much.
    pub fn want(&self, make: Make) {
        if make.reach == Reach::Host {
            return;
        }
        let mut pool = self.pool();
        pool.wanted.retain(|other| *other != make);
        pool.wanted.push(make);
        let excess = pool.wanted.len().saturating_sub(self.most);
        pool.wanted.drain(..excess);
    }

    /// Starts what is to wait, where nothing does so already and it is the time.
    fn see_to_it(self: &Arc<Self>) {
        let mut pool = self.pool();
        if pool.starting.is_some() || pool.wanted.is_empty() || pool.creates > 0 {
            return;
        }
        let warm = Arc::clone(self);
        let starting = self.runtime.spawn(async move {
            while let Some(make) = warm.next() {
                match warm.start(make).await {
                    Ok(ready) => warm.put(ready),
                    // Whoever asks for one starts it, and is told.
                    Err(error) => tracing::debug!(%error, "no sandbox could be started ahead"),
                }
            }
        });
        pool.starting = Some(starting.abort_handle());
    }

    /// What is to be started now; where there is nothing, nothing is being started any more.
    fn next(&self) -> Option<Make> {
        let has_room = self.host_disk.capacity().shortage.is_none();
        let mut pool = self.pool();
        let next = if has_room { pool.next() } else { None };
        if next.is_none() {
            pool.starting = None;
        }
        next
    }

    async fn start(&self, make: Make) -> Result<Ready, ProviderError> {
        let seen = HostView::now();
        let (disk, id) = (Arc::clone(&self.disk), self.ids.request_id());
        let disk_mb = make.resources.disk_mb;
        let laid_out = self.runtime.spawn_blocking(move || {
            let directory = disk.lay_out(id, disk_mb)?;
            directory.sync()?;
            Ok((directory.open()?, directory))
        });
        let laid_out = laid_out.await.map_err(|_| super::ending())?;
        let (opened, directory) = laid_out.map_err(super::disk_failed)?;
        let up = self.starter.start("warm", &opened, directory.host_id, &make).await?;
        Ok(Ready { make, seen, directory, up })
    }

    /// Ends all that wait, and keeps none any more.
    pub fn close(&self) {
        let mut pool = self.pool();
        pool.is_closed = true;
        pool.ready.clear();
        if let Some(starting) = pool.starting.take() {
            starting.abort();
        }
    }

    /// The pool, also where a thread panicked under it: it is whole between statements.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
