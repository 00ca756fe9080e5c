//! Looks at GitHub for a comment of ours: by its marker and its author.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::github::api::{GitHubComment, GitHubError, GitHubIdentity, PageCursor};
use crate::github::messages;
use crate::sabotage::{Bug, on};
use crate::store::github::{GithubRow, ShownComment};
use crate::types::Timestamp;

use super::GithubWorker;
use super::answers::AttemptError;
use super::place::SaidWhere;

/// How long before a call began its comment is looked for: GitHub's clock is not ours, and ours may have
/// been set since.
const SEARCHED_BEFORE: Duration = Duration::from_secs(86_400);

impl GithubWorker {
    /// Looks for a comment whose creation has an unknown outcome. It is there by now, if it will ever be.
    pub(super) async fn look(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        marker: &str,
    ) -> Result<Option<GitHubComment>, AttemptError> {
        let unknown = row.first_begun_at.filter(|_| !on(Bug::AskedForgotten));
        match unknown {
            Some(first) => self.find(place, marker, first.before(SEARCHED_BEFORE)).await,
            None => Ok(None),
        }
    }

    /// The status comment that we know of; under another id if the issue was transferred.
    pub(super) async fn known(
        &self,
        place: &SaidWhere,
        id: u64,
        marker: &str,
    ) -> Result<Option<GitHubComment>, AttemptError> {
        match self.parts.api.comment(&place.repository, id, None).await {
            Ok(comment) => Ok(comment.changed()),
            Err(GitHubError::NotFound(_)) => {
                self.find(place, marker, Timestamp::from_unix_ms(0)).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Our comment with this marker. The marker alone can be a quote, the author alone another comment.
    pub(super) async fn find(
        &self,
        place: &SaidWhere,
        marker: &str,
        since: Timestamp,
    ) -> Result<Option<GitHubComment>, AttemptError> {
        let api = &self.parts.api;
        let identity = api.identity().await?;
        let mut page = PageCursor::FIRST;
        loop {
            let (comments, next) =
                api.comments_since(&place.repository, place.number, since, &page).await?;
            let found = comments.into_iter().find(|comment| {
                messages::has_marker(&comment.body, marker) && is_ours(&identity, comment)
            });
            match (found, next) {
                (Some(found), _) => return Ok(Some(found)),
                (None, None) => return Ok(None),
                (None, Some(next)) => page = next,
            }
        }
    }
}

/// Whether our own account wrote a comment.
pub(super) fn is_ours(identity: &GitHubIdentity, comment: &GitHubComment) -> bool {
    identity.is_ours(comment.author.id, comment.via_app) || on(Bug::MarkerAlone)
}

pub(super) fn shown(
    comment: &GitHubComment,
    hash: String,
    phase: String,
    at: Timestamp,
) -> ShownComment {
    ShownComment {
        comment: Some(comment.id),
        author: Some(comment.author.id),
        hash: Some(hash),
        phase: Some(phase),
        at: Some(at),
    }
}

pub(super) fn hash(part: &str) -> String {
    hex::encode(&Sha256::digest(part)[..16])
}
