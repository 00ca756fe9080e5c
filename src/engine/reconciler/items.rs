//! What a sweep found, in words for people. Pure.

use crate::issue::event::QUARANTINE;
use crate::types::{ObjectState, Phase, ProviderName, Timestamp};

use super::super::identity::{ChangedIdentity, NotConfirmed};
use super::compare::{Finding, KnownHome, OrphanKind, Ours, Recorded, SweepTally, TooMuch};
use super::drift::{Drifted, Subject};
use super::view::{DriftItem, DriftKind, ObjectSide, RecordSide, Remedy};

/// How far a finding got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Its actor has got it and decided.
    Decided,
    /// Too much was found at once: nothing is done.
    HeldBack,
    /// The second look failed, or its actor did not get it, for this reason.
    Failed(String),
}

impl Outlook {
    /// What happens next; `done` is what the actor's decision leads to.
    fn next(&self, done: &str) -> String {
        match self {
            Self::Decided => done.to_owned(),
            Self::HeldBack => "nothing: the sweep found more at once than it may act on".into(),
            Self::Failed(why) => format!("the next sweep looks at it again: {why}"),
        }
    }
}

/// A finding about a home. `first_seen_at` is when a sweep first saw an orphan.
pub(super) fn of_home(
    provider: &ProviderName,
    known: &KnownHome,
    finding: &Finding,
    first_seen_at: Timestamp,
    outlook: &Outlook,
) -> Drifted {
    let recorded = known.at(provider);
    let has_failed = recorded.is_some_and(|recorded| recorded.phase == Phase::Failed);
    let (kind, reason) = match finding {
        Finding::Orphan(object, kind) => {
            return of_orphan(provider, known, object, *kind, first_seen_at, outlook);
        }
        Finding::Lost if has_failed => (
            DriftKind::ObjectLost,
            "the sandbox has failed, and the provider no longer has its object".to_owned(),
        ),
        Finding::Lost => (
            DriftKind::ObjectLost,
            "the provider does not have the recorded object, and issuebox did not remove it".into(),
        ),
        Finding::Down(state) => (
            DriftKind::KilledOutside,
            format!(
                "the record says running and the object is {state}, but issuebox did not stop it"
            ),
        ),
        Finding::Up => {
            let phase = if has_failed { "failed" } else { "stopped" };
            let reason = format!(
                "the record says {phase} and the object runs, but issuebox did not start it"
            );
            (DriftKind::StartedOutside, reason)
        }
        Finding::Back(state) => (
            DriftKind::StartedOutside,
            format!("the record says failed, without an object, and the object is there: {state}"),
        ),
    };
    let (next, remedies) = match finding {
        // A person has it retried with what is there, or deleted.
        _ if has_failed => (
            "it stays failed; stop, retry and delete work on what is there",
            vec![Remedy::Adopt, Remedy::Remove],
        ),
        Finding::Lost => ("the next sweep looks at it again", vec![Remedy::Remove]),
        Finding::Down(_) | Finding::Up | Finding::Back(_) | Finding::Orphan(..) => {
            ("the next sweep looks at it again", Vec::new())
        }
    };
    let subject = recorded.map_or(Subject::Nothing, |recorded| {
        let subject = if has_failed { Subject::Failed } else { Subject::Record };
        subject(known.home, recorded.id.clone())
    });
    let item = DriftItem {
        id: format!("{provider}:{}", recorded.map_or_else(String::new, about)),
        provider: provider.clone(),
        kind,
        account: Some(known.account.clone()),
        issue: Some(known.issue.clone()),
        record: RecordSide::of(known, provider),
        object: None,
        reason,
        since: first_seen_at,
        next: outlook.next(next),
        next_at: None,
        remedies,
    };
    Drifted { item, subject }
}

/// What the item of a record is known by.
fn about(recorded: &Recorded) -> String {
    recorded.external_id.as_ref().map_or_else(|| recorded.id.to_string(), ToString::to_string)
}

