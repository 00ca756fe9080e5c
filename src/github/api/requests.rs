//! What is sent to GitHub: whom a call is about, and what it writes.

use crate::issue::Facts;
use crate::store::checkout::CheckoutRow;
use crate::types::{IssueNumber, Repository};

/// The repository that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepositoryTarget {
    /// Its name, maybe a former one.
    pub name: Repository,
    /// Its id, if known. A redirect that leads to another one is [`Moved`](super::GitHubError::Moved).
    pub id: Option<u64>,
    /// The App's installation there, if known; else it is asked.
    pub installation: Option<u64>,
}

impl RepositoryTarget {
    /// A repository of which only the name is known.
    pub const fn named(name: Repository) -> Self {
        Self { name, id: None, installation: None }
    }

    /// The repository of an issue, if that is known.
    pub fn of(facts: &Facts) -> Option<Self> {
        Some(Self {
            name: facts.repository.clone()?,
            id: facts.repository_id,
            installation: facts.installation_id,
        })
    }

    /// The repository with a sandbox's branch, given where its issue is by now.
    pub fn of_checkout(checkout: &CheckoutRow, issue: &Facts) -> Self {
        let of_issue = Self::of(issue).filter(|_| checkout.is_beside(issue));
        let (name, id) = (checkout.remote.clone(), checkout.remote_id);
        of_issue.unwrap_or(Self { name, id, installation: None })
    }

    /// The owner's name.
    pub fn owner(&self) -> &str {
        self.name.as_str().split_once('/').map_or("", |(owner, _)| owner)
    }
}

/// An answer to a question that named the ETag of the last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditional<T> {
    /// As it was; does not count against the hourly limit.
    Unchanged,
    /// This is how it is.
    Changed {
        /// The answer.
        value: T,
        /// Its ETag, for the next question.
        etag: Option<String>,
    },
}

impl<T> Conditional<T> {
    /// The value, if it changed.
    pub fn changed(self) -> Option<T> {
        match self {
            Self::Unchanged => None,
            Self::Changed { value, .. } => Some(value),
        }
    }
}

/// What is reacted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactionTarget {
    /// An issue, by its number.
    Issue(IssueNumber),
    /// A comment, by its id.
    Comment(u64),
}

/// A reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// 👀
    Eyes,
    /// 😕
    Confused,
}

impl Reaction {
    /// GitHub's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eyes => "eyes",
            Self::Confused => "confused",
        }
    }
}

/// A pull request to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPull {
    /// The branch with the work, in the same repository.
    pub head: String,
    /// The branch that it is to be merged into.
    pub base: String,
    /// The title.
    pub title: String,
    /// The text.
    pub body: String,
    /// Whether it is a draft. Where drafts are refused GitHub answers 422:
    /// [`Refused`](super::GitHubError::Refused) with a text that says `draft`.
    pub draft: bool,
}

/// What changes of a pull request; `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullEdit {
    /// The title.
    pub title: Option<String>,
    /// The text.
    pub body: Option<String>,
}

/// The state of a commit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// Work goes on.
    Pending,
    /// It ended well.
    Success,
    /// It ended badly.
    Failure,
}

impl CommitState {
    /// GitHub's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

/// A commit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusEntry {
    /// Its state.
    pub state: CommitState,
    /// Which of the commit's statuses: each context has one.
    pub context: String,
    /// A short text, at most 140 characters.
    pub description: String,
    /// Where people read more.
    pub target_url: Option<String>,
}

/// Whose delivery log is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliverySource {
    /// The App's: all repositories.
    App,
    /// That of a repository's webhook.
    Hook {
        /// The repository.
        target: RepositoryTarget,
        /// The webhook's id.
        hook_id: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Issue;
    use crate::types::{AccountName, HomeId, IssueId, SandboxId, Timestamp};

    #[test]
    fn a_checkout_stays_where_it_is_when_its_issue_is_transferred() {
        let named = |name: &str| Repository::trusted(name.to_owned());
        let of = |id, name, of_issue| {
            let (account, issue) = (AccountName::default_account(), IssueId::from_github(1));
            let facts = Facts {
                repository: Some(named(name)),
                repository_id: of_issue,
                installation_id: Some(5),
                ..Issue::new(HomeId(1), account, issue).facts
            };
            let (now, remote) = (Timestamp::from_unix_ms(0), (named("octo/hello"), id));
            let row = CheckoutRow::begun(SandboxId::trusted("s"), HomeId(1), remote, now);
            RepositoryTarget::of_checkout(&row, &facts)
        };
        let target =
            |name, id, installation| RepositoryTarget { name: named(name), id, installation };
        // Renamed.
        assert_eq!(of(Some(7), "octo/new", Some(7)), target("octo/new", Some(7), Some(5)));
        // Transferred, also where another repository has the name by now.
        for name in ["octo/harbour", "octo/hello"] {
            assert_eq!(of(Some(7), name, Some(8)), target("octo/hello", Some(7), None));
        }
        // By an older version, which kept no id.
        assert_eq!(of(None, "octo/hello", Some(7)), target("octo/hello", Some(7), Some(5)));
        assert_eq!(of(None, "octo/harbour", Some(8)), target("octo/hello", None, None));
    }
}
