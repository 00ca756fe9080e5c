//! The promise, checked at every step: what the world remembers, and what must never be seen.

use std::collections::{BTreeMap, BTreeSet};

use super::counts::Happening;
use super::provider::{Op, is_ours};
use super::world::{SimEffect, WorldState};
use crate::engine::{Change, EngineError};
use crate::issue::state::{IssueState, Step, Verb};
use crate::issue::{Effect, Issue};
use crate::sandbox::{Labels, Object};
use crate::store::{CommitError, DeliveryState, Write};
use crate::types::{
    Attempt, DeliveryId, ExternalId, FailureCode, Generation, HoldScope, HomeId, Mode, Phase,
    Sandbox, SandboxId, Timestamp,
};

/// How often phases are looked at, in milliseconds.
const PHASES_EVERY_MS: u64 = 20_000;
/// How long a history may last at most, and how long its calm, in milliseconds: what comes to no
/// rest ends here, whatever it waits for.
const HISTORY_TIME_MAX_MS: u64 = 5 * 86_400_000;
const CALM_TIME_MAX_MS: u64 = 86_400_000;
/// How long an actor may not know yet that its commit was refused, in milliseconds.
const TELLING_TIME_MAX_MS: u64 = 1_000;
/// How long after an actor ended badly what it had handed in may still be refused, in milliseconds.
const AFTERMATH_MS: u64 = 60_000;

/// What the world remembers in order to check.
#[derive(Default)]
pub struct Ledger {
    /// Our clock was too far behind GitHub's at some time.
    pub is_clock_behind: bool,
    /// Calls whose client waits, by the home that they are for.
    open: BTreeMap<u64, Option<HomeId>>,
    /// The last call that was made for a home.
    last_calls: BTreeMap<HomeId, u64>,
    homes: BTreeMap<SandboxId, HomeId>,
    /// Sandboxes that were confirmed absent.
    pub ended: BTreeSet<SandboxId>,
    /// Sandboxes that a caller was given.
    given: BTreeMap<HomeId, BTreeSet<SandboxId>>,
    /// Sandboxes whose delete was accepted.
    deleted: BTreeSet<SandboxId>,
    /// Sandboxes for which a forced delete was requested.
    pub forced: BTreeSet<SandboxId>,
    /// Objects whose removal a durable step of a sandbox asked for, and the sandbox: its own, or one
    /// that is in its way.
    removals: BTreeMap<(HomeId, ExternalId), SandboxId>,
    /// Objects that a delete took away whose answer was lost. It may come after a person's retry
    /// has adopted the object again; only a sweep finds that out.
    pub doomed: BTreeSet<ExternalId>,
    /// Objects that an outsider removed or stopped, and homes for which one was made.
    pub handled: BTreeSet<ExternalId>,
    pub crowded: BTreeSet<HomeId>,
    /// Sandboxes of fast mode whose server died, whose create had no answer, or which could not be
    /// undone.
    pub hasty: BTreeSet<SandboxId>,
    /// How often the removal of what a fast create made failed, if it has no record.
    pub undo_failures: BTreeMap<SandboxId, u32>,
    /// Holds that are on, and since when.
    pub held: BTreeMap<String, (HoldScope, Timestamp)>,
    /// Homes to which a command was given.
    pub commanded: BTreeSet<HomeId>,
    /// Homes whose last write was refused.
    refused: BTreeSet<HomeId>,
    /// When a write of a home was last not taken in.
    overloaded_ms: BTreeMap<HomeId, u64>,
    phases: BTreeMap<HomeId, (Option<Phase>, u64)>,
    published: BTreeMap<HomeId, u64>,
    /// When something last happened that excuses waiting.
    disturbed_ms: Option<u64>,
    /// When actors ended otherwise than by passivation.
    actors_ended_ms: Vec<u64>,
    /// Homes whose issue turned out to be in another repository, or in one of another name.
    pub moved: BTreeSet<HomeId>,
    /// When homes gave way to another one.
    pub merged_ms: Vec<u64>,
    /// When something failed to be written that is no step of an issue.
    writes_failed_ms: Vec<u64>,
    /// When it was last durable of a home that its sandbox is not asked for.
    pub unasked_ms: BTreeMap<HomeId, u64>,
}

