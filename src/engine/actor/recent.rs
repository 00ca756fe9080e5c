//! The last deliveries that an actor finished, to answer their repetition without the store.
//!
//! A repetition that was looked up before the first one became durable is found here. If it is not
//! remembered any more, the store refuses its commit, and its caller gets the same answer.

use std::collections::VecDeque;

use crate::types::DeliveryId;

/// How many are remembered: an actor that is awake keeps them, so they must be few and small. Each
/// is an id of at most 64 bytes and a verdict.
const DELIVERIES_MAX: usize = 8;

/// The last finished deliveries, and whether each was applied.
#[derive(Default)]
pub(super) struct RecentDeliveries(VecDeque<(DeliveryId, bool)>);

impl RecentDeliveries {
    /// Remembers one, and forgets the oldest if there are too many.
    pub fn push(&mut self, id: DeliveryId, applied: bool) {
        if self.0.len() == DELIVERIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, applied));
    }

    /// Whether this one was applied; `None` if it is not remembered.
    pub fn applied(&self, id: &DeliveryId) -> Option<bool> {
        self.0.iter().find(|(recent, _)| recent == id).map(|(_, applied)| *applied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_remembered_as_are_allowed_and_the_newest_of_them() {
        let mut recent = RecentDeliveries::default();
        let id = |n: usize| DeliveryId::trusted(format!("guid-{n}"));
        for n in 0..1_000 {
            recent.push(id(n), n % 2 == 0);
        }
        let known: Vec<_> = (0..1_000).filter_map(|n| recent.applied(&id(n))).collect();
        assert_eq!(known, [true, false, true, false, true, false, true, false]);
        assert_eq!(recent.applied(&id(999)), Some(false));
        assert!(recent.0.capacity() <= DELIVERIES_MAX, "room for no more is kept");
    }
}
