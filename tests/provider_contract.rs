//! Every provider against the one contract suite.

#[path = "common/local.rs"]
mod local;
#[path = "common/provider_suite.rs"]
mod provider_suite;

use provider_suite::Suite;

#[tokio::test(flavor = "multi_thread")]
async fn local_keeps_the_contract() {
    let Some(local) = local::Local::new().await else { return };
    let deadline = local::deadline();
    Suite { provider: &local.provider, deadline, prefix: "local", does_work: true }.run().await;
}
