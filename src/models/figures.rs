//! What a model gateway counts for operators.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::store::usage::{SettledRequest, UsageSum};

/// Most models that are counted apart. The names come from sandboxes.
const MODELS_MAX: usize = 64;
/// What the others are counted as.
const OTHER: &str = "other";

/// Counts since the server started.
#[derive(Debug, Default)]
pub struct ModelFigures(Mutex<ModelCounts>);

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// How many requests ended, by model and status; 0 is one without an answer.
    pub requests: BTreeMap<(String, u16), u64>,
    /// What was used and spent, by model.
    pub usage: BTreeMap<String, UsageSum>,
}

impl ModelFigures {
    /// What was counted so far.
    pub fn counts(&self) -> ModelCounts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a request that ended.
    pub fn count(&self, model: &str, settled: &SettledRequest) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_counted = counts.usage.contains_key(model) || counts.usage.len() < MODELS_MAX;
        let model = if is_counted { model } else { OTHER };
        *counts.requests.entry((model.to_owned(), settled.status)).or_default() += 1;
        let sum = counts.usage.entry(model.to_owned()).or_default();
        sum.requests += 1;
        sum.tokens += settled.tokens;
        sum.cost += settled.cost;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::{Money, Tokens};

    #[test]
    fn names_of_models_make_a_bounded_number_of_series() {
        let figures = ModelFigures::default();
        let cost = Money::from_nano_dollars(7);
        let tokens = Tokens { output: 2, ..Tokens::default() };
        let settled = SettledRequest { status: 200, duration: Duration::ZERO, tokens, cost };
        for number in 0..MODELS_MAX + 10 {
            figures.count(&format!("m{number}"), &settled);
        }
        let counts = figures.counts();
        assert_eq!(counts.usage.len(), MODELS_MAX + 1);
        let other = counts.usage[OTHER];
        assert_eq!((other.requests, other.tokens.output, other.cost.nano_dollars()), (10, 20, 70));
        assert_eq!(counts.requests[&(OTHER.to_owned(), 200)], 10);
    }
}
