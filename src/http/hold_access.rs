//! Which holds a caller may see and change: those of its account, and an admin all.

use super::Shared;
use super::caller::Caller;
use super::error::{ApiError, Code};
use crate::types::{AccountName, HoldScope, IssueOrigin};

/// Whether a caller sees a hold of this scope. What holds the whole server, everybody sees; what holds
/// an issue, only who acts in its account, since its id alone names it there.
pub fn may_see(shared: &Shared, caller: &Caller, scope: &HoldScope) -> bool {
    match scope {
        HoldScope::Server => true,
        HoldScope::Issue(account, _) => *account == caller.account,
        HoldScope::Account(_) | HoldScope::Repository(_) => may_change(shared, caller, scope),
    }
}

/// Checks that a caller may hold and release this scope.
///
/// # Errors
/// 403 if it belongs to another account, whether there is anything of it or not.
pub fn check(shared: &Shared, caller: &Caller, scope: &HoldScope) -> Result<(), ApiError> {
    if may_change(shared, caller, scope) {
        return Ok(());
    }
    let message = format!("{scope} is not of the account {}", caller.account);
    Err(ApiError::new(Code::Forbidden, message).hint("an admin can hold everything"))
}

fn may_change(shared: &Shared, caller: &Caller, scope: &HoldScope) -> bool {
    caller.is_admin() || owner(shared, scope).is_some_and(|owner| owner == caller.account)
}

/// The account that a scope is of; `None` for the server, and for a repository that may be of several.
fn owner(shared: &Shared, scope: &HoldScope) -> Option<AccountName> {
    match scope {
        HoldScope::Server => None,
        HoldScope::Account(account) | HoldScope::Issue(account, _) => Some(account.clone()),
        HoldScope::Repository(repository) => {
            let accounts = shared.edge.access.accounts();
            let origin = IssueOrigin { repository: Some(repository.clone()), installation: None };
            let by_name = accounts.named_by(&origin).cloned();
            // Which repositories an installation has is not known here.
            let may_be_of_others =
                accounts.iter().any(|(_, rules)| !rules.installations.is_empty());
            let default = (!may_be_of_others).then(AccountName::default_account);
            by_name.or(default)
        }
    }
}
