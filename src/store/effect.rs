//! What the store keeps of effects: the outbox.

use crate::issue::Effect;
use crate::types::{HomeId, Timestamp};

/// An effect to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEffect {
    /// The home whose step asked for it.
    pub home: HomeId,
    /// What to do.
    pub effect: Effect,
    /// When it may be carried out first.
    pub due_at: Timestamp,
}

/// An effect in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectRow {
    /// Which one.
    pub id: EffectId,
    /// The home whose step asked for it.
    pub home: HomeId,
    /// What to do.
    pub effect: Effect,
    /// When it may be carried out.
    pub due_at: Timestamp,
    /// How many tries failed.
    pub tries: u32,
}

/// Names one version of an effect: an older version is no longer in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectId {
    /// Its place in the order of recording. It stays when the effect is replaced.
    pub number: i64,
    /// How often it was replaced.
    pub revision: u32,
}

/// When an effect is tried again, and why it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectDelay {
    /// When it may be carried out again.
    pub due_at: Timestamp,
    /// How many tries failed so far.
    pub tries: u32,
    /// What went wrong last, for people.
    pub reason: String,
}
