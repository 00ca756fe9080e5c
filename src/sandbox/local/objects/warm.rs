//! The warm pool: started sandboxes that are not assigned to an object yet.
//!
//! Starting a sandbox needs nothing that depends on its owner. So when one was assigned, the pool
//! starts another of the same make: in a directory without a name, with all its limits, checked
//! from inside like any other. A create of that make writes its record, names the directory, and
//! has a running sandbox.
//!
//! # Guarantees
//! - **No object before it is named.** No list contains it, and it ends with the server.
//! - **Assigned once**, and only PID 1 has run in it before.
//! - **Nothing waits for it.** Without a warm sandbox a create starts its own. The pool starts
//!   sandboxes only while no create is under way and the host's disk has room, one at a time.
//! - **As if started now.** A sandbox from before a change of the host's settings ([`HostView`])
//!   or of the enforced limits is not assigned; the next health check replaces it. The pool keeps
//!   none with the host's network, whose settings change by themselves.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::starting::{Make, Starter, Up};
use crate::clock::IdSource;
use crate::sandbox::local::disk::{Disk, Naming, Unnamed};
use crate::sandbox::local::host_disk::HostDisk;
use crate::sandbox::local::host_view::HostView;
use crate::sandbox::reach::Reach;
use crate::sandbox::{CreateSpec, ProviderError};

/// A started sandbox without an object.
pub struct Ready {
    make: Make,
    seen: HostView,
    directory: Unnamed,
    up: Up,
}

impl Ready {
    /// Whether it equals what a create would start now, with the same limits, and still runs.
    /// Blocks.
    fn is_as_new(&self, starter: &Starter) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(self.up.arrived.socket.get_ref(), PollFlags::empty())];
        matches!(poll(&mut polled, Some(&now)), Ok(0))
            && self.seen == starter.host_view()
            && self.directory.is_as_new()
            && self.up.group.lost().is_none()
    }

    /// Ends it and removes its directory, which takes a few system calls.
    async fn end(self) {
        let Self { directory, up, .. } = self;
        up.end().await;
        drop(directory);
    }
}

/// The warm pool.
pub struct Warm {
    /// The maximum size; each sandbox is of a different make.
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
    /// Oldest first.
    ready: Vec<Ready>,
    /// Makes that the pool should hold and does not yet; the latest request comes last.
    wanted: Vec<Make>,
    /// Creates under way.
    creates: usize,
    /// The task that starts the next one.
    starting: Option<AbortHandle>,
    is_closed: bool,
}

impl Pool {
    /// The make to start now.
    fn next(&mut self) -> Option<Make> {
        if self.is_closed || self.creates > 0 {
            return None;
        }
        let ready = &self.ready;
        self.wanted.retain(|make| ready.iter().all(|ready| ready.make != *make));
        self.wanted.pop()
    }
}

/// A create under way. The end of the last one lets the pool start sandboxes.
pub struct Creating(Arc<Warm>);

impl Drop for Creating {
    fn drop(&mut self) {
        self.0.pool().creates -= 1;
        self.0.start_next();
    }
}

impl Warm {
    /// An empty pool of at most this size.
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

    /// Marks a create as under way.
    pub fn creating(self: &Arc<Self>) -> Creating {
        self.pool().creates += 1;
        Creating(Arc::clone(self))
    }

    /// The number of warm sandboxes.
    pub fn len(&self) -> usize {
        self.pool().ready.len()
    }

    /// Takes a sandbox of this make, for the caller to name. Blocks.
    pub fn take(&self, make: &Make) -> Option<Ready> {
        loop {
            let ready = {
                let waiting = &mut self.pool().ready;
                waiting.iter().position(|ready| ready.make == *make).map(|at| waiting.remove(at))?
            };
            if ready.is_as_new(&self.starter) {
                return Some(ready);
            }
            self.runtime.spawn(ready.end());
        }
    }

    /// Replaces sandboxes that would not be assigned any more. Blocks.
    pub fn refresh(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut self.pool().ready);
        for ready in waiting {
            if ready.is_as_new(&self.starter) {
                self.put(ready);
            } else {
                self.want(ready.make.clone());
                self.runtime.spawn(ready.end());
            }
        }
        self.start_next();
    }

    /// Makes a warm sandbox an object; returns it to the pool if it was not wanted.
    ///
    /// # Errors
    /// The file system's error; the sandbox ends then.
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

    /// Keeps one of this make warm.
    pub fn keep(self: &Arc<Self>, make: Make) {
        self.want(make);
        self.start_next();
    }

    /// Requests one of this make; drops the oldest request if there are too many.
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

    /// Starts the next sandbox, if none is being started and no create is under way.
    fn start_next(self: &Arc<Self>) {
        let mut pool = self.pool();
        if pool.starting.is_some() || pool.wanted.is_empty() || pool.creates > 0 {
            return;
        }
        let warm = Arc::clone(self);
        let starting = self.runtime.spawn(async move {
            while let Some(make) = warm.next() {
                match warm.start(make).await {
                    Ok(ready) => warm.put(ready),
                    // A create starts its own then, and reports the error.
                    Err(error) => tracing::debug!(%error, "failed to start a warm sandbox"),
                }
            }
        });
        pool.starting = Some(starting.abort_handle());
    }

    /// The make to start now; `None` also marks that the task has ended.
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
        let seen = self.starter.host_view();
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

    /// Ends all warm sandboxes, and keeps none from now on.
    pub fn close(&self) {
        let mut pool = self.pool();
        pool.is_closed = true;
        pool.ready.clear();
        if let Some(starting) = pool.starting.take() {
            starting.abort();
        }
    }

    /// Locks the pool, also after a panic: it is consistent between statements.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
