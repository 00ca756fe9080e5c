//! A model of a provider that may lose answers, be late, fail and be crashed away from; the truth
//! that the properties look at.

use std::time::Duration;

use super::{LATE_EFFECT_WINDOW, StepBench, unavailable};
use crate::issue::commit::ProviderCall;
use crate::issue::event::{CallError, ColdStartEnd, Done, NotAsked, ObservedObject, Owner};
use crate::issue::state::Verb;
use crate::issue::{Cleanup, CleanupAction};
use crate::types::{ExternalId, Generation, Mode, ObjectState, SandboxId, Timestamp};

#[derive(Clone, Debug)]
pub struct ModelObject {
    pub external_id: ExternalId,
    pub sandbox: SandboxId,
    pub generation: Generation,
    pub state: ObjectState,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFate {
    /// As asked.
    Good,
    /// Done, and the answer is lost.
    Lost,
    /// Not done, and the caller does not know.
    Unreached,
    /// The answer is lost, and it lands just before it must have settled.
    LandsLate,
    /// A definite failure; a create leaves half an object.
    Breaks,
    /// A create makes an object that cannot run; anything else fails.
    Dead,
    /// There is no room; nothing is done.
    NoRoom,
    /// There was no turn for the call.
    NotAsked,
    /// The provider is known to be unreachable.
    Unreachable,
}

/// The provider's world: it outlives every crash of ours.
#[derive(Debug, Default)]
pub struct ModelWorld {
    pub names_enforced: bool,
    pub objects: Vec<ModelObject>,
    pub landing: Vec<(Timestamp, SandboxId, Generation)>,
    made: u32,
    /// Most objects that there ever were at once.
    pub most: usize,
}

impl ModelWorld {
    pub fn call(
        &mut self,
        bench: &StepBench,
        call: &ProviderCall,
        fate: ModelFate,
    ) -> Result<Done, CallError> {
        let record = &call.record;
        match fate {
            ModelFate::Unreached => return Err(unavailable()),
            ModelFate::NotAsked => return Err(CallError::NotAsked(NotAsked::NoTurn)),
            ModelFate::Unreachable => {
                let next_try = Duration::from_secs(20);
                let message = "model".to_owned();
                return Err(CallError::NotAsked(NotAsked::Unreachable { message, next_try }));
            }
            ModelFate::Breaks => {
                if call.verb == Verb::Create && self.objects.is_empty() {
                    self.make(&record.id, record.generation, ObjectState::Partial);
                }
                return Err(CallError::Broken("model".into()));
            }
            ModelFate::Dead => {
                if call.verb == Verb::Create && self.objects.is_empty() {
                    self.make(&record.id, record.generation, in_error());
                }
                return Err(CallError::Broken("model".into()));
            }
            ModelFate::NoRoom => {
                let retry_after = Some(Duration::from_secs(10));
                return Err(CallError::Exhausted { what: "model".into(), retry_after });
            }
            ModelFate::LandsLate if call.verb == Verb::Create => {
                let at = call.deadline.after(LATE_EFFECT_WINDOW - Duration::from_millis(1));
                assert!(at > bench.now);
                self.landing.push((at, record.id.clone(), record.generation));
                return Err(unavailable());
            }
            ModelFate::Good | ModelFate::Lost | ModelFate::LandsLate => {}
        }
        let result = self.act(call);
        if fate == ModelFate::Lost { Err(unavailable()) } else { result }
    }

