//! Who each provider says it is: the engine behind an adapter, not the adapter.
//!
//! A provider whose identity changed is another one that answers at the same address. That it has
//! none of our objects says nothing about the objects of the one that was there before, so it counts
//! as unreachable: nothing is asked of it and its list is not looked at, until the old one is back or
//! a person says that the new one is right.
//!
//! The first identity that is ever seen is kept in the store. A provider is asked again before the
//! first call after the start, after each call of unknown outcome (the breaker asks then, and calls
//! wait for what is said), and by each sweep: a connection that broke may have come back to somebody
//! else.
//!
//! # The race that is accepted
//! A provider may be replaced between the question and the call that follows it, without any call
//! failing in between. The next sweep asks it before it looks at its list.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

use crate::issue::event::NotAsked;
use crate::sabotage::{Bug, on};
use crate::sandbox::Health;
use crate::types::{ProviderName, Timestamp};

use super::environment::Environment;
use super::providers::Providers;

/// How long a provider may take to say who it is. It promises two seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(2_500);
/// When a call is tried again that was not made because of this.
const PAUSE: Duration = Duration::from_secs(5);

/// Who each provider is known to be.
pub(super) struct Identities {
    env: Arc<Environment>,
    providers: Providers,
    known: Mutex<BTreeMap<ProviderName, KnownIdentity>>,
}

#[derive(Default)]
struct KnownIdentity {
    /// What is kept in the store.
    kept: Option<String>,
    standing: IdentityState,
}

#[derive(Clone, Default)]
enum IdentityState {
    /// It was not asked since the start, and is to be before anything else is asked of it.
    #[default]
    Unasked,
    /// It is who it was, or has no identity.
    Confirmed,
    /// It is somebody else.
    Changed(ChangedIdentity),
}

/// A provider that is not who it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangedIdentity {
    /// Who it was.
    pub kept: String,
    /// Who it says it is.
    pub seen: String,
    /// When that was first seen.
    pub since: Timestamp,
}

/// Why a provider is not to be asked anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotConfirmed {
    /// It could not say who it is; why, for people.
    Silent(String),
    /// It is somebody else.
    Changed(ChangedIdentity),
    /// Who it is could not be kept; for the log.
    StoreFailed(String),
}

impl NotConfirmed {
    /// What is wrong, for people.
    pub fn describe(&self, provider: &ProviderName) -> String {
        match self {
            Self::Silent(why) => format!("{provider} could not say who it is: {why}"),
            Self::Changed(changed) => changed.describe(provider),
            Self::StoreFailed(_) => format!("who {provider} is could not be stored"),
        }
    }

    /// The same to a call that was to be made.
    pub fn not_asked(&self, provider: &ProviderName) -> NotAsked {
        NotAsked::Unreachable { message: self.describe(provider), next_try: PAUSE }
    }
}

impl ChangedIdentity {
    /// What is wrong and what to do, for people.
    pub fn describe(&self, provider: &ProviderName) -> String {
        let Self { kept, seen, .. } = self;
        format!(
            "{provider} is not the one that it was: it was {kept} and says now that it is {seen}; \
             nothing is asked of it until the old one is back, or `issuebox drift adopt \
             identity:{provider}` says that the new one is right"
        )
    }
}

impl Identities {
    /// With what the store has kept.
    pub fn new(
        env: Arc<Environment>,
        providers: Providers,
        kept: Vec<(ProviderName, String)>,
    ) -> Self {
        let known =
            |(name, kept)| (name, KnownIdentity { kept: Some(kept), ..KnownIdentity::default() });
        let known = Mutex::new(kept.into_iter().map(known).collect());
        Self { env, providers, known }
    }

    /// Whether a provider is who it was, as far as that has been asked; asks where it was not.
    pub async fn confirm(&self, name: &ProviderName) -> Result<(), NotConfirmed> {
        let standing = self.locked().entry(name.clone()).or_default().standing.clone();
        match standing {
            IdentityState::Confirmed => Ok(()),
            IdentityState::Changed(changed) => Err(NotConfirmed::Changed(changed)),
            IdentityState::Unasked => self.ask(name).await,
        }
    }

    /// Asks a provider who it is, whatever was known.
    pub async fn ask(&self, name: &ProviderName) -> Result<(), NotConfirmed> {
        let Some(provider) = self.providers.get(name) else { return Ok(()) };
        let give_up = self.env.clock.sleep_until(self.env.now().after(ANSWER_TIME_MAX));
        let asked = AssertUnwindSafe(provider.health()).catch_unwind();
        let health = tokio::select! {
            biased;
            Ok(health) = asked => health,
            () = give_up => return self.silent(name, "no answer in time".into()),
        };
        self.hear(name, &health).await
    }

    /// What a provider says of itself, whoever asked it.
    pub async fn hear(&self, name: &ProviderName, health: &Health) -> Result<(), NotConfirmed> {
        match (&health.identity, &health.trouble) {
            (None, Some(trouble)) => self.silent(name, trouble.clone()),
            (None, None) => {
                self.locked().entry(name.clone()).or_default().standing = IdentityState::Confirmed;
                Ok(())
            }
            (Some(seen), _) => self.take(name, seen.clone()).await,
        }
    }

    /// It does not say who it is. Where it never did, there is nobody it could be mistaken for.
    fn silent(&self, name: &ProviderName, why: String) -> Result<(), NotConfirmed> {
        let is_known = self.locked().get(name).is_some_and(|known| known.kept.is_some());
        if is_known { Err(NotConfirmed::Silent(why)) } else { Ok(()) }
    }

    async fn take(&self, name: &ProviderName, seen: String) -> Result<(), NotConfirmed> {
        {
            let mut known = self.locked();
            let known = known.entry(name.clone()).or_default();
            if let Some(kept) = known.kept.clone() {
                if kept == seen || on(Bug::IdentityIgnored) {
                    known.standing = IdentityState::Confirmed;
                    return Ok(());
                }
                let since = match &known.standing {
                    IdentityState::Changed(changed) => changed.since,
                    IdentityState::Unasked | IdentityState::Confirmed => self.env.now(),
                };
                let changed = ChangedIdentity { kept, seen, since };
                known.standing = IdentityState::Changed(changed.clone());
                return Err(NotConfirmed::Changed(changed));
            }
        }
        self.keep(name, seen).await
    }

    /// From now on a provider is this one. Durable when it returns.
    pub async fn keep(&self, name: &ProviderName, seen: String) -> Result<(), NotConfirmed> {
        let stored = self.env.store.put_identity(name, &seen).await;
        stored.map_err(|error| NotConfirmed::StoreFailed(error.to_string()))?;
        let known = KnownIdentity { kept: Some(seen), standing: IdentityState::Confirmed };
        self.locked().insert(name.clone(), known);
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<ProviderName, KnownIdentity>> {
        // Whole between statements, also where a thread panicked under it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
