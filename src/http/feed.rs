//! Receives the engine's changes, for look-ups, events and metrics.
//!
//! The engine calls [`Feed::publish`] on its own thread for each durable step, so everything here
//! is fast: JSON is encoded at the first read.

use std::sync::Arc;

use crate::engine::{Change, Publisher};
use crate::types::{Phase, Sandbox};

use super::events::{EventRing, RING_LEN};
use super::live::{LiveMap, look_alike};
use super::metrics::Metrics;

/// The edge's side of the engine's [`Publisher`] port.
#[derive(Debug)]
pub struct Feed {
    /// Ready-made answers for everything live.
    pub live: LiveMap,
    /// The last events.
    pub events: EventRing,
    /// What is counted and measured.
    pub metrics: Arc<Metrics>,
}

impl Feed {
    /// An empty feed. `run` names this server run in the cursors of its events: letters and
    /// digits that no other run has.
    pub fn new(run: &str) -> Self {
        Self {
            live: LiveMap::default(),
            events: EventRing::new(run, RING_LEN),
            metrics: Arc::new(Metrics::new()),
        }
    }

    /// Measures a create that ended in this step, from its record until it ran or failed.
    fn measure(&self, change: &Change, before: Option<&Sandbox>) {
        let Some(sandbox) = &change.sandbox else { return };
        let was_creating =
            before.is_some_and(|b| b.phase == Some(Phase::Creating) && b.id == sandbox.id);
        if !was_creating {
            return;
        }
        let success = match sandbox.phase {
            Some(Phase::Running | Phase::Stopping | Phase::Stopped | Phase::Starting) => true,
            Some(Phase::Failed) => false,
            // Still under way, or deleted before it ended.
            Some(Phase::Creating | Phase::Deleting) | None => return,
        };
        let took = sandbox.phase_since.since(sandbox.created_at);
        self.metrics.created(sandbox.mode, success, &sandbox.provider, took);
    }
}

impl Publisher for Feed {
    fn publish(&self, change: Arc<Change>) {
        let before = self.live.apply(&change);
        self.measure(&change, before.as_deref());
        self.events.push(&change, || {
            let both = before.as_ref().zip(change.sandbox.as_ref());
            both.is_some_and(|(before, now)| !look_alike(before, now))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wire::tests::sample;
    use super::*;
    use crate::engine::Figures;
    use crate::types::HomeId;

    fn publish(feed: &Feed, version: u64, phase: Phase, after_ms: u64) {
        let sandbox = sample("5");
        let since = sandbox.created_at.after(Duration::from_millis(after_ms));
        feed.publish(Arc::new(Change {
            sandbox: Some(Arc::new(Sandbox { phase: Some(phase), phase_since: since, ..sandbox })),
            ..Change::bare(HomeId(1), version)
        }));
    }

    #[test]
    fn a_create_is_measured_once_it_is_up() {
        let feed = Feed::new("run");
        publish(&feed, 1, Phase::Creating, 0);
        assert!(
            !feed
                .metrics
                .encode(&feed.live, [0; 2], &Figures::default())
                .contains("create_seconds_count")
        );
        publish(&feed, 2, Phase::Running, 1_500);
        publish(&feed, 3, Phase::Stopping, 2_000);
        let text = feed.metrics.encode(&feed.live, [0; 2], &Figures::default());
        let labels = r#"{mode="strong",success="true",provider="simulated"}"#;
        assert!(
            text.contains(&format!("issuebox_sandbox_create_seconds_sum{labels} 1.5")),
            "{text}"
        );
        assert!(
            text.contains(&format!("issuebox_sandbox_create_seconds_count{labels} 1")),
            "{text}"
        );
        assert!(text.contains(r#"issuebox_sandboxes_live{phase="stopping"} 1"#), "{text}");
        assert!(text.contains(r#"issuebox_sandboxes_live{phase="running"} 0"#), "{text}");
    }

    #[test]
    fn each_step_reaches_look_ups_and_events() {
        let feed = Feed::new("run");
        let start = feed.events.now();
        publish(&feed, 1, Phase::Creating, 0);
        assert!(feed.live.home(HomeId(1)).is_some());
        assert_eq!(feed.events.now(), start, "taken up, not changed");
        publish(&feed, 2, Phase::Creating, 0);
        assert_eq!(feed.events.now(), start, "nothing happened to it");
        publish(&feed, 3, Phase::Running, 0);
        assert_eq!(feed.events.now(), start.after(1));
    }
}
