//! The rules of accounts, as the body of their row.

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::types::{AccountRules, RepositoryPattern};

#[derive(Serialize, Deserialize)]
struct RulesBody {
    installations: Vec<u64>,
    owners: Vec<String>,
    repositories: Vec<String>,
    disabled: bool,
}

/// The body of the row that keeps these rules.
///
/// # Errors
/// As for [`IssueRow::encode`](super::IssueRow::encode).
pub(in super::super) fn account_rules_body(rules: &AccountRules) -> Result<String, BadRow> {
    let AccountRules { installations, owners, repositories, disabled } = rules;
    Ok(serde_json::to_string(&RulesBody {
        installations: installations.clone(),
        owners: owners.clone(),
        repositories: repositories.iter().map(ToString::to_string).collect(),
        disabled: *disabled,
    })?)
}

/// Reads the rules back.
///
/// # Errors
/// [`BadRow`] if they are not what [`account_rules_body`] wrote.
pub(in super::super) fn account_rules(body: &str) -> Result<AccountRules, BadRow> {
    let RulesBody { installations, owners, repositories, disabled } = serde_json::from_str(body)?;
    let pattern = |text: &String| {
        RepositoryPattern::parse(text).map_err(|_| BadRow::UnknownWord(text.clone()))
    };
    let repositories = repositories.iter().map(pattern).collect::<Result<_, _>>()?;
    Ok(AccountRules { installations, owners, repositories, disabled })
}
