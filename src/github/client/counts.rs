//! Counts calls by kind and result.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::super::api::RequestCount;

/// The counters. Kinds and results are words of the program, so they are few.
#[derive(Default)]
pub(super) struct CallCounts(Mutex<BTreeMap<(&'static str, &'static str), u64>>);

impl CallCounts {
    /// One more.
    pub fn add(&self, kind: &'static str, result: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((kind, result)).or_default() += 1;
    }

    /// All of them.
    pub fn all(&self) -> Vec<RequestCount> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((kind, result), count)| RequestCount { kind, result, count: *count })
            .collect()
    }
}