fn of_orphan(
    provider: &ProviderName,
    known: &KnownHome,
    object: &Ours,
    orphan: OrphanKind,
    first_seen_at: Timestamp,
    outlook: &Outlook,
) -> Drifted {
    let hours = QUARANTINE.as_secs() / 3600;
    let (kind, reason, next) = match orphan {
        OrphanKind::Deleted => (
            DriftKind::Orphan,
            "the record of its sandbox is deleted".to_owned(),
            "it is deleted; the next sweep checks that it is gone".to_owned(),
        ),
        OrphanKind::FastNext => (
            DriftKind::Orphan,
            "it has no record; the record of a fast create may be on its way".to_owned(),
            "it is deleted, unless its record is written before".to_owned(),
        ),
        OrphanKind::NeverSeen => (
            DriftKind::Quarantined,
            "no record has ever named it; the database may have been restored from an older backup"
                .to_owned(),
            format!("it stays stopped for {hours} hours, then it is deleted"),
        ),
        OrphanKind::Second => (
            DriftKind::Duplicate,
            "the issue has a recorded sandbox, and this is a second one".to_owned(),
            format!("it stays stopped for {hours} hours, then it is deleted"),
        ),
        OrphanKind::Twin => (
            DriftKind::Duplicate,
            "it is a second object of the recorded sandbox, under another id".to_owned(),
            "nothing, until a person decides which one to keep".to_owned(),
        ),
    };
    let may_be_adopted = known.sandbox.is_none()
        && object.labels.generation > known.generation
        && match object.state {
            ObjectState::Running | ObjectState::Stopped => true,
            ObjectState::Partial | ObjectState::Destroying | ObjectState::Error { .. } => false,
        };
    let adopt = may_be_adopted.then_some(Remedy::Adopt);
    let item = DriftItem {
        id: format!("{provider}:{}", object.external_id),
        provider: provider.clone(),
        kind,
        account: Some(object.labels.account.clone()),
        issue: Some(object.labels.issue.clone()),
        record: RecordSide::of(known, provider),
        object: Some(ObjectSide::of(object)),
        reason,
        since: first_seen_at,
        next: outlook.next(&next),
        next_at: orphan.removed_at(first_seen_at).filter(|_| *outlook != Outlook::HeldBack),
        remedies: adopt.into_iter().chain([Remedy::Remove]).collect(),
    };
    Drifted { item, subject: Subject::Object(object.clone()) }
}

/// A sweep found too much of something.
pub(super) fn of_mass(
    provider: &ProviderName,
    too_much: TooMuch,
    tally: &SweepTally,
    at: Timestamp,
) -> Drifted {
    let SweepTally { records, objects, lost, removals } = tally;
    let (kind, reason, remedy) = match too_much {
        TooMuch::Lost => (
            DriftKind::MassLoss,
            format!(
                "{lost} of {records} recorded objects are missing from its list at once; the list is \
                 probably wrong"
            ),
            Remedy::Adopt,
        ),
        TooMuch::Removals => (
            DriftKind::MassRemoval,
            format!("{removals} of {objects} objects would be deleted at once"),
            Remedy::Remove,
        ),
    };
    let next = "nothing that this sweep found is acted on; the next sweep looks again, unless a person \
                accepts it";
    let subject = Subject::Mass(too_much);
    of_provider(provider, kind, reason, next, at, vec![remedy], subject)
}

/// A sweep could not look.
pub(super) fn not_made(provider: &ProviderName, why: NotMade, at: Timestamp) -> Drifted {
    match why {
        NotMade::Changed(changed) => {
            let reason = changed.describe(provider);
            let next = "no calls are made to it, and none of its objects counts as lost";
            let ChangedIdentity { seen, since, .. } = changed;
            let (kind, subject) = (DriftKind::IdentityChanged, Subject::Identity(seen));
            of_provider(provider, kind, reason, next, since, vec![Remedy::Adopt], subject)
        }
        NotMade::Unreachable(why) => {
            let next = "the next sweep retries; until then none of its objects counts as lost";
            let (kind, subject) = (DriftKind::ProviderUnreachable, Subject::Nothing);
            of_provider(provider, kind, why, next, at, Vec::new(), subject)
        }
    }
}

/// Why a sweep could not look at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotMade {
    /// It could not be reached or understood, or our own store could not.
    Unreachable(String),
    /// It has another identity.
    Changed(ChangedIdentity),
}

impl From<NotConfirmed> for NotMade {
    fn from(why: NotConfirmed) -> Self {
        match why {
            NotConfirmed::Silent(why) => {
                Self::Unreachable(format!("it did not report its identity: {why}"))
            }
            NotConfirmed::Changed(changed) => Self::Changed(changed),
            NotConfirmed::StoreFailed(why) => {
                tracing::error!(error = %why, "failed to store which engine a provider is; the next sweep retries");
                Self::Unreachable("its identity could not be stored; see the log".into())
            }
        }
    }
}

fn of_provider(
    provider: &ProviderName,
    kind: DriftKind,
    reason: String,
    next: &str,
    since: Timestamp,
    remedies: Vec<Remedy>,
    subject: Subject,
) -> Drifted {
    let scope = match kind {
        DriftKind::IdentityChanged => "identity",
        DriftKind::ProviderUnreachable
        | DriftKind::MassLoss
        | DriftKind::MassRemoval
        | DriftKind::ObjectLost
        | DriftKind::KilledOutside
        | DriftKind::StartedOutside
        | DriftKind::Orphan
        | DriftKind::Quarantined
        | DriftKind::Duplicate => kind.as_str(),
    };
    let item = DriftItem {
        id: format!("{scope}:{provider}"),
        provider: provider.clone(),
        kind,
        account: None,
        issue: None,
        record: None,
        object: None,
        reason,
        since,
        next: next.to_owned(),
        next_at: None,
        remedies,
    };
    Drifted { item, subject }
}
