//! What providers have and what calls do to it, also when the caller does not wait for the answer any more.
//!
//! The contract of `sandbox.rs` bounds the faults: an effect comes at the latest when the call's
//! deadline and the provider's settle time are over; a name is never given twice if that is
//! promised, and elsewhere only if two creates overlap; *absent* is only said of what is not
//! there.

use std::time::Duration;

use tokio::sync::oneshot;

use super::provider::{Op, is_ours};
use super::weather::{LOOK_TIME_MAX, RETRY_AFTER_MAX};
use super::world::{SimEffect, WorldState};
use crate::issue::state::IssueState;
use crate::sandbox::{CreateSpec, Labels, Object, ProviderError, Target};
use crate::types::{Attempt, ExternalId, HomeId, Mode, ObjectState, SandboxId, Timestamp};

/// How many earlier states a provider remembers for its lists.
const EARLIER_LEN_MAX: usize = 4;
/// How long after an answer it must have been taken, in milliseconds: slow commits before it, and
/// its own.
const TAKING_TIME_MAX_MS: u64 = 20_000;

/// One object.
pub struct SimObject {
    pub object: Object,
    /// Whether one of our calls made it.
    pub ours: bool,
}

/// What a call brings.
pub enum SimReply {
    Object(Object),
    Objects(Vec<Object>),
    Accepted,
}

/// How a call is going to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallFate {
    /// It takes effect and is answered.
    Answered,
    /// It takes effect at any time that it may; its answer is lost.
    Lost,
    /// It never gets there.
    Unreached,
    Refused,
    /// It is answered that nothing is there, whatever is.
    Forgotten,
    /// It fails, perhaps half way.
    Broken,
    /// The provider asks to be left alone.
    Busy,
    /// The client panics, and the call may take effect.
    Panics,
}

/// What a provider without enforced names found when it checked the name.
enum Checked {
    Free,
    Same,
    Other(Object),
}

/// A call that a server made.
pub struct SimCall {
    cloud: usize,
    home: Option<HomeId>,
    op: Op,
    /// The lifecycle may have asked, and takes the answer; else a sweep did, or a create is undone.
    asked_by: Option<(SandboxId, Attempt)>,
    fate: CallFate,
    /// When it can no longer take effect.
    until: Timestamp,
    checked: Option<Checked>,
    result: Option<Result<SimReply, ProviderError>>,
    answer: Option<oneshot::Sender<Result<SimReply, ProviderError>>>,
}

impl SimCall {
    /// The labels of what it makes, if it makes something.
    pub fn makes(&self) -> Option<&Labels> {
        match &self.op {
            Op::Create(spec) => Some(&spec.labels),
            Op::Find(_) | Op::Start(_) | Op::Stop(_) | Op::Delete(_) => None,
        }
    }
}

