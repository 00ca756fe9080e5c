//! What people may do in a repository, asked at GitHub and remembered for minutes.
//!
//! # Guarantees
//! - An account is known by its numeric id: a login that another account has taken over gets nothing.
//! - An answer that allows counts for five minutes, one that refuses for one.
//! - Of several questions about one person at the same moment GitHub is asked one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use super::api::{GitHubApi, GitHubError, LoginPermission, RepositoryTarget};
use crate::clock::Clock;
use crate::issue::instruction::GithubUser;
use crate::types::{PermissionLevel, Timestamp};

/// How long an answer counts that allows.
const ALLOWED_FOR: Duration = Duration::from_secs(5 * 60);
/// How long an answer counts that refuses.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// How many answers are remembered at most.
const KNOWN_MAX: usize = 4_096;

/// How a person stands to a level of permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The person has the level.
    Reached,
    /// GitHub knows no such user with a permission, such as a bot.
    NoSuchUser,
    /// The login belongs to another account now.
    OtherAccount,
    /// The person has only this role.
    Below(String),
}

/// Whose permission, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PermissionKey {
    /// The repository's id, or its name in lower case if that is not known.
    repository: Result<u64, String>,
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

/// What GitHub says of people's permissions.
pub struct RepositoryPermissions {
    api: Arc<dyn GitHubApi>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<PermissionKey, PermissionSlot>>,
}

impl RepositoryPermissions {
    /// Nothing is remembered yet.
    pub fn new(api: Arc<dyn GitHubApi>, clock: Arc<dyn Clock>) -> Self {
        Self { api, clock, known: Mutex::default() }
    }

    /// The GitHub that is asked.
    pub fn api(&self) -> &Arc<dyn GitHubApi> {
        &self.api
    }

    /// How a person stands, if that is remembered.
    pub fn remembered(
        &self,
        target: &RepositoryTarget,
        user: &GithubUser,
        level: PermissionLevel,
    ) -> Option<Standing> {
        let slot = Arc::clone(self.locked().get(&key_of(target, user))?);
        let known = slot.try_lock().ok()?;
        self.fresh(known.as_ref()?, user, level)
    }

    /// How a person stands, remembered or asked for.
    ///
    /// # Errors
    /// [`GitHubError`] if GitHub did not say.
    pub async fn ask(
        &self,
        target: &RepositoryTarget,
        user: &GithubUser,
        level: PermissionLevel,
    ) -> Result<Standing, GitHubError> {
        let slot = self.slot(key_of(target, user));
        let mut known = slot.lock().await;
        if let Some(standing) = known.as_ref().and_then(|known| self.fresh(known, user, level)) {
            return Ok(standing);
        }
        let held = match self.api.permission(target, &user.login).await {
            Ok(held) => Some(held),
            Err(GitHubError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let answer = known.insert(KnownPermission { held, asked_at: self.clock.now() });
        Ok(standing_of(answer, user, level))
    }

    /// What an answer says that still counts.
    fn fresh(
        &self,
        known: &KnownPermission,
        user: &GithubUser,
        level: PermissionLevel,
    ) -> Option<Standing> {
        let standing = standing_of(known, user, level);
        let counts_for = match standing {
            Standing::Reached => ALLOWED_FOR,
            Standing::NoSuchUser | Standing::OtherAccount | Standing::Below(_) => REFUSED_FOR,
        };
        let age = self.clock.now().since(known.asked_at);
        Some(standing).filter(|_| age < counts_for)
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

    fn locked(&self) -> MutexGuard<'_, HashMap<PermissionKey, PermissionSlot>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn standing_of(known: &KnownPermission, user: &GithubUser, level: PermissionLevel) -> Standing {
    match &known.held {
        None => Standing::NoSuchUser,
        Some(held) if held.user_id != user.id => Standing::OtherAccount,
        Some(held) if level.is_reached_by(&held.permission, &held.role) => Standing::Reached,
        Some(held) => Standing::Below(held.role.clone()),
    }
}

fn key_of(target: &RepositoryTarget, user: &GithubUser) -> PermissionKey {
    PermissionKey {
        repository: target.id.ok_or_else(|| target.name.folded()),
        login: user.login.to_lowercase(),
    }
}
