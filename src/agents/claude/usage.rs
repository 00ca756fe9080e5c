//! What claude says that a turn used. Its counts are of the turn in newer versions, and of the whole
//! process in older ones.

use serde_json::Value;

use crate::agents::AgentEvent;
use crate::agents::json::number;

/// What was reported so far, for versions that report sums.
#[derive(Debug, Default)]
pub struct ReportedUsage {
    before: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cost_usd: f64,
}

impl ReportedUsage {
    /// The usage of the turn that this `result` line ends, sub-agents included. `usage` leaves them out,
    /// and `modelUsage` adds up over resumed runs in newer versions.
    pub fn of_result(&mut self, line: &Value) -> Option<AgentEvent> {
        let turn = match line.get("model_usage_since_last_result").and_then(Value::as_object) {
            Some(models) => Sums::of(models.values()),
            None => {
                let models = line.get("modelUsage").and_then(Value::as_object)?;
                let sums = Sums::of(models.values());
                let before = std::mem::replace(&mut self.before, sums);
                sums.minus(before)
            }
        };
        (turn != Sums::default()).then_some(AgentEvent::Usage {
            input_tokens: turn.input,
            output_tokens: turn.output,
            cache_read_tokens: turn.cache_read,
            cache_write_tokens: turn.cache_write,
            // To a billionth: sums of fractions of a cent are not exact.
            cost_usd: Some((turn.cost_usd * 1e9).round() / 1e9),
            is_session_total: false,
        })
    }
}

impl Sums {
    fn of<'a>(models: impl Iterator<Item = &'a Value>) -> Self {
        models.fold(Self::default(), |sums, model| Self {
            input: sums.input.saturating_add(number(model, "inputTokens")),
            output: sums.output.saturating_add(number(model, "outputTokens")),
            cache_read: sums.cache_read.saturating_add(number(model, "cacheReadInputTokens")),
            cache_write: sums.cache_write.saturating_add(number(model, "cacheCreationInputTokens")),
            cost_usd: sums.cost_usd + model.get("costUSD").and_then(Value::as_f64).unwrap_or(0.0),
        })
    }

    fn minus(self, before: Self) -> Self {
        Self {
            input: self.input.saturating_sub(before.input),
            output: self.output.saturating_sub(before.output),
            cache_read: self.cache_read.saturating_sub(before.cache_read),
            cache_write: self.cache_write.saturating_sub(before.cache_write),
            cost_usd: (self.cost_usd - before.cost_usd).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(usage: &mut ReportedUsage, line: &Value) -> Option<u64> {
        usage.of_result(line).map(|event| match event {
            AgentEvent::Usage { output_tokens, .. } => output_tokens,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_turn_has_its_own_usage() {
        let mut usage = ReportedUsage::default();
        let sums = |output| json!({ "modelUsage": { "a": { "outputTokens": output } } });
        assert_eq!(output(&mut usage, &sums(20)), Some(20));
        assert_eq!(output(&mut usage, &sums(50)), Some(30), "sums of the process");
        let resumed = json!({ "modelUsage": { "a": { "outputTokens": 90 } },
            "model_usage_since_last_result":
                { "a": { "outputTokens": 5 }, "b": { "outputTokens": 2 } } });
        assert_eq!(output(&mut usage, &resumed), Some(7), "not the sum of the session");
        assert_eq!(output(&mut usage, &json!({ "modelUsage": {} })), None);
    }
}
