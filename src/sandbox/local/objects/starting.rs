//! Starts a sandbox in a directory: its limits, its control group, its launcher.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;

use crate::clock::IdSource;
use crate::sandbox::local::cgroup::{Cgroups, Group};
use crate::sandbox::local::frame::{GivenFile, Setup};
use crate::sandbox::local::health;
use crate::sandbox::local::host_view::HostView;
use crate::sandbox::local::image;
use crate::sandbox::local::launching::{Arrived, LaunchError, launch};
use crate::sandbox::local::limits;
use crate::sandbox::local::spawner::LauncherSpawner;
use crate::sandbox::local::{LocalConfig, LocalOptions};
use crate::sandbox::reach::Reach;
use crate::sandbox::{GivenProgram, ProviderError};
use crate::types::{Network, Resources, Template, Workload};

/// The parameters of a sandbox, without its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Make {
    /// Its limits.
    pub resources: Resources,
    /// Its network.
    pub reach: Reach,
    /// Whether git goes through the gateway.
    pub has_git: bool,
    /// What its template says to this provider alone.
    pub options: LocalOptions,
}

impl Make {
    /// The make of a template.
    pub fn of(template: &Template) -> Self {
        Self::with(&template.resources, &template.network, &template.workload)
    }

    /// The make with these resources, network and workload.
    pub fn with(resources: &Resources, network: &Network, workload: &Workload) -> Self {
        let has_git = workload.git.is_some();
        Self {
            resources: resources.clone(),
            reach: Reach::of(network, has_git),
            has_git,
            options: LocalOptions::of(&workload.options),
        }
    }
}

/// A ready sandbox with its control group.
pub struct Up {
    /// The sandbox.
    pub arrived: Arrived,
    /// Its control group, which must outlive its last process.
    pub group: Arc<Group>,
}

impl Up {
    /// Ends it, and returns once none of its processes runs.
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
    /// The control groups of this host.
    pub cgroups: Cgroups,
    spawner: LauncherSpawner,
    ids: Arc<dyn IdSource>,
}

impl Starter {
    /// A starter for this configuration.
    pub fn new(
        config: LocalConfig,
        cgroups: Cgroups,
        spawner: LauncherSpawner,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self { config, cgroups, spawner, ids }
    }

    /// The host's files that a sandbox would see.
    pub fn host_view(&self) -> HostView {
        HostView::now(&self.config.programs)
    }

    /// Starts a sandbox in a directory, as this host uid and gid. `label` is the prefix of its
    /// control group's name.
    ///
    /// # Errors
    /// [`ProviderError::Broken`] if trying again may help, else [`ProviderError::Refused`];
    /// nothing runs then.
    pub async fn start(
        &self,
        label: &str,
        directory: &OwnedFd,
        host_id: Option<u32>,
        make: &Make,
    ) -> Result<Up, ProviderError> {
        let failed = |error| ProviderError::Broken(format!("cannot make a control group: {error}"));
        // A few system calls that do not block.
        let name = format!("{label}-{}", self.ids.request_id());
        let group = self.cgroups.make(&name, &make.resources).map(Arc::new).map_err(failed)?;
        let setup = self.setup(host_id, make);
        let arrived = launch(&self.spawner, &setup, directory, &group).await;
        let arrived = arrived.map_err(|error| refusal(error, directory))?;
        Ok(Up { arrived, group })
    }

    fn setup(&self, host_id: Option<u32>, make: &Make) -> Setup {
        let (processes_max, disk_mb_max, data_mb_max) = (0, 0, None);
        let scratch_mb = make.options.scratch_mb.unwrap_or(self.config.scratch_mb);
        let has_work_group = false;
        let setup = Setup {
            host_id,
            shares_counters: !rustix::process::geteuid().is_root(),
            processes_max,
            disk_mb_max,
            data_mb_max,
            scratch_mb,
            has_work_group,
            reach: make.reach,
            programs: self.config.programs.iter().filter_map(given_file).collect(),
            git_config: match &self.config.gateway {
                Some(gateway) if make.has_git => gateway.git_config(make.reach == Reach::Host),
                Some(_) | None => Bytes::new(),
            },
        };
        limits::apply(&self.cgroups, &make.resources, setup)
    }
}

/// The program as the launcher gets it; `None` for a path that is no text.
fn given_file(program: &GivenProgram) -> Option<GivenFile> {
    Some(GivenFile { file: program.file().to_str()?.to_owned(), inside: program.inside() })
}

/// Whether a launch that failed in this object's directory may succeed when it is tried again, and the
/// message for the caller. Nothing runs.
fn refusal(error: LaunchError, directory: &OwnedFd) -> ProviderError {
    let message = health::explain(&error);
    match error.errno() {
        Some(errno) if image::is_damage(&error.step, errno) => {
            ProviderError::Refused(damaged(directory, errno))
        }
        Some(
            Errno::AGAIN
            | Errno::NOMEM
            | Errno::NOBUFS
            | Errno::MFILE
            | Errno::NFILE
            | Errno::TOOMANYREFS
            | Errno::IO
            | Errno::INTR,
        ) => ProviderError::Broken(message),
        Some(errno) if image::is_passing(&error.step, errno) => ProviderError::Broken(message),
        _ => ProviderError::Refused(message),
    }
}

/// The message about a damaged image. Trying again can't help until an operator has repaired it.
fn damaged(directory: &OwnedFd, errno: Errno) -> String {
    let directory = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let image = directory.unwrap_or_default().join(image::IMAGE);
    let (image, why) = (image.display(), io::Error::from(errno));
    format!(
        "cannot mount the workspace's image {image}: it is damaged ({why}). Nothing was deleted. Copy \
         the image, repair it with `e2fsck -f -y {image}`, then start the sandbox again; see \
         docs/providers/local.md"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_no_refusal() {
        let directory: OwnedFd = fs::File::open("/").expect("opened").into();
        let failed = |errno: Errno| {
            let error = LaunchError { step: "dance".into(), errno: errno.raw_os_error() };
            refusal(error, &directory)
        };
        for passing in [Errno::TOOMANYREFS, Errno::MFILE, Errno::NFILE, Errno::NOBUFS] {
            assert!(matches!(failed(passing), ProviderError::Broken(_)), "{passing}");
        }
        assert!(matches!(failed(Errno::PERM), ProviderError::Refused(_)));
    }
}
