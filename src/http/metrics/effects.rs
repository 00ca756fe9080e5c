//! The metrics of the outbox: how many effects are in it, and how others ended, by kind.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::add;
use crate::engine::EffectCounts;

/// The metrics of the outbox.
pub(super) struct EffectMetrics {
    ended: Family<ResultLabels, Counter>,
    pending: Family<KindLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

impl EffectMetrics {
    /// Registered, at zero.
    pub fn new(registry: &mut Registry) -> Self {
        let ended = add(
            registry,
            "issuebox_effects",
            "Effects of the outbox, by result; retried counts failed tries",
            Family::default(),
        );
        let pending =
            add(registry, "issuebox_effects_pending", "Effects in the outbox", Family::default());
        Self { ended, pending }
    }

    /// Takes over what the engine counted.
    pub fn set(&self, counts: &[EffectCounts]) {
        for EffectCounts { kind, pending, done, retried, failed } in counts {
            let kind = kind.as_str();
            for (result, count) in [("done", done), ("retried", retried), ("failed", failed)] {
                let counter = self.ended.get_or_create_owned(&ResultLabels { kind, result });
                counter.inner().store(*count, Ordering::Relaxed);
            }
            let gauge = self.pending.get_or_create_owned(&KindLabels { kind });
            gauge.set(i64::try_from(*pending).unwrap_or(i64::MAX));
        }
    }
}
