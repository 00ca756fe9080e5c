//! What makes room in a bounded list of secrets that were not used yet: log-in links, log-ins at GitHub.

use std::collections::HashMap;
use std::hash::Hash;

/// The place in a list, oldest first, that makes room for a new one of this holder. `None` if there is
/// room: fewer than `own_max` are the holder's, and fewer than `all_max` are there.
///
/// It is the holder's own oldest if the holder has as many as it may, or as many as anybody; else the
/// oldest of the holder with the most. Nobody's replace those of a holder who has fewer.
pub fn to_replace<H: Eq + Hash>(
    holders: impl Iterator<Item = H> + Clone,
    holder: &H,
    own_max: usize,
    all_max: usize,
) -> Option<usize> {
    let mut counts: HashMap<H, usize> = HashMap::new();
    for one in holders.clone() {
        *counts.entry(one).or_default() += 1;
    }
    let own = counts.get(holder).copied().unwrap_or_default();
    let most = counts.values().copied().max().unwrap_or_default();
    let is_full = counts.values().sum::<usize>() >= all_max;
    let mut holders = holders;
    if own >= own_max || (is_full && own == most) {
        return holders.position(|one| one == *holder);
    }
    is_full.then(|| holders.position(|one| counts[&one] == most))?
}
