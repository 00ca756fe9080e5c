//! What happens to a repository, its labels or the App's installation, and so to every issue of it.
//!
//! These are facts, so they apply whatever the sender. What is meant is named by GitHub's numeric
//! ids, which a new name or owner does not change.
//!
//! # What is accepted
//! The list of an installation's repositories can be absent. Then the issues are meant that this
//! installation sent deliveries about; one that only another webhook sent is not found by that.

use serde::Deserialize;

use crate::github::policy::TriggerPolicy;
use crate::issue::{Scope, ScopeEvent};
use crate::types::{Repository, Timestamp};

use super::Malformed;
use super::payload::{Before, Label, PayloadInstallation, RepositoryPart, identified, missing};

/// What can happen around issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// To a repository.
    Repository(ToRepository),
    /// A label of a repository was edited.
    LabelEdited,
    /// To an installation.
    Installation(ToInstallation),
    /// An installation lost repositories.
    RepositoriesRemoved,
    /// An installation got repositories.
    RepositoriesAdded,
}

/// What can happen to a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToRepository {
    Renamed,
    Transferred,
    Edited,
    Deleted,
    Archived,
    Unarchived,
    Privatized,
    Publicized,
}

/// What can happen to an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToInstallation {
    Deleted,
    Suspended,
    Unsuspended,
    Created,
    PermissionsAccepted,
}

/// The payload of such a delivery.
#[derive(Debug, Deserialize)]
pub(super) struct ScopePayload {
    pub action: Option<String>,
    pub repository: Option<RepositoryPart>,
    /// The label as it is now.
    label: Option<Label>,
    changes: Option<ScopeChanges>,
    installation: Option<PayloadInstallation>,
    /// All repositories of the installation.
    repositories: Option<Vec<Option<RepositoryPart>>>,
    repositories_removed: Option<Vec<Option<RepositoryPart>>>,
    repositories_added: Option<Vec<Option<RepositoryPart>>>,
}

#[derive(Debug, Deserialize)]
struct ScopeChanges {
    /// What a label was called before.
    name: Option<Before>,
    /// What a repository was called before.
    repository: Option<RepositoryChanges>,
    /// Whose a repository was before.
    owner: Option<OwnerBefore>,
}

#[derive(Debug, Deserialize)]
struct RepositoryChanges {
    name: Option<Before>,
}

#[derive(Debug, Deserialize)]
struct OwnerBefore {
    from: Option<OwnerJson>,
}

#[derive(Debug, Deserialize)]
struct OwnerJson {
    user: Option<Login>,
    organization: Option<Login>,
}

#[derive(Debug, Deserialize)]
struct Login {
    login: Option<String>,
}

impl Happened {
    /// What an event and its action are; `None` for those without an effect around issues.
    pub fn of(event: &str, action: &str) -> Option<Self> {
        match event {
            "repository" => ToRepository::of(action).map(Self::Repository),
            "label" => (action == "edited").then_some(Self::LabelEdited),
            "installation" => ToInstallation::of(action).map(Self::Installation),
            "installation_repositories" => match action {
                "removed" => Some(Self::RepositoriesRemoved),
                "added" => Some(Self::RepositoriesAdded),
                _ => None,
            },
            _ => None,
        }
    }
}

impl ToRepository {
    fn of(action: &str) -> Option<Self> {
        match action {
            "renamed" => Some(Self::Renamed),
            "transferred" => Some(Self::Transferred),
            "edited" => Some(Self::Edited),
            "deleted" => Some(Self::Deleted),
            "archived" => Some(Self::Archived),
            "unarchived" => Some(Self::Unarchived),
            "privatized" => Some(Self::Privatized),
            "publicized" => Some(Self::Publicized),
            _ => None,
        }
    }

    /// For reasons: "the repository was …".
    const fn describe(self) -> &'static str {
        match self {
            Self::Renamed => "renamed",
            Self::Transferred => "transferred",
            Self::Edited => "edited",
            Self::Deleted => "deleted",
            Self::Archived => "archived",
            Self::Unarchived => "taken out of the archive",
            Self::Privatized => "made private",
            Self::Publicized => "made public",
        }
    }
}

impl ToInstallation {
    fn of(action: &str) -> Option<Self> {
        match action {
            "deleted" => Some(Self::Deleted),
            "suspend" => Some(Self::Suspended),
            "unsuspend" => Some(Self::Unsuspended),
            "created" => Some(Self::Created),
            "new_permissions_accepted" => Some(Self::PermissionsAccepted),
            _ => None,
        }
    }
}

/// What happened, to which issues, and what it means for each.
pub(super) struct ScopedEvent {
    pub scope: Scope,
    pub scope_event: ScopeEvent,
}

/// Decides what it means, or why it has no effect.
///
/// # Errors
/// [`Malformed`] if what identifies the repository is missing.
pub(super) fn decide(
    policy: &TriggerPolicy,
    happened: Happened,
    payload: &ScopePayload,
    received_at: Timestamp,
) -> Result<Result<ScopedEvent, String>, Malformed> {
    match happened {
        Happened::Repository(what) => to_repository(policy, what, payload, received_at),
        Happened::LabelEdited => label_edited(policy, payload),
        Happened::Installation(what) => Ok(to_installation(policy, what, payload)),
        Happened::RepositoriesRemoved => {
            let scope_event = ScopeEvent::Stop("the App lost its access to the repository".into());
            Ok(listed(policy, payload.repositories_removed.as_deref(), scope_event))
        }
        Happened::RepositoriesAdded => {
            let scope_event =
                ScopeEvent::Noted("the App was given access to the repository".into());
            Ok(listed(policy, payload.repositories_added.as_deref(), scope_event))
        }
    }
}

