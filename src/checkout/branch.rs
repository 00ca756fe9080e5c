//! Which branch a sandbox gets: the first name that is free, or whose commits are its issue's already and
//! whose pull request is not closed.

use crate::github::api::{GitHubApi, PullState, RepositoryTarget};
use crate::store::checkout::CheckoutRow;
use crate::types::{BranchPattern, IssueNumber};

/// A branch for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenBranch {
    /// Its name.
    pub name: String,
    /// Its commit, if the work of an earlier sandbox of the issue goes on.
    pub tip: Option<String>,
}

/// Chooses the branch. `earlier` are the checkouts of the issue's sandboxes.
///
/// # Errors
/// Why there is none, for people.
pub async fn choose(
    api: &dyn GitHubApi,
    target: &RepositoryTarget,
    pattern: &BranchPattern,
    number: IssueNumber,
    earlier: &[CheckoutRow],
) -> Result<ChosenBranch, String> {
    let tip_of =
        async |name: &str| api.branch_tip(target, name).await.map_err(|error| error.to_string());
    let mut first = None;
    for name in pattern.names(number) {
        if first.is_none() {
            // A branch `a` leaves no room for a branch `a/b`.
            for (at, _) in name.match_indices('/') {
                if tip_of(&name[..at]).await?.is_some() {
                    let above = &name[..at];
                    return Err(format!(
                        "the branch {above} is in the way of {name}: rename it, or set \
                         `github.branch`"
                    ));
                }
            }
        }
        let Some(tip) = tip_of(&name).await? else {
            return Ok(ChosenBranch { name, tip: None });
        };
        let is_ours = |row: &CheckoutRow| {
            let known = [&row.tip, &row.pushing];
            row.branch.as_ref() == Some(&name) && known.contains(&&Some(tip.clone()))
        };
        if earlier.iter().any(is_ours) && !is_over(api, target, &name).await? {
            return Ok(ChosenBranch { name, tip: Some(tip) });
        }
        first.get_or_insert(name);
    }
    let first = first.unwrap_or_default();
    Err(format!("{first} and the names that follow it have commits of others; delete one of them"))
}

/// Whether the pull request of a branch was closed or merged: its work is over.
async fn is_over(
    api: &dyn GitHubApi,
    target: &RepositoryTarget,
    name: &str,
) -> Result<bool, String> {
    let pulls = api.pulls_of(target, name).await.map_err(|error| error.to_string())?;
    Ok(!pulls.is_empty() && pulls.iter().all(|pull| pull.state != PullState::Open))
}
