//! Where the engine's work runs: the port, and the threads of a server behind it.
//!
//! The engine starts nothing by any other way, so that all of it can also run on one thread in
//! virtual time, where tests decide what happens and when.

use actix::ArbiterHandle;
use futures_util::future::BoxFuture;

/// Starts the engine's work. None of the methods waits, and none tells when the work ends. What is
/// handed in after the place has ended is dropped.
pub trait Spawner: Send + Sync + 'static {
    /// Calls `start` where actors live. It starts one by
    /// [`Actor::start`](actix::Actor::start), which needs a
    /// [`LocalSet`](tokio::task::LocalSet).
    fn actor(&self, start: Box<dyn FnOnce() + Send>);

    /// Runs what belongs to the engine itself: its loops, and what an actor leaves behind.
    fn io(&self, task: BoxFuture<'static, ()>);

    /// Runs a provider call. Calls may stand back for everything else.
    fn call(&self, task: BoxFuture<'static, ()>);
}

/// The threads of a server.
#[derive(Clone, Debug)]
pub struct Threads {
    /// Where actors live.
    pub arbiter: ArbiterHandle,
    /// Where the engine's own loops run.
    pub io: tokio::runtime::Handle,
    /// Where provider calls run.
    pub calls: tokio::runtime::Handle,
}

impl Spawner for Threads {
    fn actor(&self, start: Box<dyn FnOnce() + Send>) {
        // False where the arbiter has ended, and what would have become an actor was dropped.
        self.arbiter.spawn_fn(start);
    }

    fn io(&self, task: BoxFuture<'static, ()>) {
        self.io.spawn(task);
    }

    fn call(&self, task: BoxFuture<'static, ()>) {
        self.calls.spawn(task);
    }
}
