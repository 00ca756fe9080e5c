//! Whether sandboxes can be made, tried without a server.

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

/// One for each provider that a template names.
pub(super) fn look(config: &Config) -> Vec<Check> {
    let names: BTreeSet<&str> = config.templates.values().map(|t| t.provider.as_str()).collect();
    let one = |name: &str| {
        let what = format!("provider {name}");
        match name {
            "local" => local(&what, config),
            "simulated" => simulated(&what, &config.providers.simulated),
            _ => Check::broken(
                &what,
                "this version does not have it",
                "use \"local\" or \"simulated\" in [templates]",
            ),
        }
    };
    names.into_iter().map(one).collect()
}

/// Makes a whole sandbox and removes it: settings explain a failure but do not predict it.
fn local(what: &str, config: &Config) -> Check {
    let data = &config.server.data;
    let home = if data.is_dir() { data.to_owned() } else { std::env::temp_dir() };
    let dir = TriedIn(home.join(format!(".doctor-local-{}", std::process::id())));
    match try_local(&dir.0, config.providers.local) {
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
                "see what the local provider needs, or use provider \"simulated\" to try things",
            ));
            Check::broken(what, found, remedy)
        }
        Err(error) => {
            let remedy = "make the data directory usable first";
            Check::broken(what, format!("it could not be tried: {error:#}"), remedy)
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

fn try_local(dir: &Path, given: Local) -> anyhow::Result<Tried> {
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
        anyhow::Ok(Tried {
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

fn simulated(what: &str, given: &Simulated) -> Check {
    if given.unavailable {
        let found = "it is told to be out of reach: providers.simulated.unavailable is true";
        return Check::broken(what, found, "leave that key out to have it answer again");
    }
    let dir = &given.dir;
    let shown = dir.display();
    // The server makes it at its start, with what is missing above it.
    let there = dir.ancestors().find(|at| at.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        let found = format!("its directory {shown}: {} is no directory", there.display());
        return Check::broken(what, found, "set providers.simulated.dir to a directory");
    }
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let found = format!("its directory {shown}: {} cannot be written", there.display());
        return Check::broken(what, found, "give it to this user, or set providers.simulated.dir");
    }
    Check::noted(
        what,
        format!("its objects are files in {shown}; nothing runs in its sandboxes"),
        "nothing to do where that is meant; else use provider = \"local\" in [templates.default]",
    )
}
