//! What GitHub lets us do, as checks: who we are, and what the App's installations lack. `doctor` and the
//! page show them.

use std::time::Duration;

use super::api::{GitHubApi, GitHubError, GitHubIdentity, IdentityKind, Installation, PageCursor};
use super::registration::{CHECK_EVENT, EVENTS};
use crate::types::{Check, Timestamp};

/// What is checked, as its line begins.
pub const WHAT: &str = "GitHub";
/// A remedy for credentials that GitHub refuses.
pub const KEY_REMEDY: &str = "check github.app_id and github.app_key_file, or github.token_file; for an App \
                              that was registered on the page Connect, upload a new key there";
/// A token that ends within this time is noted.
const EXPIRY_NOTED: Duration = Duration::from_secs(14 * 86_400);
/// The permissions that an installation must grant, and the least level of each.
const NEEDED_PERMISSIONS: [(&str, &str); 4] =
    [("issues", "write"), ("contents", "write"), ("pull_requests", "write"), ("metadata", "read")];
/// What it must grant as well if the agent is given failed checks.
const CHECKS_PERMISSION: (&str, &str) = ("checks", "read");
/// Most pages of installations that are looked at: 100 on each.
const PAGES_MAX: usize = 10;

/// Asks GitHub who we are and what we may do. `reads_checks` says whether the agent is given failed checks.
pub async fn look(api: &dyn GitHubApi, now: Timestamp, reads_checks: bool) -> Vec<Check> {
    let identity = match api.identity().await {
        Ok(identity) => identity,
        Err(error) => return vec![unknown_identity(&error)],
    };
    let mut checks = vec![own_account(&identity, now)];
    if let IdentityKind::App(_) = identity.kind {
        checks.extend(installations(api, reads_checks).await);
    }
    checks
}

fn unknown_identity(error: &GitHubError) -> Check {
    let remedy = match error {
        GitHubError::Unauthorized(_) | GitHubError::NotFound(_) => KEY_REMEDY,
        _ => "check github.api_url and the network",
    };
    Check::broken(WHAT, format!("it did not say who we are: {error}"), remedy)
}

/// Who we are, and whether a token ends soon.
fn own_account(identity: &GitHubIdentity, now: Timestamp) -> Check {
    let GitHubIdentity { login, user_id, .. } = identity;
    let found = format!("we are {login} (user {user_id})");
    match identity.token_expires_at {
        Some(at) if at <= now.after(EXPIRY_NOTED) => {
            let days = at.since(now).as_secs() / 86_400;
            let found = format!("{found}; the token expires in {days} days, at {at}");
            Check::noted(WHAT, found, "make a new token, write it to github.token_file and reload")
        }
        Some(_) | None => Check::right(WHAT, found),
    }
}

/// What each installation of the App does not let us do; one line if nothing.
async fn installations(api: &dyn GitHubApi, reads_checks: bool) -> Vec<Check> {
    let (mut page, mut checks, mut count) = (PageCursor::FIRST, Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        match api.installations(&page).await {
            Ok((installations, next)) => {
                count += installations.len();
                let lacking = |it| lacking(it, reads_checks);
                checks.extend(installations.iter().filter_map(lacking));
                match next {
                    Some(next) => page = next,
                    None => break,
                }
            }
            Err(error) => {
                let found = format!("the App's installations cannot be read: {error}");
                checks.push(Check::broken(WHAT, found, KEY_REMEDY));
                break;
            }
        }
    }
    if checks.is_empty() && count == 0 {
        let remedy = "install it on the repositories that it is for, in the App's settings";
        checks.push(Check::noted(WHAT, "the App is not installed anywhere", remedy));
    } else if checks.is_empty() {
        checks.push(Check::right(WHAT, format!("{count} installations grant what is needed")));
    }
    checks
}

