//! Tokens for git, narrowed to the repositories that a sandbox may read or write.

use async_trait::async_trait;

use crate::types::Secret;

use super::super::api::{GitAccess, GitHubError, GitTokens, RepositoryTarget, WriterId};
use super::GitHubClient;
use super::credentials::CallAuth;
use super::tokens::{TokenKey, TokenPurpose};

/// Most repositories of one token; GitHub allows 500.
const REPOSITORIES_MAX: usize = 500;

#[async_trait]
impl GitTokens for GitHubClient {
    async fn git_token(
        &self,
        target: &RepositoryTarget,
        more: &[u64],
        access: GitAccess,
    ) -> Result<Secret, GitHubError> {
        let auth = match self.writer(target).await? {
            WriterId::TokenUser => CallAuth::Token,
            WriterId::Installation(installation) => {
                let own = match target.id {
                    Some(id) => id,
                    None => super::super::api::GitHubApi::repository(self, target).await?.id,
                };
                let mut repositories = vec![own];
                let purpose = match access {
                    GitAccess::Read => {
                        repositories.extend(more.iter().take(REPOSITORIES_MAX - 1));
                        TokenPurpose::Read
                    }
                    GitAccess::Push { workflows: false } => TokenPurpose::Push,
                    GitAccess::Push { workflows: true } => TokenPurpose::PushWorkflows,
                };
                repositories.sort_unstable();
                repositories.dedup();
                CallAuth::Installation(TokenKey { installation, purpose, repositories })
            }
        };
        let secret = self.secret(&auth).await?;
        secret.ok_or_else(|| GitHubError::Unauthorized("there are no credentials".to_owned()))
    }

    async fn revoke(&self, repository_id: u64) {
        for token in self.tokens.take_of(repository_id).await {
            self.revoke_token(&token).await;
        }
    }
}