impl Ledger {
    pub fn home_of(&self, sandbox: &SandboxId) -> Option<HomeId> {
        self.homes.get(sandbox).copied()
    }

    pub fn belongs(&mut self, sandbox: SandboxId, home: HomeId) {
        self.homes.insert(sandbox, home);
    }

    /// The home of a call whose client waits; `None` if there is none.
    pub fn open_call(&self) -> Option<Option<HomeId>> {
        self.open.values().next().copied()
    }

    pub fn close(&mut self, call: u64) {
        self.open.remove(&call);
    }

    pub fn close_all(&mut self) {
        self.open.clear();
        self.published.clear();
        self.refused.clear();
        self.overloaded_ms.clear();
    }
}

impl WorldState {
    /// Something happened that excuses waiting.
    pub fn disturb(&mut self, what: &'static str) {
        self.note(None, || what.into());
        self.ledger.disturbed_ms = Some(self.elapsed_ms());
    }

    /// When something last happened that excuses waiting, in milliseconds of the history.
    pub fn disturbed_ms(&self) -> u64 {
        self.ledger.disturbed_ms.unwrap_or(0)
    }

    /// An actor ends, otherwise than by passivation.
    pub fn actor_ends(&mut self, what: &'static str) {
        self.disturb(what);
        let now = self.elapsed_ms();
        self.ledger.actors_ended_ms.push(now);
    }

    /// Whether an actor ended badly within the last minute.
    fn is_aftermath(&self) -> bool {
        let ended = self.ledger.actors_ended_ms.last();
        ended.is_some_and(|ended| self.elapsed_ms() - ended <= AFTERMATH_MS)
    }

    /// Whether a caller that came then may get the answer that it failed. It retries by
    /// itself, so that the end of one actor is no excuse.
    pub fn excuses(&self, began_ms: u64, error: &EngineError) -> bool {
        // One that ended just before may not have heard of it yet.
        let since = began_ms.saturating_sub(TELLING_TIME_MAX_MS);
        let count = |at: &[u64]| at.iter().filter(|at| **at >= since).count();
        let ledger = &self.ledger;
        let ended = count(&ledger.actors_ended_ms);
        match error {
            EngineError::ActorEnded => ended + count(&ledger.merged_ms) >= 2,
            EngineError::StoreFailed(_) => ended + count(&ledger.writes_failed_ms) >= 1,
            // Other answers need no excuse.
            _ => true,
        }
    }

    /// Something that is no step of an issue could not be written.
    pub fn write_failed(&mut self) {
        let now = self.elapsed_ms();
        self.ledger.writes_failed_ms.push(now);
    }

    /// A write was refused. The fence of versions is the last wall, which is never reached.
    pub fn refused(&mut self, home: Option<HomeId>, error: &CommitError) {
        self.note(home, || format!("a commit is refused: {error}"));
        let now = self.elapsed_ms();
        if let Some(home) = home {
            let ledger = &mut self.ledger;
            // What its actor handed in behind a write that is refused is refused as well.
            let behind = ledger.refused.contains(&home)
                || ledger.overloaded_ms.get(&home).is_some_and(|at| now - at <= AFTERMATH_MS);
            if *error == CommitError::Overloaded {
                ledger.overloaded_ms.insert(home, now);
            }
            ledger.refused.insert(home);
            if *error == CommitError::Fenced && !behind {
                self.violate(Some(home), "a write follows what is not the latest");
            }
        }
        self.actor_ends("an actor has to end");
    }

    /// A write of this home was taken.
    pub fn taken(&mut self, home: HomeId) {
        self.ledger.refused.remove(&home);
    }

