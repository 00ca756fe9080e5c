//! Whether a sandbox may be created or started: holds that people put on ([`held`]), quotas of live
//! sandboxes ([`quota`]), and the provider's free capacity ([`capacity`]).
//!
//! The lifecycle is given the [`Denial`] with each event that could create or start a sandbox, and
//! decides. If nothing denies it, the home gets a slot under the quotas *before* the step, under
//! one lock, so that two issues never get the last slot. The slot is a [`QuotaReservation`], which
//! travels with the step's output: it gives the slot back if the step began no sandbox or its
//! commit was refused, and the home keeps the slot once the commit is durable.
//!
//! A home keeps its slot until its sandbox is gone, durably: a slot that came free with a commit
//! which is then refused would be given to another while the sandbox is still there. Equally, when
//! it is unknown whether a commit landed, the home keeps the slot until its next actor has loaded.
//!
//! A denied start of a delivery waits in its issue's state. Whenever a slot comes free or a hold is
//! released, [`grant`](grant::run) wakes those that can start now: turn by turn among the
//! repositories, the longest waiting of each first, so that one busy repository does not keep the
//! others waiting.

pub(super) mod capacity;
mod changes;
pub(super) mod grant;
mod held;
mod quota;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::issue::event::EventMeta;
use crate::issue::{Denial, DenialKind, Issue, IssueEvent};
use crate::sabotage::{Bug, on};
use crate::store::PendingStartRow;
use crate::types::{AccountName, Hold, HoldScope, HomeId, IssueId, Repository};

use changes::HoldChanges;
pub use changes::HoldsWatch;
use held::HoldIndex;
use quota::QuotaSlots;
pub use quota::Quotas;

/// Holds, and the slots under the quotas.
pub(super) struct Admission {
    quotas: Quotas,
    inner: Mutex<Inner>,
    /// Something came free or was released.
    wake: Notify,
    holds_changed: HoldChanges,
}

#[derive(Default)]
struct Inner {
    held: HoldIndex,
    slots: QuotaSlots,
}

impl Admission {
    /// With no holds, and no sandbox counted yet.
    pub fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            inner: Mutex::default(),
            wake: Notify::new(),
            holds_changed: HoldChanges::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counts and holds are right after each statement, whatever panicked.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits an event that may create or start a sandbox, or says why that is denied. An issue
    /// that had no slot under the quotas gets one with the reservation.
    pub fn admit(
        self: &Arc<Self>,
        issue: &Issue,
        event: &EventMeta<'_>,
    ) -> Result<Option<QuotaReservation>, Denial> {
        // The event may know better where the issue is now; a hold on either repository counts.
        let (given, known) = (event.repository, issue.facts.repository.as_ref());
        let repository = given.or(known);
        let mut inner = self.lock();
        let hold = |repository| inner.held.on(issue, event, repository);
        if let Some(hold) = hold(given).or_else(|| hold(known)) {
            return Err(denied(hold));
        }
        if self.quotas.is_unlimited() || inner.slots.has(issue.home) {
            return Ok(None);
        }
        // It counts for the one that turns out to be newer: both must have a free slot.
        let repository = repository.map(Repository::folded);
        let known = known.map(Repository::folded);
        let full = |name: Option<&str>| inner.slots.full(self.quotas, &issue.account, name);
        match full(repository.as_deref()).or_else(|| full(known.as_deref())) {
            Some(reason) => Err(Denial { kind: DenialKind::Quota, reason }),
            None => {
                inner.slots.take(issue.home, &issue.account, repository);
                let (admission, home) = (Arc::clone(self), issue.home);
                Ok(Some(QuotaReservation { admission, home, stage: Stage::Stepping }))
            }
        }
    }

    /// Counts the live sandbox that an issue durably has, in the repository where the issue is. When
    /// the sandbox has ended, [`Self::leave`] follows.
    pub fn count(&self, issue: &Issue) {
        if !self.quotas.is_unlimited() && issue.state.takes_slot() {
            let repository = issue.facts.repository.as_ref().map(Repository::folded);
            if self.lock().slots.count(issue.home, &issue.account, repository) {
                self.wake.notify_one();
            }
        }
    }

    /// Counts the live sandbox that an issue has by a step that is not durable yet, also in the
    /// repository where it durably is: if the step is refused, it is still there.
    pub fn count_step(&self, issue: &Issue) {
        if on(Bug::SlotMovesEarly) {
            return self.count(issue);
        }
        if !self.quotas.is_unlimited() && issue.state.takes_slot() {
            let repository = issue.facts.repository.as_ref().map(Repository::folded);
            self.lock().slots.count_also(issue.home, &issue.account, repository);
        }
    }

