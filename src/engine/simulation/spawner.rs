//! All of the engine's work on one thread, in an order that the seed decides.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::world::ServerLife;
use crate::engine::Spawner;

/// Runs everything on the [`LocalSet`](tokio::task::LocalSet) of one life.
pub struct SimSpawner(pub Arc<ServerLife>);

impl Spawner for SimSpawner {
    fn actor(&self, start: Box<dyn FnOnce() + Send>) {
        let life = Arc::clone(&self.0);
        if life.is_alive() {
            tokio::task::spawn_local(async move {
                life.pause().await;
                if life.is_alive() {
                    start();
                }
            });
        }
    }

    fn io(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn call(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

impl ServerLife {
    /// Runs a task of this life; what a dead server would still begin is dropped.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + 'static) {
        if self.is_alive() {
            let life = Arc::clone(self);
            let begins_late = async move {
                life.pause().await;
                Jittered { life: Arc::clone(&life), task: Box::pin(task) }.await;
            };
            tokio::task::spawn_local(begins_late);
        }
    }
}

/// A task that sometimes lets others go first: a local set polls in the order of wakes, threads
/// do not.
struct Jittered<F> {
    life: Arc<ServerLife>,
    task: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> Future for Jittered<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.life.lets_others_go_first() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.task.as_mut().poll(cx)
    }
}