    /// A write is durable.
    pub fn check_commit(&mut self, before: Option<&Issue>, write: &Write) {
        if let Some(row) = &write.delivery {
            self.note(row.home, || {
                format!("durable: delivery {} applied={} {}", row.id, row.applied, row.reason)
            });
        }
        if let Some(ended) = &write.ended {
            self.check_ended(ended);
        }
        let Some(after) = &write.issue else { return };
        let home = after.home;
        self.note(Some(home), || {
            let step = after.state.step();
            let record = after.state.record();
            format!(
                "durable: version {} {:?} {:?} attempt {:?} {:?} may land until {:?}",
                after.version,
                record.map(|record| &record.id),
                after.state.phase(),
                record.map(|record| record.attempt.0),
                step,
                record.and_then(|record| record.may_land_until).map(|at| at.to_string()),
            )
        });
        self.count_step(before, write);
        self.check_growth(before, after);
        self.check_blame(before, after);
        self.check_admission(before, after, write.delivery.is_some());
        self.check_one_home(before, after);
        self.check_place(before, after);
        self.check_hooks(before, after);
        let record = after.state.record();
        if let Some(record) = record {
            self.ledger.belongs(record.id.clone(), home);
            if let Some(Step::Asked { verb: Verb::Delete { external_id, .. }, .. }) =
                after.state.step()
            {
                self.ledger.removals.insert((home, external_id.clone()), record.id.clone());
            }
            let phase = after.state.phase();
            if self.ledger.deleted.contains(&record.id) && phase != Some(Phase::Deleting) {
                self.violate(Some(home), "an accepted delete was taken back");
            }
        }
        let given = self.ledger.given.get(&home).cloned().unwrap_or_default();
        for id in given {
            if self.rows.sandbox(&id).is_none() {
                self.violate(Some(home), format!("{id} was given to a caller and is gone"));
            }
        }
        if let IssueState::Running { record, external_id } = &after.state {
            let objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
            let object = objects.map(|o| &o.object).find(|o| o.external_id == *external_id);
            let carried = object.and_then(|o| o.labels.as_ref()).map(|labels| &labels.sandbox);
            if object.is_some() && carried != Some(&record.id) {
                let what = format!("{} was taken for {}", external_id, record.id);
                self.violate(Some(home), what);
            }
        }
        let now = self.elapsed_ms();
        let phase = after.state.phase();
        let entry = self.ledger.phases.entry(home).or_insert((phase, now));
        if entry.0 != phase {
            *entry = (phase, now);
        }
    }

    /// No outsider is blamed without a change of one.
    fn check_blame(&mut self, before: Option<&Issue>, after: &Issue) {
        let Some(code) = failure_of(after) else { return };
        if before.and_then(failure_of) == Some(code) {
            return;
        }
        let object = before.and_then(|issue| issue.state.external_id());
        let was_handled = object.is_some_and(|id| self.ledger.handled.contains(id));
        let is_right = match code {
            FailureCode::ObjectLost => {
                was_handled || object.is_some_and(|id| self.ledger.doomed.contains(id))
            }
            FailureCode::KilledOutside => was_handled,
            FailureCode::DuplicateObject => {
                self.ledger.crowded.contains(&after.home) || self.has_left_in_haste(after.home)
            }
            FailureCode::ProviderUnavailable
            | FailureCode::ProviderRefused
            | FailureCode::ProviderBroken
            | FailureCode::ProviderExhausted
            | FailureCode::NameTaken
            | FailureCode::ProviderUnknown
            | FailureCode::HookFailed
            | FailureCode::DeadlineExceeded => true,
        };
        if !is_right {
            self.violate(Some(after.home), format!("{code:?} although no outsider changed it"));
        }
    }

    fn check_growth(&mut self, before: Option<&Issue>, after: &Issue) {
        let home = Some(after.home);
        let Some(before) = before else { return };
        if after.version != before.version + 1 {
            self.violate(home, "a write does not follow the last one");
        }
        if after.generation < before.generation {
            self.violate(home, "a generation shrank");
        }
        let (Some(old), Some(new)) = (before.state.record(), after.state.record()) else { return };
        if old.id == new.id {
            if new.attempt < old.attempt {
                self.violate(home, "an attempt shrank");
            }
        } else if new.generation <= old.generation {
            self.violate(home, "another sandbox of the same generation");
        } else if before.state.phase() != Some(Phase::Deleting) {
            self.violate(home, "a sandbox was replaced without being deleted");
        }
    }

