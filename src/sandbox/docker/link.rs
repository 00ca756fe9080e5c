//! The server's connections to the helpers in running containers.
//!
//! Each running container has one, over `docker exec`. It is made when something first needs it, and
//! made again when it breaks while the container runs on, since programs inside reach the models and
//! git by it. What comes from a helper comes from inside the sandbox and is not trusted.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::TryStreamExt;
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::io::StreamReader;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::engine::{ContainerEngine, status};
use super::events::OwnCalls;
use super::inside::CONNECT_COMMAND;
use super::mux::{Mux, MuxStream};
use super::spec::{FoundContainer, MadeFrom};
use super::wire::{
    self, CALLS_MAX, HelperReply, HelperRequest, MESSAGE_LEN_MAX, PROTOCOL,
    SERVICE_CONNECTIONS_MAX, Service,
};
use crate::egress::{Proxies, Proxy};
use crate::git::LateGateway;
use crate::models::LateModelGateway;
use crate::models::serve::ModelServer;
use crate::sandbox::command_defaults::CommandDefaults;
use crate::sandbox::confined::{RequestFailure, broken};
use crate::sandbox::{Arrivals, ProviderError, Target, WorkError};
use crate::types::{NamedSecrets, ObjectState, SandboxId};

/// How long a helper may take to answer the first call.
const HELLO_WAIT: Duration = Duration::from_secs(15);

/// How long the first byte of a connection from inside may take.
const SERVICE_WAIT: Duration = Duration::from_secs(10);

/// The pauses between tries to connect again.
pub const RECONNECT_FIRST: Duration = Duration::from_millis(50);
pub const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// How long a container may take to be down after its helper has gone.
const ENDING_WAIT: Duration = Duration::from_millis(500);

/// Longest piece of output of the way to a helper, in bytes.
const PIECE_LEN: usize = 64 * 1024;

/// The services that programs in containers reach.
pub struct Services {
    /// The egress proxies.
    pub proxies: Proxies,
    /// Answers git's requests; `None` without credentials for GitHub.
    pub gateway: Option<LateGateway>,
    /// Answers what agents ask models.
    pub models: LateModelGateway,
    /// The secrets that templates name.
    pub secrets: NamedSecrets,
}

/// A connection to one helper.
pub struct HelperLink {
    mux: Mux,
    sandbox: SandboxId,
    /// What each command gets from its template.
    pub defaults: CommandDefaults,
    calls: Arc<Semaphore>,
    /// They end with the connection.
    _services: (Option<Proxy>, ModelServer),
}

/// A call that a helper has answered, and its place.
pub struct HelperCall {
    /// What follows the answer.
    pub stream: MuxStream,
    _place: OwnedSemaphorePermit,
}

/// Why a call had no answer: the connection broke, which says nothing about the container.
#[derive(Debug)]
pub struct LinkLost;

impl From<io::Error> for LinkLost {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl HelperLink {
    /// Sends a request without waiting for its answer.
    pub async fn send(&self, request: &HelperRequest) -> Result<HelperCall, LinkLost> {
        // The semaphore is never closed.
        let place = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| LinkLost)?;
        let mut stream = self.mux.open().await.ok_or(LinkLost)?;
        wire::send(&mut stream, request).await?;
        Ok(HelperCall { stream, _place: place })
    }

    /// Whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.mux.is_gone()
    }
}

impl HelperCall {
    /// The helper's answer.
    pub async fn reply(&mut self) -> Result<HelperReply, LinkLost> {
        wire::receive(&mut self.stream, MESSAGE_LEN_MAX).await?.ok_or(LinkLost)
    }
}

/// An answer that is a failure, as callers get it.
pub fn refusal(reply: HelperReply) -> WorkError {
    match reply {
        HelperReply::Failed { kind, mut message } => {
            // From inside: of any length.
            message
                .truncate(message.floor_char_boundary(crate::sandbox::confined::MESSAGE_LEN_MAX));
            RequestFailure { kind, message }.into()
        }
        HelperReply::OutOfRange { size } => WorkError::OutOfRange { size },
        HelperReply::NoSuchProcess => WorkError::NoSuchProcess,
        HelperReply::StdinClosed => WorkError::StdinClosed,
        HelperReply::Stopping => WorkError::NotRunning,
        HelperReply::Done
        | HelperReply::Spawned { .. }
        | HelperReply::Found { .. }
        | HelperReply::Exited { .. }
        | HelperReply::Content { .. }
        | HelperReply::Written { .. } => nonsense(),
    }
}

/// The error for an answer that does not fit its request.
pub fn nonsense() -> WorkError {
    broken("the sandbox gave an answer that makes no sense")
}

/// The connections of one provider, by container.
pub struct Links {
    engine: Arc<ContainerEngine>,
    services: Services,
    helper: Vec<String>,
    own_calls: OwnCalls,
    slots: Mutex<HashMap<String, Arc<LinkSlot>>>,
}

/// The connection to one container; held while it is made.
type LinkSlot = tokio::sync::Mutex<Option<Arc<HelperLink>>>;

