//! Which repositories are known: those that the App is installed on, those of stored issues, and
//! those that the configuration names.

use std::collections::HashMap;

use super::recovery::{RecoveryError, RecoveryParts};
use crate::github::api::{GitHubError, IdentityKind, PageCursor, RepositoryTarget};
use crate::types::Repository;

/// A repository whose deliveries count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownRepository {
    pub target: RepositoryTarget,
    /// Whether it has a live sandbox.
    pub is_live: bool,
}

/// All of them, those with live sandboxes first.
pub(super) async fn known_repositories(
    parts: &RecoveryParts,
) -> Result<Vec<KnownRepository>, RecoveryError> {
    let mut known: HashMap<String, KnownRepository> = HashMap::new();
    let policy = parts.intake.triggers().usual();
    for name in policy.repositories.iter().filter_map(|pattern| pattern.only()) {
        if let Ok(name) = Repository::parse(name) {
            add(&mut known, RepositoryTarget::named(name), false);
        }
    }
    for stored in parts.rows.stored_repositories().await? {
        let target = RepositoryTarget {
            name: stored.name,
            id: Some(stored.id),
            installation: stored.installation,
        };
        add(&mut known, target, stored.is_live);
    }
    if let IdentityKind::App(_) = parts.api.identity().await?.kind {
        for target in installed(parts).await? {
            add(&mut known, target, false);
        }
    }
    known.retain(|_, one| policy.covers(one.target.name.as_str()));
    let mut known: Vec<_> = known.into_values().collect();
    known.sort_by_key(|one| (!one.is_live, one.target.name.folded()));
    Ok(known)
}

/// Adds a repository, or what is newly known of it.
fn add(known: &mut HashMap<String, KnownRepository>, target: RepositoryTarget, is_live: bool) {
    let entry = known
        .entry(target.name.folded())
        .or_insert_with(|| KnownRepository { target: target.clone(), is_live });
    // A later source knows better: GitHub's list comes last.
    if target.id.is_some() {
        let installation = target.installation.or(entry.target.installation);
        entry.target = RepositoryTarget { installation, ..target };
    }
    entry.is_live |= is_live;
}

/// The repositories of all installations that are not suspended.
async fn installed(parts: &RecoveryParts) -> Result<Vec<RepositoryTarget>, RecoveryError> {
    let mut targets = Vec::new();
    let mut cursor = PageCursor::FIRST;
    loop {
        let (installations, next) = parts.api.installations(&cursor).await?;
        for installation in installations.into_iter().filter(|one| !one.is_suspended) {
            match of_installation(parts, installation.id, &mut targets).await {
                Ok(()) => {}
                Err(error @ (GitHubError::Limited { .. } | GitHubError::Unreachable(_))) => {
                    return Err(error.into());
                }
                Err(error) => tracing::warn!(
                    installation = installation.id,
                    %error,
                    "cannot list the repositories of an installation"
                ),
            }
        }
        let Some(next) = next else { return Ok(targets) };
        cursor = next;
    }
}

async fn of_installation(
    parts: &RecoveryParts,
    installation: u64,
    targets: &mut Vec<RepositoryTarget>,
) -> Result<(), GitHubError> {
    let mut cursor = PageCursor::FIRST;
    loop {
        let (repositories, next) =
            parts.api.installation_repositories(installation, &cursor).await?;
        targets.extend(repositories.into_iter().filter(|one| !one.is_archived).map(|one| {
            RepositoryTarget { name: one.name, id: Some(one.id), installation: Some(installation) }
        }));
        let Some(next) = next else { return Ok(()) };
        cursor = next;
    }
}
