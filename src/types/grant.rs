//! Who may log in to the page with GitHub, and as what.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{AccountName, PermissionLevel, Repository, Role};

/// One rule: those whom it is about have this role, in this account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginGrant {
    /// Whom it is about.
    pub to: GrantSubject,
    /// What they may do.
    pub role: Role,
    /// The account that they work in.
    pub account: AccountName,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantSubject {
    /// The user with this numeric id, which never changes.
    UserId(u64),
    /// The user who has this login now, in any case.
    User(String),
    /// The members of this organisation, public or not.
    Organization(String),
    /// Those who have at least this permission in this repository.
    Repository {
        /// The repository.
        name: Repository,
        /// The least permission.
        permission: PermissionLevel,
    },
}

/// The rules for log-ins, in their order, each with a key by which sessions keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginGrants(Vec<(String, LoginGrant)>);

impl LoginGrants {
    /// These rules. The key of a rule depends on those before it as well: with another rule before it,
    /// that one may be about the person of a session.
    pub fn new(grants: Vec<LoginGrant>) -> Self {
        let mut before = Sha256::new();
        let keyed = grants.into_iter().map(|grant| {
            let text = grant.to_string();
            before.update(&text);
            before.update("\n");
            let digest = hex::encode(&before.clone().finalize()[..8]);
            (format!("{text} [{digest}]"), grant)
        });
        Self(keyed.collect())
    }

    /// The rules with their keys, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &LoginGrant)> {
        self.0.iter().map(|(key, grant)| (key.as_str(), grant))
    }

    /// The rule with this key.
    pub fn get(&self, key: &str) -> Option<&LoginGrant> {
        self.iter().find_map(|(one, grant)| (one == key).then_some(grant))
    }
}

impl fmt::Display for LoginGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            GrantSubject::UserId(id) => write!(f, "user_id {id}")?,
            GrantSubject::User(login) => write!(f, "user {login}")?,
            GrantSubject::Organization(login) => write!(f, "organization {login}")?,
            GrantSubject::Repository { name, permission } => {
                write!(f, "repository {name} with {}", permission.as_str())?;
            }
        }
        write!(f, ": {} of {}", self.role.as_str(), self.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_another_one_behind_other_rules() {
        let of =
            |to| LoginGrant { to, role: Role::Viewer, account: AccountName::default_account() };
        let (acme, mona) =
            (of(GrantSubject::Organization("acme".into())), of(GrantSubject::User("mona".into())));
        let keys = |grants: &[&LoginGrant]| {
            let grants = LoginGrants::new(grants.iter().copied().cloned().collect());
            grants.iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
        };
        let alone = keys(&[&acme]);
        assert!(alone[0].starts_with("organization acme: viewer of default ["), "{alone:?}");
        assert_eq!(keys(&[&acme, &mona])[0], alone[0], "a later rule changes nothing");
        assert_ne!(keys(&[&mona, &acme])[1], alone[0]);
        let grants = LoginGrants::new(vec![acme.clone()]);
        assert_eq!((grants.get(&alone[0]), grants.get("organization acme")), (Some(&acme), None));
    }
}
