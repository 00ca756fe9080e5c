//! The circuit breaker of a provider: while the provider is unreachable, no calls are made to it, so that
//! no issue spends its tries on an outage.
//!
//! A lifecycle call whose outcome is unknown is a suspicion, no proof: an answer may have been lost on
//! the way. So the provider's health is checked, and only if that reports trouble, or hangs, the breaker
//! opens. Calls that come during the check wait for its result. An open breaker answers at once with the
//! time of the next try. Then health is checked again, after 1, 2, 4, … at most 20 seconds, and the
//! breaker closes once the provider is healthy.
//!
//! Calls that are under way when it opens go on to their end. The breaker's state is lost with the
//! server: the next one finds out again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::issue::event::NotAsked;
use crate::sandbox::{Health, Lifecycle};
use crate::types::{ProviderName, Timestamp};

use super::environment::Environment;
use super::identity::Identities;

/// A provider promises to report its health within two seconds; one that does not is in trouble.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause before the first probe; doubled with each that finds it still in trouble.
const PROBE_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// So many creates in a row without an answer in time are trouble, whatever its health says.
const UNANSWERED_MIN: u32 = 3;
/// The longest pause, so that a recovery is soon noticed.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(20);

/// One provider's breaker.
pub(super) struct Breaker {
    state: watch::Sender<Circuit>,
    /// How many of the last creates got no answer in time.
    unanswered: AtomicU32,
    /// An outage has ended.
    recovered: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Circuit {
    /// Calls go through.
    Closed,
    /// The outcome of a call is unknown; health is being checked.
    Suspected,
    /// It is unreachable.
    Open(Outage),
    /// It was unreachable; health is being checked again.
    Probing(Outage),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Outage {
    since: Timestamp,
    reason: String,
    /// How many probes found it still in trouble.
    probes: u32,
    next_try: Timestamp,
}

/// The state of a breaker, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// Whether calls go through.
    pub state: BreakerState,
    /// Since when it has been open.
    pub since: Option<Timestamp>,
    /// When an open one is tried next.
    pub next_try_at: Option<Timestamp>,
    /// Why it is open.
    pub reason: Option<String>,
    /// How many creates in a row got no answer in time, the latest one included.
    pub unanswered_creates: u32,
}

/// Whether calls to a provider go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// They do.
    Closed,
    /// They fail at once, without a call.
    Open,
    /// They wait for a health check.
    HalfOpen,
}

impl BreakerState {
    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl BreakerView {
    /// Why no calls are made, or none is answered, in words; `None` if all is well.
    pub fn trouble(&self, provider: &ProviderName, now: Timestamp) -> Option<String> {
        if self.reason.is_none() && self.unanswered_creates >= UNANSWERED_MIN {
            let number = self.unanswered_creates;
            return Some(format!(
                "{provider} answers its health check, but none of the last {number} creates in time"
            ));
        }
        let (reason, next) = (self.reason.as_ref()?, self.next_try_at?);
        Some(unreachable(provider, reason, next.since(now)))
    }
}

fn unreachable(provider: &ProviderName, reason: &str, next_try: Duration) -> String {
    let secs = next_try.as_millis().div_ceil(1000);
    format!("{provider} is unreachable ({reason}), next try in {secs} s")
}

impl Circuit {
    /// A call's outcome is unknown. Returns whether the caller is to check the health.
    fn suspect(&mut self) -> bool {
        let was_closed = *self == Self::Closed;
        if was_closed {
            *self = Self::Suspected;
        }
        was_closed
    }

    /// The next try has come.
    fn probe(&mut self) {
        if let Self::Open(outage) = self {
            *self = Self::Probing(outage.clone());
        }
    }

