//! The doctor's check of providers: whether they can create sandboxes, without a server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rustix::fs::{Access, access};

use crate::clock::{SystemClock, SystemIds};
use crate::config::{Config, Local, Simulated};
use crate::sandbox::local::{LocalConfig, LocalProvider};
use crate::sandbox::{Enforcement, Lifecycle, LimitKind};

use super::Check;

/// One check for each provider that a template uses.
pub(super) fn look(config: &Config) -> Vec<Check> {
    let names: BTreeSet<&str> = config.templates.values().map(|t| t.provider.as_str()).collect();
    let one = |name: &str| {
        let what = format!("provider {name}");
        match name {
            "local" => local(&what, config),
            "simulated" => simulated(&what, &config.providers.simulated),
            _ => Check::broken(
                &what,
                "this version does not support it",
                "use \"local\" or \"simulated\" in [templates]",
            ),
        }
    };
    names.into_iter().map(one).collect()
}

/// Creates a whole sandbox and removes it, because settings alone do not predict a failure.
fn local(what: &str, config: &Config) -> Check {
    let data = &config.server.data;
    let home = if data.is_dir() { data.to_owned() } else { std::env::temp_dir() };
    let dir = TrialDir(home.join(format!(".doctor-local-{}", std::process::id())));
    match try_local(&dir.0, config.providers.local) {
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
                "check the requirements of the local provider, or try provider \"simulated\"",
            ));
            Check::broken(what, found, remedy)
        }
        Err(error) => {
            let remedy = "make the data directory usable first";
            Check::broken(what, format!("cannot try it: {error:#}"), remedy)
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

fn try_local(dir: &Path, given: Local) -> anyhow::Result<TrialResult> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().context("no runtime")?;
    let tried = runtime.block_on(async {
        let Local { require_limits, disk_reserve, warm_pool: _ } = given;
        let usual = LocalConfig::new(dir.to_owned());
        let config = LocalConfig { require_limits, disk_reserve, warm_pool: 0, ..usual };
        let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds))?;
        let health = provider.health().await;
        let limit = |(limit, how): (&LimitKind, &Enforcement)| format!("{limit} {how}");
        let limits: Vec<String> = health.limits.iter().map(limit).collect();
        anyhow::Ok(TrialResult {
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

fn simulated(what: &str, given: &Simulated) -> Check {
    if given.unavailable {
        let found = "it simulates an outage: providers.simulated.unavailable is true";
        return Check::broken(what, found, "remove that key to end the outage");
    }
    let dir = &given.dir;
    let shown = dir.display();
    // The server creates it and its missing parents when it starts.
    let there = dir.ancestors().find(|at| at.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        let found = format!("its directory {shown}: {} is not a directory", there.display());
        return Check::broken(what, found, "set providers.simulated.dir to a directory");
    }
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let found = format!("its directory {shown}: cannot write to {}", there.display());
        return Check::broken(what, found, "give it to this user, or set providers.simulated.dir");
    }
    Check::noted(
        what,
        format!("its objects are files in {shown}; nothing runs in its sandboxes"),
        "for real sandboxes set provider = \"local\" in [templates.default]",
    )
}
