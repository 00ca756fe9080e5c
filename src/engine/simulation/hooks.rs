//! The hooks of templates as one server has them: cold starts that take their time, fail, cannot be
//! reached, hang and are interrupted, and what comes before a stop or a delete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::chance::Chance;
use super::counts::Happening;
use super::provider::Op;
use super::world::{ServerLife, WorldState};
use crate::engine::hooks::{HookedSandbox, LifecycleHooks};
use crate::issue::commit::Farewell;
use crate::issue::event::{CallError, ColdStartEnd};
use crate::issue::{Issue, step};
use crate::types::{
    ExternalId, HomeId, HookAction, HookStep, Hooks, ObjectState, Phase, SandboxId,
};

/// How long a step of a hook may take.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a stop or a delete waits.
const GRACE: Duration = Duration::from_secs(10);

/// What it is like for hooks to run. Rates are in thousandths.
#[derive(Clone, Debug)]
pub struct HookWeather {
    /// Cold starts that do not succeed.
    pub faults: u64,
    /// Starts that find an empty workspace.
    pub emptied: u64,
    /// Hooks that do not end by themselves.
    pub hanging: u64,
}

impl HookWeather {
    /// What it is like in a history of this seed, if its templates have hooks. Half of those with agents
    /// have them, and the others keep what they were before there was this.
    pub fn of(seed: u64) -> Option<Self> {
        if seed % 12 != 10 {
            return None;
        }
        let mut chance = Chance::new(seed ^ 0x400c);
        Some(Self {
            faults: *chance.pick(&[0, 100, 400]),
            emptied: *chance.pick(&[0, 200]),
            hanging: *chance.pick(&[0, 0, 50]),
        })
    }

    /// The hooks of the templates.
    pub fn hooks() -> Hooks {
        let action = HookAction::Run(vec!["make".into()]);
        let step = HookStep { action, cwd: None, timeout: STEP_TIME_MAX, env: BTreeMap::new() };
        Hooks {
            on_cold_start: vec![step.clone()],
            on_terminate: vec![step],
            grace: GRACE,
            ..Hooks::default()
        }
    }

    /// How much longer a call may take because of them.
    pub fn time_max() -> Duration {
        step::PREPARATION_TIME_MAX + STEP_TIME_MAX * 2 + GRACE
    }
}

/// What the world knows of hooks.
#[derive(Default)]
pub struct HookBook {
    /// Objects whose workspace a cold start has made, whole.
    made: BTreeSet<ExternalId>,
    /// Sandboxes in which a hook runs.
    busy: BTreeSet<SandboxId>,
    /// Sandboxes that leave *running* to be stopped or deleted, and whose hooks have not run before a
    /// call that the provider got.
    owing: BTreeSet<SandboxId>,
    /// Sandboxes whose hooks ran before a stop or a delete.
    said: BTreeSet<SandboxId>,
}

impl WorldState {
    /// What a durable step of an issue means for hooks.
    pub fn check_hooks(&mut self, before: Option<&Issue>, after: &Issue) {
        if self.weather.hooks.is_none() {
            return;
        }
        let record = after.state.record();
        // One that is history was deleted, or given up by force, without its hooks.
        let last = before.and_then(|issue| issue.state.record());
        if let Some(last) = last.filter(|last| record.is_none_or(|it| it.id != last.id)) {
            self.hooks.owing.remove(&last.id);
        }
        let Some(record) = record else { return };
        let was = before.and_then(|issue| issue.state.phase());
        let is = after.state.phase();
        if was == is {
            return;
        }
        match is {
            Some(Phase::Stopping | Phase::Deleting) if was == Some(Phase::Running) => {
                self.hooks.owing.insert(record.id.clone());
            }
            Some(Phase::Running | Phase::Stopped | Phase::Failed) => {
                self.hooks.owing.remove(&record.id);
                self.hooks.said.remove(&record.id);
            }
            Some(Phase::Creating | Phase::Starting | Phase::Stopping | Phase::Deleting) | None => {}
        }
        let made = after.state.external_id().is_some_and(|id| self.hooks.made.contains(id));
        if is == Some(Phase::Running) && !made {
            let what = format!("{} runs, and its cold start has not succeeded", record.id);
            self.violate(Some(after.home), what);
        }
    }

    /// A provider is asked for something: what is owed before it has been done.
    pub fn check_farewell(&mut self, home: Option<HomeId>, op: &Op) {
        let (Op::Stop(target) | Op::Delete(target)) = op else { return };
        if !self.hooks.owing.remove(&target.expected) {
            return;
        }
        if !self.hooks.said.remove(&target.expected) {
            self.violate(home, format!("{} is ended without its hooks", target.expected));
        }
    }