    /// A home has no sandbox that counts, durably, or turned out not to exist: its slot is free.
    pub fn leave(&self, home: HomeId) {
        if !self.quotas.is_unlimited() && self.lock().slots.leave(home) {
            self.wake.notify_one();
        }
    }

    /// How many live sandboxes there may be.
    pub const fn quotas(&self) -> Quotas {
        self.quotas
    }

    /// Every hold, the widest first, then by what is held.
    pub fn holds(&self) -> Vec<Hold> {
        self.lock().held.all()
    }

    /// A hold is durable; of an issue that is known, its home.
    pub fn put(&self, hold: Hold, home: Option<HomeId>) {
        self.lock().held.put(hold, home);
        self.holds_changed.changed();
    }

    /// A hold was released.
    pub fn release(&self, scope: &HoldScope) {
        self.lock().held.release(scope);
        self.holds_changed.changed();
        self.wake.notify_one();
    }

    /// Changes with every hold that comes into force or is released.
    pub fn holds_changed(&self) -> HoldsWatch {
        self.holds_changed.follow()
    }

    /// Why an issue is held now; `None` if it is not.
    pub fn hold_on(&self, issue: &Issue) -> Option<String> {
        let event = IssueEvent::Granted;
        let inner = self.lock();
        let hold = inner.held.on(issue, &event.meta(), issue.facts.repository.as_ref())?;
        Some(denied(hold).reason)
    }

    /// A home has these ids now. If it was merged into another one, that one has all its ids.
    pub fn named(
        &self,
        account: &AccountName,
        home: HomeId,
        ids: &[IssueId],
        goes_to: Option<HomeId>,
    ) {
        self.lock().held.named(account, home, ids, goes_to);
    }

    /// A repository has another name. Returns the holds that are to be stored and put in force so
    /// that it stays held.
    pub fn followed(&self, from: &Repository, to: &Repository) -> Vec<Hold> {
        self.lock().held.followed(from, to)
    }

    /// Which of these holds are in force, just so.
    pub fn in_force(&self, mut holds: Vec<Hold>) -> Vec<Hold> {
        let inner = self.lock();
        holds.retain(|hold| inner.held.has(hold));
        holds
    }

    /// Returns once something came free or was released.
    async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Which of these pending starts can be granted now, in their order.
    fn grantable(&self, pending_starts: Vec<PendingStartRow>) -> Vec<HomeId> {
        let inner = self.lock();
        let mut slots = inner.slots.clone();
        let mut can = Vec::new();
        for PendingStartRow { home, account, repository, .. } in pending_starts {
            let has_slot = slots.has(home);
            if inner.held.covers(home, &account, repository.as_deref())
                || !has_slot && slots.full(self.quotas, &account, repository.as_deref()).is_some()
            {
                continue;
            }
            if !has_slot {
                slots.take(home, &account, repository);
            }
            can.push(home);
        }
        can
    }
}

/// A slot under the quotas that an event was given and that is not durable yet. Dropped, it gives
/// the slot back.
pub(super) struct QuotaReservation {
    admission: Arc<Admission>,
    home: HomeId,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The step is under way.
    Stepping,
    /// The step began a sandbox and its commit was handed in.
    HandedIn,
    /// The home has the slot for good.
    Kept,
}

impl QuotaReservation {
    /// The step began a sandbox, and its commit was handed in.
    pub fn handed_in(&mut self) {
        self.stage = Stage::HandedIn;
    }

    /// The home keeps the slot: the commit is durable, or may be and the home's next actor finds
    /// out.
    pub fn keep(mut self) {
        self.stage = Stage::Kept;
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        match self.stage {
            // It was free before this step: no start waits for it. To wake the starts that wait
            // would let one that is denied for another reason run in a circle.
            Stage::Stepping => {
                self.admission.lock().slots.leave(self.home);
            }
            Stage::HandedIn => self.admission.leave(self.home),
            Stage::Kept => {}
        }
    }
}

fn denied(hold: &Hold) -> Denial {
    let why = if hold.reason.is_empty() { String::new() } else { format!(": {}", hold.reason) };
    let reason = format!("{} is held by {} since {}{why}", hold.scope, hold.by, hold.since);
    Denial { kind: DenialKind::Held, reason }
}

#[cfg(test)]
mod tests;
