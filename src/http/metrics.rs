//! Metrics for Prometheus.
//!
//! Issues and repositories are never labels: routes, phases and configured providers bound the number
//! of series. Accounts are a label of one metric, if `metrics.accounts` says how many may be.

mod cut_offs;
mod deliveries;
mod effects;
mod github;
mod models;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::engine::{BreakerState, DriftKind, Figures, ProviderSweeps};
use crate::github::api::GitHubFigures;
use crate::intake::IntakeFigures;
use crate::models::figures::ModelCounts;
use crate::sandbox::{Egress, EgressResult};
use crate::types::{AccountName, Mode, ProviderName};

pub use deliveries::DeliveryCounts;

pub use cut_offs::CutOff;
use cut_offs::CutOffMetrics;
use deliveries::DeliveryCounters;
use effects::EffectMetrics;
use github::GitHubMetrics;
use models::ModelMetrics;

use super::live::LiveMap;

/// Upper bounds of the create histogram, in seconds: from a local start to a slow cluster's.
const CREATE_BUCKETS_SECS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0];

/// Every metric of the service.
pub struct Metrics {
    registry: Registry,
    creates: Family<CreateLabels, Histogram, fn() -> Histogram>,
    deliveries: Family<DeliveryLabels, Counter>,
    delivery_counts: DeliveryCounters,
    requests: Family<RequestLabels, Counter>,
    live: Family<PhaseLabels, Gauge>,
    live_of_accounts: Family<AccountLabels, Gauge>,
    body_bytes: Gauge,
    answer_bytes: Gauge,
    connections: Gauge,
    cut_offs: CutOffMetrics,
    cleanups: Family<CleanupLabels, Counter>,
    effects: EffectMetrics,
    github: GitHubMetrics,
    models: ModelMetrics,
    providers: ProviderMetrics,
    egress: EgressMetrics,
}

/// The metrics of providers.
struct ProviderMetrics {
    breakers: Family<BreakerLabels, Gauge>,
    drift: Family<DriftLabels, Gauge>,
    sweeps: Family<SweepLabels, Counter>,
    last_sweep: Family<ProviderLabels, Gauge>,
}

