//! Whose delivery logs are read: the App's, or those of the repositories' webhooks.

use std::collections::HashMap;
use std::time::Duration;

use super::known::{KnownRepository, known_repositories};
use super::recovery::{RecoveryError, RecoveryParts};
use crate::config::IntakeMode;
use crate::github::api::{DeliverySource, GitHubError, GitHubHook, IdentityKind};
use crate::types::Timestamp;

/// How much time each webhook gets: of many, each is read less often.
const EACH_HOOK: Duration = Duration::from_secs(4);
/// How long a repository whose webhook cannot be found is left alone.
const UNKNOWN_HOOK_PAUSE: Duration = Duration::from_secs(3_600);
/// Where deliveries come in, below our address.
const ENDPOINT: &str = "/webhooks/github";

/// Finds the delivery logs, and remembers where none was found.
#[derive(Default)]
pub(super) struct LogSources {
    /// Until when a repository is left alone, by its id.
    paused: HashMap<u64, Timestamp>,
}

/// The delivery logs to read, and how long that may take at least.
pub(super) struct FoundSources {
    pub sources: Vec<DeliverySource>,
    pub not_before: Duration,
}

impl LogSources {
    /// The delivery logs of what is known now.
    pub async fn find(&mut self, parts: &RecoveryParts) -> Result<FoundSources, RecoveryError> {
        let stored = parts.rows.repository_hooks().await?;
        let mut hooks: HashMap<u64, u64> = stored.into_iter().collect();
        for (repository_id, hook) in parts.intake.signals.take_hooks() {
            if hooks.insert(repository_id, hook) != Some(hook) {
                parts.rows.put_repository_hook(repository_id, hook).await?;
                self.paused.remove(&repository_id);
            }
        }
        if let IdentityKind::App(_) = parts.api.identity().await?.kind {
            return Ok(FoundSources {
                sources: vec![DeliverySource::App],
                not_before: Duration::ZERO,
            });
        }
        let mut sources = Vec::new();
        for KnownRepository { mut target, .. } in known_repositories(parts).await? {
            let id = match target.id {
                Some(id) => id,
                None => match parts.api.repository(&target).await {
                    Ok(repository) => repository.id,
                    Err(error) if passes(&error) => return Err(error.into()),
                    Err(_) => continue,
                },
            };
            target.id = Some(id);
            let hook_id = match hooks.get(&id) {
                Some(hook) => Some(*hook),
                None => {
                    self.look_up(
                        parts,
                        &KnownRepository { target: target.clone(), is_live: false },
                        id,
                    )
                    .await?
                }
            };
            sources.extend(hook_id.map(|hook_id| DeliverySource::Hook { target, hook_id }));
        }
        let count = u32::try_from(sources.len()).unwrap_or(u32::MAX);
        Ok(FoundSources { sources, not_before: EACH_HOOK.saturating_mul(count) })
    }

    /// A webhook's log is not there, or not shown to us: its repository is left alone for a while.
    pub fn pause(&mut self, repository_id: Option<u64>, now: Timestamp) {
        if let Some(id) = repository_id {
            self.paused.insert(id, now.after(UNKNOWN_HOOK_PAUSE));
        }
    }

    /// Whether a source is left alone now.
    pub fn is_paused(&self, source: &DeliverySource, now: Timestamp) -> bool {
        match source {
            DeliverySource::App => false,
            DeliverySource::Hook { target, .. } => {
                target.id.and_then(|id| self.paused.get(&id)).is_some_and(|until| *until > now)
            }
        }
    }

    /// Finds a repository's webhook by our address, and keeps it.
    async fn look_up(
        &mut self,
        parts: &RecoveryParts,
        known: &KnownRepository,
        id: u64,
    ) -> Result<Option<u64>, RecoveryError> {
        let now = parts.clock.now();
        if self.paused.get(&id).is_some_and(|until| *until > now) {
            return Ok(None);
        }
        let repository = &known.target.name;
        let hooks = match parts.api.hooks(&known.target).await {
            Ok(hooks) => hooks,
            Err(error) if passes(&error) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%repository, %error, "cannot list a repository's webhooks, so deliveries that it misses are not recovered; grant the token \"Webhooks: read\"");
                self.pause(Some(id), now);
                return Ok(None);
            }
        };
        let Some(hook) = ours(&hooks, parts.public_url.as_deref(), parts.mode) else {
            tracing::warn!(%repository, "a repository has no webhook with this server's address, so no deliveries are recovered for it");
            self.pause(Some(id), now);
            return Ok(None);
        };
        parts.rows.put_repository_hook(id, hook).await?;
        Ok(Some(hook))
    }
}

/// Whether an error is one of GitHub as a whole, and not of one repository.
pub(super) const fn passes(error: &GitHubError) -> bool {
    matches!(
        error,
        GitHubError::Limited { .. }
            | GitHubError::Unreachable(_)
            | GitHubError::Unknown(_)
            | GitHubError::Unauthorized(_)
    )
}

/// The webhook with our address. Where nothing has to arrive, any address will do if there is one
/// webhook alone.
fn ours(hooks: &[GitHubHook], public_url: Option<&str>, mode: IntakeMode) -> Option<u64> {
    let address = public_url.map(|url| format!("{}{ENDPOINT}", url.trim_end_matches('/')));
    let by_address = hooks.iter().find(|hook| Some(&hook.url) == address.as_ref());
    let by_path = || hooks.iter().find(|hook| hook.url.ends_with(ENDPOINT));
    let found = by_address.or_else(by_path).or(match (mode, hooks) {
        (IntakeMode::Deliveries, [only]) => Some(only),
        (IntakeMode::Deliveries | IntakeMode::Webhook, _) => None,
    });
    found.map(|hook| hook.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_found_by_our_address_and_else_by_its_path() {
        let hook = |id, url: &str| GitHubHook { id, url: url.into() };
        let hooks = [
            hook(1, "https://ci.example.org/hook"),
            hook(2, "https://other.example.org/webhooks/github"),
            hook(3, "https://box.example.org/webhooks/github"),
        ];
        let box_url = Some("https://box.example.org/");
        assert_eq!(ours(&hooks, box_url, IntakeMode::Webhook), Some(3));
        assert_eq!(ours(&hooks, None, IntakeMode::Webhook), Some(2));
        assert_eq!(ours(&hooks[..1], box_url, IntakeMode::Webhook), None);
        assert_eq!(ours(&hooks[..1], box_url, IntakeMode::Deliveries), Some(1));
        assert_eq!(ours(&[], box_url, IntakeMode::Deliveries), None);
    }
}
