//! `[accounts.NAME]`: what belongs to each account beside `default`.

use std::collections::BTreeMap;

use super::reader::ConfigReader;
use crate::types::{AccountName, AccountRules, RepositoryPattern};

/// Reads `[accounts]`.
pub(super) fn accounts(r: &mut ConfigReader) -> BTreeMap<AccountName, AccountRules> {
    let mut accounts = BTreeMap::new();
    for name in r.table_names("accounts") {
        let key = |part: &str| format!("accounts.{name}.{part}");
        let installations = r.numbers(&key("installations"));
        let owners = r.texts(&key("owners"), &[]);
        if owners.iter().any(|owner| !is_owner(owner)) {
            r.wrong(&key("owners"), "must be logins of owners of repositories, without a slash");
        }
        let repositories = repositories(r, &key("repositories"), &[]);
        let disabled = r.flag(&key("disabled"), false);
        match AccountName::parse(&name) {
            Ok(name) => {
                let rules = AccountRules { installations, owners, repositories, disabled };
                accounts.insert(name, rules);
            }
            Err(wrong) => r.trouble(format!("accounts.{name}: {wrong}")),
        }
    }
    accounts
}

/// Reads patterns of repositories.
pub(super) fn repositories(
    r: &mut ConfigReader,
    key: &str,
    default: &[&str],
) -> Vec<RepositoryPattern> {
    let mut patterns = Vec::new();
    for text in r.texts(key, default) {
        match RepositoryPattern::parse(&text) {
            Ok(parsed) => patterns.push(parsed),
            Err(needed) => r.wrong(key, &format!("{needed}, not {text:?}")),
        }
    }
    patterns
}

/// Whether a text may be the login of an owner.
pub(super) fn is_owner(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