    /// A delete confirmed means absent. By force, the record alone is given up.
    fn check_ended(&mut self, ended: &Sandbox) {
        if self.ledger.forced.contains(&ended.id) {
            self.count(Happening::ForcedDelete);
            return;
        }
        let carries = |object: &Object| {
            is_ours(object) && object.labels.as_ref().is_some_and(|l| l.sandbox == ended.id)
        };
        let mut objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        if objects.any(|object| object.ours && carries(&object.object)) {
            let what = format!("{} was called absent and is there", ended.id);
            self.violate(Some(ended.home), what);
        }
        self.ledger.ended.insert(ended.id.clone());
    }

    /// A call is recorded before it is made, and is the only one of its home. If it may be one of
    /// the lifecycle, which takes its answer, returns for which sandbox and attempt.
    pub fn check_call(
        &mut self,
        number: u64,
        home: Option<HomeId>,
        cloud: usize,
        op: &Op,
    ) -> Option<(SandboxId, Attempt)> {
        self.ledger.last_calls.extend(home.map(|home| (home, number)));
        if let (Op::Create(spec), Some(home)) = (op, home) {
            self.ledger.belongs(spec.labels.sandbox.clone(), home);
        }
        let is_lost = self.is_lost_fast_create(cloud, op);
        let caller = home.filter(|_| !is_lost);
        if caller.is_some() && self.ledger.open.values().any(|other| *other == caller) {
            self.violate(home, format!("a second call at once: {}", op.describe()));
        }
        self.ledger.open.insert(number, caller);
        let issue = home.and_then(|home| self.rows.issues.get(&home));
        let record = issue.and_then(|issue| issue.state.record());
        let own = record.map(|record| &record.id);
        // A sweep looks, and the outbox has what is done to orphans.
        let beside = match op {
            Op::Find(_) => true,
            Op::Stop(_) | Op::Delete(_) => op.sandbox() != own,
            Op::Create(_) | Op::Start(_) => false,
        };
        let asked = issue.is_some_and(|issue| match (issue.state.step(), op) {
            (Some(Step::Asked { verb, .. }), Op::Create(_)) => {
                *verb == Verb::Create
                    && issue.state.record().map(|record| &record.id) == op.sandbox()
            }
            (Some(Step::Asked { verb, .. }), Op::Find(_)) => *verb == Verb::Look,
            (Some(Step::Asked { verb, .. }), Op::Start(_)) => *verb == Verb::Start,
            (Some(Step::Asked { verb, .. }), Op::Stop(_)) => *verb == Verb::Stop,
            (Some(Step::Asked { verb, .. }), Op::Delete(_)) => {
                matches!(verb, Verb::Delete { .. })
            }
            (Some(Step::Waiting { .. }) | None, _) => false,
        });
        let it_is_here =
            record.filter(|record| record.template.provider == self.clouds[cloud].name);
        let takes = it_is_here.filter(|_| asked);
        let takes = takes.map(|record| (record.id.clone(), record.attempt));
        // It waited behind another call while its record was given up by force.
        let is_late = op.sandbox().is_some_and(|sandbox| self.is_given_up(sandbox))
            || self.was_asked_to_remove(home, op);
        let is_known = asked || is_late;
        let too_soon = !is_known && !beside && !self.is_fast_create(issue, op);
        let is_unrecorded = !is_known && beside && !self.is_recorded(home, cloud, op);
        if too_soon {
            self.violate(home, format!("asked before it was durable: {}", op.describe()));
        }
        if is_unrecorded {
            self.violate(home, format!("cleaned up before it was recorded: {}", op.describe()));
        }
        takes
    }

