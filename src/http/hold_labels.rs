//! What a hold covers, as people call it: `the issue octo/hello#7`, not `the issue 2874100012`.

use super::Shared;
use crate::types::{AccountName, Alias, HoldScope, IssueId, Sandbox};

/// What a hold covers. An issue whose repository and number are unknown, or cannot be read now, keeps
/// its id.
pub async fn label(shared: &Shared, scope: &HoldScope) -> String {
    let HoldScope::Issue(account, issue) = scope else { return scope.to_string() };
    let place = place_of(shared, account, issue).await;
    place.map_or_else(|| scope.to_string(), |place| format!("the issue {place}"))
}

/// What a hold covers, on the page of a sandbox that it covers.
pub fn label_at(sandbox: &Sandbox, scope: &HoldScope) -> String {
    match (scope, &sandbox.repository, sandbox.issue_number) {
        (HoldScope::Issue(..), Some(repository), Some(number)) => {
            format!("the issue {repository}#{number}")
        }
        (_, _, _) => scope.to_string(),
    }
}

async fn place_of(shared: &Shared, account: &AccountName, issue: &IssueId) -> Option<String> {
    let store = &shared.edge.store;
    let home = store.resolve(account, &Alias::Issue(issue.clone())).await.ok()??;
    let facts = store.load(home).await.ok()??.facts;
    Some(format!("{}#{}", facts.repository?, facts.number?))
}