    /// The result of a health check. Returns when to check again if there is trouble.
    fn heard(
        &mut self,
        trouble: Option<String>,
        now: Timestamp,
        jitter_permille: u16,
    ) -> Option<Timestamp> {
        let Some(reason) = trouble else {
            *self = Self::Closed;
            return None;
        };
        let (since, probes) = match self {
            Self::Closed | Self::Suspected => (now, 0),
            Self::Open(outage) | Self::Probing(outage) => {
                (outage.since, outage.probes.saturating_add(1))
            }
        };
        let pause = PROBE_PAUSE_FIRST.saturating_mul(1 << probes.min(8)).min(PROBE_PAUSE_MAX);
        // A tenth by chance, so that many servers do not ask it at the same moment.
        let next_try = now.after(pause + pause.mul_f64(f64::from(jitter_permille) / 10_000.0));
        *self = Self::Open(Outage { since, reason, probes, next_try });
        Some(next_try)
    }
}

impl Default for Breaker {
    fn default() -> Self {
        let state = watch::Sender::new(Circuit::Closed);
        Self { state, unanswered: AtomicU32::new(0), recovered: Notify::new() }
    }
}

impl Breaker {
    /// Whether calls may be made now; waits if the health is being checked.
    pub async fn admit(&self, clock: &dyn Clock, provider: &ProviderName) -> Result<(), NotAsked> {
        let mut state = self.state.subscribe();
        let decided = state.wait_for(|state| match state {
            Circuit::Closed | Circuit::Open(_) => true,
            Circuit::Suspected | Circuit::Probing(_) => false,
        });
        let decided = decided.await.expect("the sender lives as long as the breaker");
        match &*decided {
            Circuit::Open(outage) => {
                let next_try = outage.next_try.since(clock.now());
                let message = unreachable(provider, &outage.reason, next_try);
                Err(NotAsked::Unreachable { message, next_try })
            }
            Circuit::Closed | Circuit::Suspected | Circuit::Probing(_) => Ok(()),
        }
    }