/// What an installation does not let us do.
fn lacking(installation: &Installation, reads_checks: bool) -> Option<Check> {
    let account = &installation.account.login;
    if installation.is_suspended {
        let found = format!("the installation on {account} is suspended");
        let remedy = format!("unsuspend it: {}", installation.html_url);
        return Some(Check::noted(WHAT, found, remedy));
    }
    let is_lacking = |(name, level): &(&str, &str)| {
        let granted = installation.permissions.get(*name).map(String::as_str);
        !matches!((granted, *level), (Some("admin" | "write"), _) | (Some("read"), "read"))
    };
    let optional = reads_checks.then_some(CHECKS_PERMISSION);
    let lacks: Vec<String> = NEEDED_PERMISSIONS
        .into_iter()
        .chain(optional)
        .filter(is_lacking)
        .map(|(name, level)| format!("{name}: {level}"))
        .collect();
    if !lacks.is_empty() {
        let found = format!("the installation on {account} lacks {}", lacks.join(", "));
        let remedy = format!(
            "add these permissions to the App, then accept them at {}/permissions/update",
            installation.html_url
        );
        return Some(Check::noted(WHAT, found, remedy));
    }
    let needed = EVENTS.into_iter().chain(reads_checks.then_some(CHECK_EVENT));
    let silent: Vec<&str> =
        needed.filter(|event| !installation.events.iter().any(|sent| sent == event)).collect();
    (!silent.is_empty()).then(|| {
        let found = format!("the installation on {account} does not send {}", silent.join(", "));
        Check::noted(WHAT, found, "subscribe the App to these events, in its settings")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::github::api::GitHubAccount;
    use crate::types::CheckState;

    #[test]
    fn what_an_installation_lacks_is_named_with_the_page_where_it_is_granted() {
        let mut installation = Installation {
            id: 7,
            account: GitHubAccount { id: 1, login: "octo".to_owned() },
            permissions: [("issues", "write"), ("contents", "read"), ("metadata", "read")]
                .map(|(name, level)| (name.to_owned(), level.to_owned()))
                .into(),
            events: EVENTS.map(str::to_owned).to_vec(),
            is_suspended: false,
            html_url: "https://github.com/settings/installations/7".to_owned(),
        };
        let check = lacking(&installation, false).expect("something lacks");
        assert!(check.found.ends_with("octo lacks contents: write, pull_requests: write"));
        let remedy = check.remedy.expect("there is one");
        assert!(remedy.contains("https://github.com/settings/installations/7/permissions/update"));
        for name in ["contents", "pull_requests"] {
            installation.permissions.insert(name.to_owned(), "write".to_owned());
        }
        assert_eq!(lacking(&installation, false), None);
        let check = lacking(&installation, true).expect("something lacks");
        assert!(check.found.ends_with("octo lacks checks: read"), "{}", check.found);
        installation.permissions.insert("checks".to_owned(), "read".to_owned());
        let check = lacking(&installation, true).expect("an event lacks");
        assert!(check.found.ends_with("octo does not send check_run"), "{}", check.found);
        installation.events.retain(|event| event != "pull_request_review");
        let check = lacking(&installation, false).expect("an event lacks");
        assert!(check.found.ends_with("octo does not send pull_request_review"));
        installation.is_suspended = true;
        assert!(lacking(&installation, false).expect("a check").found.contains("suspended"));
    }

    #[test]
    fn a_token_that_ends_within_two_weeks_is_noted() {
        let now = Timestamp::parse("2026-12-01T00:00:00Z").expect("a time");
        let identity = |days: u64| GitHubIdentity {
            kind: IdentityKind::Token,
            user_id: 7,
            login: "box".to_owned(),
            slug: "box".to_owned(),
            token_expires_at: Some(now.after(Duration::from_secs(days * 86_400))),
        };
        assert_eq!(own_account(&identity(15), now).state, CheckState::Right);
        let soon = own_account(&identity(13), now);
        assert_eq!(soon.state, CheckState::Noted);
        assert!(soon.found.contains("expires in 13 days"), "{}", soon.found);
    }
}
