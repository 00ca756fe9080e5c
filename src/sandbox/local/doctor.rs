//! `issuebox doctor` for this provider: makes one sandbox without a server and removes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LocalConfig, LocalProvider, LocalSettings};
use crate::clock::{SystemClock, SystemIds};
use crate::sandbox::{Enforcement, Lifecycle, LimitKind, OpenFailure};
use crate::types::Check;

/// Creates a whole sandbox and removes it, because settings alone do not predict a failure.
pub(super) fn check(what: &str, settings: LocalSettings, data: &Path) -> Check {
    let home = if data.is_dir() { data.to_owned() } else { std::env::temp_dir() };
    let dir = TrialDir(home.join(format!(".doctor-local-{}", std::process::id())));
    match try_local(&dir.0, settings) {
        Ok(TrialResult { trouble: None, shortage: Some(shortage), .. }) => {
            let (found, remedy) =
                shortage.split_once(". ").unwrap_or((&shortage, "free disk space"));
            Check::broken(what, found, remedy)
        }
        Ok(TrialResult { trouble: None, limits, not_enforced: None, .. }) => {
            Check::right(what, format!("created a sandbox and removed it; {limits}"))
        }
        Ok(TrialResult { trouble: None, limits, not_enforced: Some(missing), .. }) => Check::noted(
            what,
            format!("created a sandbox and removed it; {limits}: {missing}"),
            "run the server as root, or under systemd with Delegate=cpu memory pids, so that a \
             sandbox cannot use up the machine; require_limits refuses unenforced limits",
        ),
        Ok(TrialResult { trouble: Some(trouble), .. }) => {
            let (found, remedy) = trouble.split_once(". ").unwrap_or((
                &trouble,
                "see docs/providers/local.md for what this provider needs, or use another one",
            ));
            Check::broken(what, found, remedy)
        }
        Err(error) => {
            let remedy = "make the data directory usable first";
            Check::broken(what, format!("cannot try it: {error}"), remedy)
        }
    }
}

/// The result of a trial.
struct TrialResult {
    trouble: Option<String>,
    /// How each limit is enforced, in words.
    limits: String,
    not_enforced: Option<String>,
    /// Why there is no capacity for a sandbox.
    shortage: Option<String>,
}

fn try_local(dir: &Path, settings: LocalSettings) -> Result<TrialResult, OpenFailure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    let tried = runtime.block_on(async {
        let config = LocalConfig { warm_pool: 0, ..LocalConfig::with(dir.to_owned(), settings) };
        let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds))?;
        let health = provider.health().await;
        let limit = |(limit, how): (&LimitKind, &Enforcement)| format!("{limit} {how}");
        let limits: Vec<String> = health.limits.iter().map(limit).collect();
        Ok::<_, OpenFailure>(TrialResult {
            trouble: health.trouble,
            limits: format!("limits: {}", limits.join(", ")),
            not_enforced: provider.limits_not_enforced(),
            shortage: provider.capacity().shortage,
        })
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    tried
}

/// The directory of a trial; a drop removes it.
struct TrialDir(PathBuf);

impl Drop for TrialDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "the directory of the trial was already gone");
        }
    }
}
