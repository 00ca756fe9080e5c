//! What every part of the engine gets from outside: the store, time, ids, the rules, the threads
//! to run on, and whether the server is shutting down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{Clock, IdSource};
use crate::conversation::FreshIds;
use crate::issue::Rules;
use crate::store::Store;
use crate::types::{MessageId, RunId, SessionId, Timestamp};

use super::spawner::Spawner;

/// What the engine's parts share. It knows none of them.
pub(super) struct Environment {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub rules: Rules,
    /// Runs all of the engine's work.
    pub spawner: Arc<dyn Spawner>,
    stopping: AtomicBool,
}

impl Environment {
    /// Of a server that is not shutting down.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        rules: Rules,
        spawner: Arc<dyn Spawner>,
    ) -> Self {
        Self { store, clock, ids, rules, spawner, stopping: AtomicBool::new(false) }
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// From now on the engine accepts nothing new.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// Ids for what is said in a step.
pub(super) fn fresh_ids(ids: &dyn IdSource) -> FreshIds {
    FreshIds {
        message: MessageId(ids.uuid()),
        run: RunId(ids.uuid()),
        session: SessionId(ids.uuid()),
    }
}