    /// Returns once an outage has ended, for the one task that waits for it.
    pub async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// A create ended: whether it was answered in time.
    pub fn create_ended(&self, answered: bool) {
        if answered {
            self.unanswered.store(0, Ordering::Relaxed);
        } else {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Its state.
    pub fn view(&self) -> BreakerView {
        let unanswered_creates = self.unanswered.load(Ordering::Relaxed);
        let of = |state, outage: &Outage| BreakerView {
            state,
            since: Some(outage.since),
            next_try_at: Some(outage.next_try),
            reason: Some(outage.reason.clone()),
            unanswered_creates,
        };
        match &*self.state.borrow() {
            Circuit::Closed | Circuit::Suspected => BreakerView {
                state: BreakerState::Closed,
                since: None,
                next_try_at: None,
                reason: None,
                unanswered_creates,
            },
            Circuit::Open(outage) => of(BreakerState::Open, outage),
            Circuit::Probing(outage) => of(BreakerState::HalfOpen, outage),
        }
    }

    /// A call's outcome is unknown: checks whether the provider is reachable, and if not, checks
    /// again until it is.
    pub fn suspect(
        self: &Arc<Self>,
        env: &Arc<Environment>,
        identities: &Arc<Identities>,
        name: &ProviderName,
        provider: &Arc<dyn Lifecycle>,
    ) {
        let mut is_news = false;
        self.state.send_modify(|state| is_news = state.suspect());
        if !is_news {
            return;
        }
        let (breaker, name, provider) = (Arc::clone(self), name.clone(), Arc::clone(provider));
        let (env, identities) = (Arc::clone(env), Arc::clone(identities));
        let spawner = Arc::clone(&env.spawner);
        spawner.call(Box::pin(async move {
            breaker.watch(&env, &identities, &name, provider.as_ref()).await;
        }));
    }

    async fn watch(
        &self,
        env: &Environment,
        identities: &Identities,
        name: &ProviderName,
        provider: &dyn Lifecycle,
    ) {
        let mut was_open = false;
        while !env.is_stopping() {
            let trouble = match health_of(provider).await {
                Ok(health) => {
                    // Before any call goes through: what answers again may be another provider,
                    // which each call learns from the identities.
                    drop(identities.hear(name, &health).await);
                    health.trouble
                }
                Err(trouble) => Some(trouble),
            };
            let (now, jitter) = (env.now(), env.ids.jitter_permille());
            let said = trouble.clone().unwrap_or_default();
            let mut next = None;
            self.state.send_modify(|state| next = state.heard(trouble, now, jitter));
            let Some(next) = next else {
                if was_open {
                    tracing::info!(provider = %name, "the provider is reachable again");
                    self.recovered.notify_one();
                }
                return;
            };
            if !was_open {
                tracing::warn!(
                    provider = %name, trouble = said,
                    "the provider is unreachable; no calls are made to it until it recovers"
                );
            }
            was_open = true;
            env.clock.sleep_until(next).await;
            self.state.send_modify(Circuit::probe);
        }
    }
}

/// What a provider reports of itself; silence and panics are trouble.
async fn health_of(provider: &dyn Lifecycle) -> Result<Health, String> {
    let health = AssertUnwindSafe(provider.health()).catch_unwind();
    match tokio::time::timeout(HEALTH_TIME_MAX, health).await {
        Ok(Ok(health)) => Ok(health),
        Ok(Err(_)) => Err("the health check panicked; see the log".into()),
        Err(_) => Err("its health check did not answer within 2 seconds".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_ms(secs * 1000)
    }

    #[test]
    fn health_decides_and_pauses_grow_up_to_their_bound() {
        let mut state = Circuit::Closed;
        assert!(state.suspect());
        assert!(!state.suspect(), "it is being asked already");
        assert_eq!(state.heard(None, at(0), 0), None, "an answer was lost, no more");
        assert_eq!(state, Circuit::Closed);

        assert!(state.suspect());
        let mut now = at(100);
        for pause in [1, 2, 4, 8, 16, 20, 20, 20] {
            let next = state.heard(Some("down".into()), now, 0);
            assert_eq!(next, Some(now.after(Duration::from_secs(pause))));
            assert!(!state.suspect(), "one check at a time");
            now = next.expect("just seen");
            state.probe();
            assert!(matches!(&state, Circuit::Probing(outage) if outage.since == at(100)));
        }
        assert_eq!(state.heard(None, now, 0), None);
        assert_eq!(state, Circuit::Closed);
        state.probe();
        assert_eq!(state, Circuit::Closed);
        assert!(state.suspect());
        assert_eq!(state.heard(Some("down".into()), at(0), 1000), Some(at(0).after(ms(1_100))));
        // It never grows out of its bounds.
        state = Circuit::Open(Outage {
            since: at(0),
            reason: "down".into(),
            probes: u32::MAX,
            next_try: at(0),
        });
        assert_eq!(state.heard(Some("down".into()), at(0), 0), Some(at(20)));
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test]
    async fn a_call_waits_for_the_verdict_and_goes_by_it() {
        let provider = ProviderName::trusted("docker");
        for trouble in [None, Some("down".to_owned())] {
            for begin in [Circuit::suspect as fn(&mut Circuit) -> bool, |state| {
                state.heard(Some("down".into()), at(0), 0);
                state.probe();
                true
            }] {
                let breaker = Breaker::default();
                breaker.state.send_modify(|state| assert!(begin(state)));
                let mut call = Box::pin(breaker.admit(&SystemClock, &provider));
                assert_eq!(call.as_mut().now_or_never(), None, "health is being asked");
                let now = SystemClock.now();
                breaker.state.send_modify(|state| {
                    state.heard(trouble.clone(), now, 0);
                });
                assert_eq!(call.await.is_err(), trouble.is_some());
            }
        }
    }

    #[test]
    fn people_read_what_is_wrong_and_when_it_is_tried_next() {
        let breaker = Breaker::default();
        let docker = ProviderName::trusted("docker");
        assert_eq!(breaker.view().trouble(&docker, at(0)), None);
        for answered in [false, true, false, false] {
            breaker.create_ended(answered);
        }
        assert_eq!(breaker.view().trouble(&docker, at(0)), None, "one was answered");
        breaker.create_ended(false);
        insta::assert_snapshot!(
            breaker.view().trouble(&docker, at(0)).unwrap_or_default(),
            @"docker answers its health check, but none of the last 3 creates in time"
        );
        breaker.state.send_modify(|state| {
            state.heard(Some("connection refused".into()), at(0), 500);
        });
        insta::assert_snapshot!(
            breaker.view().trouble(&docker, at(0)).unwrap_or_default(),
            @"docker is unreachable (connection refused), next try in 2 s"
        );
    }
}
