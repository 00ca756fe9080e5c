//! The gateway to the models: its settings out of the configuration, how they are replaced, and what is
//! tidied up of its records.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::ModelsConfig;
use crate::models::RunOf;
use crate::models::gateway::{GatewaySettings, GatewayTimes, HttpModelGateway, ModelEndpoint};
use crate::store::usage::UsageStore;

/// A gateway with these settings.
pub(super) fn open(
    config: &ModelsConfig,
    store: Arc<dyn UsageStore>,
    runs: Arc<dyn RunOf>,
    clock: Arc<dyn Clock>,
) -> reqwest::Result<Arc<HttpModelGateway>> {
    HttpModelGateway::new(settings(config), store, runs, clock).map(Arc::new)
}

/// Replaces the settings of a gateway; what is in flight ends with those it began with.
pub(super) fn replace(gateway: &HttpModelGateway, config: &ModelsConfig) {
    gateway.replace(settings(config));
}

fn settings(config: &ModelsConfig) -> GatewaySettings {
    let endpoints = config.endpoints.iter().map(|(name, endpoint)| ModelEndpoint {
        name: name.clone(),
        base_url: endpoint.base_url.clone(),
        key: endpoint.key.clone(),
        models: endpoint.models.clone(),
        output_max: endpoint.max_tokens,
        silence_max: endpoint.silence,
    });
    GatewaySettings {
        endpoints: endpoints.collect(),
        prices: config.prices.clone(),
        budgets: config.budgets.clone(),
        times: GatewayTimes::default(),
    }
}

/// How long what a server left open when it ended counts as spent at its worst case.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);
/// How often it is looked for.
const TIDY_PAUSE: Duration = Duration::from_secs(5 * 60);
/// Most requests that are removed at a time.
const PRUNED_MAX: usize = 10_000;

/// Settles what was abandoned, and removes requests that are older than `keep`, until the server ends.
pub(super) async fn tidy(
    store: Weak<dyn UsageStore>,
    clock: Arc<dyn Clock>,
    keep: Option<Duration>,
    mut ended: watch::Receiver<bool>,
) {
    // It does not keep the store, which is closed when the server ends.
    while let Some(store) = store.upgrade() {
        let now = clock.now();
        match store.settle_abandoned(now.before(ABANDONED_AFTER)).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(
                count,
                "requests to models that never ended were settled: they count at the cost of their input now"
            ),
            Err(error) => tracing::warn!(%error, "cannot settle abandoned requests to models"),
        }
        if let Some(keep) = keep
            && let Err(error) = store.prune_requests(now.before(keep), PRUNED_MAX).await
        {
            tracing::warn!(%error, "cannot remove old requests to models");
        }
        drop(store);
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = tokio::time::sleep(TIDY_PAUSE) => {}
        }
    }
}
