//! The state that all requests of a server share: the parts of the edge, and its own caches.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::engine::{EngineError, SandboxRef, WaitFor, Waited};
use crate::github::api::{GitHubApi, Installation, PageCursor};
use crate::sandbox::{Health, Provider};
use crate::store::{Store, StoreError};
use crate::types::{
    AccountName, Check, CiFailureMode, IssueId, ProviderName, SandboxId, Timestamp, tally,
};

use super::Edge;
use super::app_setup::Registrations;
use super::attempts::Attempts;
use super::budget::Budget;
use super::caller::Caller;
use super::error::ApiError;
use super::events::Position;
use super::people::BegunLogins;
use super::refused::RefusedRing;
use super::routes::ServedDocument;
use super::sessions::{SESSION_COOKIE, SESSION_COOKIE_HTTPS, Sessions};
use super::survey::Survey;

/// How long the result of a health check is reused: `/readyz` is public, and must not let clients
/// keep providers and the disk busy.
const HEALTH_GOOD_FOR: Duration = Duration::from_secs(1);
/// How long what GitHub said of us is reused.
const GITHUB_GOOD_FOR: Duration = Duration::from_secs(60);
/// How long the list of the App's installations is reused: a person waits for the first one.
const INSTALLATIONS_GOOD_FOR: Duration = Duration::from_secs(5);
/// How long a page waits for that list.
const INSTALLATIONS_TIME_MAX: Duration = Duration::from_secs(3);
/// Timeout of a health check. Providers promise an answer within two seconds.
const HEALTH_TIME_MAX: Duration = Duration::from_millis(2_500);

/// The state that all requests share.
pub struct Shared {
    pub edge: Edge,
    pub sessions: Sessions,
    pub attempts: Attempts,
    pub budget: Arc<Budget>,
    /// The memory for answers that clients have not read.
    pub answers: Arc<Budget>,
    pub document: Arc<ServedDocument>,
    pub refused: RefusedRing,
    /// The address of the listener.
    pub listens_on: SocketAddr,
    /// The registrations of a GitHub App that people began.
    pub registrations: Registrations,
    /// The log-ins with GitHub that people began.
    pub logins: BegunLogins,
    health: Recent<Arc<Vec<(ProviderName, Health)>>>,
    store: Recent<Result<(), StoreError>>,
    survey: Recent<(Position, AccountName, Arc<Survey>)>,
    github: Recent<Arc<Vec<Check>>>,
    installations: Recent<Result<Arc<Vec<Installation>>, String>>,
}

/// A problem of the server. It is public, so it names no issue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Degraded {
    /// Its subject: the store, a provider, or a provider and a kind of drift.
    pub what: String,
    /// The reason.
    pub reason: String,
}

impl Degraded {
    /// Equal problems as one, with their number.
    fn each_once(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let counted = |(one, count): (Self, usize)| match count {
            1 => one,
            _ => Self { reason: format!("{} ({count} times)", one.reason), ..one },
        };
        tally(all).into_iter().map(counted).collect()
    }
}

/// A cached result.
struct Recent<T>(Mutex<Option<(Timestamp, T)>>);

impl<T: Clone> Recent<T> {
    fn get(&self, now: Timestamp) -> Option<T> {
        self.get_within(now, HEALTH_GOOD_FOR)
    }

    fn get_within(&self, now: Timestamp, good_for: Duration) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, value) = kept.as_ref()?;
        (now.since(*at) < good_for).then(|| value.clone())
    }

    fn set(&self, now: Timestamp, value: &T) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((now, value.clone()));
    }
}

impl Shared {
    pub fn new(edge: Edge, document: Arc<ServedDocument>, listens_on: SocketAddr) -> Self {
        Self {
            sessions: Sessions::new(
                Arc::clone(&edge.sessions),
                edge.admin_token.clone(),
                Arc::clone(&edge.access),
            ),
            attempts: Attempts::default(),
            budget: Arc::new(Budget::new(edge.limits.bodies_sum_max)),
            answers: Arc::new(Budget::of_answers(edge.limits.answers_sum_max)),
            document,
            refused: RefusedRing::new(edge.started_at),
            listens_on,
            registrations: Registrations::default(),
            logins: BegunLogins::default(),
            health: Recent(Mutex::new(None)),
            store: Recent(Mutex::new(None)),
            survey: Recent(Mutex::new(None)),
            github: Recent(Mutex::new(None)),
            installations: Recent(Mutex::new(None)),
            edge,
        }
    }