fn to_repository(
    policy: &TriggerPolicy,
    what: ToRepository,
    payload: &ScopePayload,
    received_at: Timestamp,
) -> Result<Result<ScopedEvent, String>, Malformed> {
    let repository = payload.repository.as_ref().ok_or_else(|| missing("repository"))?;
    let (name, id) = identified(repository, "repository")?;
    let before = payload.name_before(name.as_str());
    // Under its old name it may be one of ours, and its issues must learn the new one.
    let covered = |name: &str| policy.covers(name);
    if !covered(name.as_str()) && !before.as_deref().is_some_and(covered) {
        return Ok(Err(super::not_covered(&name)));
    }
    let as_of = super::time_of(repository.updated_at.as_deref(), received_at);
    let renamed = |repository| ScopeEvent::Renamed {
        repository,
        formerly: before.as_deref().and_then(|name| Repository::parse(name).ok()),
        as_of,
    };
    let scope_event = match what {
        ToRepository::Renamed | ToRepository::Transferred => renamed(name),
        ToRepository::Edited if before.is_some() => renamed(name),
        ToRepository::Deleted | ToRepository::Archived => {
            ScopeEvent::Stop(format!("the repository was {}", what.describe()))
        }
        ToRepository::Edited
        | ToRepository::Unarchived
        | ToRepository::Privatized
        | ToRepository::Publicized => {
            ScopeEvent::Noted(format!("the repository was {}", what.describe()))
        }
    };
    Ok(Ok(ScopedEvent { scope: Scope::Repositories(vec![id]), scope_event }))
}

impl ScopePayload {
    /// The repository's `owner/name` before it was renamed or given to another owner.
    fn name_before(&self, now: &str) -> Option<String> {
        let (owner_now, name_now) = now.split_once('/')?;
        let changes = self.changes.as_ref()?;
        let name = changes.repository.as_ref().and_then(|it| it.name.as_ref()?.from.as_deref());
        let owner = changes.owner.as_ref().and_then(|it| {
            let from = it.from.as_ref()?;
            from.user.as_ref().or(from.organization.as_ref())?.login.as_deref()
        });
        let changed = name.is_some() || owner.is_some();
        changed.then(|| format!("{}/{}", owner.unwrap_or(owner_now), name.unwrap_or(name_now)))
    }
}

fn label_edited(
    policy: &TriggerPolicy,
    payload: &ScopePayload,
) -> Result<Result<ScopedEvent, String>, Malformed> {
    let before = payload.changes.as_ref().and_then(|it| it.name.as_ref()?.from.as_deref());
    let now = payload.label.as_ref().and_then(|label| label.name.as_deref());
    let was_trigger = before.is_some_and(|name| policy.is_trigger_label(name));
    // Where only its case changed, issues carry it still.
    if !was_trigger || now.is_some_and(|name| policy.is_trigger_label(name)) {
        return Ok(Err("the trigger label's name did not change".into()));
    }
    let repository = payload.repository.as_ref().ok_or_else(|| missing("repository"))?;
    let (name, id) = identified(repository, "repository")?;
    if !policy.covers(name.as_str()) {
        return Ok(Err(super::not_covered(&name)));
    }
    Ok(Ok(ScopedEvent { scope: Scope::Repositories(vec![id]), scope_event: ScopeEvent::LabelGone }))
}

fn to_installation(
    policy: &TriggerPolicy,
    what: ToInstallation,
    payload: &ScopePayload,
) -> Result<ScopedEvent, String> {
    let id = payload.installation.as_ref().and_then(|installation| installation.id);
    let id = id.ok_or("it names no installation")?;
    let scope_event = match what {
        ToInstallation::Deleted => ScopeEvent::Stop("the App was uninstalled".into()),
        ToInstallation::Suspended => ScopeEvent::Stop("the App was suspended".into()),
        ToInstallation::Unsuspended => ScopeEvent::Noted("the App is no longer suspended".into()),
        ToInstallation::Created => ScopeEvent::Noted("the App was installed".into()),
        ToInstallation::PermissionsAccepted => {
            ScopeEvent::Noted("the App was given new permissions".into())
        }
    };
    match (&scope_event, payload.repositories.as_deref()) {
        (ScopeEvent::Stop(_), Some(repositories)) if !repositories.is_empty() => {
            listed(policy, Some(repositories), scope_event)
        }
        (
            ScopeEvent::Stop(_)
            | ScopeEvent::Renamed { .. }
            | ScopeEvent::LabelGone
            | ScopeEvent::Noted(_),
            _,
        ) => Ok(ScopedEvent { scope: Scope::Installation(id), scope_event }),
    }
}

/// News of the repositories of a list, as far as they are covered.
fn listed(
    policy: &TriggerPolicy,
    list: Option<&[Option<RepositoryPart>]>,
    scope_event: ScopeEvent,
) -> Result<ScopedEvent, String> {
    let mut any = false;
    let mut ids = Vec::new();
    for repository in list.unwrap_or_default().iter().flatten() {
        let Some(id) = repository.id else { continue };
        any = true;
        // One without a name is not known to be another's.
        if repository.full_name.as_deref().is_none_or(|name| policy.covers(name)) {
            ids.push(id);
        }
    }
    match (ids.is_empty(), any) {
        (false, _) => Ok(ScopedEvent { scope: Scope::Repositories(ids), scope_event }),
        (true, true) => Err("none of the repositories matches the configured ones".into()),
        (true, false) => Err("it names no repository".into()),
    }
}
