//! Sandboxes in containers of Docker or Podman.
//!
//! # How it works
//! Each sandbox is a container whose PID 1 is our own binary, the *helper* (`inside`). It comes from
//! a volume with everything that it needs (`bundle`), so the image can be any. The server speaks
//! with it over `docker exec` (`link`, `wire`). The container has no network: what its template
//! allows goes through the helper to the server's egress proxy, as do git and the models.
//!
//! # What it guarantees
//! - **One container per name.** The engine enforces names; a foreign container is never changed.
//! - **Objects outlive the server**, and so do their processes and what is kept of their output. The
//!   numbers of processes are the helper's.
//! - **No secret in what the engine stores.** Secrets of templates go with each command.
//! - **A workspace is a volume of its own**, with a name that is used once. It stays while its
//!   container does; a list removes those that lost theirs.
//!
//! # Races it accepts
//! - A request that the engine has may come into effect after the caller's deadline, within
//!   [`Descriptor::late_effect_window`].
//! - A container that ends by itself while a stop is asked for is not reported as changed.

mod address;
mod bundle;
mod carrier;
mod directories;
mod doctor;
mod engine;
mod events;
mod images;
mod inside;
mod kind;
mod link;
mod mux;
mod objects;
mod orphans;
mod prepared;
mod registries;
mod server_volumes;
mod settings;
mod spec;
mod terminal;
mod wire;
mod work;
mod workspaces;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Capability, CreateSpec, Descriptor, Egress, Enforcement, Enforcements, EventSender,
    GivenProgram, Health, Isolation, Lifecycle, LimitKind, LimitsInForce, Object, ObjectKey,
    ProviderError, ProviderEvents, Target, TargetCall, Uniqueness,
};
use crate::clock::{Clock, IdSource};
use crate::egress::{Proxies, Resolve, SystemResolver};
use crate::git::LateGateway;
use crate::models::LateModelGateway;
use crate::types::{InstanceId, NamedSecrets, NetworkKind};
use address::EngineAddress;
use bundle::VolumeContent;
use engine::ContainerEngine;
use images::ImagePulls;
use link::{Links, Services};
use objects::{Containers, ContainersConfig};

pub use inside::run_hidden_command;
pub use kind::DockerKind;
pub use settings::{ContainerUser, DockerOptions, DockerSettings, Pull};

/// How long after a call's deadline its effect may still appear: the engine finishes what it was asked
/// for, which takes seconds on a busy disk.
const LATE_EFFECT_WINDOW: Duration = Duration::from_secs(15);

/// How long a look at the engine's health may take.
const HEALTH_WAIT: Duration = Duration::from_millis(1800);

/// What the provider needs to know.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// As configured.
    pub settings: DockerSettings,
    /// The binary that [`run_hidden_command`] is in.
    pub helper: PathBuf,
    /// Finds the addresses of names for sandboxes that have a network.
    pub resolver: Arc<dyn Resolve>,
    /// Where the server itself listens: no sandbox reaches that. `None` where there is no server.
    pub server: Option<SocketAddr>,
    /// The secrets that templates name.
    pub secrets: NamedSecrets,
    /// Answers git's requests; `None` without credentials for GitHub.
    pub gateway: Option<LateGateway>,
    /// Answers what agents ask models.
    pub models: LateModelGateway,
    /// The programs that every sandbox sees beside its image's.
    pub programs: Arc<[GivenProgram]>,
}

impl DockerConfig {
    /// The usual, as configured.
    pub fn new(settings: DockerSettings) -> Self {
        Self {
            settings,
            helper: PathBuf::from("/proc/self/exe"),
            resolver: Arc::new(SystemResolver::default()),
            server: None,
            secrets: NamedSecrets::default(),
            gateway: None,
            models: LateModelGateway::default(),
            programs: Arc::new([]),
        }
    }
}

/// The provider `docker`. A clone is the same provider. Dropping the last one ends nothing in containers.
#[derive(Clone)]
pub struct DockerProvider(Arc<DockerParts>);

/// What all clones share.
struct DockerParts {
    containers: Arc<Containers>,
    events: EventSender,
    _follower: AbortOnDropHandle<()>,
}

