//! Tokens for git: what the git gateway adds outside of a sandbox.

use async_trait::async_trait;

use crate::types::Secret;

use super::{GitHubError, RepositoryTarget};

/// What a token for git may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GitAccess {
    /// Read contents.
    Read,
    /// Write contents; files of workflows only if said so.
    Push {
        /// Whether files of workflows may be changed.
        workflows: bool,
    },
}

/// Gives out tokens for git.
#[async_trait]
pub trait GitTokens: Send + Sync + 'static {
    /// A token for one repository, valid for a minute at least. `more` are the ids of repositories
    /// that may be read with it, too.
    ///
    /// # Errors
    /// Any [`GitHubError`].
    async fn git_token(
        &self,
        target: &RepositoryTarget,
        more: &[u64],
        access: GitAccess,
    ) -> Result<Secret, GitHubError>;

    /// Revokes the tokens of a repository, as far as GitHub can be reached.
    async fn revoke(&self, repository_id: u64);
}
