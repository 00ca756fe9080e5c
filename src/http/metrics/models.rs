//! The metrics of the gateway to the models.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::add;
use crate::models::figures::ModelCounts;

/// The metrics of requests to models. Names of models are bounded where they are counted.
pub(super) struct ModelMetrics {
    model_requests: Family<ModelRequestLabels, Counter>,
    model_tokens: Family<ModelTokenLabels, Counter>,
    model_dollars: Family<ModelLabels, Counter<f64, AtomicU64>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModelRequestLabels {
    model: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModelTokenLabels {
    model: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

impl ModelMetrics {
    /// Registered, without any model.
    pub fn new(registry: &mut Registry) -> Self {
        let model_requests = add(
            registry,
            "issuebox_model_requests",
            "Requests to models that ended, by model and the status of the answer; 0 is none",
            Family::default(),
        );
        let model_tokens = add(
            registry,
            "issuebox_model_tokens",
            "Tokens that models read and wrote, by model and kind",
            Family::default(),
        );
        let model_dollars = add(
            registry,
            "issuebox_model_dollars",
            "US dollars that requests to models cost, by model",
            Family::default(),
        );
        Self { model_requests, model_tokens, model_dollars }
    }

    /// Takes over what the gateway counted.
    pub fn set(&self, counts: ModelCounts) {
        for ((model, status), count) in counts.requests {
            let labels = ModelRequestLabels { model, status };
            let counter = self.model_requests.get_or_create_owned(&labels);
            counter.inner().store(count, Ordering::Relaxed);
        }
        for (model, sum) in counts.usage {
            for (kind, count) in [
                ("input", sum.tokens.input),
                ("output", sum.tokens.output),
                ("cache_read", sum.tokens.cache_read),
                ("cache_write", sum.tokens.cache_write),
            ] {
                let labels = ModelTokenLabels { model: model.clone(), kind };
                let counter = self.model_tokens.get_or_create_owned(&labels);
                counter.inner().store(count, Ordering::Relaxed);
            }
            let dollars = self.model_dollars.get_or_create_owned(&ModelLabels { model });
            // A counter of numbers with a fraction keeps their bits.
            dollars.inner().store(sum.cost.dollars().to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::live::LiveMap;
    use super::super::Metrics;
    use crate::engine::Figures;
    use crate::models::figures::ModelFigures;
    use crate::store::usage::SettledRequest;
    use crate::types::{Money, Tokens};

    #[test]
    fn requests_tokens_and_dollars_are_shown_by_model() {
        let (metrics, figures) = (Metrics::new(), ModelFigures::default());
        let tokens = Tokens { input: 1, output: 2, cache_read: 3, cache_write: 4 };
        let cost = Money::from_dollars(0.25).expect("an amount");
        let settled = SettledRequest { status: 200, duration: Duration::ZERO, tokens, cost };
        for _ in 0..2 {
            figures.count("claude-x", &settled);
            metrics.set_models(figures.counts());
        }
        let text = metrics.encode(&LiveMap::default(), [0; 2], &Figures::default());
        for line in [
            r#"issuebox_model_requests_total{model="claude-x",status="200"} 2"#,
            r#"issuebox_model_tokens_total{model="claude-x",kind="cache_write"} 8"#,
            r#"issuebox_model_dollars_total{model="claude-x"} 0.5"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
