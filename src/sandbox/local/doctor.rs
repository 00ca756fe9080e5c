//! `issuebox doctor` for this provider: makes one sandbox without a server and removes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LocalConfig, LocalProvider, LocalSettings};
use crate::clock::{SystemClock, SystemIds};
use crate::sandbox::{OpenFailure, SandboxProvider};
use crate::types::Check;

/// Makes a whole sandbox and removes it: settings explain a failure but do not predict it.
pub(super) fn check(what: &str, settings: LocalSettings, data: &Path) -> Check {
    let home = if data.is_dir() { data.to_owned() } else { std::env::temp_dir() };
    let dir = TriedIn(home.join(format!(".doctor-local-{}", std::process::id())));
    match try_local(&dir.0, settings) {
        Ok(Tried { trouble: None, shortage: Some(shortage), .. }) => {
            let (found, remedy) = shortage.split_once(". ").unwrap_or((&shortage, "make room"));
            Check::broken(what, found, remedy)
        }
        Ok(Tried { trouble: None, limits, not_enforced: None, .. }) => {
            Check::right(what, format!("a sandbox was made as a trial and removed; {limits}"))
        }
        Ok(Tried { trouble: None, limits, not_enforced: Some(missing), .. }) => Check::noted(
            what,
            format!("a sandbox was made as a trial and removed; {limits}: {missing}"),
            "run the server as root, or under systemd with Delegate=cpu memory pids, where others \
             must not be able to use up the machine; require_limits refuses what can't be enforced",
        ),
        Ok(Tried { trouble: Some(trouble), .. }) => {
            let (found, remedy) = trouble.split_once(". ").unwrap_or((
                &trouble,
                "see docs/providers/local.md for what this provider needs, or use another one",
            ));
            Check::broken(what, found, remedy)
        }
        Err(error) => {
            let remedy = "make the data directory usable first";
            Check::broken(what, format!("it could not be tried: {error}"), remedy)
        }
    }
}

/// What came of a trial.
struct Tried {
    trouble: Option<String>,
    /// How each limit holds, in words.
    limits: String,
    not_enforced: Option<String>,
    /// Why there is no room for a sandbox.
    shortage: Option<String>,
}

fn try_local(dir: &Path, settings: LocalSettings) -> Result<Tried, OpenFailure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let tried = runtime.block_on(async {
        let config = LocalConfig { warm_pool: 0, ..LocalConfig::with(dir.to_owned(), settings) };
        let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds))?;
        let health = provider.health().await;
        let limit = |(limit, how): &(&str, &str)| format!("{limit} {how}");
        let limits: Vec<String> = health.isolation.limits.iter().map(limit).collect();
        Ok::<_, OpenFailure>(Tried {
            trouble: health.trouble,
            limits: format!("limits: {}", limits.join(", ")),
            not_enforced: provider.limits_not_enforced(),
            shortage: provider.capacity().shortage,
        })
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    tried
}

/// A directory that something was tried in; removed with this.
struct TriedIn(PathBuf);

impl Drop for TriedIn {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "what was tried in is not there any more");
        }
    }
}
