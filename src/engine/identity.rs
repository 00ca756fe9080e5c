//! The identity that each provider reports: of the engine behind an adapter, not of the adapter.
//!
//! A provider whose identity changed is another one that answers at the same address. That it has none
//! of our objects says nothing about the objects of the former one. So it counts as unreachable: no
//! calls are made to it and its list is not read, until the former one is back or a person accepts the
//! new identity.
//!
//! The first identity ever seen is kept in the store. A provider is asked for it before the first call
//! after the start, after each call of unknown outcome (the breaker asks then, and calls wait for the
//! answer), and by each sweep: a connection that broke may have come back to another provider.
//!
//! # The race that is accepted
//! A provider may be replaced between the question and the call that follows it, without any call
//! failing in between. The next sweep asks for the identity before it reads the list.

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

/// How long a provider may take to report its identity. It promises two seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(2_500);
/// When a call is retried that was not made because of this.
const PAUSE: Duration = Duration::from_secs(5);

/// The known identity of each provider.
pub(super) struct Identities {
    env: Arc<Environment>,
    providers: Providers,
    known: Mutex<BTreeMap<ProviderName, KnownIdentity>>,
}

#[derive(Default)]
struct KnownIdentity {
    /// What is kept in the store.
    kept: Option<String>,
    /// The first one that was seen, while it is being stored.
    first: Option<String>,
    standing: IdentityState,
}

#[derive(Clone, Default)]
enum IdentityState {
    /// It was not asked since the start, and must be before any call to it.
    #[default]
    Unasked,
    /// It has the identity that it had, or none.
    Confirmed,
    /// It has another identity.
    Changed(ChangedIdentity),
}

/// A provider whose identity changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangedIdentity {
    /// The identity that it had.
    pub kept: String,
    /// The identity that it reports.
    pub seen: String,
    /// When the change was first seen.
    pub since: Timestamp,
}

/// Why no calls are made to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotConfirmed {
    /// It did not report its identity; why, for people.
    Silent(String),
    /// It has another identity.
    Changed(ChangedIdentity),
    /// Its identity could not be stored; for the log.
    StoreFailed(String),
}

impl NotConfirmed {
    /// What is wrong, for people.
    pub fn describe(&self, provider: &ProviderName) -> String {
        match self {
            Self::Silent(why) => format!("{provider} did not report its identity: {why}"),
            Self::Changed(changed) => changed.describe(provider),
            Self::StoreFailed(_) => format!("the identity of {provider} could not be stored"),
        }
    }

    /// The same as the answer to a call that was to be made.
    pub fn not_asked(&self, provider: &ProviderName) -> NotAsked {
        NotAsked::Unreachable { message: self.describe(provider), next_try: PAUSE }
    }
}

impl ChangedIdentity {
    /// What is wrong and what to do, for people.
    pub fn describe(&self, provider: &ProviderName) -> String {
        let Self { kept, seen, .. } = self;
        format!(
            "{provider} has another identity: it was {kept} and is now {seen}; no calls are made to \
             it until the former one is back; to accept the new one, run `issuebox drift adopt \
             identity:{provider}`"
        )
    }
}

impl Identities {
    /// With the identities in the store.
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

    /// Confirms that a provider has the identity that it had; asks it if it was not asked yet.
    pub async fn confirm(&self, name: &ProviderName) -> Result<(), NotConfirmed> {
        let standing = self.locked().entry(name.clone()).or_default().standing.clone();
        match standing {
            IdentityState::Confirmed => Ok(()),
            IdentityState::Changed(changed) => Err(NotConfirmed::Changed(changed)),
            IdentityState::Unasked => self.ask(name).await,
        }
    }

    /// Asks a provider for its identity, whatever was known.
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

    /// Takes in what a provider reports of itself.
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

    /// It does not report an identity. If it never did, it cannot be confused with another.
    fn silent(&self, name: &ProviderName, why: String) -> Result<(), NotConfirmed> {
        let is_known = self.locked().get(name).is_some_and(|known| known.kept.is_some());
        if is_known { Err(NotConfirmed::Silent(why)) } else { Ok(()) }
    }

    async fn take(&self, name: &ProviderName, seen: String) -> Result<(), NotConfirmed> {
        {
            let mut known = self.locked();
            let known = known.entry(name.clone()).or_default();
            // Of two answers before the first is stored, the second is compared, too.
            let right = known.kept.as_ref().or(known.first.as_ref()).cloned();
            match right {
                Some(right) if right != seen && !on(Bug::IdentityIgnored) => {
                    let since = match &known.standing {
                        IdentityState::Changed(changed) => changed.since,
                        IdentityState::Unasked | IdentityState::Confirmed => self.env.now(),
                    };
                    let changed = ChangedIdentity { kept: right, seen, since };
                    known.standing = IdentityState::Changed(changed.clone());
                    return Err(NotConfirmed::Changed(changed));
                }
                Some(_) if known.kept.is_some() => {
                    known.standing = IdentityState::Confirmed;
                    return Ok(());
                }
                Some(_) => {}
                None => known.first = Some(seen.clone()),
            }
        }
        self.keep_first(name, seen).await
    }

    /// Keeps the first identity ever seen, unless the provider has another one by then.
    async fn keep_first(&self, name: &ProviderName, seen: String) -> Result<(), NotConfirmed> {
        let stored = self.env.store.put_identity(name, &seen).await;
        let mut known = self.locked();
        let known = known.entry(name.clone()).or_default();
        known.first = None;
        stored.map_err(|error| NotConfirmed::StoreFailed(error.to_string()))?;
        known.kept = Some(seen);
        if let IdentityState::Changed(changed) = &known.standing {
            return Err(NotConfirmed::Changed(changed.clone()));
        }
        known.standing = IdentityState::Confirmed;
        Ok(())
    }

    /// Accepts an identity. Durable when it returns.
    pub async fn keep(&self, name: &ProviderName, seen: String) -> Result<(), NotConfirmed> {
        let stored = self.env.store.put_identity(name, &seen).await;
        stored.map_err(|error| NotConfirmed::StoreFailed(error.to_string()))?;
        let standing = IdentityState::Confirmed;
        let known = KnownIdentity { kept: Some(seen), first: None, standing };
        self.locked().insert(name.clone(), known);
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<ProviderName, KnownIdentity>> {
        // Whole between statements, also if a thread panicked while it held the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
