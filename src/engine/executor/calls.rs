//! One call to a provider: its turn, its deadline, the circuit breaker, and the provider's identity.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{Notify, Semaphore};

use super::ask;
use crate::engine::breaker::{Breaker, BreakerView};
use crate::engine::environment::Environment;
use crate::engine::fast_create::record::CommitEnd;
use crate::engine::identity::{Identities, NotConfirmed};
use crate::engine::providers::Providers;
use crate::issue::event::{CallError, Done, NotAsked};
use crate::issue::{ProviderCall, Verb};
use crate::sandbox::{Lifecycle, ProviderError};
use crate::types::{HomeId, InstanceId, ProviderName, Timestamp};

/// Creates under way at once for one provider, if nothing else is configured. More wait for their
/// turn, at most half of the time that they have; then they queue up again without spending a
/// try.
const CREATES_MAX: usize = 64;
/// The same for all other calls, so that a slow create never holds up a look, a stop or a delete.
const OTHERS_MAX: usize = 64;

/// Makes calls to providers, one by one.
pub(in crate::engine) struct ProviderCalls {
    pub env: Arc<Environment>,
    pub identities: Arc<Identities>,
    pub instance: InstanceId,
    providers: HashMap<ProviderName, Bounded>,
}

/// A provider, and what bounds the calls to it.
pub(super) struct Bounded {
    pub provider: Arc<dyn Lifecycle>,
    pub breaker: Arc<Breaker>,
    creates: Semaphore,
    pub others: Semaphore,
}

impl ProviderCalls {
    /// With at most `creates_max` creates under way at once for a provider; 0 takes
    /// [`CREATES_MAX`].
    pub fn new(
        env: Arc<Environment>,
        identities: Arc<Identities>,
        providers: &Providers,
        creates_max: u64,
    ) -> Self {
        let creates_max = match usize::try_from(creates_max) {
            Ok(0) => CREATES_MAX,
            Ok(number) => number.min(Semaphore::MAX_PERMITS),
            Err(_) => Semaphore::MAX_PERMITS,
        };
        let bounded = |provider: &Arc<dyn Lifecycle>| Bounded {
            provider: Arc::clone(provider),
            breaker: Arc::default(),
            creates: Semaphore::new(creates_max),
            others: Semaphore::new(OTHERS_MAX),
        };
        Self {
            instance: env.store.instance(),
            providers: providers.all().map(|(name, p)| (name.clone(), bounded(p))).collect(),
            env,
            identities,
        }
    }

    /// The provider of that name.
    pub fn provider(&self, name: &ProviderName) -> Option<&Arc<dyn Lifecycle>> {
        self.bounded(name).map(|bounded| &bounded.provider)
    }

    /// The provider of that name, and what bounds the calls to it.
    pub(super) fn bounded(&self, name: &ProviderName) -> Option<&Bounded> {
        self.providers.get(name)
    }

    /// Returns once an outage of the provider has ended; false if there is no such provider.
    pub async fn recovered(&self, name: &ProviderName) -> bool {
        let Some(bounded) = self.bounded(name) else { return false };
        bounded.breaker.recovered().await;
        true
    }

    /// The state of the providers' circuit breakers, by name.
    pub fn breakers(&self) -> Vec<(ProviderName, BreakerView)> {
        let mut all: Vec<_> =
            self.providers.iter().map(|(n, b)| (n.clone(), b.breaker.view())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Whether a provider can be reached and has the identity that it had.
    pub(super) async fn may_ask(
        &self,
        name: &ProviderName,
        bounded: &Bounded,
    ) -> Result<(), NotAsked> {
        let breaker = &bounded.breaker;
        breaker.admit(self.env.clock.as_ref(), name).await?;
        let Err(why) = self.identities.confirm(name).await else { return Ok(()) };
        if let NotConfirmed::Silent(_) = why {
            breaker.suspect(&self.env, &self.identities, name, &bounded.provider);
        }
        Err(why.not_asked(name))
    }

    /// Asks the provider, when it is this call's turn. Of a create in fast mode, `record` is how its
    /// record ends: if that is refused, the provider is not asked any more; nor is it once the call
    /// is withdrawn while it waits for its turn.
    pub async fn perform(
        &self,
        home: HomeId,
        mut call: ProviderCall,
        record: Option<&CommitEnd>,
        withdrawn: &Notify,
    ) -> Result<Done, CallError> {
        let is_refused =
            || record.is_some_and(|end| matches!(end.clone().now_or_never(), Some(Err(_))));
        let name = call.provider.clone();
        let Some(bounded) = self.bounded(&name) else {
            return Err(CallError::Unknown(name));
        };
        let Bounded { provider, breaker, creates, others } = bounded;
        if is_refused() {
            return Err(CallError::NotAsked(NotAsked::NoTurn));
        }
        self.may_ask(&name, bounded).await.map_err(CallError::NotAsked)?;
        self.before_end(home, &call).await.map_err(CallError::NotAsked)?;
        call.bound_by(self.env.now());
        // Half of the time may go by waiting for a turn; the other half is the provider's.
        let left = call.deadline.since(self.env.now());
        let turns = if call.verb == Verb::Create { creates } else { others };
        // It may have waited for all of its time behind another call of its home.
        let turn = (!left.is_zero()).then(|| tokio::time::timeout(left / 2, turns.acquire()));
        let turn = tokio::select! {
            biased;
            turn = futures_util::future::OptionFuture::from(turn) => turn,
            () = withdrawn.notified() => None,
        };
        let Some(Ok(Ok(_turn))) = turn else {
            return Err(CallError::NotAsked(NotAsked::NoTurn));
        };
        // While this waited, the provider may have become unreachable, or another one.
        self.may_ask(&name, bounded).await.map_err(CallError::NotAsked)?;
        if is_refused() {
            return Err(CallError::NotAsked(NotAsked::NoTurn));
        }
        call.bound_by(self.env.now());
        let deadline = call.deadline;
        let is_create = call.verb == Verb::Create;
        let mut in_time = true;
        // Boxed, so that the many that may wait for their turn are small.
        let work = Box::pin(ask::ask(provider.as_ref(), &self.instance, home, call));
        let guarded = AssertUnwindSafe(work).catch_unwind();
        let result = tokio::select! {
            biased;
            result = guarded => result.unwrap_or_else(|_| {
                tracing::error!(home = home.0, provider = %name, "a provider call panicked, which is a bug; its result is unknown, so the provider is looked at");
                // It may have got as far as asking: the outcome is unknown.
                Err(CallError::Unavailable {
                    message: "the call panicked; see the log".into(),
                    retry_after: None,
                })
            }),
            () = self.env.clock.sleep_until(deadline) => {
                in_time = false;
                let message = "no answer in time".into();
                Err(CallError::Unavailable { message, retry_after: None })
            }
        };
        if is_create {
            breaker.create_ended(in_time);
        }
        if let Err(CallError::Unavailable { .. }) = &result {
            breaker.suspect(&self.env, &self.identities, &name, provider);
        }
        result
    }
}

/// Does work with a provider until the deadline. An error includes a panic and no answer in time:
/// what came of them is unknown.
pub(in crate::engine) async fn guarded_call<T>(
    env: &Environment,
    deadline: Timestamp,
    work: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    let work = AssertUnwindSafe(Box::pin(work)).catch_unwind();
    tokio::select! {
        biased;
        result = work => result.unwrap_or_else(|_| {
            Err(ProviderError::unavailable("the call panicked; see the log"))
        }),
        () = env.clock.sleep_until(deadline) => {
            Err(ProviderError::unavailable("no answer in time"))
        }
    }
}
