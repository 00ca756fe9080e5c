//! What people may do in a repository, asked at GitHub and remembered for minutes.
//!
//! # Guarantees
//! - An account is known by its numeric id: a login that another account has taken over gets nothing.
//! - An answer that allows counts for [`ALLOWED_FOR`], one that refuses for [`REFUSED_FOR`].
//! - Of several questions about one person at the same moment GitHub is asked one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use crate::clock::Clock;
use crate::github::api::{GitHubApi, GitHubError, LoginPermission, RepositoryTarget};
use crate::github::webhook::ConditionalDelivery;
use crate::issue::instruction::GithubUser;
use crate::types::{PermissionLevel, Timestamp};

/// How long an answer counts that allows.
const ALLOWED_FOR: Duration = Duration::from_secs(5 * 60);
/// How long an answer counts that refuses.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// How many answers are remembered at most.
const KNOWN_MAX: usize = 4_096;

/// Whether a sender may trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PermissionVerdict {
    /// The sender may.
    Allowed,
    /// The sender may not; why, in words.
    Refused(String),
}

/// Whose permission, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PermissionKey {
    repository_id: u64,
    /// In lower case.
    login: String,
}

/// What GitHub said.
struct KnownPermission {
    /// `None` if it knows no such user.
    held: Option<LoginPermission>,
    asked_at: Timestamp,
}

type PermissionSlot = Arc<AsyncMutex<Option<KnownPermission>>>;

/// What GitHub says of senders' permissions.
pub(super) struct SenderPermissions {
    api: Arc<dyn GitHubApi>,
    clock: Arc<dyn Clock>,
    level: PermissionLevel,
    known: Mutex<HashMap<PermissionKey, PermissionSlot>>,
}

impl SenderPermissions {
    /// With this level senders may trigger.
    pub fn new(api: Arc<dyn GitHubApi>, clock: Arc<dyn Clock>, level: PermissionLevel) -> Self {
        Self { api, clock, level, known: Mutex::default() }
    }

    /// The verdict about a delivery's sender, if it is remembered.
    pub fn remembered(&self, delivery: &ConditionalDelivery) -> Option<PermissionVerdict> {
        let slot = Arc::clone(self.locked().get(&key_of(delivery))?);
        let known = slot.try_lock().ok()?;
        self.fresh(known.as_ref()?, delivery)
    }

    /// The verdict about a delivery's sender, remembered or asked for.
    ///
    /// # Errors
    /// [`GitHubError`] if GitHub did not say.
    pub async fn ask(
        &self,
        delivery: &ConditionalDelivery,
    ) -> Result<PermissionVerdict, GitHubError> {
        let slot = self.slot(key_of(delivery));
        let mut known = slot.lock().await;
        if let Some(verdict) = known.as_ref().and_then(|known| self.fresh(known, delivery)) {
            return Ok(verdict);
        }
        let (asker, news) = (&delivery.asker, &delivery.permitted.news);
        let target = RepositoryTarget {
            name: news.repository.clone(),
            id: Some(news.repository_id),
            installation: delivery.permitted.installation,
        };
        let held = match self.api.permission(&target, &asker.login).await {
            Ok(held) => Some(held),
            Err(GitHubError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let answer = known.insert(KnownPermission { held, asked_at: self.clock.now() });
        Ok(self.judge(answer, asker))
    }

    /// The verdict of an answer that still counts.
    fn fresh(
        &self,
        known: &KnownPermission,
        delivery: &ConditionalDelivery,
    ) -> Option<PermissionVerdict> {
        let verdict = self.judge(known, &delivery.asker);
        let counts_for = match verdict {
            PermissionVerdict::Allowed => ALLOWED_FOR,
            PermissionVerdict::Refused(_) => REFUSED_FOR,
        };
        let age = self.clock.now().since(known.asked_at);
        Some(verdict).filter(|_| age < counts_for)
    }

    fn judge(&self, known: &KnownPermission, asker: &GithubUser) -> PermissionVerdict {
        let (login, level) = (&asker.login, self.level.as_str());
        PermissionVerdict::Refused(match &known.held {
            None => format!("{login} may not trigger: GitHub knows no such user with a permission"),
            Some(held) if held.user_id != asker.id => {
                format!("{login} may not trigger: the name belongs to another account now")
            }
            Some(held) if self.level.is_reached_by(&held.permission, &held.role) => {
                return PermissionVerdict::Allowed;
            }
            Some(held) => {
                let role = crate::types::inert(&held.role);
                format!("{login} may not trigger: the role is {role}, and {level} is needed")
            }
        })
    }

    fn slot(&self, key: PermissionKey) -> PermissionSlot {
        let mut known = self.locked();
        if known.len() >= KNOWN_MAX && !known.contains_key(&key) {
            let now = self.clock.now();
            known.retain(|_, slot| {
                let is_recent = |answer: &KnownPermission| now.since(answer.asked_at) < REFUSED_FOR;
                // One that is locked is being asked for.
                slot.try_lock().map_or(true, |answer| answer.as_ref().is_some_and(is_recent))
            });
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
        }
        Arc::clone(known.entry(key).or_default())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<PermissionKey, PermissionSlot>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(delivery: &ConditionalDelivery) -> PermissionKey {
    PermissionKey {
        repository_id: delivery.permitted.news.repository_id,
        login: delivery.asker.login.to_lowercase(),
    }
}
