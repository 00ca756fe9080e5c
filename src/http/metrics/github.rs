//! The metrics of our calls to GitHub.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::add;
use crate::github::api::GitHubFigures;
use crate::intake::IntakeFigures;

/// The metrics of calls to GitHub. Without credentials they stay empty.
pub(super) struct GitHubMetrics {
    requests: Family<CallLabels, Counter>,
    remaining: Gauge,
    queue: Gauge,
    recovered: Counter,
    compared_at: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    kind: &'static str,
    result: &'static str,
}

impl GitHubMetrics {
    /// Registered, at zero.
    pub fn new(registry: &mut Registry) -> Self {
        let requests = add(
            registry,
            "issuebox_github_requests",
            "Calls to GitHub, by kind and result",
            Family::default(),
        );
        let remaining = add(
            registry,
            "issuebox_github_remaining",
            "Fewest calls that GitHub leaves to one of our identities in its hour; -1 if unknown",
            Gauge::default(),
        );
        remaining.set(-1);
        let queue = add(
            registry,
            "issuebox_github_queue",
            "Effects that wait for their turn to write at GitHub",
            Gauge::default(),
        );
        let recovered = add(
            registry,
            "issuebox_deliveries_recovered",
            "Deliveries that did not arrive and were read from GitHub",
            Counter::default(),
        );
        let compared_at = add(
            registry,
            "issuebox_delivery_log_compared_timestamp_seconds",
            "When GitHub's delivery log was last compared with the deliveries here; 0 for never",
            Gauge::default(),
        );
        Self { requests, remaining, queue, recovered, compared_at }
    }

    /// Takes over what the client counted.
    pub fn set(&self, figures: &GitHubFigures) {
        for call in &figures.requests {
            let labels = CallLabels { kind: call.kind, result: call.result };
            let counter = self.requests.get_or_create_owned(&labels);
            counter.inner().store(call.count, Ordering::Relaxed);
        }
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        if let Some(remaining) = figures.remaining {
            self.remaining.set(gauge(remaining));
        }
        self.queue.set(gauge(figures.queue));
    }

    /// Takes over what was recovered.
    pub fn set_intake(&self, figures: &IntakeFigures) {
        self.recovered.inner().store(figures.recovered, Ordering::Relaxed);
        self.compared_at.set(figures.compared_at.map_or(0, |at| at.unix_ms() / 1_000));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::live::LiveMap;
    use super::super::Metrics;
    use super::*;
    use crate::engine::Figures;
    use crate::github::api::RequestCount;

    #[test]
    fn it_is_shown_how_much_was_recovered_and_when_the_log_was_compared() {
        let metrics = Metrics::new();
        let text = || metrics.encode(&LiveMap::default(), [0; 2], &Figures::default());
        let never = "issuebox_delivery_log_compared_timestamp_seconds 0";
        assert!(text().contains(never), "{}", text());
        let compared_at = Some(crate::types::Timestamp::from_unix_ms(1_800_000_000_999));
        metrics.set_intake(&IntakeFigures { recovered: 4, compared_at });
        for line in [
            "issuebox_deliveries_recovered_total 4",
            "issuebox_delivery_log_compared_timestamp_seconds 1800000000",
        ] {
            assert!(text().contains(line), "{line}: {}", text());
        }
    }

    #[test]
    fn calls_are_shown_by_kind_and_result() {
        let metrics = Metrics::new();
        let text = || metrics.encode(&LiveMap::default(), [0; 2], &Figures::default());
        assert!(text().contains("issuebox_github_remaining -1"), "{}", text());
        let count = RequestCount { kind: "react", result: "done", count: 7 };
        let figures = GitHubFigures { requests: vec![count], remaining: Some(4_990), queue: 3 };
        metrics.set_github(&figures);
        for line in [
            r#"issuebox_github_requests_total{kind="react",result="done"} 7"#,
            "issuebox_github_remaining 4990",
            "issuebox_github_queue 3",
        ] {
            assert!(text().contains(line), "{line}: {}", text());
        }
    }
}
