//! Whether the sender of a delivery may trigger.

use std::sync::Arc;

use crate::github::api::{GitHubError, RepositoryTarget};
use crate::github::permissions::{RepositoryPermissions, Standing};
use crate::github::webhook::ConditionalDelivery;
use crate::issue::IssueDelivery;
use crate::issue::instruction::GithubUser;
use crate::types::PermissionLevel;

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
    level: PermissionLevel,
}

impl SenderPermissions {
    /// With this level senders may trigger.
    pub const fn new(permissions: Arc<RepositoryPermissions>, level: PermissionLevel) -> Self {
        Self { permissions, level }
    }

    /// The verdict about a delivery's sender, if it is remembered.
    pub fn remembered(&self, delivery: &ConditionalDelivery) -> Option<PermissionVerdict> {
        let (target, asker) = (target_of(&delivery.permitted), &delivery.asker);
        let standing = self.permissions.remembered(&target, asker, self.level)?;
        Some(self.verdict(standing, asker))
    }

    /// The verdict about a delivery's sender, remembered or asked for.
    ///
    /// # Errors
    /// [`GitHubError`] if GitHub did not say.
    pub async fn ask(
        &self,
        delivery: &ConditionalDelivery,
    ) -> Result<PermissionVerdict, GitHubError> {
        let (target, asker) = (target_of(&delivery.permitted), &delivery.asker);
        let standing = self.permissions.ask(&target, asker, self.level).await?;
        Ok(self.verdict(standing, asker))
    }

    fn verdict(&self, standing: Standing, asker: &GithubUser) -> PermissionVerdict {
        let (login, level) = (&asker.login, self.level.as_str());
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
}

/// The repository of a delivery, to ask GitHub about it.
pub(super) fn target_of(delivery: &IssueDelivery) -> RepositoryTarget {
    RepositoryTarget {
        name: delivery.news.repository.clone(),
        id: Some(delivery.news.repository_id),
        installation: delivery.installation,
    }
}
