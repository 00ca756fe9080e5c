//! A provider without machines, for tests, demos and benchmarks: its objects are files.
//!
//! Each object is `<externalId>.json` in a directory that outlives the server, and every call is
//! a line of `calls.jsonl` there, so a check from outside can count what really exists and what
//! was asked. Files that others remove, change or add there count like the provider's own.
//!
//! # Guarantees
//! The contract of [`crate::sandbox`], with enforced names unless `unique_names` is off. A call
//! waits first and then acts in one go, so a call that is dropped or past its deadline leaves
//! nothing to land later: `settle` is zero. Only a delete marks its object before it waits.
//!
//! # What it does not do
//! No process runs: a command is one of a few programs (`program`) that the simulation plays, and
//! anything else writes its arguments back. Files are real, in a directory for each object. A
//! terminal has a shell that runs those programs, and a port leads to one of them that serves. Two
//! servers on one directory do not see each other's creates of the same moment.

mod calls;
mod faults;
mod kind;
mod objects;
mod output;
mod ports;
mod process;
mod processes;
mod program;
mod settings;
mod terminal;
mod watch;
mod work;
mod workload;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use calls::CallLog;
pub use faults::{SimulatedConfig, SimulatedFaults};
pub use kind::SimulatedKind;
use objects::SimObjects;
use processes::SimProcesses;
pub use settings::SimulatedSettings;

use super::{
    Capability, CreateSpec, Descriptor, Enforcement, Enforcements, Health, Isolation, Lifecycle,
    LimitKind, Object, ObjectKey, ProviderError, Target, TargetCall, Uniqueness, WorkError,
};
use crate::clock::{Clock, IdSource};
use crate::types::{ExternalId, InstanceId, ObjectState, Timestamp};

/// The simulated provider. See the [module](self). A clone is the same provider.
#[derive(Clone)]
pub struct SimulatedProvider(Arc<SimulatedParts>);

/// What all clones of a provider share.
#[doc(hidden)]
pub struct SimulatedParts {
    unique_names: bool,
    identity: String,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    faults: RwLock<SimulatedFaults>,
    /// How many more creates `fail_first_n` lets fail.
    creates_to_fail: AtomicU64,
    objects: Mutex<SimObjects>,
    processes: SimProcesses,
    calls: CallLog,
}

impl std::ops::Deref for SimulatedProvider {
    type Target = SimulatedParts;

    fn deref(&self) -> &SimulatedParts {
        &self.0
    }
}

/// Why the provider's directory could not be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "the simulated provider's directory {dir} cannot be used; make it writable, or set another \
     one as [providers.simulated] dir",
    dir = dir.display()
)]
pub struct SimulatedOpenError {
    /// The directory.
    dir: PathBuf,
    source: io::Error,
}

impl SimulatedProvider {
    /// Opens the provider on its directory, with the objects that an earlier process left there.
    ///
    /// # Errors
    /// [`SimulatedOpenError`] where the directory can't be made, read or written.
    pub fn open(
        config: SimulatedConfig,
        faults: SimulatedFaults,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, SimulatedOpenError> {
        let SimulatedConfig { dir, unique_names } = config;
        let open = || {
            let objects = SimObjects::open(&dir)?;
            let identity = objects.identity(ids.request_id())?;
            Ok((objects, identity, CallLog::open(&dir)?))
        };
        let (objects, identity, calls) =
            open().map_err(|source| SimulatedOpenError { dir: dir.clone(), source })?;
        Ok(Self(Arc::new(SimulatedParts {
            unique_names,
            identity,
            clock: Arc::clone(&clock),
            ids,
            faults: RwLock::new(faults),
            creates_to_fail: AtomicU64::new(faults.fail_first_n),
            objects: Mutex::new(objects),
            processes: SimProcesses::below(dir.join(objects::PRIVATE_DIR).join("work"), clock),
            calls,
        })))
    }

    /// Sets what goes wrong from now on; calls that wait already end as they began.
    pub fn set_faults(&self, faults: SimulatedFaults) {
        *self.faults.write().unwrap_or_else(PoisonError::into_inner) = faults;
        self.creates_to_fail.store(faults.fail_first_n, Ordering::Relaxed);
    }

    /// Sets these faults unless they are in force already; whether they were not.
    fn change_faults(&self, faults: SimulatedFaults) -> bool {
        let changed = *self.faults.read().unwrap_or_else(PoisonError::into_inner) != faults;
        if changed {
            self.set_faults(faults);
        }
        changed
    }

    /// What goes wrong now, where not every call errors.
    fn faults(&self) -> Result<SimulatedFaults, ProviderError> {
        let faults = *self.faults.read().unwrap_or_else(PoisonError::into_inner);
        if faults.unavailable {
            return Err(ProviderError::unavailable("the simulated provider is set unavailable"));
        }
        Ok(faults)
    }

    /// The objects as they are now.
    fn objects(&self) -> Result<MutexGuard<'_, SimObjects>, ProviderError> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.refresh()?;
        if objects.log_was_taken() {
            self.calls.reopen().map_err(|error| {
                ProviderError::Broken(format!("the log of calls can't be made again: {error}"))
            })?;
        }
        Ok(objects)
    }

