//! Accounts: whose an issue is, and what a caller may do.

use std::collections::BTreeMap;

use super::{AccountName, Repository, RepositoryPattern};

/// What belongs to an account, and whether it may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountRules {
    /// Installations of the GitHub App, by their numeric ids.
    pub installations: Vec<u64>,
    /// Owners of repositories; case does not matter.
    pub owners: Vec<String>,
    /// Repositories.
    pub repositories: Vec<RepositoryPattern>,
    /// Nothing starts in it, its sandboxes are stopped, and only admins see it.
    pub disabled: bool,
}

impl AccountRules {
    /// Those of an account that is no longer in the configuration: it keeps what it has, and is disabled.
    pub fn without_configuration() -> Self {
        Self { disabled: true, ..Self::default() }
    }
}

/// What of a delivery or a call decides which account its issue belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssueOrigin {
    /// The installation that sent the delivery.
    pub installation: Option<u64>,
    /// The issue's repository.
    pub repository: Option<Repository>,
}

/// Every account with its rules; `default` is always one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accounts(BTreeMap<AccountName, AccountRules>);

impl Default for Accounts {
    fn default() -> Self {
        Self::from(BTreeMap::new())
    }
}

impl From<BTreeMap<AccountName, AccountRules>> for Accounts {
    fn from(mut accounts: BTreeMap<AccountName, AccountRules>) -> Self {
        accounts.entry(AccountName::default_account()).or_default();
        Self(accounts)
    }
}

impl Accounts {
    /// The rules of an account; `None` if there is no such account.
    pub fn get(&self, name: &AccountName) -> Option<&AccountRules> {
        self.0.get(name)
    }

    /// Every account, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&AccountName, &AccountRules)> {
        self.0.iter()
    }

    /// Whether there is no account but `default`.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }

    /// The account whose rules name this origin. A rule for the installation precedes one for the
    /// owner, and that one for the repository; of several accounts with such a rule it is the first
    /// by name. `None` if no rule names it: then it belongs to `default`.
    pub fn named_by(&self, origin: &IssueOrigin) -> Option<&AccountName> {
        let first = |has: &dyn Fn(&AccountRules) -> bool| {
            self.0.iter().find(|(_, rules)| has(rules)).map(|(name, _)| name)
        };
        let by_installation =
            origin.installation.and_then(|id| first(&|rules| rules.installations.contains(&id)));
        by_installation.or_else(|| {
            let repository = origin.repository.as_ref()?.as_str();
            let (owner, _) = repository.split_once('/')?;
            let is_owner = |given: &String| given.eq_ignore_ascii_case(owner);
            first(&|rules| rules.owners.iter().any(is_owner)).or_else(|| {
                first(&|rules| rules.repositories.iter().any(|one| one.matches(repository)))
            })
        })
    }
}

/// What a caller may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Works with sandboxes: creates, uses, stops and deletes them.
    Operator,
    /// Manages tokens, accounts and drift, and may act in every account.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(rules: &[(&str, AccountRules)]) -> Accounts {
        let named = rules.iter().map(|(name, rules)| (AccountName::trusted(*name), rules.clone()));
        named.collect::<BTreeMap<_, _>>().into()
    }

    fn origin(installation: Option<u64>, repository: &str) -> IssueOrigin {
        IssueOrigin { installation, repository: Some(Repository::trusted(repository)) }
    }

    #[test]
    fn the_installation_precedes_the_owner_and_the_owner_the_repository() {
        let patterns = |text| vec![RepositoryPattern::parse(text).expect("a pattern")];
        let all = accounts(&[
            ("a", AccountRules { repositories: patterns("octo/*"), ..AccountRules::default() }),
            ("b", AccountRules { owners: vec!["Octo".into()], ..AccountRules::default() }),
            ("c", AccountRules { installations: vec![7], ..AccountRules::default() }),
            ("d", AccountRules { repositories: patterns("*/tools"), ..AccountRules::default() }),
            ("e", AccountRules { repositories: patterns("acme/*"), ..AccountRules::default() }),
        ]);
        let of = |of: &IssueOrigin| all.named_by(of).map(AccountName::as_str);
        assert_eq!(of(&origin(Some(7), "octo/hello")), Some("c"));
        assert_eq!(of(&origin(Some(8), "OCTO/hello")), Some("b"));
        assert_eq!(of(&origin(None, "acme/tools")), Some("d"), "the first by name");
        assert_eq!(of(&origin(None, "Acme/x")), Some("e"));
        assert_eq!(of(&origin(Some(8), "else/where")), None);
        assert_eq!(of(&IssueOrigin::default()), None);
    }

    #[test]
    fn default_is_always_there() {
        let default = AccountName::default_account();
        assert!(Accounts::default().get(&default).is_some() && Accounts::default().is_single());
        assert!(!accounts(&[("a", AccountRules::default())]).is_single());
    }

    #[test]
    fn each_role_may_do_more_than_the_one_before() {
        assert!(Role::ALL.is_sorted());
        assert!(Role::ALL.into_iter().all(|role| Role::parse(role.as_str()) == Some(role)));
        assert_eq!(Role::parse("root"), None);
    }
}
