//! Turns: of those who name the same key, one at a time goes on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The keys with a turn under way.
type TurnMap<K> = Arc<Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>>;

/// Gives turns.
pub struct Turns<K>(TurnMap<K>);

impl<K> Clone for Turns<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(TurnMap::default())
    }
}

impl<K: Clone + Eq + Hash> Turns<K> {
    /// Waits until no other turn of this key is under way.
    pub async fn take(&self, key: &K) -> HeldTurn<K> {
        let lock = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(key.clone()).or_default())
        };
        // It is there before the wait, so that a wait that is given up tidies up, too.
        let mut turn = HeldTurn { turns: self.clone(), key: key.clone(), held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }
}

/// A turn; dropping it ends it.
pub struct HeldTurn<K: Clone + Eq + Hash> {
    turns: Turns<K>,
    key: K,
    held: Option<OwnedMutexGuard<()>>,
}

impl<K: Clone + Eq + Hash> Drop for HeldTurn<K> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut turns = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(entry) = turns.entry(self.key.clone())
            && Arc::strong_count(entry.get()) == 1
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_goes_on_at_a_time_and_nothing_is_left_of_them() {
        let turns = Turns::<u8>::default();
        let first = turns.take(&1).await;
        let other = turns.take(&2).await;
        let mut waiting = Box::pin(turns.take(&1));
        let given_up = Box::pin(turns.take(&1));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop((other, given_up, first));
        drop(waiting.await);
        assert!(turns.0.lock().expect("not poisoned").is_empty());
    }
}