    /// Whether something of this probability happens this time.
    fn happens(&self, probability: f64) -> bool {
        f64::from(self.ids.jitter_permille()) / 1001.0 < probability
    }

    /// Takes this long, but gives up at the deadline.
    async fn take(&self, ms: u64, deadline: Timestamp) -> Result<(), ProviderError> {
        let now = self.clock.now();
        let end = now.after(Duration::from_millis(ms));
        if end > deadline {
            self.clock.sleep_until(deadline).await;
            return Err(ProviderError::unavailable("no answer before the deadline"));
        }
        if end > now {
            self.clock.sleep_until(end).await;
        }
        Ok(())
    }

    /// Makes what is asked, or finds that it is there.
    fn make(&self, spec: &CreateSpec) -> Result<Object, ProviderError> {
        let mut objects = self.objects()?;
        if self.unique_names {
            let there = objects.named(&spec.name)?;
            let same = there.iter().find(|object| {
                let labels = object.labels.as_ref();
                labels.is_some_and(|labels| labels.sandbox == spec.labels.sandbox)
            });
            if let Some(object) = same.or(there.first()) {
                let object = (*object).clone();
                let is_same = same.is_some();
                return match object.state {
                    ObjectState::Partial | ObjectState::Running | ObjectState::Stopped
                        if is_same =>
                    {
                        objects.set_state(&object.external_id, ObjectState::Running)
                    }
                    ObjectState::Partial
                    | ObjectState::Running
                    | ObjectState::Stopped
                    | ObjectState::Destroying
                    | ObjectState::Error { .. } => Err(ProviderError::Present(Box::new(object))),
                };
            }
        }
        let id = ExternalId::trusted(format!("sim-{}", self.ids.request_id()));
        objects.make(id, spec, self.clock.now())
    }

    /// Brings a target to a state.
    fn change(
        &self,
        call: &mut calls::LoggedCall<'_>,
        target: &Target,
        state: ObjectState,
    ) -> Result<Object, ProviderError> {
        let mut objects = self.objects()?;
        let object = checked(call, &objects, target)?;
        match &object.state {
            ObjectState::Destroying if state != ObjectState::Destroying => {
                Err(ProviderError::Refused("the object is being destroyed".into()))
            }
            ObjectState::Error { message } if state != ObjectState::Destroying => {
                Err(ProviderError::Broken(message.clone()))
            }
            ObjectState::Partial if state == ObjectState::Stopped => {
                Err(ProviderError::Refused("the object is only half made".into()))
            }
            ObjectState::Partial
            | ObjectState::Running
            | ObjectState::Stopped
            | ObjectState::Destroying
            | ObjectState::Error { .. } => {
                if object.state != state {
                    let down = self.processes.go_down(&target.external_id);
                    down.map_err(|error| ProviderError::Broken(error.to_string()))?;
                }
                objects.set_state(&target.external_id, state)
            }
        }
    }

    /// The target's object, if it runs.
    fn running(&self, target: &Target) -> Result<(), WorkError> {
        let objects = self.faults().and_then(|_faults| self.objects());
        let broken = |error: ProviderError| WorkError::Broken(error.to_string());
        let objects = objects.map_err(broken)?;
        match objects.get(&target.external_id).map_err(broken)? {
            Some(object) if object.state == ObjectState::Running && carries(object, target) => {
                Ok(())
            }
            Some(_) | None => Err(WorkError::NotRunning),
        }
    }
}

/// No process runs, so no limit holds.
fn limits() -> Enforcements {
    use LimitKind::{Cpu, Disk, Memory, Processes};
    [Cpu, Memory, Processes, Disk].map(|limit| (limit, Enforcement::None)).into()
}

/// Whether the object carries the sandbox id that is expected on it.
fn carries(object: &Object, target: &Target) -> bool {
    object.labels.as_ref().is_some_and(|labels| labels.sandbox == target.expected)
}

