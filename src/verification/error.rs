//! Why no sandbox is made for an issue after GitHub was asked.

use crate::engine::EngineError;
use crate::github::api::{GitHubError, HeldReason};
use crate::store::StoreError;
use crate::types::{IssueNumber, Repository, Timestamp};

/// When to ask again after an answer that names no time, in seconds.
const AGAIN_SECS: u32 = 10;

/// Why no sandbox is made for an issue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    /// GitHub does not know the issue, or does not show it to us.
    #[error("GitHub does not know the issue {repository}#{number}: {why}")]
    Unknown {
        /// The repository that was asked for.
        repository: Repository,
        /// The number that was asked for.
        number: IssueNumber,
        /// In GitHub's words, or ours.
        why: String,
    },
    /// The issue is closed.
    #[error("the issue {0}#{1} is closed on GitHub")]
    Closed(Repository, IssueNumber),
    /// The id and the repository and number belong to different issues.
    #[error("GitHub's id of this issue is not the one that was given")]
    IdConflict,
    /// GitHub did not answer the question.
    #[error("GitHub cannot be asked about the issue {repository}#{number}: {why}")]
    Unavailable {
        /// The repository that was asked for.
        repository: Repository,
        /// The number that was asked for.
        number: IssueNumber,
        /// Why not.
        why: String,
        /// When to try again, in seconds.
        retry_after_secs: u32,
    },
    /// What GitHub said could not be taken in.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreError> for VerificationError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl VerificationError {
    /// What an error of GitHub's means for who asked about an issue.
    pub(super) fn of_github(
        repository: Repository,
        number: IssueNumber,
        error: GitHubError,
        now: Timestamp,
    ) -> Self {
        let why = error.to_string();
        match error {
            GitHubError::Gone(_)
            | GitHubError::NotFound(_)
            | GitHubError::Moved { .. }
            | GitHubError::Held { reason: HeldReason::Uninstalled, .. } => {
                Self::Unknown { repository, number, why }
            }
            GitHubError::Limited { until } => {
                let secs = until.since(now).as_secs().saturating_add(1);
                let retry_after_secs = u32::try_from(secs).unwrap_or(u32::MAX);
                Self::Unavailable { repository, number, why, retry_after_secs }
            }
            GitHubError::Held { .. }
            | GitHubError::Unauthorized(_)
            | GitHubError::AlreadyExists(_)
            | GitHubError::Refused { .. }
            | GitHubError::Unknown(_)
            | GitHubError::Unreachable(_) => {
                Self::Unavailable { repository, number, why, retry_after_secs: AGAIN_SECS }
            }
        }
    }
}
