//! The port to whose work pull requests and commits are: deliveries about them name no issue.

use async_trait::async_trait;

use super::StoreError;
use crate::types::{HomeId, IssueNumber};

/// Whose work something in a repository is. Repositories are named by their numeric id.
#[async_trait]
pub trait WorkOwners: Send + Sync + 'static {
    /// The home whose sandbox's branch a pull request proposes.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn home_of_pull(
        &self,
        repository_id: u64,
        number: IssueNumber,
    ) -> Result<Option<HomeId>, StoreError>;

    /// The home whose present sandbox pushed a commit last, or is pushing it now.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn home_of_commit(
        &self,
        repository_id: u64,
        commit: &str,
    ) -> Result<Option<HomeId>, StoreError>;
}
