//! What a step asks to be done outside of the state, as data.
//!
//! A lifecycle call to the provider is part of the state: one at a time, with an attempt that its
//! answer names. An effect is everything else. The store records it in its outbox, in the
//! transaction of the state that asked for it, and one worker carries it out, at least once. So
//! each kind of effect must be harmless when it is repeated.
//!
//! Two effects of one home with the same kind and key are one: the newer replaces the older and
//! takes its place in the order. An effect whose newest content counts (a desired state) has a
//! constant key. An effect that must happen once has a key of its own, such as a delivery's GUID.

use crate::types::{ExternalId, ProviderName, SandboxId};

/// Something to be done outside of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stop or remove an orphan at a provider.
    CleanUp(Cleanup),
}

/// What kind of effect it is: for the order within a home, metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKind {
    /// [`Effect::CleanUp`].
    CleanUp,
}

impl EffectKind {
    /// Every kind.
    pub const ALL: [Self; 1] = [Self::CleanUp];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CleanUp => "clean_up",
        }
    }

    /// The kind that [`Self::as_str`] gives this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Effect {
    /// Its kind.
    pub const fn kind(&self) -> EffectKind {
        match self {
            Self::CleanUp(_) => EffectKind::CleanUp,
        }
    }

    /// What it is about: a newer effect of the same home, kind and key replaces it.
    pub fn key(&self) -> String {
        match self {
            Self::CleanUp(cleanup) => format!("{}/{}", cleanup.provider, cleanup.external_id),
        }
    }
}

/// An orphan, which is an object without a record, and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// The provider that has it.
    pub provider: ProviderName,
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The sandbox id in its labels.
    pub expected: SandboxId,
    /// What to do.
    pub action: CleanupAction,
}

/// What to do with an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    /// Stop it and keep it until a person decides.
    Stop,
    /// Remove it.
    Remove,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_word() {
        for kind in EffectKind::ALL {
            assert_eq!(EffectKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(EffectKind::parse("clean up"), None);
    }

    #[test]
    fn cleanups_of_one_object_are_one_effect() {
        let cleanup = |provider, object, action| {
            Effect::CleanUp(Cleanup {
                provider: ProviderName::trusted(provider),
                external_id: ExternalId::trusted(object),
                expected: SandboxId::trusted("sandbox"),
                action,
            })
        };
        let stop = cleanup("a", "x", CleanupAction::Stop);
        assert_eq!(stop.key(), cleanup("a", "x", CleanupAction::Remove).key());
        assert_ne!(stop.key(), cleanup("a", "y", CleanupAction::Stop).key());
        assert_ne!(stop.key(), cleanup("b", "x", CleanupAction::Stop).key());
    }
}
