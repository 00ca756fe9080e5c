//! Finds an issue at GitHub, also after a transfer.

use crate::github::api::{
    Conditional, GitHubError, GitHubIssue, IdentityKind, Installation, RepositoryTarget,
};
use crate::issue::Facts;
use crate::types::{IssueNumber, Repository};

use super::IssueVerifier;

/// An issue as GitHub has it.
pub(super) struct FoundIssue {
    pub issue: GitHubIssue,
    /// Its repository, by the name that it has now.
    pub repository: Repository,
    pub repository_id: u64,
    /// The App's installation there, if it is known.
    pub installation: Option<u64>,
    /// The repository and number that it was transferred away from, if it is not where it was asked for.
    pub moved_from: Option<(u64, IssueNumber)>,
}

impl FoundIssue {
    /// Whether all of this is known.
    pub fn is_known_by(&self, facts: &Facts) -> bool {
        let open = facts.open.as_ref().map(|known| known.value);
        facts.repository_id == Some(self.repository_id)
            && facts.repository.as_ref().map(Repository::folded) == Some(self.repository.folded())
            && facts.number == Some(self.issue.number)
            && open == Some(self.issue.is_open)
            && (self.installation.is_none() || facts.installation_id.is_some())
    }

    /// Whether the issue that is known by these facts is this one: it is known here, or where this one
    /// was transferred from.
    pub fn is_the_one_of(&self, facts: &Facts) -> bool {
        let was_there = self
            .moved_from
            .is_some_and(|from| (facts.repository_id.zip(facts.number)) == Some(from));
        let same_name =
            facts.repository.as_ref().map(Repository::folded) == Some(self.repository.folded());
        let same_repository = facts.repository_id.map_or(same_name, |id| id == self.repository_id);
        was_there || (same_repository && facts.number == Some(self.issue.number))
    }
}

impl IssueVerifier {
    /// Asks GitHub for an issue. `facts` is what is known of it.
    pub(super) async fn find(
        &self,
        asked: &RepositoryTarget,
        number: IssueNumber,
        facts: Option<&Facts>,
    ) -> Result<FoundIssue, GitHubError> {
        let mut moved_from = None;
        let (target, answer) = match self.api.issue(asked, number, None).await {
            Err(GitHubError::Moved { repository_id, number: Some(there) }) => {
                moved_from = Some((self.api.repository(asked).await?.id, number));
                let now = self.api.repository_by_id(asked, repository_id).await?;
                let (id, installation) = (Some(repository_id), asked.installation);
                let target = RepositoryTarget { name: now.name, id, installation };
                let answer = self.api.issue(&target, there, None).await?;
                (target, answer)
            }
            answer => (asked.clone(), answer?),
        };
        let Conditional::Changed { value: issue, .. } = answer else {
            let words = "it answered that nothing changed, but was not asked that".to_owned();
            return Err(GitHubError::Unknown(words));
        };
        let target = RepositoryTarget {
            name: issue.repository.clone().unwrap_or(target.name),
            id: target.id.filter(|_| moved_from.is_some()),
            ..target
        };
        let known = target.id.or_else(|| known_repository(facts, &target.name, &issue));
        let (repository, repository_id) = match known {
            Some(id) => (target.name.clone(), id),
            None => {
                let now = self.api.repository(&target).await?;
                (now.name, now.id)
            }
        };
        let installation = match target.installation {
            Some(id) => Some(id),
            None => self.installation_of(&target).await?.map(|installation| installation.id),
        };
        Ok(FoundIssue { issue, repository, repository_id, installation, moved_from })
    }

    /// The App's installation on a repository; none with a token.
    async fn installation_of(
        &self,
        target: &RepositoryTarget,
    ) -> Result<Option<Installation>, GitHubError> {
        match self.api.identity().await?.kind {
            IdentityKind::App(_) => self.api.installation_of(target).await.map(Some),
            IdentityKind::Token => Ok(None),
        }
    }
}

/// The id of an issue's repository, if the issue is the one that is known by its id and place.
fn known_repository(facts: Option<&Facts>, name: &Repository, issue: &GitHubIssue) -> Option<u64> {
    let facts = facts?;
    let is_same = facts.issue_id.as_str() == issue.id.to_string()
        && facts.number == Some(issue.number)
        && facts.repository.as_ref().map(Repository::folded) == Some(name.folded());
    facts.repository_id.filter(|_| is_same)
}
