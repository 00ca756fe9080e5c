//! The life of objects: what the engine calls.

use async_trait::async_trait;

use super::{
    Capacity, Descriptor, Egress, Enforcements, Labels, LimitsInForce, Object, ProviderError,
    ProviderEvents, Target,
};
use crate::clock::Clock;
use crate::types::{HomeId, InstanceId, ObjectName, Template, Timestamp};

/// Makes, finds, starts, stops and removes objects. See the [module](super) for the guarantees.
#[async_trait]
pub trait Lifecycle: Send + Sync + 'static {
    /// What the provider declares about itself. The same at every call.
    fn descriptor(&self) -> Descriptor;

    /// Checks whether it can work now. Answers within two seconds.
    async fn health(&self) -> Health;

    /// Every object that has this name or carries this home's label, in any state, foreign ones
    /// of that name included. Empty means that there is none.
    ///
    /// # Errors
    /// Only [`ProviderError::Unavailable`], [`ProviderError::Broken`] and, for a rate limit,
    /// [`ProviderError::Exhausted`].
    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError>;

    /// Every object that carries this instance's label, however many pages the provider needs.
    ///
    /// # Errors
    /// As for `find`.
    async fn list(&self, instance: InstanceId) -> Result<Vec<Object>, ProviderError>;

    /// Makes the object and brings it up; returns once it is ready for `exec`.
    ///
    /// # Errors
    /// [`ProviderError::Present`] when the name is taken by an object of another sandbox id;
    /// [`ProviderError::Exhausted`] when there is no room, and then nothing was made; never
    /// [`ProviderError::Absent`].
    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError>;

    /// Brings a stopped object up; returns once it is ready for `exec`. Already up is success.
    ///
    /// # Errors
    /// Any; [`ProviderError::Present`] when the external id carries another sandbox id.
    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError>;

    /// Takes an object down and keeps its workspace; returns once no process of it is left.
    /// Already down is success.
    ///
    /// # Errors
    /// As for `start`.
    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError>;

    /// Removes an object and its workspace, in whatever state it is. Success says that removal
    /// was accepted; only [`ProviderError::Absent`], here or from a later call, says it is gone.
    ///
    /// # Errors
    /// As for `start`; [`ProviderError::Absent`] when there is no such object (any more).
    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError>;

    /// The room for objects a moment ago. Must not block. While it names a shortage, the engine
    /// asks for no create and no start.
    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    /// What the provider reports by itself from now on. Any number of subscribers; each receives
    /// every event, or [`Lagged`](super::ProviderEvent::Lagged) for what it was too slow to read.
    /// Ends at once if the provider never reports anything.
    fn subscribe(&self) -> ProviderEvents {
        ProviderEvents::none()
    }

    /// The limits of one object, up or not, if they can differ from its template's and from
    /// [`Health::limits`]; `None` otherwise, and if there is no such object.
    async fn limits(&self, _target: Target) -> Option<LimitsInForce> {
        None
    }

    /// Counts of what went out of all objects; `None` if that does not go through the server.
    fn egress(&self) -> Option<Egress> {
        None
    }
}

/// Whether a provider can work now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Which installation is behind this adapter (an engine's id, an organisation). When it
    /// changes, another one answers. `None` if it could not be asked.
    pub identity: Option<String>,
    /// Why it cannot work now and what to do, for people; `None` if it can.
    pub trouble: Option<String>,
    /// Each limit and how it holds now: as declared, or less since the machine changed.
    pub limits: Enforcements,
}

/// What `create` makes.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// The object's name.
    pub name: ObjectName,
    /// Its labels.
    pub labels: Labels,
    /// What it is made from.
    pub template: Template,
    /// When to give up.
    pub deadline: Timestamp,
}

/// What `find` looks for.
#[derive(Clone, Debug)]
pub struct ObjectKey {
    /// The object's name.
    pub name: ObjectName,
    /// Whose objects.
    pub instance: InstanceId,
    /// Which home's.
    pub home: HomeId,
}

/// A lifecycle call on a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCall {
    /// Which object.
    pub target: Target,
    /// Without grace: what would be asked to end first is killed at once.
    pub force: bool,
    /// When to give up.
    pub deadline: Timestamp,
}

/// Runs a call's work until its deadline. What the provider was asked for by then may still come into
/// effect. `late` says what did not happen in time.
///
/// # Errors
/// The work's; [`ProviderError::Unavailable`].
pub(super) async fn by_deadline<T>(
    clock: &dyn Clock,
    deadline: Timestamp,
    late: &str,
    work: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    tokio::select! {
        biased;
        done = work => done,
        () = clock.sleep_until(deadline) => Err(ProviderError::unavailable(late)),
    }
}
