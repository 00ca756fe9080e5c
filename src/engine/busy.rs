//! Which sandboxes have work in them right now: a command that runs, a file that is transferred. Such
//! a sandbox is active, however silent, and is not stopped as idle.

use std::sync::Arc;

use dashmap::DashMap;

use crate::types::HomeId;

/// How many pieces of work are under way in each home's sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    at_work: Arc<DashMap<HomeId, usize>>,
}

/// One piece of work under way; it ends when this is dropped.
#[derive(Debug)]
pub struct AtWork {
    busy: Busy,
    home: HomeId,
}

impl Busy {
    /// Work begins in a home's sandbox.
    pub fn begin(&self, home: HomeId) -> AtWork {
        *self.at_work.entry(home).or_default() += 1;
        AtWork { busy: self.clone(), home }
    }

    /// Whether work is under way in it now.
    pub fn is_busy(&self, home: HomeId) -> bool {
        self.at_work.contains_key(&home)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.busy.at_work.remove_if_mut(&self.home, |_, count| {
            *count -= 1;
            *count == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_busy_until_the_last_work_has_ended() {
        let busy = Busy::default();
        let first = busy.begin(HomeId(1));
        let second = busy.begin(HomeId(1));
        drop(first);
        assert!(busy.is_busy(HomeId(1)) && !busy.is_busy(HomeId(2)));
        drop(second);
        assert!(!busy.is_busy(HomeId(1)));
        assert!(busy.at_work.is_empty(), "nothing is kept of what has ended");
    }
}
