//! Whether this host can make sandboxes: makes one as a probe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::starting::Make;
use super::{Disk, LocalObjects};
use crate::sandbox::ProviderError;
use crate::sandbox::local::LocalOptions;
use crate::sandbox::local::health::{BAD_FOR, GOOD_FOR};
use crate::sandbox::reach::Reach;
use crate::types::Resources;

/// The timeout of the probe.
const WAIT: Duration = Duration::from_millis(1_800);

/// The limits of the probe.
const MAKE: Make = Make {
    resources: Resources { cpu: 1.0, memory_mb: 64, processes: 16, disk_mb: 16 },
    reach: Reach::Loopback,
    has_git: false,
    options: LocalOptions { scratch_mb: None },
};

impl LocalObjects {
    /// Why this host can't make sandboxes; `None` if it can.
    pub async fn trouble(&self) -> Option<String> {
        let warm = Arc::clone(&self.warm);
        // This fails only if the server is ending.
        let _ = self
            .blocking(move |_| {
                warm.refresh();
                Ok(())
            })
            .await;
        let mut last = self.last_look.lock().await;
        if let Some((at, trouble)) = &*last {
            let good_for = if trouble.is_some() { BAD_FOR } else { GOOD_FOR };
            if at.elapsed() < good_for {
                return trouble.clone();
            }
        }
        match tokio::time::timeout(WAIT, self.probe()).await {
            Ok(found) => {
                let trouble = found.err().map(|error| match error {
                    ProviderError::Refused(message) | ProviderError::Broken(message) => message,
                    other => other.to_string(),
                });
                *last = Some((Instant::now(), trouble.clone()));
                trouble
            }
            Err(_) => Some("a sandbox made as a probe was not ready in time".into()),
        }
    }

    /// Makes a sandbox, and ends it.
    async fn probe(&self) -> Result<(), ProviderError> {
        let id = self.ids.request_id();
        let lay_out = move |disk: &Arc<Disk>| {
            let directory = disk.lay_out(id, MAKE.resources.disk_mb)?;
            Ok((directory.open()?, directory))
        };
        let (opened, directory) = self.blocking(lay_out).await?;
        let up = self.starter.start("trial", &opened, directory.host_id, &MAKE).await?;
        up.end().await;
        self.refused(directory.workspace(), directory.host_id)
            .map_or(Ok(()), |why| Err(ProviderError::Refused(why)))
    }
}
