//! Never two objects: which of them count, and which two may be there at once.

use super::driver::account;
use super::objects::{SimCall, SimObject};
use super::world::WorldState;
use crate::sandbox::{Labels, Object};
use crate::types::{HomeId, Mode, SandboxId};

/// How often the removal of what a fast create made is tried.
const UNDO_TRIES: u32 = 5;

impl WorldState {
    /// A call made an object: it must be the only one of its home and of its issue.
    pub fn check_made(&mut self, cloud: usize, object: &Object) {
        let labels = object.labels.as_ref().expect("what a call makes has labels");
        let home = Some(labels.home);
        if self.ledger.ended.contains(&labels.sandbox) {
            let what = format!("{} was deleted and came back", labels.sandbox);
            self.violate(home, what);
        }
        let clouds = self.clouds.iter().enumerate();
        let objects = clouds.flat_map(|(at, cloud)| cloud.objects.iter().map(move |o| (at, o)));
        let counts = |object: &SimObject| object.ours && !self.is_left_by_haste(&object.object);
        let others = objects
            .filter(|(_, other)| counts(other) && other.object.external_id != object.external_id);
        let beside = others.filter(|(at, other)| {
            let theirs = other.object.labels.as_ref();
            theirs.is_some_and(|theirs| !self.may_be_beside((cloud, labels), (*at, theirs)))
        });
        let beside: Vec<_> = beside.map(|(_, o)| o.object.external_id.to_string()).collect();
        if !beside.is_empty() && !self.is_left_by_haste(object) {
            let what = format!("{} is there beside {}", object.external_id, beside.join(", "));
            self.violate(home, what);
        }
    }

    /// Whether two objects, each with its provider, may be there at once.
    fn may_be_beside(&self, one: (usize, &Labels), other: (usize, &Labels)) -> bool {
        let ((one_at, one), (other_at, other)) = (one, other);
        let issue = self.github.issue_of(&one.issue);
        let is_same_issue = issue.is_some() && issue == self.github.issue_of(&other.issue);
        if one.home != other.home
            && (!is_same_issue || one.account != other.account || one.account != account())
        {
            return true;
        }
        // Two homes may each have one until a delivery says that they are one issue, and from then on
        // one of them while it is being deleted.
        if one.home != other.home
            && (!issue.is_some_and(|issue| self.github.is_reported(issue))
                || self.gave_way(one.home)
                || self.gave_way(other.home))
        {
            return true;
        }
        // The next create meets what was given up by force, unless that is elsewhere.
        one_at != other_at && (self.is_given_up(&one.sandbox) || self.is_given_up(&other.sandbox))
    }

    /// Whether a person gave the record of this sandbox up: its object may be there until a sweep
    /// removes it, or may still come.
    pub fn is_given_up(&self, sandbox: &SandboxId) -> bool {
        self.ledger.forced.contains(sandbox)
            && self.rows.sandbox(sandbox).is_some_and(|sandbox| sandbox.phase.is_none())
    }

    /// Whether an object has no record, which a crash or a lost answer excuses in fast mode, until
    /// a sweep comes.
    pub fn is_left_by_haste(&self, object: &Object) -> bool {
        object.labels.as_ref().is_some_and(|labels| {
            self.ledger.hasty.contains(&labels.sandbox)
                && self.rows.sandbox(&labels.sandbox).is_none()
        })
    }

    /// Whether an object of this home is there that haste left without a record.
    pub fn has_left_in_haste(&self, home: HomeId) -> bool {
        let mut objects = self.clouds.iter().flat_map(|cloud| &cloud.objects).map(|o| &o.object);
        objects.any(|object| {
            object.labels.as_ref().is_some_and(|labels| labels.home == home)
                && self.is_left_by_haste(object)
        })
    }

    /// A call of this home failed, or a removal did not end it. If all tries to undo a create in
    /// fast mode fail, what it made is left to the sweep as well.
    pub fn undo_fails(&mut self, home: Option<HomeId>) {
        let made = self.clouds.iter().flat_map(|cloud| &cloud.objects).map(|o| &o.object);
        let made = made.filter_map(|object| object.labels.as_ref()).filter(|labels| {
            labels.mode == Mode::Fast
                && Some(labels.home) == home
                && self.rows.sandbox(&labels.sandbox).is_none()
        });
        let orphans: Vec<_> = made.map(|labels| labels.sandbox.clone()).collect();
        for sandbox in orphans {
            let failures = self.ledger.undo_failures.entry(sandbox.clone()).or_insert(0);
            *failures += 1;
            if *failures >= UNDO_TRIES {
                self.ledger.hasty.insert(sandbox);
            }
        }
    }

    /// The server is gone: what was made in haste and is not recorded stays without a record.
    pub fn leave_in_haste(&mut self) {
        let made = self.clouds.iter().flat_map(|cloud| &cloud.objects).map(|o| &o.object);
        let made = made.filter_map(|object| object.labels.as_ref());
        let asked = self.calls.values().filter_map(SimCall::makes);
        let hasty = made.chain(asked).filter(|labels| labels.mode == Mode::Fast);
        let hasty: Vec<_> = hasty.map(|labels| labels.sandbox.clone()).collect();
        self.ledger.hasty.extend(hasty);
    }
}