impl Links {
    /// None yet. `helper` starts the binary inside.
    pub fn new(engine: Arc<ContainerEngine>, services: Services, helper: Vec<String>) -> Arc<Self> {
        let own_calls = OwnCalls::default();
        Arc::new(Self { engine, services, helper, own_calls, slots: Mutex::default() })
    }

    /// The services that programs in containers reach.
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// What the provider does itself with containers.
    pub const fn own_calls(&self) -> &OwnCalls {
        &self.own_calls
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Arc<LinkSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a target's helper, which is made if there is none.
    ///
    /// # Errors
    /// [`WorkError::NotRunning`], [`WorkError::Broken`].
    pub async fn get(self: &Arc<Self>, target: &Target) -> Result<Arc<HelperLink>, WorkError> {
        let id = target.external_id.as_str();
        let slot = Arc::clone(self.slots().entry(id.to_owned()).or_default());
        let mut held = slot.lock().await;
        if let Some(link) = held.as_ref().filter(|link| !link.is_gone()) {
            let is_meant = link.sandbox == target.expected;
            return if is_meant { Ok(Arc::clone(link)) } else { Err(WorkError::NotRunning) };
        }
        *held = None;
        let made_from = match self.running(target).await {
            Ok(made_from) => made_from,
            Err(error) => {
                drop(held);
                self.slots().retain(|_, slot| Arc::strong_count(slot) > 1 || is_held(slot));
                return Err(error);
            }
        };
        let link = Arc::new(self.connect(target, made_from).await?);
        *held = Some(Arc::clone(&link));
        tokio::spawn(Self::keep(Arc::downgrade(self), target.clone(), link.mux.gone()));
        Ok(link)
    }

    /// Begins to connect to a target's helper.
    pub fn connect_soon(self: &Arc<Self>, target: Target) {
        let links = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = links.get(&target).await {
                tracing::debug!(%error, sandbox = %target.expected, "cannot connect");
            }
        });
    }

    /// Whether there is a connection to this container, or one is being made.
    pub fn has(&self, id: &str) -> bool {
        self.slots().get(id).is_some_and(|slot| slot.try_lock().is_err() || is_held(slot))
    }

    /// Ends the connection to a container.
    pub async fn end(&self, id: &str) {
        let slot = self.slots().remove(id);
        if let Some(slot) = slot {
            *slot.lock().await = None;
        }
    }

    /// The error for a call whose connection broke.
    pub async fn lost(&self, target: &Target) -> WorkError {
        for pause in [Duration::ZERO, ENDING_WAIT] {
            // The helper goes a moment before its container is seen to be down.
            tokio::time::sleep(pause).await;
            if let Err(error) = self.running(target).await {
                return error;
            }
        }
        broken("the connection to the sandbox broke; try again")
    }

    /// What a target's container was made from, if it runs.
    async fn running(&self, target: &Target) -> Result<MadeFrom, WorkError> {
        if self.own_calls.are_ending(target.external_id.as_str()) {
            return Err(WorkError::NotRunning);
        }
        let found = self.inspect(target.external_id.as_str()).await.map_err(broken)?;
        let is_meant = |found: &FoundContainer| {
            found.state == ObjectState::Running
                && found.labels().is_some_and(|labels| labels.sandbox == target.expected)
        };
        let found = found.filter(is_meant).ok_or(WorkError::NotRunning)?;
        found.made_from().ok_or(WorkError::NotRunning)
    }

    /// The container with exactly this id.
    ///
    /// # Errors
    /// As for the engine.
    pub async fn inspect(&self, id: &str) -> Result<Option<FoundContainer>, ProviderError> {
        let found = self.engine.client().await?.inspect_container(id, None).await;
        match found {
            // The engine also takes names and beginnings of ids.
            Ok(found) => Ok(FoundContainer::inspected(found).filter(|found| found.id == id)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(self.engine.failed(error)),
        }
    }

    async fn connect(&self, target: &Target, made: MadeFrom) -> Result<HelperLink, WorkError> {
        let id = target.external_id.as_str();
        let (input, output) = self.attach(id).await?;
        let pieces = output.map_err(io::Error::other).try_filter_map(async |piece| {
            Ok(match piece {
                LogOutput::StdOut { message } => Some(message),
                LogOutput::StdErr { message } => {
                    let said = String::from_utf8_lossy(&message);
                    tracing::debug!(said = %said.trim_end(), "the way to a sandbox says");
                    None
                }
                LogOutput::StdIn { .. } | LogOutput::Console { .. } => None,
            })
        });
        let socket = tokio::io::join(StreamReader::new(Box::pin(pieces)), input);
        let (mux, arrived) = Mux::start(socket, yamux::Mode::Client);
        let (to_models, models) = mpsc::channel(SERVICE_CONNECTIONS_MAX);
        let (to_proxy, proxied) = mpsc::channel(SERVICE_CONNECTIONS_MAX);
        tokio::spawn(sort(arrived, to_models, to_proxy));
        let Services { proxies, gateway, models: model_gateway, secrets } = &self.services;
        let sandbox = &target.expected;
        let gateway = gateway.clone().filter(|_| made.workload.git.is_some());
        let proxy = proxies.start(Some(ServiceArrivals(proxied)), &made.network, sandbox, gateway);
        let models =
            ModelServer::start(ServiceArrivals(models), sandbox.clone(), model_gateway.clone());
        let link = HelperLink {
            mux,
            sandbox: sandbox.clone(),
            defaults: CommandDefaults::new(Arc::new(made.workload), secrets.clone()),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            _services: (proxy, models),
        };
        let hello =
            async { link.send(&HelperRequest::Hello { protocol: PROTOCOL }).await?.reply().await };
        match timeout(HELLO_WAIT, hello).await {
            Ok(Ok(HelperReply::Done)) => Ok(link),
            Ok(Ok(other)) => Err(refusal(other)),
            Ok(Err(LinkLost)) => match self.running(target).await {
                Ok(_) => Err(broken("the sandbox's helper cannot be reached")),
                Err(error) => Err(error),
            },
            Err(_) => Err(broken("the sandbox's helper did not answer in time")),
        }
    }

    /// Starts a way to a container's helper.
    async fn attach(&self, id: &str) -> Result<ToHelper, WorkError> {
        let engine = self.engine.client().await.map_err(broken)?;
        let failed = |error: Error| match status(&error) {
            Some(404 | 409) => WorkError::NotRunning,
            _ => broken(self.engine.failed(error)),
        };
        let command = self.helper.iter().cloned().chain([CONNECT_COMMAND.to_owned()]);
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            // Root of the container, without any capability: the helper takes no other.
            user: Some("0:0".to_owned()),
            cmd: Some(command.collect()),
            working_dir: Some("/".to_owned()),
            ..CreateExecOptions::default()
        };
        let made = engine.create_exec(id, options).await.map_err(failed)?;
        let options =
            StartExecOptions { output_capacity: Some(PIECE_LEN), ..StartExecOptions::default() };
        match engine.start_exec(&made.id, Some(options)).await.map_err(failed)? {
            StartExecResults::Attached { output, input } => Ok((input, output)),
            StartExecResults::Detached => Err(broken("the engine did not attach to the helper")),
        }
    }

    /// Connects again whenever a connection breaks while its container runs.
    fn keep(links: Weak<Self>, target: Target, gone: WaitForCancellationFutureOwned) -> Keeper {
        Box::pin(async move {
            gone.await;
            let mut pause = RECONNECT_FIRST;
            loop {
                tokio::time::sleep(pause).await;
                // One that was ended on purpose has no slot any more.
                let Some(links) = links.upgrade() else { return };
                if !links.slots().contains_key(target.external_id.as_str()) {
                    return;
                }
                match links.get(&target).await {
                    // The new one has a keeper of its own.
                    Ok(_) | Err(WorkError::NotRunning) => return,
                    Err(error) => tracing::debug!(%error, "cannot connect to a sandbox again"),
                }
                pause = (pause * 2).min(RECONNECT_MAX);
            }
        })
    }
}

