//! What a provider lists against what the store has: what disagrees, and whether it is too much to
//! be true. Pure.
//!
//! A finding is no decision. It nominates a home for a second look, and what that look shows goes to
//! the home's actor, which alone decides. The rules here follow the actor's
//! ([`crate::issue::step`]), so that what is about to be removed can be counted before anything is.

use crate::issue::Issue;
use crate::issue::event::{
    FAST_ORPHAN_MAX, ListedObject, Observation, ObservedObject, Owner, QUARANTINE,
};
use crate::sabotage::{Bug, on};
use crate::sandbox::{Labels, Object};
use crate::types::{
    AccountName, Attempt, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode, ObjectName,
    ObjectState, Phase, ProviderName, SandboxId, Timestamp,
};

/// The least that counts as too much at once, however few there are.
const TOO_MUCH_MIN: usize = 3;

/// A home as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct KnownHome {
    pub home: HomeId,
    pub account: AccountName,
    pub issue: IssueId,
    /// The last generation given; 0 before the first.
    pub generation: Generation,
    /// Its live sandbox, if it has one.
    pub sandbox: Option<Recorded>,
}

/// A live sandbox as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Recorded {
    pub id: SandboxId,
    pub provider: ProviderName,
    pub name: ObjectName,
    pub external_id: Option<ExternalId>,
    pub phase: Phase,
    pub attempt: Attempt,
    /// Since when it has been in its phase.
    pub since: Timestamp,
    /// Whether a stop of unknown outcome may have taken it down since it was started, or may still.
    pub stop_may_land: bool,
}

impl KnownHome {
    /// What matters here of a stored issue.
    pub fn of(issue: &Issue) -> Self {
        let recorded = |phase| {
            let record = issue.state.record()?;
            Some(Recorded {
                id: record.id.clone(),
                provider: record.template.provider.clone(),
                name: record.object_name.clone(),
                external_id: issue.state.external_id().cloned(),
                phase,
                attempt: record.attempt,
                since: record.phase_since,
                stop_may_land: record.stop_may_land_until.is_some(),
            })
        };
        Self {
            home: issue.home,
            account: issue.account.clone(),
            issue: issue.facts.issue_id.clone(),
            generation: issue.generation,
            sandbox: issue.state.phase().and_then(recorded),
        }
    }

    /// A home that the store does not have, from what an object says of it.
    pub fn unknown(labels: &Labels) -> Self {
        Self {
            home: labels.home,
            account: labels.account.clone(),
            issue: labels.issue.clone(),
            generation: Generation::default(),
            sandbox: None,
        }
    }

    /// Its live sandbox, if that is at this provider.
    pub fn at(&self, provider: &ProviderName) -> Option<&Recorded> {
        self.sandbox.as_ref().filter(|recorded| recorded.provider == *provider)
    }

    /// Whether it runs, and only a look can say that no stop of unknown outcome took it down since.
    pub fn has_open_stop(&self, provider: &ProviderName) -> bool {
        self.at(provider)
            .is_some_and(|recorded| recorded.phase == Phase::Running && recorded.stop_may_land)
    }

    /// What the home's actor gets of a look that followed this reading.
    pub fn observation(
        &self,
        provider: &ProviderName,
        asked_at: Timestamp,
        objects: Vec<ListedObject>,
    ) -> Observation {
        let sandbox = self.sandbox.as_ref();
        Observation {
            provider: provider.clone(),
            generation: self.generation,
            attempt: sandbox.map_or_else(Attempt::default, |recorded| recorded.attempt),
            phase: sandbox.map(|recorded| recorded.phase),
            by_event: false,
            asked_at,
            objects,
        }
    }
}

/// An object and the labels by which it is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Ours {
    pub external_id: ExternalId,
    pub name: ObjectName,
    pub labels: Labels,
    pub state: ObjectState,
}

impl Ours {
    /// An object, if it carries this installation's labels.
    pub fn of(object: Object, instance: &InstanceId) -> Option<Self> {
        let Object { external_id, name, labels, state } = object;
        let labels = labels.filter(|labels| labels.instance == *instance)?;
        Some(Self { external_id, name, labels, state })
    }

    /// The same as the lifecycle sees it.
    pub fn seen(&self) -> ObservedObject {
        let owner = Owner {
            sandbox: self.labels.sandbox.clone(),
            generation: self.labels.generation,
            mode: self.labels.mode,
        };
        ObservedObject {
            external_id: self.external_id.clone(),
            owner: Some(owner),
            state: self.state.clone(),
        }
    }
}

/// What disagrees about one home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Finding {
    /// The recorded object is not there.
    Lost,
    /// The record says *running* and the object, in this state, does not run.
    Down(ObjectState),
    /// The record says *stopped* or *failed* and the object runs.
    Up,
    /// The record says *failed* without an object, and it is there, in this state.
    Back(ObjectState),
    /// An object that no record names.
    Orphan(Ours, OrphanKind),
}

