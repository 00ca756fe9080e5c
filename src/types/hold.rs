//! Holds, and their scopes.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::{AccountName, IssueId, Repository, Timestamp};

/// The scope of a hold. Repositories are compared without regard to case.
#[derive(Clone, Debug)]
pub enum HoldScope {
    /// Everything.
    Server,
    /// Every issue of an account.
    Account(AccountName),
    /// Every issue of a repository.
    Repository(Repository),
    /// One issue of an account.
    Issue(AccountName, IssueId),
}

impl HoldScope {
    /// The stable word for the kind: `server`, `account`, `repository` or `issue`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Account(_) => "account",
            Self::Repository(_) => "repository",
            Self::Issue(..) => "issue",
        }
    }

    /// The name of the account, repository or issue; empty for the server.
    pub fn name(&self) -> &str {
        match self {
            Self::Server => "",
            Self::Account(account) => account.as_str(),
            Self::Repository(repository) => repository.as_str(),
            Self::Issue(_, issue) => issue.as_str(),
        }
    }

    /// The name in a form in which equal scopes are equal.
    pub fn folded(&self) -> String {
        match self {
            Self::Repository(repository) => repository.folded(),
            // Ids have no slash. Those of `default` are stored as before there were other accounts.
            Self::Issue(account, issue) if *account != AccountName::default_account() => {
                format!("{account}/{issue}")
            }
            Self::Server | Self::Account(_) | Self::Issue(..) => self.name().to_owned(),
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
            Self::Account(_) | Self::Repository(_) | Self::Issue(..) => {
                write!(f, "the {} {}", self.kind(), self.name())
            }
        }
    }
}

/// An active hold: in its scope no sandbox is created, started or resumed until it is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its scope.
    pub scope: HoldScope,
    /// The reason that the caller gave; empty if none.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Who placed it.
    pub by: String,
    /// For a repository that was renamed: the new name, to which the hold followed. It follows once, so
    /// that a person can release it under the new name.
    pub followed_to: Option<Repository>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_repository_is_held_in_every_case_and_nothing_else() {
        let repository = |name| HoldScope::Repository(Repository::trusted(name));
        let held: HashSet<_> = [repository("Octo/Hello")].into();
        assert!(held.contains(&repository("oCTO/hELLO")));
        for other in [
            repository("octo/other"),
            HoldScope::Server,
            HoldScope::Account(AccountName::trusted("octo/hello")),
            HoldScope::Issue(AccountName::default_account(), IssueId::trusted("octo/hello")),
        ] {
            assert!(!held.contains(&other), "{other}");
        }
        let of = |account| AccountName::trusted(account);
        let issue = |account, id| HoldScope::Issue(of(account), IssueId::trusted(id));
        let ids = [("default", "A"), ("default", "a"), ("acme", "A"), ("b", "A")];
        let all: HashSet<_> = ids.into_iter().map(|(account, id)| issue(account, id)).collect();
        assert_eq!(all.len(), 4, "issue ids have a case and an account");
    }
}
