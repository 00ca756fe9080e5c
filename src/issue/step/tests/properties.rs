//! Random lives: whatever is asked for, answered, lost, late or crashed, the invariants hold at every
//! step, and once the provider is well again everything comes to rest where it was wanted.

use std::time::Duration;

use proptest::prelude::*;

use super::model::{ModelFate, ModelWorld};
use super::{LATE_EFFECT_WINDOW, StepBench};
use crate::issue::Effect;
use crate::issue::commit::{Commit, ProviderCall, Reply};
use crate::issue::event::{
    CallAnswer, Command, Denial, DenialKind, IssueEvent, ListedObject, Observation, ObservedObject,
};
use crate::issue::state::{Issue, IssueState, Step, Verb};
use crate::types::{Attempt, Generation, Outcome, Phase, ProviderName, SandboxId, Wanted};

#[derive(Clone, Copy, Debug)]
enum Act {
    Ensure,
    Command(Command),
    Answer(ModelFate),
    /// An answer of another attempt than the one in flight.
    StaleAnswer(u32),
    /// The due time comes.
    Due,
    /// The process ends, the call in flight with it, and starts again.
    Crash(ModelFate),
    /// The actor ends; the executor still has the call.
    Passivate,
    /// A hold or a quota begins or ends to forbid what would begin.
    Denial(bool),
    /// The pending start may be granted.
    Grant,
    /// A delivery that triggers.
    Trigger,
    /// A sweep reads the state and looks at the provider.
    Sweep,
    /// A sweep's sight that was taken before the act ahead arrives after it.
    StaleSweep,
    /// A person removes the object at the provider.
    Lose,
    /// A person stops the object at the provider.
    Kill,
    /// The object cannot run any more.
    Spoil,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let fate = || {
        prop_oneof![
            4 => Just(ModelFate::Good),
            1 => Just(ModelFate::Lost),
            1 => Just(ModelFate::Unreached),
            1 => Just(ModelFate::LandsLate),
            1 => Just(ModelFate::Breaks),
            1 => Just(ModelFate::Dead),
            1 => Just(ModelFate::NoRoom),
            1 => Just(ModelFate::NotAsked),
            1 => Just(ModelFate::Unreachable),
        ]
    };
    let command = prop_oneof![
        Just(Command::Stop),
        Just(Command::Start),
        Just(Command::Retry),
        Just(Command::Delete),
        Just(Command::ForceDelete),
    ];
    let act = prop_oneof![
        4 => Just(Act::Ensure),
        4 => command.prop_map(Act::Command),
        8 => fate().prop_map(Act::Answer),
        1 => (1..40u32).prop_map(Act::StaleAnswer),
        5 => Just(Act::Due),
        1 => fate().prop_map(Act::Crash),
        1 => Just(Act::Passivate),
        1 => any::<bool>().prop_map(Act::Denial),
        1 => Just(Act::Grant),
        2 => Just(Act::Trigger),
        2 => Just(Act::Sweep),
        1 => Just(Act::StaleSweep),
        1 => Just(Act::Lose),
        1 => Just(Act::Kill),
        1 => Just(Act::Spoil),
    ];
    proptest::collection::vec(act, 1..60)
}

/// What the last call of a phase may take beyond the deadline.
const LAST_CALL_MAX: Duration = Duration::from_secs(60);

struct ModelLife {
    bench: StepBench,
    world: ModelWorld,
    in_flight: Option<ProviderCall>,
    /// A call of after a forced delete waits until the one in flight has ended.
    behind: Option<ProviderCall>,
    observation: Option<Observation>,
    /// What ended and is known as deleted.
    ended: Vec<SandboxId>,
    forced: bool,
}

impl ModelLife {
    fn new(names_enforced: bool) -> Self {
        let mut world = ModelWorld::default();
        world.names_enforced = names_enforced;
        Self {
            bench: StepBench::new(names_enforced),
            world,
            in_flight: None,
            behind: None,
            observation: None,
            ended: Vec::new(),
            forced: false,
        }
    }

