//! Runs the engine's work: the port, and the threads of a server behind it.
//!
//! The engine starts nothing in any other way, so that all of it can also run on one thread in virtual
//! time, with tests in control of what happens and when.

use actix::ArbiterHandle;
use futures_util::future::BoxFuture;

/// Starts the engine's work. None of the methods waits, and none reports when the work ends. What is
/// handed in after the thread has ended is dropped.
pub trait Spawner: Send + Sync + 'static {
    /// Calls `start` on the actors' thread. It starts one by
    /// [`Actor::start`](actix::Actor::start), which needs a
    /// [`LocalSet`](tokio::task::LocalSet).
    fn actor(&self, start: Box<dyn FnOnce() + Send>);

    /// Runs the engine's own loops, and what an actor leaves behind.
    fn io(&self, task: BoxFuture<'static, ()>);

    /// Runs a provider call, at a lower priority than everything else.
    fn call(&self, task: BoxFuture<'static, ()>);
}

/// The threads of a server.
#[derive(Clone, Debug)]
pub struct Threads {
    /// Runs the actors.
    pub arbiter: ArbiterHandle,
    /// Runs the engine's own loops.
    pub io: tokio::runtime::Handle,
    /// Runs provider calls.
    pub calls: tokio::runtime::Handle,
}

impl Spawner for Threads {
    fn actor(&self, start: Box<dyn FnOnce() + Send>) {
        // False if the arbiter has ended, and what would have become an actor was dropped.
        self.arbiter.spawn_fn(start);
    }

    fn io(&self, task: BoxFuture<'static, ()>) {
        self.io.spawn(task);
    }

    fn call(&self, task: BoxFuture<'static, ()>) {
        self.calls.spawn(task);
    }
}