    fn act(&mut self, call: &ProviderCall) -> Result<Done, CallError> {
        let record = &call.record;
        match &call.verb {
            Verb::Look => Ok(Done::Found(self.objects.iter().map(seen).collect())),
            Verb::Create => {
                if self.names_enforced
                    && let Some(there) = self.objects.first_mut()
                {
                    if there.sandbox != record.id || there.state == in_error() {
                        return Err(CallError::Present(seen(there)));
                    }
                    there.state = ObjectState::Running;
                    return Ok(Done::Up(seen(there)));
                }
                Ok(Done::Up(self.make(&record.id, record.generation, ObjectState::Running)))
            }
            Verb::Start | Verb::Stop => {
                let external_id = call.external_id.as_ref().expect("it has an object");
                let found = self.objects.iter_mut().find(|o| o.external_id == *external_id);
                let Some(object) = found else { return Err(CallError::Absent) };
                assert_eq!(object.sandbox, record.id, "only our own object is touched");
                if object.state == in_error() {
                    return Err(CallError::Broken("model".into()));
                }
                if call.verb == Verb::Start {
                    object.state = ObjectState::Running;
                    return Ok(Done::Up(seen(object)));
                }
                object.state = ObjectState::Stopped;
                Ok(Done::Down)
            }
            // No template of the model has hooks.
            Verb::ColdStart { .. } => Ok(Done::ColdStarted(ColdStartEnd::NotNeeded)),
            Verb::Delete { external_id, expected } => {
                let found = self.objects.iter().position(|o| o.external_id == *external_id);
                let Some(index) = found else { return Err(CallError::Absent) };
                assert_eq!(self.objects[index].sandbox, *expected);
                // The first removal only begins; a look or a second one ends it.
                if self.objects[index].state == ObjectState::Destroying {
                    self.objects.remove(index);
                    return Err(CallError::Absent);
                }
                self.objects[index].state = ObjectState::Destroying;
                Ok(Done::Removing)
            }
        }
    }

    /// Every object of the home, as a sweep sees them.
    pub fn look(&self) -> Vec<ObservedObject> {
        self.objects.iter().map(seen).collect()
    }

    /// A person removes an object at the provider; returns the sandbox it carried.
    pub fn lose(&mut self) -> Option<SandboxId> {
        self.objects.pop().map(|object| object.sandbox)
    }

    /// A person stops an object at the provider.
    pub fn kill(&mut self) {
        for object in &mut self.objects {
            if object.state == ObjectState::Running {
                object.state = ObjectState::Stopped;
            }
        }
    }

    /// Something at the provider makes every object unable to run.
    pub fn spoil(&mut self) {
        for object in &mut self.objects {
            if object.state != ObjectState::Destroying {
                object.state = in_error();
            }
        }
    }

    /// Puts away what the lifecycle says that no record needs.
    pub fn clean(&mut self, cleanup: &Cleanup) {
        self.objects.retain(|object| {
            let is_meant = object.external_id == cleanup.external_id;
            assert!(!is_meant || object.sandbox == cleanup.expected);
            !is_meant || cleanup.action == CleanupAction::Stop
        });
    }

    fn make(
        &mut self,
        sandbox: &SandboxId,
        generation: Generation,
        state: ObjectState,
    ) -> ObservedObject {
        self.made += 1;
        let object = ModelObject {
            external_id: ExternalId::trusted(format!("object-{}", self.made)),
            sandbox: sandbox.clone(),
            generation,
            state,
        };
        let seen = seen(&object);
        self.objects.push(object);
        self.most = self.most.max(self.objects.len());
        seen
    }

    /// Time has passed: late creates land. A removal that was begun ends only when it is asked
    /// again: the process that began it may have crashed.
    pub fn settle(&mut self, now: Timestamp) {
        let (due, later) = self.landing.drain(..).partition(|(at, ..)| *at <= now);
        self.landing = later;
        for (_, sandbox, generation) in Vec::<(Timestamp, SandboxId, Generation)>::from_iter(due) {
            if !self.names_enforced || self.objects.is_empty() {
                self.make(&sandbox, generation, ObjectState::Running);
            }
        }
    }
}

fn in_error() -> ObjectState {
    ObjectState::Error { message: "model".into() }
}

fn seen(object: &ModelObject) -> ObservedObject {
    ObservedObject {
        external_id: object.external_id.clone(),
        owner: Some(Owner {
            sandbox: object.sandbox.clone(),
            generation: object.generation,
            mode: Mode::Strong,
        }),
        state: object.state.clone(),
    }
}
