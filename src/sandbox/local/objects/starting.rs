//! Starting a sandbox in a directory: its limits, its control group, its launcher.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::clock::IdSource;
use crate::sandbox::ProviderError;
use crate::sandbox::local::cgroup::{Cgroups, Group};
use crate::sandbox::local::frame::{Reach, Setup};
use crate::sandbox::local::health;
use crate::sandbox::local::image;
use crate::sandbox::local::launching::{Arrived, LaunchError, launch};
use crate::sandbox::local::limits;
use crate::sandbox::local::spawner::Spawner;
use crate::sandbox::local::{LocalConfig, LocalOptions};
use crate::types::{Resources, Template};

/// What sandboxes of one make are started with. Whose they are does not come into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Make {
    /// What it may use.
    pub resources: Resources,
    /// What network it sees.
    pub reach: Reach,
    /// What its template says to this provider alone.
    pub options: LocalOptions,
}

impl Make {
    /// What a template says of it.
    pub fn of(template: &Template) -> Self {
        Self {
            resources: template.resources.clone(),
            reach: Reach::of(&template.network),
            options: LocalOptions::of(&template.workload.options),
        }
    }
}

/// A sandbox that is ready, with its control group.
pub struct Up {
    /// The sandbox.
    pub arrived: Arrived,
    /// Its control group, which goes after the last of its processes.
    pub group: Arc<Group>,
}

impl Up {
    /// Ends it, and returns once nothing of it runs any more.
    pub async fn end(self) {
        let Self { arrived: Arrived { socket, launcher, .. }, group } = self;
        drop(socket);
        launcher.ended().await;
        drop(group);
    }
}

/// Starts sandboxes.
pub struct Starter {
    config: LocalConfig,
    /// The control groups that can be made here.
    pub cgroups: Cgroups,
    spawner: Spawner,
    ids: Arc<dyn IdSource>,
}

impl Starter {
    /// One that starts sandboxes as configured.
    pub fn new(
        config: LocalConfig,
        cgroups: Cgroups,
        spawner: Spawner,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self { config, cgroups, spawner, ids }
    }

    /// Starts a sandbox in a directory, as this host uid and gid. A `label` begins the name of its
    /// control group.
    ///
    /// # Errors
    /// [`ProviderError::Broken`] where trying again may help, else [`ProviderError::Refused`]; nothing
    /// runs then.
    pub async fn start(
        &self,
        label: &str,
        directory: &OwnedFd,
        host_id: Option<u32>,
        make: &Make,
    ) -> Result<Up, ProviderError> {
        let failed =
            |error| ProviderError::Broken(format!("no control group could be made: {error}"));
        // A few system calls, none of which waits.
        let name = format!("{label}-{}", self.ids.request_id());
        let group = self.cgroups.make(&name, &make.resources).map(Arc::new).map_err(failed)?;
        let setup = self.setup(host_id, make);
        let arrived = launch(&self.spawner, &setup, directory, &group).await.map_err(refusal)?;
        Ok(Up { arrived, group })
    }

    fn setup(&self, host_id: Option<u32>, make: &Make) -> Setup {
        let (processes_max, disk_mb_max, data_mb_max) = (0, 0, None);
        let scratch_mb = make.options.scratch_mb.unwrap_or(self.config.scratch_mb);
        let has_work_group = false;
        let setup = Setup {
            host_id,
            processes_max,
            disk_mb_max,
            data_mb_max,
            scratch_mb,
            has_work_group,
            reach: make.reach,
        };
        limits::ask(&self.cgroups, &make.resources, setup)
    }
}

/// What a failed launch means to whoever asked: nothing runs, and whether trying again may help.
fn refusal(error: LaunchError) -> ProviderError {
    let message = health::explain(&error);
    match error.errno() {
        Some(
            Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::IO | Errno::INTR,
        ) => ProviderError::Broken(message),
        Some(errno) if image::is_passing(&error.step, errno) => ProviderError::Broken(message),
        _ => ProviderError::Refused(message),
    }
}
