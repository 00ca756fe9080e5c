//! The world's providers as the engine sees them: clients whose calls go on in the world when
//! they are dropped.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::counts::Happening;
use super::objects::{Began, SimObject, SimReply};
use super::store::instance;
use super::weather::ProviderWeather;
use super::world::ServerLife;
use crate::issue::event::ProviderRules;
use crate::sandbox::{
    CreateSpec, Descriptor, Enforcements, Health, Lifecycle, Object, ObjectKey, ProviderError,
    Target, TargetCall, Uniqueness,
};
use crate::types::{InstanceId, ProviderName, SandboxId, Timestamp};

/// One provider and what it has.
pub struct Cloud {
    pub name: ProviderName,
    pub rules: ProviderRules,
    pub objects: Vec<SimObject>,
    /// Until when it is unreachable, in milliseconds of the history.
    pub down_until_ms: u64,
    /// Until when it shows nothing of what it has, in milliseconds of the history.
    pub forgets_until_ms: u64,
    /// Until when another provider answers in its place, in milliseconds of the history.
    pub impostor_until_ms: u64,
    /// The life that has heard of it.
    pub unmasked_by: Option<u64>,
    /// Its last list left out so much that a sweep must not act on it.
    pub list_is_absurd: bool,
    /// What it had earlier, for lists that are out of date.
    pub earlier: VecDeque<Vec<Object>>,
}

impl Cloud {
    pub fn new(weather: &ProviderWeather) -> Self {
        Self {
            name: weather.name.clone(),
            rules: weather.rules,
            objects: Vec::new(),
            down_until_ms: 0,
            forgets_until_ms: 0,
            impostor_until_ms: 0,
            unmasked_by: None,
            list_is_absurd: false,
            earlier: VecDeque::new(),
        }
    }
}

/// What a call asks for.
#[derive(Clone, Debug)]
pub enum Op {
    Create(Box<CreateSpec>),
    Find(ObjectKey),
    Start(Target),
    Stop(Target),
    Delete(Target),
}

impl Op {
    /// The sandbox that it is about, if it is about one.
    pub fn sandbox(&self) -> Option<&SandboxId> {
        match self {
            Self::Create(spec) => Some(&spec.labels.sandbox),
            Self::Find(_) => None,
            Self::Start(target) | Self::Stop(target) | Self::Delete(target) => {
                Some(&target.expected)
            }
        }
    }

    /// What it counts as if its outcome is unknown and it takes effect.
    pub const fn happens_late(&self) -> Option<Happening> {
        match self {
            Self::Create(_) => Some(Happening::LateCreate),
            Self::Stop(_) => Some(Happening::LateStop),
            Self::Delete(_) => Some(Happening::LateDelete),
            Self::Find(_) | Self::Start(_) => None,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Create(spec) => format!("create {} as {}", spec.name, spec.labels.sandbox),
            Self::Find(key) => format!("find {}", key.name),
            Self::Start(target) => format!("start {} of {}", target.external_id, target.expected),
            Self::Stop(target) => format!("stop {} of {}", target.external_id, target.expected),
            Self::Delete(target) => {
                format!("delete {} of {}", target.external_id, target.expected)
            }
        }
    }
}

/// A client of one of the world's providers.
pub struct SimProvider {
    pub life: Arc<ServerLife>,
    pub cloud: usize,
}

/// Reports to the world when the client goes away: answered, or given up.
struct OpenCall<'a> {
    life: &'a ServerLife,
    number: u64,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if self.life.is_alive() {
            self.life.world().with(|inner| inner.close_call(self.number));
        }
    }
}

impl SimProvider {
    async fn call(&self, op: Op, deadline: Option<Timestamp>) -> Result<SimReply, ProviderError> {
        if !self.life.step() {
            return std::future::pending().await;
        }
        let began = self.life.world().with(|inner| inner.begin_call(self.cloud, op, deadline));
        let Began { number, answer, panics_after } = began;
        let _open = OpenCall { life: &self.life, number };
        if let Some(ms) = panics_after {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            resume_unwind(Box::new("the simulation lets a provider panic"));
        }
        match answer.await {
            Ok(answer) => answer,
            // Never answered: the caller's deadline ends it.
            Err(_) => std::future::pending().await,
        }
    }

    async fn object(&self, op: Op, deadline: Timestamp) -> Result<Object, ProviderError> {
        match self.call(op, Some(deadline)).await? {
            SimReply::Object(object) => Ok(object),
            SimReply::Objects(_) | SimReply::Accepted => unreachable!("the answer fits its call"),
        }
    }
}

#[async_trait]
impl Lifecycle for SimProvider {
    fn descriptor(&self) -> Descriptor {
        let rules = self.life.world().with(|inner| inner.clouds[self.cloud].rules);
        let uniqueness =
            if rules.names_enforced { Uniqueness::EnforcedNames } else { Uniqueness::None };
        let (late_effect_window, dies_with_server) =
            (rules.late_effect_window, rules.dies_with_server);
        Descriptor { uniqueness, late_effect_window, dies_with_server, ..Descriptor::plain() }
    }

    async fn health(&self) -> Health {
        if !self.life.step() {
            return std::future::pending().await;
        }
        self.life.pause().await;
        let identity = self.life.world().with(|inner| inner.identity(self.cloud));
        Health { identity, trouble: None, limits: Enforcements::new() }
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        let deadline = spec.deadline;
        self.object(Op::Create(Box::new(spec)), deadline).await
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        match self.call(Op::Find(key), None).await? {
            SimReply::Objects(objects) => Ok(objects),
            SimReply::Object(_) | SimReply::Accepted => unreachable!("the answer fits its call"),
        }
    }

    /// May be out of date and incomplete: a decision by it needs another look.
    async fn list(&self, of: InstanceId) -> Result<Vec<Object>, ProviderError> {
        if !self.life.step() {
            return std::future::pending().await;
        }
        let world = self.life.world();
        world.with(|inner| inner.check_asked_of_impostor(self.cloud, "a list"));
        self.life.pause().await;
        let (listed, pause) = self.life.world().with(|inner| inner.list(self.cloud));
        tokio::time::sleep(pause).await;
        let ours = |object: &Object| object.labels.as_ref().is_some_and(|l| l.instance == of);
        Ok(listed?.into_iter().filter(ours).collect())
    }

    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.object(Op::Start(call.target), call.deadline).await
    }

    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.object(Op::Stop(call.target), call.deadline).await
    }

    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError> {
        match self.call(Op::Delete(call.target), Some(call.deadline)).await? {
            SimReply::Accepted => Ok(()),
            SimReply::Object(_) | SimReply::Objects(_) => unreachable!("the answer fits its call"),
        }
    }
}

/// Whether an object carries this installation's labels.
pub fn is_ours(object: &Object) -> bool {
    object.labels.as_ref().is_some_and(|labels| labels.instance == instance())
}