/// Whether a slot has a connection or is being used.
fn is_held(slot: &LinkSlot) -> bool {
    slot.try_lock().is_ok_and(|link| link.as_ref().is_some_and(|link| !link.is_gone()))
}

/// Boxed, since it makes the connection that starts the next one.
type Keeper = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What leads to a helper, and what comes from it.
type ToHelper = (
    Pin<Box<dyn tokio::io::AsyncWrite + Send>>,
    Pin<Box<dyn futures_util::Stream<Item = Result<LogOutput, Error>> + Send>>,
);

/// Connections from inside to one service.
struct ServiceArrivals(mpsc::Receiver<MuxStream>);

impl Arrivals for ServiceArrivals {
    type Connection = MuxStream;

    async fn next(&mut self) -> io::Result<MuxStream> {
        match self.0.recv().await {
            Some(stream) => Ok(stream),
            // The connection has ended, and soon what waits here.
            None => std::future::pending().await,
        }
    }
}

/// Hands each stream from inside to its service.
async fn sort(
    mut arrived: mpsc::Receiver<MuxStream>,
    models: mpsc::Sender<MuxStream>,
    proxy: mpsc::Sender<MuxStream>,
) {
    let unsorted = Arc::new(Semaphore::new(2 * SERVICE_CONNECTIONS_MAX));
    while let Some(mut stream) = arrived.recv().await {
        // More than the helper ever opens: it is hostile.
        let Ok(place) = Arc::clone(&unsorted).try_acquire_owned() else { continue };
        let (models, proxy) = (models.clone(), proxy.clone());
        tokio::spawn(async move {
            let byte = timeout(SERVICE_WAIT, stream.read_u8()).await;
            let service = byte.ok().and_then(Result::ok).and_then(Service::of);
            // A full queue drops the connection.
            let _ = match service {
                Some(Service::Models) => models.try_send(stream),
                Some(Service::Proxy) => proxy.try_send(stream),
                None => Ok(()),
            };
            drop(place);
        });
    }
}
