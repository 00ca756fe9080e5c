//! The doctor's questions to GitHub: who we are, and what we may do there.

use std::sync::Arc;

use crate::app::github;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::github::api::UnkeptPace;
use crate::github::checks::{KEY_REMEDY, WHAT, look};
use crate::github::client::GitHubClient;
use crate::types::{Check, CiFailureMode, Timestamp};

/// Asks GitHub, if there are credentials. It waits for the network.
pub async fn look_at_github(config: &Config) -> Vec<Check> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    match github::open(&config.github, &clock, Arc::new(UnkeptPace)) {
        Ok(None) => Vec::new(),
        Ok(Some(client)) => {
            let reads_checks = config.github.on_ci_failure == CiFailureMode::Fix;
            ask(&client, clock.now(), reads_checks).await
        }
        Err(error) => {
            let text = error.to_string();
            let (found, remedy) = text.split_once("; ").unwrap_or((&text, KEY_REMEDY));
            vec![Check::broken(WHAT, found, remedy)]
        }
    }
}

async fn ask(client: &GitHubClient, now: Timestamp, reads_checks: bool) -> Vec<Check> {
    let mut checks = look(client, now, reads_checks).await;
    let ahead = client.clock_ahead_secs();
    if ahead != 0 {
        let direction = if ahead > 0 { "behind" } else { "ahead of" };
        let found = format!("ours is {} s {direction} GitHub's", ahead.abs());
        checks.push(Check::noted("clock of GitHub", found, "set it: timedatectl set-ntp true"));
    }
    checks
}