    /// Whether this removes what a home made in fast mode before it was ever stored. The issue's next
    /// home may do that at any time: while the first one undoes it, or after that one was stored with
    /// other names of the issue.
    fn is_lost_fast_create(&self, cloud: usize, op: &Op) -> bool {
        let Op::Delete(target) = op else { return false };
        let labels = self.labels_of(cloud, &target.external_id);
        self.rows.sandbox(&target.expected).is_none()
            && labels.is_none_or(|labels| {
                labels.mode == Mode::Fast && labels.generation == Generation(1)
            })
    }

    fn labels_of(&self, cloud: usize, external_id: &ExternalId) -> Option<&Labels> {
        let mut objects = self.clouds[cloud].objects.iter();
        objects.find(|o| o.object.external_id == *external_id)?.object.labels.as_ref()
    }

    /// Whether a step asked for this removal whose record was given up by force before the call left.
    fn was_asked_to_remove(&self, home: Option<HomeId>, op: &Op) -> bool {
        let (Some(home), Op::Delete(target)) = (home, op) else { return false };
        let asked_by = self.ledger.removals.get(&(home, target.external_id.clone()));
        asked_by.is_some_and(|sandbox| self.is_given_up(sandbox))
    }

    /// Whether a call that stops or removes an orphan is in the outbox. The object of a fast create
    /// is removed without that when its record is refused.
    fn is_recorded(&self, home: Option<HomeId>, cloud: usize, op: &Op) -> bool {
        let (Op::Stop(target) | Op::Delete(target)) = op else { return true };
        let labels = self.labels_of(cloud, &target.external_id);
        if labels.is_none_or(|labels| labels.mode == Mode::Fast) {
            return true;
        }
        self.rows.outbox.iter().any(|row| {
            let Effect::CleanUp(cleanup) = &row.effect else { return false };
            Some(row.home) == home && cleanup.external_id == target.external_id
        })
    }

    /// In fast mode a create is asked for while its record is being written, and undone if that
    /// is not written in time.
    fn is_fast_create(&self, issue: Option<&Issue>, op: &Op) -> bool {
        match op {
            Op::Create(spec) => {
                let last = issue.map_or_else(Generation::default, |issue| issue.generation);
                spec.labels.mode == Mode::Fast && spec.labels.generation == last.next()
            }
            Op::Delete(target) => issue.and_then(|issue| issue.state.record()).is_some_and(|own| {
                own.mode == Mode::Fast
                    && own.id == target.expected
                    // Also if its delete was requested meanwhile.
                    && issue.is_some_and(|issue| match issue.state.phase() {
                        Some(Phase::Creating | Phase::Deleting) => true,
                        Some(
                            Phase::Running
                            | Phase::Stopping
                            | Phase::Stopped
                            | Phase::Starting
                            | Phase::Failed,
                        )
                        | None => false,
                    })
            }),
            Op::Find(_) | Op::Start(_) | Op::Stop(_) => false,
        }
    }

    /// A call changes this object: it must be ours, and of the home that the call is for.
    pub fn check_touched(&mut self, home: Option<HomeId>, object: &Object) {
        let labels = object.labels.as_ref();
        if !is_ours(object) || labels.map(|labels| labels.home) != home {
            self.violate(home, format!("touched {}, which is not its own", object.external_id));
        }
    }

    /// What a provider answered is taken soon. If the home made another call since, it was not
    /// the lifecycle's: a create that is undone looks as well, while what is asked next waits.
    pub fn check_taken(&mut self, call: u64, home: HomeId, sandbox: &SandboxId, attempt: Attempt) {
        if self.ledger.last_calls.get(&home).is_some_and(|last| *last > call) {
            return;
        }
        let Some(issue) = self.rows.issues.get(&home) else { return };
        let waits = matches!(issue.state.step(), Some(Step::Asked { .. }))
            && issue.state.record().is_some_and(|r| r.id == *sandbox && r.attempt == attempt);
        let since = self.elapsed_ms() - self.ledger.disturbed_ms.unwrap_or(0);
        if waits && self.alive.is_some() && since > 2 * PHASES_EVERY_MS {
            self.violate(Some(home), "an answer was lost within the server");
        }
    }

