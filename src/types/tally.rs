//! Equal things said once, with their number.

use std::collections::HashMap;
use std::hash::Hash;

/// Each different item once, in the order of the first ones, with how often it came.
pub fn tally<T: Clone + Eq + Hash>(items: impl IntoIterator<Item = T>) -> Vec<(T, usize)> {
    let (mut seen, mut places) = (Vec::new(), HashMap::new());
    for item in items {
        let place = *places.entry(item.clone()).or_insert(seen.len());
        match seen.get_mut(place) {
            None => seen.push((item, 1)),
            Some((_, count)) => *count += 1,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_items_are_counted_in_the_order_of_the_first() {
        assert_eq!(tally(["b", "a", "b", "c", "b", "a"]), [("b", 3), ("a", 2), ("c", 1)]);
    }
}