    /// The hooks of a server that is gone run no more.
    pub fn crash_hooks(&mut self) {
        if !self.hooks.busy.is_empty() {
            self.count(Happening::InterruptedHook);
        }
        self.hooks.busy.clear();
    }

    fn hook_begins(&mut self, sandbox: &HookedSandbox, what: &str) {
        let (home, id) = (Some(sandbox.home), &sandbox.record.id);
        self.note(home, || format!("{what} of {id} begins"));
        if !self.hooks.busy.insert(id.clone()) {
            self.violate(home, format!("two hooks of {id} run at the same time"));
        }
    }

    /// Whether the object is up.
    fn is_object_up(&self, id: &ExternalId) -> bool {
        let mut objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        objects.any(|it| it.object.external_id == *id && it.object.state == ObjectState::Running)
    }

    /// How a cold start is going to end; `None` if it hangs.
    fn choose_end(&mut self, sandbox: &HookedSandbox) -> Option<Result<ColdStartEnd, CallError>> {
        let Some(HookWeather { faults, emptied, hanging }) = self.weather.hooks.clone() else {
            return Some(Ok(ColdStartEnd::NotNeeded));
        };
        let strikes = |inner: &mut Self, rate| inner.weather.strikes(&mut inner.chance, rate);
        let is_made = self.hooks.made.contains(&sandbox.external_id);
        if !sandbox.record.needs_cold_start && is_made && !strikes(self, emptied) {
            return Some(Ok(ColdStartEnd::NotNeeded));
        }
        self.hooks.made.remove(&sandbox.external_id);
        if strikes(self, hanging) {
            return None;
        }
        if !strikes(self, faults) {
            return Some(Ok(ColdStartEnd::Succeeded));
        }
        Some(match self.chance.below(6) {
            0 => Ok(ColdStartEnd::Withheld("GitHub spoke against it".into())),
            1 | 2 => Err(unreached()),
            _ => {
                self.count(Happening::FailedColdStart);
                Ok(ColdStartEnd::Failed("step 1 of 1 failed".into()))
            }
        })
    }
}

fn unreached() -> CallError {
    CallError::Unavailable { message: "it went down".into(), retry_after: None }
}

/// The hooks of one life of the server.
pub struct SimHooks(pub Arc<ServerLife>);

/// Says that a hook runs until this is dropped.
struct RunningHook<'a> {
    life: &'a ServerLife,
    id: SandboxId,
}

impl Drop for RunningHook<'_> {
    fn drop(&mut self) {
        if self.life.is_alive() {
            self.life.world().with(|inner| inner.hooks.busy.remove(&self.id));
        }
    }
}

impl SimHooks {
    async fn begin(&self, sandbox: &HookedSandbox, what: &str) -> RunningHook<'_> {
        if !self.0.step() {
            std::future::pending::<()>().await;
        }
        self.0.world().with(|inner| inner.hook_begins(sandbox, what));
        RunningHook { life: &self.0, id: sandbox.record.id.clone() }
    }

    /// Lasts until it becomes calm, if it is not ended before.
    async fn hang(&self) {
        while self.0.world().with(|inner| !inner.weather.calm) {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
}

#[async_trait]
impl LifecycleHooks for SimHooks {
    async fn cold_start(&self, sandbox: HookedSandbox) -> Result<ColdStartEnd, CallError> {
        let _running = self.begin(&sandbox, "the cold start").await;
        let world = self.0.world();
        let end = world.with(|inner| inner.choose_end(&sandbox));
        self.0.takes_time().await;
        let Some(end) = end else {
            self.hang().await;
            return Err(unreached());
        };
        world.with(|inner| {
            inner.note(Some(sandbox.home), || format!("the cold start ends: {end:?}"));
            if !inner.is_object_up(&sandbox.external_id) {
                return Err(unreached());
            }
            if end == Ok(ColdStartEnd::Succeeded) {
                inner.count(Happening::ColdStart);
                inner.hooks.made.insert(sandbox.external_id.clone());
            }
            end
        })
    }

    async fn before_end(&self, sandbox: HookedSandbox, _what: Farewell) {
        let _running = self.begin(&sandbox, "what comes before the end").await;
        let hangs = self.0.world().with(|inner| {
            inner.count(Happening::HookBeforeEnd);
            inner.hooks.said.insert(sandbox.record.id.clone());
            let rate = inner.weather.hooks.as_ref().map_or(0, |hooks| hooks.hanging);
            inner.weather.strikes(&mut inner.chance, rate)
        });
        self.0.takes_time().await;
        if hangs {
            self.hang().await;
        }
    }

    async fn out_of_grace(&self, _sandbox: HookedSandbox, _what: Farewell) {
        self.0.world().with(|inner| inner.count(Happening::OutOfGrace));
    }
}