/// The metrics of the egress proxy.
struct EgressMetrics {
    egress_open: Gauge,
    egress_requests: Family<EgressLabels, Counter>,
    egress_bytes: Family<DirectionLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CreateLabels {
    mode: &'static str,
    success: &'static str,
    provider: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DeliveryLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AccountLabels {
    account: String,
}

/// The label of all accounts without a series of their own. No account can have this name.
const OTHER_ACCOUNTS: &str = "(other)";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BreakerLabels {
    provider: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CleanupLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DriftLabels {
    provider: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SweepLabels {
    provider: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EgressLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let to = &mut registry;
        let durations: fn() -> Histogram = || Histogram::new(CREATE_BUCKETS_SECS);
        let creates = add(
            to,
            "issuebox_sandbox_create_seconds",
            "Duration of creates, from the record until the sandbox ran or failed",
            Family::new_with_constructor(durations),
        );
        let deliveries =
            add(to, "issuebox_deliveries", "Webhook deliveries, by result", Family::default());
        let requests = add(
            to,
            "issuebox_http_requests",
            "HTTP requests, by route and status",
            Family::default(),
        );
        let live =
            add(to, "issuebox_sandboxes_live", "Live sandboxes, by phase", Family::default());
        let live_of_accounts = add(
            to,
            "issuebox_account_sandboxes_live",
            "Live sandboxes, by account, if metrics.accounts is set",
            Family::default(),
        );
        let body_bytes = add(
            to,
            "issuebox_http_body_bytes",
            "Bytes of request heads and bodies that are being received",
            Gauge::default(),
        );
        let answer_bytes = add(
            to,
            "issuebox_http_answer_bytes",
            "Bytes of answers that clients have not read yet",
            Gauge::default(),
        );
        let connections =
            add(to, "issuebox_http_connections", "Open connections of clients", Gauge::default());
        let cut_offs = CutOffMetrics::new(to);
        let cleanups = add(
            to,
            "issuebox_cleanups",
            "Orphaned objects cleaned up, by result",
            Family::default(),
        );
        let effects = EffectMetrics::new(to);
        let (github, models) = (GitHubMetrics::new(to), ModelMetrics::new(to));
        let (providers, egress) = (ProviderMetrics::new(to), EgressMetrics::new(to));
        Self {
            registry,
            creates,
            deliveries,
            delivery_counts: DeliveryCounters::default(),
            requests,
            live,
            live_of_accounts,
            body_bytes,
            answer_bytes,
            connections,
            cut_offs,
            cleanups,
            effects,
            github,
            models,
            providers,
            egress,
        }
    }

    /// Takes over what was counted of the calls to GitHub.
    pub fn set_github(&self, figures: &GitHubFigures) {
        self.github.set(figures);
    }

    /// Takes over what was recovered of deliveries.
    pub fn set_intake(&self, figures: &IntakeFigures) {
        self.github.set_intake(figures);
    }

    /// Takes over what was counted of requests to models.
    pub fn set_models(&self, counts: ModelCounts) {
        self.models.set(counts);
    }

    /// Takes over how many live sandboxes these accounts have; those of all others are one sum.
    pub fn set_accounts(&self, live: &LiveMap, named: &[AccountName]) {
        let mut counts: BTreeMap<&str, i64> = named.iter().map(|one| (one.as_str(), 0)).collect();
        counts.insert(OTHER_ACCOUNTS, 0);
        live.each_of_all(|sandbox| {
            let account = sandbox.account.as_str();
            let account = if counts.contains_key(account) { account } else { OTHER_ACCOUNTS };
            if let Some(count) = counts.get_mut(account) {
                *count += 1;
            }
        });
        // One that is no longer configured has no series any more.
        self.live_of_accounts.clear();
        for (account, count) in counts {
            let labels = AccountLabels { account: account.to_owned() };
            self.live_of_accounts.get_or_create_owned(&labels).set(count);
        }
    }

    /// Counts a create that ended.
    pub fn created(&self, mode: Mode, success: bool, provider: &ProviderName, took: Duration) {
        let labels = CreateLabels {
            mode: mode.as_str(),
            success: if success { "true" } else { "false" },
            provider: provider.to_string(),
        };
        self.creates.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a delivery; `result` is its status or the code of its error.
    pub fn delivered(&self, result: &'static str) {
        self.deliveries.get_or_create(&DeliveryLabels { result }).inc();
        self.delivery_counts.count(result);
    }

    /// How many deliveries came since the start, in a few words.
    pub fn delivery_counts(&self) -> DeliveryCounts {
        self.delivery_counts.now()
    }

    /// Counts a request.
    pub fn answered(&self, method: &'static str, route: String, status: u16) {
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }

    /// Counts what was refused or ended early.
    pub fn cut_off(&self, reason: CutOff, count: usize) {
        self.cut_offs.count(reason, count);
    }

    /// Counts an open connection, or one less.
    pub fn connected(&self, change: i64) {
        self.connections.inc_by(change);
    }

    /// All metrics as text. Gauges are read from their sources: live sandboxes from the live map,
    /// bytes of bodies and answers from their budgets, and the state of providers from the engine.
    pub fn encode(
        &self,
        live: &LiveMap,
        [bodies, answers]: [usize; 2],
        engine: &Figures,
    ) -> String {
        let cleanups = engine.cleanups;
        for (result, count) in [
            ("stopped", cleanups.stopped),
            ("removed", cleanups.removed),
            ("failed", cleanups.failed),
        ] {
            let counter = self.cleanups.get_or_create_owned(&CleanupLabels { result });
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.effects.set(&engine.effects);
        for sweeps in &engine.sweeps {
            self.set_sweeps(sweeps);
        }
        self.set_egress(&engine.egress);
        self.body_bytes.set(i64::try_from(bodies).unwrap_or(i64::MAX));
        self.answer_bytes.set(i64::try_from(answers).unwrap_or(i64::MAX));
        for (provider, breaker) in &engine.breakers {
            let labels = BreakerLabels { provider: provider.to_string() };
            let is_open = i64::from(breaker.state != BreakerState::Closed);
            self.providers.breakers.get_or_create_owned(&labels).set(is_open);
        }
        for (phase, count) in live.phases() {
            let gauge = self.live.get_or_create_owned(&PhaseLabels { phase: phase.as_str() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string cannot fail");
        text
    }

    /// Every result has a series from the start, so that its first occurrence is an increase.
    fn set_egress(&self, egress: &Egress) {
        let Egress { open, results, sent, received } = *egress;
        self.egress.egress_open.set(i64::try_from(open).unwrap_or(i64::MAX));
        for (result, count) in EgressResult::ALL.into_iter().zip(results) {
            let labels = EgressLabels { result: result.as_str() };
            let counter = self.egress.egress_requests.get_or_create_owned(&labels);
            counter.inner().store(count, Ordering::Relaxed);
        }
        for (direction, bytes) in [("sent", sent), ("received", received)] {
            let counter =
                self.egress.egress_bytes.get_or_create_owned(&DirectionLabels { direction });
            counter.inner().store(bytes, Ordering::Relaxed);
        }
    }

    fn set_sweeps(&self, sweeps: &ProviderSweeps) {
        let provider = sweeps.provider.to_string();
        for kind in DriftKind::ALL {
            let labels = DriftLabels { provider: provider.clone(), kind: kind.as_str() };
            let count = sweeps.counts.get(kind).copied().unwrap_or(0);
            self.providers
                .drift
                .get_or_create_owned(&labels)
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (result, count) in
            [("done", sweeps.done), ("held_back", sweeps.held_back), ("not_made", sweeps.not_made)]
        {
            let labels = SweepLabels { provider: provider.clone(), result };
            self.providers
                .sweeps
                .get_or_create_owned(&labels)
                .inner()
                .store(count, Ordering::Relaxed);
        }
        if let Some(at) = sweeps.last_at {
            let gauge = self.providers.last_sweep.get_or_create_owned(&ProviderLabels { provider });
            gauge.set(at.unix_ms() / 1_000);
        }
    }
}

impl ProviderMetrics {
    fn new(to: &mut Registry) -> Self {
        let breakers = add(
            to,
            "issuebox_provider_breaker_open",
            "1 if the breaker is open because the provider cannot be reached, otherwise 0",
            Family::default(),
        );
        let drift = add(
            to,
            "issuebox_drift",
            "Drift items between records and providers, at the last sweep",
            Family::default(),
        );
        let sweeps = add(to, "issuebox_sweeps", "Sweeps, by result", Family::default());
        let last_sweep = add(
            to,
            "issuebox_last_sweep_timestamp_seconds",
            "End of the last sweep that read the provider's list",
            Family::default(),
        );
        Self { breakers, drift, sweeps, last_sweep }
    }
}

impl EgressMetrics {
    fn new(to: &mut Registry) -> Self {
        let egress_open = add(
            to,
            "issuebox_egress_connections",
            "Open connections from sandboxes to the egress proxy",
            Gauge::default(),
        );
        let egress_requests = add(
            to,
            "issuebox_egress_requests",
            "Requests of sandboxes to the egress proxy, by result",
            Family::default(),
        );
        let egress_bytes = add(
            to,
            "issuebox_egress_bytes",
            "Bytes between sandboxes and their targets through the egress proxy",
            Family::default(),
        );
        Self { egress_open, egress_requests, egress_bytes }
    }
}

/// Registers a metric, and returns it.
fn add<M: Metric + Clone>(to: &mut Registry, name: &str, help: &str, metric: M) -> M {
    to.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Change;
    use crate::engine::{BreakerView, CleanupCounts, EffectCounts};
    use crate::http::live::tests::change;
    use crate::http::wire::tests::sample;
    use crate::issue::EffectKind;
    use crate::types::{Sandbox, Timestamp};

    #[test]
    fn counters_carry_route_method_and_status() {
        let metrics = Metrics::new();
        metrics.answered("GET", "/v1/sandboxes".into(), 200);
        metrics.answered("GET", "/v1/sandboxes".into(), 200);
        metrics.delivered("accepted");
        let cleanups = CleanupCounts { removed: 3, ..CleanupCounts::default() };
        let down = BreakerView {
            state: BreakerState::Open,
            since: None,
            next_try_at: None,
            reason: None,
            unanswered_creates: 0,
        };
        let up = BreakerView { state: BreakerState::Closed, ..down.clone() };
        let breakers =
            vec![(ProviderName::trusted("docker"), down), (ProviderName::trusted("local"), up)];
        let effects = vec![EffectCounts {
            kind: EffectKind::CleanUp,
            pending: 4,
            done: 3,
            retried: 2,
            failed: 1,
        }];
        let figures = Figures { cleanups, effects, breakers, ..Figures::default() };
        let text = metrics.encode(&LiveMap::default(), [0; 2], &figures);
        let line =
            r#"issuebox_http_requests_total{method="GET",route="/v1/sandboxes",status="200"} 2"#;
        assert!(text.contains(line), "{text}");
        assert!(text.contains(r#"issuebox_deliveries_total{result="accepted"} 1"#), "{text}");
        assert!(text.contains(r#"issuebox_cleanups_total{result="removed"} 3"#), "{text}");
        for line in [
            r#"issuebox_effects_total{kind="clean_up",result="done"} 3"#,
            r#"issuebox_effects_total{kind="clean_up",result="retried"} 2"#,
            r#"issuebox_effects_total{kind="clean_up",result="failed"} 1"#,
            r#"issuebox_effects_pending{kind="clean_up"} 4"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for line in [
            r#"issuebox_provider_breaker_open{provider="docker"} 1"#,
            r#"issuebox_provider_breaker_open{provider="local"} 0"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn accounts_have_series_of_their_own_up_to_a_bound() {
        let (metrics, live) = (Metrics::new(), LiveMap::default());
        let of = |home: i64, account: &str| {
            let issue = home.to_string();
            let account = AccountName::trusted(account);
            let sandbox = Sandbox { account: account.clone(), ..sample(&issue) };
            live.apply(&Change { account, ..change(home, 1, Some(sandbox)) });
        };
        of(1, "acme");
        of(2, "acme");
        for home in 3..100 {
            of(home, &format!("a-{home}"));
        }
        let text = || metrics.encode(&live, [0; 2], &Figures::default());
        assert!(!text().contains("account=\""), "{}", text());
        metrics.set_accounts(&live, &["acme", "idle"].map(AccountName::trusted));
        for line in [r#"{account="acme"} 2"#, r#"{account="idle"} 0"#, r#"{account="(other)"} 97"#]
        {
            let line = format!("issuebox_account_sandboxes_live{line}\n");
            assert!(text().contains(&line), "{}", text());
        }
        assert_eq!(text().matches("account=\"").count(), 3);
        metrics.set_accounts(&live, &[]);
        assert_eq!(text().matches("account=\"").count(), 1, "it is no longer configured");
    }

    #[test]
    fn egress_is_counted_by_result() {
        let mut egress = Egress { open: 2, sent: 5, received: 7, ..Egress::default() };
        egress.results[EgressResult::NotListed as usize] = 3;
        egress += egress;
        let figures = Figures { egress, ..Figures::default() };
        let text = Metrics::new().encode(&LiveMap::default(), [0; 2], &figures);
        for line in [
            "issuebox_egress_connections 4",
            r#"issuebox_egress_requests_total{result="not_listed"} 6"#,
            r#"issuebox_egress_requests_total{result="name_no_answer"} 0"#,
            r#"issuebox_egress_bytes_total{direction="sent"} 10"#,
            r#"issuebox_egress_bytes_total{direction="received"} 14"#,
        ] {
            assert!(text.contains(&format!("{line}\n")), "{text}");
        }
    }

    #[test]
    fn drift_that_is_over_is_zero() {
        let metrics = Metrics::new();
        let mut sweeps = ProviderSweeps {
            provider: ProviderName::trusted("local"),
            last_at: Some(Timestamp::from_unix_ms(5_000)),
            records: 1,
            objects: 1,
            done: 2,
            held_back: 0,
            not_made: 1,
            counts: BTreeMap::from([(DriftKind::Duplicate, 4)]),
        };
        let text = |sweeps: &ProviderSweeps| {
            let figures = Figures { sweeps: vec![sweeps.clone()], ..Figures::default() };
            metrics.encode(&LiveMap::default(), [0; 2], &figures)
        };
        let first = text(&sweeps);
        let line = r#"issuebox_drift{provider="local",kind="duplicate"} "#;
        assert!(first.contains(&format!("{line}4")), "{first}");
        assert!(first.contains(r#"issuebox_sweeps_total{provider="local",result="done"} 2"#));
        assert!(first.contains(r#"issuebox_last_sweep_timestamp_seconds{provider="local"} 5"#));
        sweeps.counts.clear();
        assert!(text(&sweeps).contains(&format!("{line}0")));
    }
}
