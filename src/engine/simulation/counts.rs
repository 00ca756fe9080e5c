//! What happened in histories, counted: a promise that holds in a world without transfers says
//! nothing about transfers.

use std::collections::BTreeMap;

use super::world::WorldState;
use crate::issue::Issue;
use crate::store::Write;

/// What must happen in the seeds that every run lives through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    Crash,
    /// The server is down for so long that all calls have landed.
    Downtime,
    Panic,
    ClockStep,
    Outage,
    /// A provider cannot be reached for longer than sweeps and breakers wait.
    Absence,
    Forgetting,
    Impostor,
    Outsider,
    /// A create, stop or delete of unknown outcome takes effect.
    LateCreate,
    LateStop,
    LateDelete,
    Transfer,
    /// The write fails by which a live sandbox goes to another repository.
    RefusedMove,
    Merge,
    /// A delivery for many issues is applied to all of them.
    FanOut,
    ForcedDelete,
    HeldStart,
    ServerQuota,
    AccountQuota,
    RepositoryQuota,
    GrantedStart,
    /// A sandbox of the second account is made.
    SecondAccount,
    /// A sandbox is made at the second provider.
    SecondProvider,
    FastCreate,
    CleanUp,
    /// A writing call at GitHub whose answer was lost took effect.
    LostWrite,
    /// GitHub's limit of writing calls was reached.
    WriteLimit,
    /// A person deleted a comment of ours.
    DeletedComment,
    /// A person quoted the marker of a comment of ours.
    QuotedMarker,
    PullRequest,
    SucceededRun,
    FailedRun,
    InterruptedRun,
    CancelledRun,
    /// A message waits behind a run that goes on.
    WaitingMessage,
    /// GitHub speaks against a run.
    RefusedVerification,
    /// An agent ended by SIGKILL alone.
    KilledAgent,
    /// An agent goes on with its session.
    ResumedSession,
    /// The connection to an agent's output is lost.
    CutOutput,
    /// An agent is found by its tag: an earlier server started it, or the answer was lost.
    FoundAgain,
    /// A cold start succeeded.
    ColdStart,
    FailedColdStart,
    /// The server ended while a hook ran.
    InterruptedHook,
    /// The hooks before a stop or a delete ran.
    HookBeforeEnd,
    /// They took longer than the grace time.
    OutOfGrace,
}

impl Happening {
    pub const ALL: [Self; 46] = [
        Self::Crash,
        Self::Downtime,
        Self::Panic,
        Self::ClockStep,
        Self::Outage,
        Self::Absence,
        Self::Forgetting,
        Self::Impostor,
        Self::Outsider,
        Self::LateCreate,
        Self::LateStop,
        Self::LateDelete,
        Self::Transfer,
        Self::RefusedMove,
        Self::Merge,
        Self::FanOut,
        Self::ForcedDelete,
        Self::HeldStart,
        Self::ServerQuota,
        Self::AccountQuota,
        Self::RepositoryQuota,
        Self::GrantedStart,
        Self::SecondAccount,
        Self::SecondProvider,
        Self::FastCreate,
        Self::CleanUp,
        Self::LostWrite,
        Self::WriteLimit,
        Self::DeletedComment,
        Self::QuotedMarker,
        Self::PullRequest,
        Self::SucceededRun,
        Self::FailedRun,
        Self::InterruptedRun,
        Self::CancelledRun,
        Self::WaitingMessage,
        Self::RefusedVerification,
        Self::KilledAgent,
        Self::ResumedSession,
        Self::CutOutput,
        Self::FoundAgain,
        Self::ColdStart,
        Self::FailedColdStart,
        Self::InterruptedHook,
        Self::HookBeforeEnd,
        Self::OutOfGrace,
    ];

    /// What a denial is about, by its words.
    fn denied(reason: &str) -> Self {
        if reason.contains("of this server are live") {
            Self::ServerQuota
        } else if reason.contains("of the account") {
            Self::AccountQuota
        } else if reason.contains("are live") {
            Self::RepositoryQuota
        } else {
            Self::HeldStart
        }
    }
}

/// How often each happened.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<Happening, u64>);

impl Counts {
    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(*what).or_default() += times;
        }
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<Happening> {
        Happening::ALL.into_iter().filter(|what| !self.0.contains_key(what)).collect()
    }
}

impl WorldState {
    pub fn count(&mut self, what: Happening) {
        *self.counts.0.entry(what).or_default() += 1;
    }

    /// A caller was denied what it asked for.
    pub fn count_denial(&mut self, reason: &str) {
        self.count(Happening::denied(reason));
    }

    /// Counts what a durable step of an issue shows.
    pub fn count_step(&mut self, before: Option<&Issue>, write: &Write) {
        let Some(after) = &write.issue else { return };
        let is_waiting = |issue: &Issue| issue.pending_start.is_some();
        let waited = before.is_some_and(is_waiting);
        if is_waiting(after) && !waited {
            let reasons = write.timeline.iter().map(|entry| &entry.reason);
            let denied = reasons.filter(|reason| reason.starts_with("the start waits"));
            denied.for_each(|reason| self.count_denial(reason));
        }
        let last = before.map(|issue| issue.generation).unwrap_or_default();
        let is_new = after.generation > last;
        if waited && !is_waiting(after) && is_new {
            self.count(Happening::GrantedStart);
        }
        if let Some(record) = after.state.record().filter(|_| is_new) {
            if after.account != super::driver::account() {
                self.count(Happening::SecondAccount);
            }
            if record.template.provider != self.clouds[0].name {
                self.count(Happening::SecondProvider);
            }
            if record.mode == crate::types::Mode::Fast {
                self.count(Happening::FastCreate);
            }
        }
    }
}