impl DockerProvider {
    /// Opens the provider. The engine is asked for nothing yet: it may be away. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// The helper's files cannot be found.
    pub fn open(
        config: DockerConfig,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> std::io::Result<Self> {
        let engine = Arc::new(ContainerEngine::new(EngineAddress::of(&config.settings)));
        let events = EventSender::default();
        let git_settings =
            config.gateway.as_ref().map_or_else(Bytes::new, |gateway| gateway.git_config(false));
        let (helper, interpreter) = VolumeContent::helper(&config.helper, git_settings)?;
        let command = spec::helper_command(interpreter.as_deref());
        let services = Services {
            proxies: Proxies::new(config.resolver, config.server, events.clone()),
            gateway: config.gateway,
            models: config.models,
            secrets: config.secrets,
        };
        let links = Links::new(Arc::clone(&engine), services, command.clone());
        let images = ImagePulls::new(Arc::clone(&engine), &config.settings, events.clone());
        let contents = std::iter::once(helper).chain(VolumeContent::programs(&config.programs));
        let contents = contents.collect();
        let config =
            ContainersConfig { settings: config.settings, images, helper: command, contents };
        let containers = Containers::new(Arc::clone(&engine), links, config, clock, ids);
        let follow = events::follow(engine, containers.links.own_calls().clone(), events.clone());
        Ok(Self(Arc::new(DockerParts {
            containers: Arc::new(containers),
            events,
            _follower: AbortOnDropHandle::new(tokio::spawn(follow)),
        })))
    }

    fn containers(&self) -> &Arc<Containers> {
        &self.0.containers
    }

    fn links(&self) -> &Arc<Links> {
        &self.0.containers.links
    }
}

/// How each limit holds on an engine that can enforce what engines can.
fn declared_limits() -> Enforcements {
    Enforcements::from([
        (LimitKind::Cpu, Enforcement::Enforced),
        (LimitKind::Memory, Enforcement::Enforced),
        (LimitKind::Processes, Enforcement::Enforced),
        (LimitKind::OpenFiles, Enforcement::PerProcess),
        // A volume has no size.
        (LimitKind::Disk, Enforcement::None),
        (LimitKind::FileSize, Enforcement::None),
        (LimitKind::UserCounters, Enforcement::None),
    ])
}

#[async_trait]
impl Lifecycle for DockerProvider {
    fn descriptor(&self) -> Descriptor {
        let capabilities = [
            Capability::Terminal,
            Capability::Ports,
            Capability::Tunnels,
            Capability::Archives,
            Capability::DetachedProcesses,
            Capability::Git,
        ];
        Descriptor {
            uniqueness: Uniqueness::EnforcedNames,
            late_effect_window: LATE_EFFECT_WINDOW,
            dies_with_server: false,
            capabilities: capabilities.into(),
            networks: vec![NetworkKind::None, NetworkKind::Allow, NetworkKind::Full],
            isolation: Isolation {
                kind: "container",
                seccomp: Enforcement::Enforced,
                memory_counts: Some(
                    "everything that the container's control group counts, without swap",
                ),
            },
            limits: declared_limits(),
        }
    }

    async fn health(&self) -> Health {
        let mut limits = declared_limits();
        let asked = timeout(HEALTH_WAIT, self.containers().engine.info()).await;
        let info = match asked {
            Ok(Ok(info)) => info,
            Ok(Err(error)) => {
                return Health { identity: None, trouble: Some(error.to_string()), limits };
            }
            Err(_) => {
                let address = self.containers().engine.address();
                let trouble = format!("the container engine at {address} does not answer");
                return Health { identity: None, trouble: Some(trouble), limits };
            }
        };
        for (limit, holds) in [
            (LimitKind::Memory, info.memory_limit),
            (LimitKind::Cpu, info.cpu_cfs_quota),
            (LimitKind::Processes, info.pids_limit),
        ] {
            if holds == Some(false) {
                limits.insert(limit, Enforcement::None);
            }
        }
        let is_linux = info.os_type.as_deref().is_none_or(|system| system == "linux");
        let trouble = (!is_linux).then(|| {
            "the container engine runs no Linux containers; switch it to Linux containers".into()
        });
        Health { identity: info.id.filter(|id| !id.is_empty()).or(info.name), trouble, limits }
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        self.containers().find(&key).await
    }

    async fn list(&self, instance: InstanceId) -> Result<Vec<Object>, ProviderError> {
        self.containers().list(&instance).await
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        self.containers().by(spec.deadline, self.containers().create(&spec)).await
    }

    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.containers().by(call.deadline, self.containers().start(&call)).await
    }

    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.containers().by(call.deadline, self.containers().stop(&call)).await
    }

    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError> {
        self.containers().by(call.deadline, self.containers().delete(&call)).await
    }

    fn subscribe(&self) -> ProviderEvents {
        self.0.events.subscribe()
    }

    async fn limits(&self, target: Target) -> Option<LimitsInForce> {
        let made = self.containers().made_from(&target).await?;
        Some(LimitsInForce { resources: made.resources, holds: declared_limits() })
    }

    fn egress(&self) -> Option<Egress> {
        Some(self.links().services().proxies.egress())
    }
}