    /// The name of the session's cookie.
    pub fn session_cookie(&self) -> &'static str {
        match &self.edge.public_url {
            Some(url) if url.starts_with("https:") => SESSION_COOKIE_HTTPS,
            Some(_) | None => SESSION_COOKIE,
        }
    }

    /// Whether agents are given failed checks.
    pub fn reads_checks(&self) -> bool {
        self.edge.intake.triggers().usual().on_ci_failure == CiFailureMode::Fix
    }

    /// Who we are at GitHub and what we may do there; cached for a minute.
    pub async fn github_checks(&self, api: &dyn GitHubApi) -> Arc<Vec<Check>> {
        let now = self.edge.clock.now();
        if let Some(recent) = self.github.get_within(now, GITHUB_GOOD_FOR) {
            return recent;
        }
        let reads_checks = self.reads_checks();
        let checks = Arc::new(crate::github::checks::look(api, now, reads_checks).await);
        self.github.set(now, &checks);
        checks
    }

    /// The first installations of the App, as GitHub lists them; cached for some seconds.
    ///
    /// # Errors
    /// Why GitHub did not list them.
    pub async fn installations(
        &self,
        api: &dyn GitHubApi,
    ) -> Result<Arc<Vec<Installation>>, String> {
        let now = self.edge.clock.now();
        if let Some(recent) = self.installations.get_within(now, INSTALLATIONS_GOOD_FOR) {
            return recent;
        }
        let asked = api.installations(&PageCursor::FIRST);
        let listed = match tokio::time::timeout(INSTALLATIONS_TIME_MAX, asked).await {
            Ok(Ok((listed, _))) => Ok(Arc::new(listed)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("GitHub did not answer within 3 seconds".to_owned()),
        };
        self.installations.set(now, &listed);
        listed
    }

    /// Whether the store accepts writes; cached.
    pub async fn store_check(&self) -> Result<(), StoreError> {
        let now = self.edge.clock.now();
        if let Some(recent) = self.store.get(now) {
            return recent;
        }
        let answer = self.edge.store.check().await;
        self.store.set(now, &answer);
        answer
    }

    /// The configured provider with that name.
    ///
    /// # Errors
    /// 409 if the configuration has none.
    pub fn provider(&self, name: &ProviderName) -> Result<Provider, ApiError> {
        let provider = self.edge.providers.get(name).cloned();
        Ok(provider.ok_or(EngineError::ProviderUnknown)?)
    }

    /// The health of every provider; cached. All are checked concurrently.
    pub async fn provider_health(&self) -> Arc<Vec<(ProviderName, Health)>> {
        let now = self.edge.clock.now();
        if let Some(recent) = self.health.get(now) {
            return recent;
        }
        let asked = self.edge.providers.iter().map(|(name, provider)| async move {
            let asked = tokio::time::timeout(HEALTH_TIME_MAX, provider.lifecycle.health()).await;
            (name.clone(), asked.unwrap_or_else(|_| silent(provider)))
        });
        let answer = Arc::new(futures_util::future::join_all(asked).await);
        self.health.set(now, &answer);
        answer
    }

    /// A survey of the account's live sandboxes, cached until the next event or for a second; that of
    /// one account at a time.
    pub fn survey(&self, account: &AccountName) -> Arc<Survey> {
        let (now, events) = (self.edge.clock.now(), self.edge.feed.events.now());
        if let Some((at, of, recent)) = self.survey.get(now)
            && at == events
            && of == *account
        {
            return recent;
        }
        let answer = Arc::new(Survey::of(&self.edge.feed.live, account, now));
        self.survey.set(now, &(events, account.clone(), Arc::clone(&answer)));
        answer
    }

    /// The providers whose breaker is not closed, each with the reason.
    pub fn unreachable(&self) -> Vec<(ProviderName, String)> {
        let now = self.edge.clock.now();
        let breakers = self.edge.engine.figures().breakers.into_iter();
        breakers
            .filter_map(|(name, view)| Some((name.clone(), view.trouble(&name, now)?)))
            .collect()
    }

    /// The providers that cannot work or have no capacity, each with the reason.
    pub async fn troubled_providers(&self) -> Vec<(ProviderName, String)> {
        let health = self.provider_health().await;
        let unreachable = self.unreachable();
        let in_trouble = health.iter().filter_map(|(name, health)| {
            let breaker = unreachable.iter().find(|(of, _)| of == name).map(|(_, why)| why.clone());
            let trouble = health.trouble.as_ref().map(|trouble| format!("{name}: {trouble}"));
            let shortage = || {
                let provider = self.edge.providers.get(name)?;
                provider.lifecycle.capacity().shortage.map(|shortage| format!("{name}: {shortage}"))
            };
            Some((name.clone(), breaker.or(trouble).or_else(shortage)?))
        });
        in_trouble.collect()
    }

    /// Reads lists from the store on a blocking thread, since they can be slow.
    ///
    /// # Errors
    /// 503 if the store cannot be read.
    pub async fn read_list<T, F>(
        &self,
        read: impl FnOnce(Arc<dyn Store>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>>,
    {
        let (store, here) = (Arc::clone(&self.edge.store), Handle::current());
        let ended =
            |_| StoreError::Failed("the list was aborted: the server is shutting down".into());
        tokio::task::spawn_blocking(move || here.block_on(read(store))).await.map_err(ended)?
    }

    /// The problems of a server that works: damaged records, providers, and drift that needs a
    /// decision. Drift is of the sandboxes of all accounts: only admins see its reasons.
    pub async fn degraded(&self, for_admin: bool) -> Vec<Degraded> {
        let in_trouble = self.troubled_providers().await.into_iter();
        let in_trouble =
            in_trouble.map(|(name, reason)| Degraded { what: name.to_string(), reason });
        let alarms = self.edge.engine.drift_alarms().into_iter().map(|item| Degraded {
            what: format!("{}: {}", item.provider, item.kind.as_str()),
            reason: if for_admin {
                format!("{}: {}", item.provider, item.reason)
            } else {
                format!("{}: drift waits for the decision of an admin", item.provider)
            },
        });
        let damages = self
            .edge
            .store
            .troubles()
            .into_iter()
            .map(|trouble| Degraded { what: "store".to_owned(), reason: trouble.to_string() });
        Degraded::each_once(damages.chain(in_trouble).chain(alarms))
    }

    /// Waits for an issue, at most until the shutdown.
    pub async fn wait(
        &self,
        caller: &Caller,
        sandbox: &SandboxRef,
        until: WaitFor,
        at_most: Duration,
    ) -> Result<Option<Waited>, ApiError> {
        if at_most.is_zero() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            waited = self.edge.engine.wait(&caller.account, sandbox, until, at_most) => {
                Ok(Some(waited?))
            }
            () = closed(self.edge.closing.clone()) => Ok(None),
        }
    }
}

/// Returns at shutdown.
pub async fn closed(mut closing: watch::Receiver<bool>) {
    // An error means that the sender is gone, which happens at shutdown.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Parses a sandbox's id or name: their forms do not overlap.
pub fn sandbox_ref(text: &str) -> SandboxRef {
    match IssueId::from_sandbox_name(text) {
        Some(_) => SandboxRef::Name(text.to_owned()),
        None => SandboxRef::Id(SandboxId::trusted(text)),
    }
}

fn silent(provider: &Provider) -> Health {
    Health {
        identity: None,
        trouble: Some("the health check timed out after 2.5 seconds".into()),
        limits: provider.descriptor.limits.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_many_items_is_one_sentence_with_their_number() {
        let of = |what: &str, reason: &str| Degraded { what: what.into(), reason: reason.into() };
        let mut all = vec![of("local", "no room"), of("local: duplicate", "a second object")];
        all.extend((0..36).map(|_| of("local: duplicate", "a second object")));
        let expected =
            [of("local", "no room"), of("local: duplicate", "a second object (37 times)")];
        assert_eq!(Degraded::each_once(all), expected);
    }
}