/// The target's object, checked to be the one that is meant, and noted in the log.
fn checked<'a>(
    call: &mut calls::LoggedCall<'_>,
    objects: &'a SimObjects,
    target: &Target,
) -> Result<&'a Object, ProviderError> {
    let object = objects.get(&target.external_id)?.ok_or(ProviderError::Absent)?;
    call.about_object(object);
    if carries(object, target) {
        Ok(object)
    } else {
        Err(ProviderError::Present(Box::new(object.clone())))
    }
}

#[async_trait]
impl Lifecycle for SimulatedProvider {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            uniqueness: if self.unique_names {
                Uniqueness::EnforcedNames
            } else {
                Uniqueness::None
            },
            capabilities: [
                Capability::Terminal,
                Capability::Ports,
                Capability::Tunnels,
                Capability::Archives,
                Capability::DetachedProcesses,
            ]
            .into(),
            isolation: Isolation {
                kind: "simulated",
                seccomp: Enforcement::None,
                memory_counts: None,
            },
            limits: limits(),
            ..Descriptor::plain()
        }
    }

    async fn health(&self) -> Health {
        let trouble = self.faults().and_then(|_faults| self.objects().map(drop)).err();
        Health {
            identity: Some(self.identity.clone()),
            trouble: trouble.map(|error| error.to_string()),
            limits: limits(),
        }
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        let mut call = self.calls.begin("create", self.clock.now());
        call.about(Some(&spec.name), spec.labels.to_pairs());
        let faults = match self.faults() {
            Ok(faults) => faults,
            Err(error) => return call.end(Err(error)),
        };
        if let Err(error) = self.take(faults.create_delay_ms, spec.deadline).await {
            return call.end(Err(error));
        }
        let fewer = |left: u64| left.checked_sub(1);
        let is_of_first =
            self.creates_to_fail.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok();
        if is_of_first || self.happens(faults.fail_create) {
            return call.end(Err(ProviderError::Broken("the simulated create failed".into())));
        }
        let made = self.make(&spec);
        if made.is_ok() && self.happens(faults.lose_response) {
            return Err(call.lose());
        }
        call.end(made)
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        let mut call = self.calls.begin("get", self.clock.now());
        let labels = [
            ("issuebox.instance", key.instance.to_string()),
            ("issuebox.home", key.home.to_string()),
        ];
        call.about(Some(&key.name), labels);
        let found = self.faults().and_then(|_faults| self.objects()?.find(&key));
        call.end(found)
    }

    async fn list(&self, instance: InstanceId) -> Result<Vec<Object>, ProviderError> {
        let mut call = self.calls.begin("list", self.clock.now());
        call.about(None, [("issuebox.instance", instance.to_string())]);
        let found = self.faults().and_then(|_faults| self.objects()?.of_instance(&instance));
        call.end(found)
    }

    async fn start(&self, ask: TargetCall) -> Result<Object, ProviderError> {
        let mut call = self.calls.begin("start", self.clock.now());
        let started = match self.faults() {
            Ok(_) => self.change(&mut call, &ask.target, ObjectState::Running),
            Err(error) => Err(error),
        };
        call.end(started)
    }

    async fn stop(&self, ask: TargetCall) -> Result<Object, ProviderError> {
        let mut call = self.calls.begin("stop", self.clock.now());
        let waited = match self.faults() {
            Ok(_) if ask.force => Ok(()),
            Ok(faults) => self.take(faults.stop_delay_ms, ask.deadline).await,
            Err(error) => Err(error),
        };
        let stopped =
            waited.and_then(|()| self.change(&mut call, &ask.target, ObjectState::Stopped));
        call.end(stopped)
    }

    async fn delete(&self, ask: TargetCall) -> Result<(), ProviderError> {
        let mut call = self.calls.begin("delete", self.clock.now());
        let faults = match self.faults() {
            Ok(faults) => faults,
            Err(error) => return call.end(Err(error)),
        };
        if faults.delete_delay_ms > 0 && !ask.force {
            let marked = self.change(&mut call, &ask.target, ObjectState::Destroying);
            if let Err(error) = marked {
                return call.end(Err(error));
            }
            if let Err(error) = self.take(faults.delete_delay_ms, ask.deadline).await {
                return call.end(Err(error));
            }
        }
        let removed = self.objects().and_then(|mut objects| {
            checked(&mut call, &objects, &ask.target)?;
            let removed = self.processes.remove(&ask.target.external_id);
            removed.map_err(|error| ProviderError::Broken(error.to_string()))?;
            objects.remove(&ask.target.external_id)
        });
        call.end(removed)
    }
}
