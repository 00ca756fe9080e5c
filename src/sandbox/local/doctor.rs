//! `issuebox doctor` for this provider: makes one sandbox without a server and removes it.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{LocalConfig, LocalProvider, LocalSettings};
use crate::clock::{Clock, SystemClock, SystemIds};
use crate::sandbox::{Enforcement, Lifecycle, LimitKind, OpenFailure};
use crate::types::{Check, Timestamp};

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
            match not_removed(&data.join("local/trash"), SystemClock.now()) {
                None => Check::right(what, format!("created a sandbox and removed it; {limits}")),
                Some(stuck) => Check::noted(
                    what,
                    stuck,
                    "the server tries again by itself, at least every 5 minutes; its log has the \
                     reason",
                ),
            }
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

/// How long a deleted sandbox may be on its way before that is noted.
const REMOVAL_LONG: Duration = Duration::from_secs(120);

/// Which deleted sandboxes are not removed although there was time; `None` if there are none.
fn not_removed(trash: &Path, now: Timestamp) -> Option<String> {
    let is_old = |entry: &DirEntry| {
        // A move into the trash changes the entry itself.
        let changed = entry.metadata().map(|data| data.ctime().saturating_mul(1_000));
        changed.is_ok_and(|at| now > Timestamp::from_unix_ms(at).after(REMOVAL_LONG))
    };
    let old = std::fs::read_dir(trash).ok()?.flatten().filter(is_old);
    let mut names: Vec<_> =
        old.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    let first = names.first()?;
    let more = match names.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("{first}{more} in {} cannot be removed", trash.display()))
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
    runtime.shutdown_timeout(Duration::from_secs(2));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_sandboxes_that_stay_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let trash = dir.path().join("trash");
        let later = SystemClock.now().after(REMOVAL_LONG + Duration::from_secs(2));
        assert_eq!(not_removed(&trash, later), None, "nothing was ever deleted");
        for name in ["b@2", "a@1"] {
            std::fs::create_dir_all(trash.join(name)).expect("made");
        }
        assert_eq!(not_removed(&trash, SystemClock.now()), None, "they may be on their way");
        let found = not_removed(&trash, later).expect("they stayed");
        assert!(found.starts_with("a@1 and 1 more in /"), "{found}");
    }
}
