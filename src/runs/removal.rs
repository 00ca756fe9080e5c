//! Removes what runs left on disk of issues that were deleted on GitHub: journals and session copies. Their
//! messages and runs go from the store with the issue.
//!
//! They go with the change that ends the issue. A server that was killed before that finds them when it
//! next looks.

use std::time::Duration;

use super::worker::RunWorker;
use crate::types::HomeId;

/// How often it is looked for files of deleted issues.
const LOOK_PAUSE: Duration = Duration::from_secs(3_600);

impl RunWorker {
    /// Removes what is on disk of issues that are deleted, now and once an hour.
    pub(super) async fn remove_deleted(self) {
        loop {
            for home in self.homes_on_disk() {
                match self.parts.store.load(home).await {
                    Ok(Some(issue)) if !issue.facts.deleted => {}
                    Ok(_) => self.forget(home),
                    Err(error) => {
                        tracing::warn!(home = home.0, %error, "cannot look whether an issue is deleted");
                    }
                }
            }
            self.parts.clock.sleep_until(self.parts.clock.now().after(LOOK_PAUSE)).await;
        }
    }

    /// Removes what is on disk of a home.
    pub(super) fn forget(&self, home: HomeId) {
        let removed =
            self.parts.journals.remove(home).and_then(|()| self.parts.sessions.remove(home));
        if let Err(error) = removed {
            tracing::warn!(home = home.0, %error, "cannot remove the journal and the session copies of a deleted issue; trying again in an hour");
        }
    }

    fn homes_on_disk(&self) -> Vec<HomeId> {
        let listed = self.parts.journals.homes().and_then(|mut homes| {
            homes.extend(self.parts.sessions.homes()?);
            Ok(homes)
        });
        listed.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list the conversations on disk");
            Vec::new()
        })
    }
}

/// The homes that files or directories in `dir` are named after; none if there is no `dir`.
pub(super) fn homes_in(dir: &std::path::Path) -> std::io::Result<Vec<HomeId>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut homes = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let stem = std::path::Path::new(&name).file_stem().and_then(|stem| stem.to_str());
        homes.extend(stem.and_then(|stem| stem.parse().ok()).map(HomeId));
    }
    Ok(homes)
}