/// A call that has just been made.
pub struct Began {
    pub number: u64,
    pub answer: oneshot::Receiver<Result<SimReply, ProviderError>>,
    /// The client panics after so many milliseconds.
    pub panics_after: Option<u64>,
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl WorldState {
    /// A server calls. From here on the call's life is the world's.
    pub fn begin_call(&mut self, cloud: usize, op: Op, deadline: Option<Timestamp>) -> Began {
        let number = self.fresh();
        let now = self.now();
        let deadline = deadline.unwrap_or(now.after(LOOK_TIME_MAX));
        let late_effect_window = match op {
            Op::Find(_) => Duration::ZERO,
            Op::Create(_) | Op::Start(_) | Op::Stop(_) | Op::Delete(_) => {
                self.clouds[cloud].rules.late_effect_window
            }
        };
        let until = deadline.after(late_effect_window);
        let home = self.home_of(&op);
        let asked_by = self.check_call(number, home, cloud, &op);
        self.check_asked_of_impostor(cloud, &op.describe());
        self.check_farewell(home, &op);
        let fate = if self.is_down(cloud) || self.is_impostor(cloud) {
            CallFate::Unreached
        } else if self.forgets(cloud) {
            self.fate_while_forgetting(cloud, &op)
        } else {
            self.fate(&op)
        };
        let name = self.clouds[cloud].name.clone();
        self.note(home, || format!("call {number} to {name}: {} ({fate:?})", op.describe()));
        let (sender, answer) = oneshot::channel();
        let (waits_ms, lands_ms) = (ms(deadline.since(now)), ms(until.since(now)));
        let usual = self.call_pause(waits_ms);
        let late = if self.weather.losing { lands_ms / 2 } else { 0 };
        let any = late + self.chance.below(lands_ms - late);
        let mut call = SimCall {
            cloud,
            home,
            asked_by,
            fate,
            until,
            checked: None,
            result: None,
            answer: Some(sender),
            op,
        };
        let applies = self.applies_after(fate, usual, any);
        if let Some(applies) = applies.filter(|applies| *applies < lands_ms) {
            if let Op::Create(_) = call.op
                && !self.clouds[cloud].rules.names_enforced
            {
                let checks = self.chance.between(0, applies);
                self.after(checks, SimEffect::Check(number));
            }
            self.after(applies, SimEffect::Apply(number));
        }
        call.result = self.plan_answer(number, fate, waits_ms, usual);
        let panics = fate == CallFate::Panics;
        let panics_after = panics.then(|| self.chance.below(2_000));
        self.calls.insert(number, call);
        Began { number, answer, panics_after }
    }

    /// What a call of this fate answers, and when, unless its effect decides that.
    fn plan_answer(
        &mut self,
        number: u64,
        fate: CallFate,
        waits_ms: u64,
        usual: u64,
    ) -> Option<Result<SimReply, ProviderError>> {
        // A lost answer is an error at any time, or never comes.
        let error = match fate {
            CallFate::Lost => Some("the connection was lost"),
            CallFate::Unreached => Some("the provider does not answer"),
            CallFate::Answered
            | CallFate::Refused
            | CallFate::Broken
            | CallFate::Busy
            | CallFate::Forgotten
            | CallFate::Panics => None,
        };
        if let Some(message) = error
            && self.chance.permille(700)
        {
            let after = self.chance.below(waits_ms + 1);
            self.after(after, SimEffect::Answer(number));
            return Some(Err(ProviderError::unavailable(message)));
        }
        let said = self.says(fate)?;
        // Behind what it may have done.
        let pause = self.chance.between(0, 20);
        self.after(usual + pause, SimEffect::Answer(number));
        Some(said)
    }

    /// After how long a call of this fate has its effect; `None` if it has none.
    fn applies_after(&mut self, fate: CallFate, usual: u64, any: u64) -> Option<u64> {
        match fate {
            CallFate::Answered => Some(usual),
            CallFate::Broken => self.chance.permille(600).then_some(usual),
            CallFate::Lost => Some(any),
            CallFate::Panics => self.chance.permille(500).then_some(any),
            CallFate::Unreached | CallFate::Refused | CallFate::Busy | CallFate::Forgotten => None,
        }
    }

    /// What a call of this fate answers, whatever its effect.
    fn says(&mut self, fate: CallFate) -> Option<Result<SimReply, ProviderError>> {
        match fate {
            CallFate::Refused => Some(Err(ProviderError::Refused("not with us".into()))),
            CallFate::Broken => Some(Err(ProviderError::Broken("something snapped".into()))),
            CallFate::Busy => {
                let ms = self.chance.between(100, ms(RETRY_AFTER_MAX));
                let retry_after = Some(Duration::from_millis(ms));
                // Without another draw: each seed keeps its history.
                Some(Err(if ms.is_multiple_of(2) {
                    ProviderError::Exhausted { what: "too many objects".into(), retry_after }
                } else {
                    let message = "too many requests".into();
                    ProviderError::Unavailable { message, retry_after }
                }))
            }
            CallFate::Forgotten => Some(Ok(SimReply::Objects(Vec::new()))),
            CallFate::Answered | CallFate::Lost | CallFate::Unreached | CallFate::Panics => None,
        }
    }

    /// Sweeps alone are shown nothing; all else does not get there.
    fn fate_while_forgetting(&mut self, cloud: usize, op: &Op) -> CallFate {
        let Op::Find(key) = op else { return CallFate::Unreached };
        let Some(issue) = self.rows.issues.get(&key.home) else { return CallFate::Unreached };
        let (IssueState::Running { external_id, .. } | IssueState::Stopped { external_id, .. }) =
            &issue.state
        else {
            return CallFate::Unreached;
        };
        if !self.clouds[cloud].list_is_absurd {
            // So few that they may be lost.
            self.ledger.handled.insert(external_id.clone());
        }
        CallFate::Forgotten
    }

    fn fate(&mut self, op: &Op) -> CallFate {
        let rate = self.weather.provider_faults;
        if !self.weather.strikes(&mut self.chance, rate) {
            return CallFate::Answered;
        }
        let fate = *self.chance.pick(&[
            CallFate::Lost,
            CallFate::Lost,
            CallFate::Lost,
            CallFate::Unreached,
            CallFate::Unreached,
            CallFate::Refused,
            CallFate::Broken,
            CallFate::Busy,
            CallFate::Panics,
        ]);
        match (fate, op) {
            (_, Op::Create(_)) if self.weather.losing && self.chance.permille(800) => {
                CallFate::Lost
            }
            (_, Op::Stop(_)) if self.weather.absences && self.chance.permille(800) => {
                CallFate::Lost
            }
            // A look is never refused.
            (CallFate::Refused, Op::Find(_)) => CallFate::Unreached,
            (fate, _) => fate,
        }
    }

    /// How long a call takes that goes well, in milliseconds.
    fn call_pause(&mut self, waits_ms: u64) -> u64 {
        let slow = self.weather.slow_providers && !self.weather.calm;
        match self.chance.below(if slow { 30 } else { 20 }) {
            0..12 => self.chance.between(0, 40),
            12..18 => self.chance.between(40, 3_000),
            _ if self.weather.calm => self.chance.between(40, 3_000),
            _ => self.chance.below(waits_ms + 1),
        }
    }

    fn home_of(&self, op: &Op) -> Option<HomeId> {
        match op {
            Op::Create(spec) => Some(spec.labels.home),
            Op::Find(key) => Some(key.home),
            Op::Start(target) | Op::Stop(target) | Op::Delete(target) => {
                self.ledger.home_of(&target.expected)
            }
        }
    }

    pub fn must_apply_until(&self, call: u64) -> Option<Timestamp> {
        self.calls.get(&call).map(|call| call.until)
    }

    /// The client is gone, with the answer or without.
    pub fn close_call(&mut self, number: u64) {
        self.ledger.close(number);
        let Some(call) = self.calls.get_mut(&number) else { return };
        if call.answer.take().is_some() {
            let home = call.home;
            self.undo_fails(home);
        }
    }

    pub fn check_name(&mut self, number: u64) {
        let Some(call) = self.calls.get(&number) else { return };
        let Op::Create(spec) = &call.op else { return };
        let objects = &self.clouds[call.cloud].objects;
        let named: Vec<_> = objects.iter().filter(|o| o.object.name == spec.name).collect();
        let checked = match named.first() {
            None => Checked::Free,
            Some(_) if named.iter().any(|o| carries(&o.object, spec)) => Checked::Same,
            Some(other) => Checked::Other(other.object.clone()),
        };
        self.calls.get_mut(&number).expect("it is there").checked = Some(checked);
    }

    pub fn apply_call(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let (cloud, home, op, fate) = (call.cloud, call.home, call.op.clone(), call.fate);
        let checked = call.checked.take();
        if let Op::Delete(target) = &op
            && (fate != CallFate::Answered || call.answer.is_none())
        {
            self.ledger.doomed.insert(target.external_id.clone());
        }
        if let Op::Create(spec) = &op
            && spec.labels.mode == Mode::Fast
            && fate != CallFate::Answered
        {
            self.ledger.hasty.insert(spec.labels.sandbox.clone());
        }
        if let (false, Some(late)) = (fate == CallFate::Answered, op.happens_late()) {
            self.count(late);
        }
        self.remember(cloud);
        let result = self.perform(cloud, home, &op, fate, checked);
        self.note(home, || {
            let came = match &result {
                Ok(SimReply::Object(object)) => {
                    format!("{} {:?}", object.external_id, object.state)
                }
                Ok(SimReply::Objects(objects)) => {
                    let show =
                        |object: &Object| format!("{} {:?}", object.external_id, object.state);
                    format!("[{}]", objects.iter().map(show).collect::<Vec<_>>().join(", "))
                }
                Ok(SimReply::Accepted) => "accepted".into(),
                Err(error) => error.to_string(),
            };
            format!("call {number} takes effect: {came}")
        });
        if fate == CallFate::Answered {
            let waits_ms = ms(self.calls[&number].until.since(self.now()));
            let slow = self.weather.slow_providers;
            let pause = match self.chance.below(if slow { 15 } else { 10 }) {
                0..8 => self.chance.between(0, 20),
                _ if self.weather.calm => self.chance.between(0, 20),
                _ => self.chance.below(waits_ms + 1),
            };
            self.calls.get_mut(&number).expect("it is there").result = Some(result);
            self.after(pause, SimEffect::Answer(number));
        }
    }

    pub fn answer_call(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let (home, is_asked) = (call.home, call.asked_by.is_some());
        let (result, answer) = (call.result.take(), call.answer.take());
        let (Some(result), Some(answer)) = (result, answer) else { return };
        if result.is_err() {
            self.undo_fails(home);
        }
        if answer.send(result).is_err() || self.alive.is_none() {
            return;
        }
        self.note(home, || format!("call {number} is answered"));
        self.stir();
        if is_asked {
            self.after(TAKING_TIME_MAX_MS, SimEffect::Taken(number));
        }
    }

    /// By now the answer of a call must have been taken.
    pub fn must_be_taken(&mut self, number: u64) {
        let call = self.calls.get(&number);
        if let Some(call) = call
            && let (Some(home), Some((sandbox, attempt))) = (call.home, call.asked_by.clone())
        {
            self.check_taken(number, home, &sandbox, attempt);
        }
    }

    /// A crash: no caller waits any more, and what dies with the server dies.
    pub fn crash_calls(&mut self) {
        self.ledger.close_all();
        self.leave_in_haste();
        for call in self.calls.values_mut() {
            call.answer = None;
        }
        let dies = |inner: &Self, number: u64| {
            inner
                .calls
                .get(&number)
                .is_some_and(|call| inner.clouds[call.cloud].rules.dies_with_server)
        };
        for effect in self.take_calls(dies) {
            // Also what was under way: it has landed now or never will.
            match effect {
                SimEffect::Check(number) => self.check_name(number),
                SimEffect::Apply(number) if self.chance.permille(500) => self.apply_call(number),
                SimEffect::Apply(_)
                | SimEffect::Begin
                | SimEffect::Land
                | SimEffect::Reply(_)
                | SimEffect::Answer(_)
                | SimEffect::Vanish(..)
                | SimEffect::Taken(..)
                | SimEffect::WriteLands(_)
                | SimEffect::WriteAnswered(_)
                | SimEffect::AgentActs(..)
                | SimEffect::CheckPhases => {}
            }
        }
        for cloud in self.clouds.iter_mut().filter(|cloud| cloud.rules.dies_with_server) {
            for object in &mut cloud.objects {
                if object.object.state == ObjectState::Running {
                    object.object.state = ObjectState::Stopped;
                }
            }
        }
    }

    fn perform(
        &mut self,
        cloud: usize,
        home: Option<HomeId>,
        op: &Op,
        fate: CallFate,
        checked: Option<Checked>,
    ) -> Result<SimReply, ProviderError> {
        match op {
            Op::Create(spec) => self.create(cloud, spec, fate, checked).map(SimReply::Object),
            Op::Find(key) => {
                let found = |object: &&SimObject| {
                    let labels = object.object.labels.as_ref();
                    object.object.name == key.name
                        || labels.is_some_and(|l| l.instance == key.instance && l.home == key.home)
                };
                let objects = self.clouds[cloud].objects.iter().filter(found);
                Ok(SimReply::Objects(objects.map(|o| o.object.clone()).collect()))
            }
            Op::Start(target) => self.turn_to(cloud, home, target, ObjectState::Running),
            Op::Stop(target) => self.turn_to(cloud, home, target, ObjectState::Stopped),
            Op::Delete(target) => self.delete(cloud, home, target),
        }
    }

    fn create(
        &mut self,
        cloud: usize,
        spec: &CreateSpec,
        fate: CallFate,
        checked: Option<Checked>,
    ) -> Result<Object, ProviderError> {
        let gone = || ProviderError::Broken("it is being removed".into());
        let checked = match checked {
            Some(checked) => checked,
            // If names are enforced, checking and making are one.
            None => {
                let objects = &self.clouds[cloud].objects;
                match objects.iter().find(|o| o.object.name == spec.name) {
                    None => Checked::Free,
                    Some(there) if carries(&there.object, spec) => Checked::Same,
                    Some(there) => Checked::Other(there.object.clone()),
                }
            }
        };
        let state =
            if fate == CallFate::Broken { ObjectState::Partial } else { ObjectState::Running };
        match checked {
            Checked::Other(object) => Err(ProviderError::Present(Box::new(object))),
            Checked::Same => {
                let objects = &mut self.clouds[cloud].objects;
                let there = objects.iter_mut().find(|o| carries(&o.object, spec));
                let there = there.filter(|o| o.object.state != ObjectState::Destroying);
                let there = there.ok_or_else(gone)?;
                if fate != CallFate::Broken {
                    there.object.state = ObjectState::Running;
                }
                Ok(there.object.clone())
            }
            Checked::Free => {
                let number = self.fresh();
                let object = Object {
                    external_id: ExternalId::trusted(format!("object-{number}")),
                    name: spec.name.clone(),
                    labels: Some(spec.labels.clone()),
                    state,
                };
                let made = SimObject { object: object.clone(), ours: true };
                self.clouds[cloud].objects.push(made);
                self.check_made(cloud, &object);
                Ok(object)
            }
        }
    }

    /// The object that a call means, if it carries the sandbox that the caller expects.
    fn meant(
        &mut self,
        cloud: usize,
        home: Option<HomeId>,
        target: &Target,
    ) -> Result<usize, ProviderError> {
        let objects = &self.clouds[cloud].objects;
        let at = objects.iter().position(|o| o.object.external_id == target.external_id);
        let at = at.ok_or(ProviderError::Absent)?;
        let object = objects[at].object.clone();
        let carried = object.labels.as_ref().map(|labels| &labels.sandbox);
        if carried != Some(&target.expected) {
            return Err(ProviderError::Present(Box::new(object)));
        }
        self.check_touched(home, &object);
        Ok(at)
    }

    fn turn_to(
        &mut self,
        cloud: usize,
        home: Option<HomeId>,
        target: &Target,
        state: ObjectState,
    ) -> Result<SimReply, ProviderError> {
        let at = self.meant(cloud, home, target)?;
        let object = &mut self.clouds[cloud].objects[at].object;
        if object.state == ObjectState::Destroying {
            return Err(ProviderError::Broken("it is being removed".into()));
        }
        object.state = state;
        Ok(SimReply::Object(object.clone()))
    }

    /// Gone at once, or soon, or only when it is asked for again.
    fn delete(
        &mut self,
        cloud: usize,
        home: Option<HomeId>,
        target: &Target,
    ) -> Result<SimReply, ProviderError> {
        let at = self.meant(cloud, home, target)?;
        let again = self.clouds[cloud].objects[at].object.state == ObjectState::Destroying;
        if self.chance.permille(400) {
            self.clouds[cloud].objects.remove(at);
            return if again { Err(ProviderError::Absent) } else { Ok(SimReply::Accepted) };
        }
        self.clouds[cloud].objects[at].object.state = ObjectState::Destroying;
        self.undo_fails(home);
        if self.chance.permille(700) {
            let pause = self.chance.between(10, 20_000);
            self.after(pause, SimEffect::Vanish(cloud, target.external_id.clone()));
        }
        if again && self.chance.permille(500) {
            return Err(ProviderError::Broken("409: it is being removed already".into()));
        }
        Ok(SimReply::Accepted)
    }

    pub fn vanish(&mut self, cloud: usize, id: &ExternalId) {
        self.remember(cloud);
        self.clouds[cloud].objects.retain(|object| object.object.external_id != *id);
        self.note(None, || format!("{id} is gone"));
    }

    fn remember(&mut self, cloud: usize) {
        let cloud = &mut self.clouds[cloud];
        if cloud.earlier.len() == EARLIER_LEN_MAX {
            cloud.earlier.pop_front();
        }
        cloud.earlier.push_back(cloud.objects.iter().map(|o| o.object.clone()).collect());
    }
}

fn carries(object: &Object, spec: &CreateSpec) -> bool {
    is_ours(object) && object.labels.as_ref().is_some_and(|l| l.sandbox == spec.labels.sandbox)
}