    fn take(&mut self, before: &Issue, commit: Commit) {
        let after = &commit.issue;
        assert_eq!(after.version, before.version + u64::from(commit.changed));
        assert!(commit.changed || *after == *before, "a change is to be stored");
        assert!(after.generation >= before.generation, "generations only grow");
        if let (Some(b), Some(a)) = (before.state.record(), after.state.record()) {
            if b.id == a.id {
                assert!(a.attempt >= b.attempt, "attempts never decrease");
            } else {
                assert!(a.generation > b.generation, "another sandbox is a later generation");
                assert!(
                    matches!(before.state, IssueState::Deleting { .. }),
                    "a new one follows only a delete, never {:?}",
                    before.state.phase()
                );
            }
        }
        if let IssueState::Deleting { .. } = before.state {
            assert!(
                matches!(after.state.phase(), None | Some(Phase::Deleting | Phase::Creating)),
                "an accepted delete is final"
            );
        }
        if let Some(ended) = &commit.ended {
            let left = self.world.objects.iter().any(|o| o.sandbox == ended.id);
            assert!(!left || self.forced, "a confirmed delete means absent");
            self.ended.push(ended.id.clone());
        }
        for effect in &commit.effects {
            let Effect::CleanUp(cleanup) = effect else { continue };
            let own = after.state.record().map(|record| &record.id);
            assert_ne!(own, Some(&cleanup.expected), "its own object is never cleaned up");
            if self.in_flight.is_none() {
                self.world.clean(cleanup);
            }
        }
        if let Some(call) = commit.call {
            let brings_up = matches!(call.verb, Verb::Create | Verb::Start);
            let deletes = matches!(after.state, IssueState::Deleting { .. });
            assert!(!(brings_up && deletes), "a delete makes or starts nothing");
            assert!(matches!(after.state.step(), Some(Step::Asked { .. })));
            match &self.in_flight {
                None => self.in_flight = Some(call),
                // Only a record that was given up leaves its call behind.
                Some(held) => {
                    assert_ne!(held.record.id, call.record.id, "one call in flight at most");
                    self.behind = Some(call);
                }
            }
        }
        if let Some(deadline) = after.state.deadline() {
            let now = self.bench.now;
            let until = match after.state.step() {
                Some(Step::Asked { until, .. }) => *until,
                Some(Step::Waiting { .. }) | None => deadline,
            };
            assert!(until <= deadline.max(now).after(LAST_CALL_MAX), "asked beyond the deadline");
        }
    }

    fn event(&mut self, event: IssueEvent) -> Reply {
        let before = self.bench.issue.clone();
        let commit = self.bench.apply(event);
        let reply = commit.reply.clone();
        self.take(&before, commit);
        reply
    }

    fn answer(&mut self, fate: ModelFate) {
        if let Some(call) = self.in_flight.take() {
            let result = self.world.call(&self.bench, &call, fate);
            self.in_flight = self.behind.take();
            self.event(IssueEvent::Answered(CallAnswer {
                sandbox: call.record.id,
                attempt: call.attempt,
                result,
            }));
        }
    }

    /// What a sweep sees now.
    fn look(&self) -> Observation {
        let record = self.bench.issue.state.record();
        let swept = |seen: ObservedObject| ListedObject {
            known_deleted: seen.owner.as_ref().is_some_and(|o| self.ended.contains(&o.sandbox)),
            first_seen_at: self.bench.now,
            seen,
        };
        Observation {
            provider: ProviderName::trusted("p"),
            generation: self.bench.issue.generation,
            attempt: record.map_or_else(Attempt::default, |record| record.attempt),
            phase: self.bench.issue.state.phase(),
            by_event: false,
            asked_at: self.bench.now,
            objects: self.world.look().into_iter().map(swept).collect(),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Ensure => self.ensure(),
            Act::Command(command) => {
                let before = self.bench.issue.clone();
                let commit = self.bench.command(command);
                self.forced |= command == Command::ForceDelete && commit.ended.is_some();
                self.take(&before, commit);
            }
            Act::Denial(is_on) => {
                let reason = "held".to_owned();
                self.bench.denial = is_on.then_some(Denial { kind: DenialKind::Held, reason });
            }
            Act::Grant => {
                self.event(IssueEvent::Granted);
            }
            Act::Trigger => {
                self.event(super::issue_deliveries::labelled(1_000_000_000));
            }
            Act::Sweep => {
                let observation = self.look();
                self.observation = Some(observation.clone());
                self.event(IssueEvent::Observed(observation));
            }
            Act::StaleSweep => {
                if let Some(observation) = self.observation.replace(self.look()) {
                    self.event(IssueEvent::Observed(observation));
                }
            }
            Act::Lose => {
                self.world.lose();
                self.observation = None;
            }
            Act::Kill => {
                self.world.kill();
                self.observation = None;
            }
            Act::Spoil => {
                self.world.spoil();
                self.observation = None;
            }
            Act::Answer(fate) => self.answer(fate),
            Act::StaleAnswer(attempt) => self.stale_answer(attempt),
            Act::Due => self.due(),
            Act::Crash(fate) => {
                self.behind = None;
                if let Some(call) = self.in_flight.take() {
                    drop(self.world.call(&self.bench, &call, fate));
                }
                self.event(IssueEvent::Activated { in_flight: None, after_restart: true });
            }
            Act::Passivate => {
                let on_its_way = self.behind.as_ref().or(self.in_flight.as_ref());
                let in_flight = on_its_way.map(|call| call.attempt);
                self.event(IssueEvent::Activated { in_flight, after_restart: false });
            }
        }
        let distinct: std::collections::BTreeSet<_> =
            self.world.objects.iter().map(|o| o.sandbox.as_str()).collect();
        assert!(distinct.len() <= 1, "objects of two sandboxes at once: {:?}", self.world.objects);
        assert!(self.world.most <= 1, "two objects at once");
    }

