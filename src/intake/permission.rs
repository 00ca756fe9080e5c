//! Whether the sender of a delivery may trigger.

use std::sync::Arc;

use crate::github::api::{GitHubError, RepositoryTarget};
use crate::github::permissions::{RepositoryPermissions, Standing};
use crate::github::webhook::ConditionalDelivery;
use crate::issue::IssueDelivery;

/// Whether a sender may trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PermissionVerdict {
    /// The sender may.
    Allowed,
    /// The sender may not; why, in words.
    Refused(String),
}

/// What GitHub says of senders' permissions.
pub(super) struct SenderPermissions {
    permissions: Arc<RepositoryPermissions>,
}

impl SenderPermissions {
    /// As GitHub says it.
    pub const fn new(permissions: Arc<RepositoryPermissions>) -> Self {
        Self { permissions }
    }

    /// The verdict about a delivery's sender, if it is remembered.
    pub fn remembered(&self, delivery: &ConditionalDelivery) -> Option<PermissionVerdict> {
        let target = target_of(&delivery.permitted);
        let standing = self.permissions.remembered(&target, &delivery.asker, delivery.level)?;
        Some(verdict(standing, delivery))
    }

    /// The verdict about a delivery's sender, remembered or asked for.
    ///
    /// # Errors
    /// [`GitHubError`] if GitHub did not say.
    pub async fn ask(
        &self,
        delivery: &ConditionalDelivery,
    ) -> Result<PermissionVerdict, GitHubError> {
        let target = target_of(&delivery.permitted);
        let standing = self.permissions.ask(&target, &delivery.asker, delivery.level).await?;
        Ok(verdict(standing, delivery))
    }
}

fn verdict(standing: Standing, delivery: &ConditionalDelivery) -> PermissionVerdict {
    let (login, level) = (&delivery.asker.login, delivery.level.as_str());
    PermissionVerdict::Refused(match standing {
        Standing::Reached => return PermissionVerdict::Allowed,
        Standing::NoSuchUser => {
            format!("{login} may not trigger: GitHub knows no such user with a permission")
        }
        Standing::OtherAccount => {
            format!("{login} may not trigger: the name belongs to another account now")
        }
        Standing::Below(role) => {
            let role = crate::types::inert(&role);
            format!("{login} may not trigger: the role is {role}, and {level} is needed")
        }
    })
}

/// The repository of a delivery, to ask GitHub about it.
pub(super) fn target_of(delivery: &IssueDelivery) -> RepositoryTarget {
    RepositoryTarget {
        name: delivery.news.repository.clone(),
        id: Some(delivery.news.repository_id),
        installation: delivery.installation,
    }
}
