//! Every provider against the one contract suite.

use std::sync::Arc;
use std::time::Duration;

use crate::local;
use crate::provider_suite::Suite;
use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::sandbox::Provider;
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};

#[tokio::test(flavor = "multi_thread")]
async fn local_keeps_the_contract() {
    let Some(local) = local::Local::new().await else { return };
    let local::Local { provider, dir: _dir } = local;
    let deadline = local::deadline();
    let provider = Provider::from(Arc::new(provider));
    Suite { provider: &provider, deadline, prefix: "local", does_work: true }.run().await;
}

#[tokio::test]
async fn simulated_keeps_the_contract() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = SimulatedConfig { dir: dir.path().to_owned(), unique_names: true };
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = SimulatedProvider::open(config, SimulatedFaults::default(), clock, ids);
    let provider = Provider::from(Arc::new(provider.expect("it opens")));
    let deadline = SystemClock.now().after(Duration::from_secs(60));
    Suite { provider: &provider, deadline, prefix: "simulated", does_work: false }.run().await;
}
