//! A file of the branch that a sandbox's work begins at, as GitHub has it: not as the workspace or the
//! sandbox's own branch have it.

use super::CheckoutWorker;
use crate::github::api::{GitHubError, GitHubFile, RepositoryTarget};
use crate::issue::Issue;

/// A file as a commit has it.
pub struct BaseFile {
    /// The commit at the branch's tip.
    pub commit: String,
    /// What is there; `None` for nothing.
    pub file: Option<GitHubFile>,
}

impl CheckoutWorker {
    /// Reads a file at the tip of a branch of an issue's repository; `None` if there is no such branch.
    /// The commit is looked up first, because a tag can have the name of a branch.
    ///
    /// # Errors
    /// Any [`GitHubError`].
    pub async fn file_at_tip(
        &self,
        issue: &Issue,
        branch: &str,
        path: &str,
    ) -> Result<Option<BaseFile>, GitHubError> {
        let Some(target) = RepositoryTarget::of(&issue.facts) else { return Ok(None) };
        let api = &self.parts.api;
        let Some(commit) = api.branch_tip(&target, branch).await? else { return Ok(None) };
        let file = api.file(&target, path, &commit).await?;
        Ok(Some(BaseFile { commit, file }))
    }
}
