//! Holds: the brake that people put on, and how far each reaches.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::{AccountName, IssueId, Repository, Timestamp};

/// What a hold covers. Two that differ only in the case of a repository are equal.
#[derive(Clone, Debug)]
pub enum HoldScope {
    /// Everything.
    Server,
    /// Every issue of an account.
    Account(AccountName),
    /// Every issue of a repository.
    Repository(Repository),
    /// One issue.
    Issue(IssueId),
}

impl HoldScope {
    /// The stable word for its kind: `server`, `account`, `repository` or `issue`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Account(_) => "account",
            Self::Repository(_) => "repository",
            Self::Issue(_) => "issue",
        }
    }

    /// What is held, as it was written; empty for the server.
    pub fn name(&self) -> &str {
        match self {
            Self::Server => "",
            Self::Account(account) => account.as_str(),
            Self::Repository(repository) => repository.as_str(),
            Self::Issue(issue) => issue.as_str(),
        }
    }

    /// What is held, in the form in which two names of one thing are equal.
    pub fn folded(&self) -> String {
        match self {
            Self::Repository(repository) => repository.folded(),
            Self::Server | Self::Account(_) | Self::Issue(_) => self.name().to_owned(),
        }
    }
}

impl PartialEq for HoldScope {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.folded() == other.folded()
    }
}

impl Eq for HoldScope {}

impl Hash for HoldScope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        self.folded().hash(state);
    }
}

impl fmt::Display for HoldScope {
    /// For sentences: "the server", "the repository octo/hello".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("the server"),
            Self::Account(_) | Self::Repository(_) | Self::Issue(_) => {
                write!(f, "the {} {}", self.kind(), self.name())
            }
        }
    }
}

/// A brake that is on: nothing it covers is made, started or resumed until it is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What it covers.
    pub scope: HoldScope,
    /// Why, in the words of who put it on; empty where nothing was said.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Who put it on.
    pub by: String,
    /// Of a repository that was renamed: the name that the hold has followed it to. It does so
    /// once, so that what a person releases under the new name stays released.
    pub followed_to: Option<Repository>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_repository_is_held_whatever_its_case_and_nothing_else_is() {
        let repository = |name| HoldScope::Repository(Repository::trusted(name));
        let held: HashSet<_> = [repository("Octo/Hello")].into();
        assert!(held.contains(&repository("oCTO/hELLO")));
        for other in [
            repository("octo/other"),
            HoldScope::Server,
            HoldScope::Account(AccountName::trusted("octo/hello")),
            HoldScope::Issue(IssueId::trusted("octo/hello")),
        ] {
            assert!(!held.contains(&other), "{other}");
        }
        let issue = |id| HoldScope::Issue(IssueId::trusted(id));
        assert_ne!(issue("A"), issue("a"), "issue ids have a case");
    }
}