    /// Every phase in which something is under way is left in bounded time; *deleting* alone
    /// lasts until the provider lets go.
    pub fn check_phases(&mut self) {
        let end = self.calm_since_ms.map_or(HISTORY_TIME_MAX_MS, |since| since + CALM_TIME_MAX_MS);
        if self.elapsed_ms() > end {
            return self.violate(None, "it goes on without end");
        }
        let bound = u64::try_from(self.weather.phase_time_max().as_millis()).unwrap_or(u64::MAX);
        let disturbed = self.ledger.disturbed_ms.unwrap_or(0);
        let (now, caught_up) = (self.elapsed_ms(), self.caught_up_ms());
        let stuck = self.ledger.phases.iter().find(|(_, (phase, since))| {
            let bounded = phase.is_some_and(|p| p.is_transitional() && p != Phase::Deleting);
            bounded && (now - disturbed.max(*since)).min(caught_up) > bound
        });
        if let Some((home, (phase, _))) = stuck.filter(|_| self.alive.is_some()) {
            let (home, phase) = (*home, *phase);
            self.violate(Some(home), format!("{phase:?} lasts too long"));
        }
        self.check_agents();
        self.after(PHASES_EVERY_MS, SimEffect::CheckPhases);
    }

    /// What is published is durable, and in order.
    pub fn check_published(&mut self, change: &Change) {
        let home = change.home;
        let stored = self.rows.issues.get(&home).map_or(0, |issue| issue.version);
        if change.version > stored {
            self.violate(Some(home), "published before it was durable");
        }
        let last = self.ledger.published.entry(home).or_default();
        let older = change.version < *last;
        *last = change.version.max(*last);
        if older && !self.is_aftermath() {
            self.violate(Some(home), "published out of order");
        }
    }

    /// GitHub got the answer that a delivery is taken in: it is durable with its result.
    pub fn check_acknowledged(&mut self, delivery: &DeliveryId) {
        match self.rows.deliveries.get(delivery) {
            Some(row) if !row.reason.is_empty() || row.state == DeliveryState::Pending => {}
            Some(row) => {
                let home = row.home;
                self.violate(home, format!("{delivery} has no reason"));
            }
            None => self.violate(None, format!("{delivery} was acknowledged and is not stored")),
        }
    }

    /// A caller was given this sandbox.
    pub fn check_given(&mut self, sandbox: &Sandbox) {
        let home = sandbox.home;
        let stored = self.rows.sandbox(&sandbox.id);
        if stored.is_none_or(|stored| stored.home != home) {
            self.violate(Some(home), format!("{} was given and is not stored", sandbox.id));
        }
        self.ledger.given.entry(home).or_default().insert(sandbox.id.clone());
    }

    /// A caller got the answer that this sandbox is deleted or will be: nothing takes that back.
    pub fn check_deleted(&mut self, sandbox: &Sandbox) {
        let stored = self.rows.sandbox(&sandbox.id);
        let deleting =
            |stored: &Sandbox| stored.phase.is_none() || stored.phase == Some(Phase::Deleting);
        if !stored.as_ref().is_some_and(deleting) {
            let what = format!("the delete of {} was accepted and is not stored", sandbox.id);
            self.violate(Some(sandbox.home), what);
        }
        self.ledger.deleted.insert(sandbox.id.clone());
    }
}

fn failure_of(issue: &Issue) -> Option<FailureCode> {
    match &issue.state {
        IssueState::Failed { failure, .. }
        | IssueState::Deleting { failure: Some(failure), .. } => Some(failure.code),
        IssueState::Absent
        | IssueState::Creating { .. }
        | IssueState::Running { .. }
        | IssueState::Stopping { .. }
        | IssueState::Stopped { .. }
        | IssueState::Starting { .. }
        | IssueState::Deleting { failure: None, .. } => None,
    }
}
