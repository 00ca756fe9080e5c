//! Where an issue is at GitHub.

use crate::github::api::RepositoryTarget;
use crate::issue::Issue;
use crate::types::IssueNumber;

/// Where an issue is at GitHub.
pub(super) struct SaidWhere {
    /// Its repository.
    pub repository: RepositoryTarget,
    /// Its number there.
    pub number: IssueNumber,
}

impl SaidWhere {
    /// Of an issue; `None` if that is not known.
    pub fn of(issue: &Issue) -> Option<Self> {
        let facts = &issue.facts;
        Some(Self { repository: RepositoryTarget::of(facts)?, number: facts.number? })
    }
}