    fn ensure(&mut self) {
        let before = self.bench.issue.clone();
        let commit = self.bench.ensure();
        if let Reply::Ensured { outcome, .. } = &commit.reply {
            let outcome = *outcome;
            let none = before.state == IssueState::Absent;
            assert_eq!(outcome == Outcome::Created, none, "created only where none was");
        }
        self.take(&before, commit);
    }

    fn stale_answer(&mut self, attempt: u32) {
        let current = self.bench.issue.state.record().map(|r| r.attempt);
        if self.in_flight.is_some() && current == Some(Attempt(attempt)) {
            return;
        }
        let before = self.bench.issue.clone();
        let result = Err(super::unavailable());
        let sandbox = self.bench.issue.state.record().map(|record| record.id.clone());
        let sandbox = sandbox.unwrap_or_else(|| SandboxId::trusted("none"));
        let stale = CallAnswer { sandbox, attempt: Attempt(attempt), result };
        self.event(IssueEvent::Answered(stale));
        assert_eq!(self.bench.issue, before, "a late answer changes nothing");
    }

    fn due(&mut self) {
        let answered_by = self.in_flight.as_ref().map(|call| call.deadline);
        let due = answered_by.or(self.bench.issue.due_at());
        let Some(due) = due else { return };
        self.bench.now = self.bench.now.max(due);
        self.world.settle(self.bench.now);
        if answered_by.is_some() {
            // A provider gives up at the deadline: the answer comes now.
            self.answer(ModelFate::Unreached);
        } else {
            self.event(IssueEvent::Due { in_flight: None, busy: false });
        }
    }

    /// The provider is well from now on: let everything come to rest.
    fn rest(&mut self) {
        self.act(Act::Denial(false));
        self.act(Act::Grant);
        for _ in 0..200 {
            if self.in_flight.is_some() {
                self.answer(ModelFate::Good);
            } else if self.bench.issue.due_at().is_some() {
                self.act(Act::Due);
            } else {
                self.bench.now =
                    self.bench.now.after(LATE_EFFECT_WINDOW + self.bench.rules.create.timeout);
                self.world.settle(self.bench.now);
                let before = (self.bench.issue.clone(), self.world.look());
                self.act(Act::Sweep);
                if before == (self.bench.issue.clone(), self.world.look()) {
                    return;
                }
            }
        }
        panic!("it never comes to rest: {:?}", self.bench.issue.state);
    }
}

/// 2,000 lives, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 2000 };
    ProptestConfig { cases, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_life_keeps_the_invariants_and_comes_to_rest(
        names_enforced: bool,
        acts in acts(),
    ) {
        let mut life = ModelLife::new(names_enforced);
        for act in acts {
            life.act(act);
        }
        life.act(Act::Denial(false));
        life.act(Act::Grant);
        let wanted = life.bench.issue.state.wanted();
        life.rest();
        match life.bench.issue.state.phase() {
            None => {
                prop_assert_eq!(wanted, Wanted::Deleted);
                prop_assert!(life.world.objects.is_empty(), "no orphan");
            }
            Some(Phase::Running) => prop_assert_eq!(wanted, Wanted::Running),
            Some(Phase::Stopped) => prop_assert_eq!(wanted, Wanted::Stopped),
            Some(Phase::Failed) => {}
            Some(other) => prop_assert!(false, "{other} is no place to rest"),
        }
    }

    #[test]
    fn from_every_state_a_delete_ends_absent(names_enforced: bool, acts in acts()) {
        let mut life = ModelLife::new(names_enforced);
        for act in acts {
            life.act(act);
        }
        // What only waits is no sandbox that could be deleted.
        life.act(Act::Denial(false));
        life.act(Act::Grant);
        life.act(Act::Command(Command::Delete));
        life.rest();
        prop_assert_eq!(&life.bench.issue.state, &IssueState::Absent);
        prop_assert!(life.world.objects.is_empty(), "nothing is left");
    }

    #[test]
    fn failed_never_makes_a_second_sandbox(names_enforced: bool, acts in acts()) {
        let mut life = ModelLife::new(names_enforced);
        let mut failed: Option<(Generation, String)> = None;
        for act in acts {
            let deleted = matches!(act, Act::Command(Command::Delete));
            life.act(act);
            let record = life.bench.issue.state.record();
            if let (Some((generation, id)), Some(record)) = (&failed, record)
                && !deleted
            {
                prop_assert_eq!((*generation, id.as_str()), (record.generation, record.id.as_str()));
            }
            failed = match (&life.bench.issue.state, record) {
                (IssueState::Failed { .. }, Some(r)) => Some((r.generation, r.id.to_string())),
                _ => None,
            };
        }
    }
}
