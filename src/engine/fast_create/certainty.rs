//! Why a create in fast mode is safe from a second home of its issue.
//!
//! In fast mode a provider is asked before the commit could be refused. A second home of one issue
//! would then mean a second call for it. The [`directory`](crate::engine::directory) accepts the
//! race that gives an issue a second home. So a new home is *certain* only when that race was not
//! possible:
//! - A name leaves the directory after it became durable, or after its claim was abandoned. Names
//!   that leave are counted, before each leaves. A look reads the count when it begins, and the
//!   directory compares it when it makes the new home's entry, under that entry's guard.
//!   Unchanged, the name was in the directory or nowhere all the time: had it been durable when the
//!   look began, the store would have said so; had another home had it in the directory, it still
//!   would.
//! - When a claim was abandoned, because its commit was refused or its step stored nothing, a caller
//!   that learned the name's home before may still make it durable. So for a while no new home is
//!   certain.
//! - The names of a fast create stay in the directory until its object is recorded or destroyed, or its
//!   home gave way to another one. From then on every caller finds this home for the name, so only its
//!   actor asks, and the executor's slot makes it one call at a time. A name that is another home's
//!   in the store leads there: then this create's record is refused, or its home gave way.
//!
//! What is not certain is created in strong mode.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::sabotage::{Bug, on};
use crate::types::Timestamp;

/// How long after a claim was abandoned new homes are not certain: a caller that was given the
/// name's home before may only now speak to its actor. That is a matter of moments; a write that
/// was handed in is decided within it too.
const UNSURE: Duration = Duration::from_secs(60);

/// Whether a new home is certain to be the only one of its issue.
#[derive(Default)]
pub(in crate::engine) struct Certainty {
    /// How many names left the directory so far; counted before each does.
    names_left: AtomicU64,
    /// Until when an abandoned name may still be claimed, in milliseconds since 1970.
    unsure_until_ms: AtomicI64,
}

impl Certainty {
    /// How many names left so far, for a look that begins.
    pub fn names_left(&self) -> u64 {
        self.names_left.load(Ordering::SeqCst)
    }

    /// A name is about to leave.
    pub fn name_leaves(&self) {
        self.names_left.fetch_add(1, Ordering::SeqCst);
    }

    /// A claim was abandoned.
    pub fn claim_abandoned(&self, now: Timestamp) {
        self.unsure_until_ms.fetch_max(now.after(UNSURE).unix_ms(), Ordering::SeqCst);
    }

    /// Whether no name left since a look began, and none a moment ago that may still be claimed.
    pub fn is_certain(&self, names_left: u64, now: Timestamp) -> bool {
        let is_certain = self.names_left() == names_left
            && self.unsure_until_ms.load(Ordering::SeqCst) <= now.unix_ms();
        is_certain || on(Bug::FastOnUncertainHome)
    }
}