/// Why no record names an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum OrphanKind {
    /// The store knows its sandbox as deleted.
    Deleted,
    /// One of fast mode with the last generation + 1: its record may be on its way.
    FastNext,
    /// The store has never seen its sandbox; a restored backup looks like this.
    NeverSeen,
    /// Its home has a recorded sandbox, and this is an object of another.
    Second,
    /// It is the recorded sandbox once more, under another external id.
    Twin,
}

/// What disagrees about a home. `objects` are all of its objects at this provider.
pub(in crate::engine) fn compare(
    provider: &ProviderName,
    known: &KnownHome,
    objects: &[Ours],
    is_deleted: impl Fn(&SandboxId) -> bool,
) -> Vec<Finding> {
    let recorded = known.at(provider);
    let orphan = |object: &Ours| {
        let labels = &object.labels;
        let kind = if recorded.is_some_and(|recorded| recorded.id == labels.sandbox) {
            OrphanKind::Twin
        } else if is_deleted(&labels.sandbox) {
            OrphanKind::Deleted
        } else if labels.mode == Mode::Fast && labels.generation == known.generation.next() {
            OrphanKind::FastNext
        } else if recorded.is_some() {
            OrphanKind::Second
        } else {
            OrphanKind::NeverSeen
        };
        Finding::Orphan(object.clone(), kind)
    };
    let Some(recorded) = recorded else { return objects.iter().map(orphan).collect() };
    let own = objects.iter().position(|object| {
        let is_named = recorded.external_id.as_ref().is_none_or(|id| *id == object.external_id);
        is_named && object.labels.sandbox == recorded.id
    });
    let state = own.and_then(|at| objects.get(at)).map(|object| object.state.clone());
    let about_own = match (recorded.phase, state) {
        // A call is under way: its answer is nearer to the truth.
        (Phase::Creating | Phase::Stopping | Phase::Starting | Phase::Deleting, _) => {
            return Vec::new();
        }
        (Phase::Running | Phase::Stopped, None) => Some(Finding::Lost),
        (Phase::Running, Some(ObjectState::Running)) => None,
        (Phase::Running, Some(state @ (ObjectState::Stopped | ObjectState::Partial))) => {
            Some(Finding::Down(state))
        }
        (Phase::Stopped, Some(ObjectState::Running)) => Some(Finding::Up),
        (Phase::Stopped, Some(ObjectState::Stopped | ObjectState::Partial)) => None,
        (Phase::Running | Phase::Stopped, Some(state @ ObjectState::Error { .. })) => {
            Some(Finding::Down(state))
        }
        // It counts as present until it is gone.
        (Phase::Running | Phase::Stopped, Some(ObjectState::Destroying)) => None,
        (Phase::Failed, Some(ObjectState::Running)) => Some(Finding::Up),
        // As the failure says.
        (Phase::Failed, None) if recorded.external_id.is_none() => None,
        (Phase::Failed, None) => Some(Finding::Lost),
        (Phase::Failed, Some(ObjectState::Destroying)) => None,
        (
            Phase::Failed,
            Some(state @ (ObjectState::Stopped | ObjectState::Partial | ObjectState::Error { .. })),
        ) => recorded.external_id.is_none().then_some(Finding::Back(state)),
    };
    let others = objects.iter().enumerate().filter(|(at, _)| Some(*at) != own);
    about_own.into_iter().chain(others.map(|(_, object)| orphan(object))).collect()
}

impl OrphanKind {
    /// When an object that was first seen then is removed; `None` if only a person removes it.
    pub fn removed_at(self, first_seen_at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Deleted => Some(first_seen_at),
            Self::FastNext => Some(first_seen_at.after(FAST_ORPHAN_MAX)),
            Self::NeverSeen | Self::Second => Some(first_seen_at.after(QUARANTINE)),
            Self::Twin => None,
        }
    }
}

/// What one sweep counted at one provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct SweepTally {
    /// Live sandboxes on record.
    pub records: usize,
    /// Objects of ours.
    pub objects: usize,
    /// Recorded objects that are missing.
    pub lost: usize,
    /// Objects whose time to be removed has come.
    pub removals: usize,
}

/// What a sweep found too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum TooMuch {
    /// More of the records than ever are lost at once.
    Lost,
    /// More of the objects would be removed than ever is right at once.
    Removals,
}

impl SweepTally {
    /// What is too much to be acted on without a person: more than three and more than a tenth. A
    /// list that is so far from the records is rather wrong than true.
    pub fn too_much(&self) -> Vec<TooMuch> {
        let exceeds =
            |part: usize, of: usize| part > TOO_MUCH_MIN.max(of / 10) && !on(Bug::NoMassGuard);
        let lost = exceeds(self.lost, self.records).then_some(TooMuch::Lost);
        let removals = exceeds(self.removals, self.objects).then_some(TooMuch::Removals);
        lost.into_iter().chain(removals).collect()
    }
}

#[cfg(test)]
mod tests;
