//! The label check: open issues with the trigger label that have no sandbox, whatever became of
//! their deliveries.
//!
//! Lists are asked for with their ETag, and never by the time of the last change: GitHub does not
//! promise that a label changes that. An issue that is found is verified, and gets the delivery that
//! would have said that the label was put on: with the account that did that, and when.
//!
//! # Races it accepts
//! A label that is put on while the server runs is left to its delivery for ten minutes. If that
//! comes even later, the issue was triggered twice as of the same time, which is once; both
//! deliveries are listed.

use std::collections::HashMap;
use std::time::Duration;

use super::known::KnownRepository;
use super::recovery::{RecoveryError, RecoveryParts};
use super::synthetic::{SyntheticDelivery, SyntheticSender};
use crate::github::api::{
    Conditional, GitHubAccount, GitHubError, GitHubIssue, PageCursor, RepositoryTarget,
    VerifiedAct, VerifiedIssue,
};
use crate::issue::Issue;
use crate::types::{AccountName, Alias, IssueId, Timestamp};

/// How long a label that is put on while the server runs is left to its delivery.
const DELIVERY_WAIT: Duration = Duration::from_secs(600);

/// Checks repositories.
#[derive(Default)]
pub(super) struct LabelCheck {
    /// The lists that have one page, by the repository.
    lists: HashMap<String, CheckedList>,
    /// When the first check began, by GitHub's clock.
    began: Option<Timestamp>,
    /// The last error of each repository that could not be checked.
    errors: HashMap<String, String>,
}

/// A list as it was.
struct CheckedList {
    etag: String,
    /// The ids of its issues.
    issues: Vec<u64>,
}

impl LabelCheck {
    /// Checks one repository.
    pub async fn check(
        &mut self,
        parts: &RecoveryParts,
        known: &KnownRepository,
    ) -> Result<(), RecoveryError> {
        let label = &parts.intake.triggers().label;
        let began = *self.began.get_or_insert_with(|| parts.api.github_now());
        let key = known.target.name.folded();
        let known_etag = self.etag(parts, &key).await?;
        let mut cursor = PageCursor::FIRST;
        let (mut etags, mut ids) = (Vec::new(), Vec::new());
        loop {
            let etag = known_etag.as_deref().filter(|_| cursor == PageCursor::FIRST);
            let listed = parts.api.labelled_issues(&known.target, label, &cursor, etag).await?;
            let Conditional::Changed { value: (issues, next), etag } = listed else {
                return Ok(());
            };
            for issue in issues.into_iter().filter(|issue| issue.is_open && !issue.is_pull) {
                check_issue(parts, &known.target, &issue, began).await?;
                ids.push(issue.id);
            }
            etags.push(etag);
            let Some(next) = next else { break };
            cursor = next;
        }
        self.errors.remove(&key);
        self.lists.remove(&key);
        // Of several pages, the first one's ETag does not speak for the others.
        if let Ok([Some(etag)]) = <[Option<String>; 1]>::try_from(etags) {
            self.lists.insert(key, CheckedList { etag, issues: ids });
        }
        Ok(())
    }

    /// Whether a repository could not be checked for another reason than the last time.
    pub fn is_new_error(&mut self, known: &KnownRepository, error: &RecoveryError) -> bool {
        let error = error.to_string();
        let before = self.errors.insert(known.target.name.folded(), error.clone());
        before != Some(error)
    }

    /// The ETag of a repository's list. `None` if an issue of it may lack something: a label that was
    /// taken off and put on again may leave the list as it was.
    async fn etag(
        &self,
        parts: &RecoveryParts,
        key: &str,
    ) -> Result<Option<String>, RecoveryError> {
        let Some(list) = self.lists.get(key) else { return Ok(None) };
        for id in &list.issues {
            if may_lack(stored(parts, *id).await?.as_ref()) {
                return Ok(None);
            }
        }
        Ok(Some(list.etag.clone()))
    }
}

/// Takes in that the label was put on, if that is not known.
async fn check_issue(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    issue: &GitHubIssue,
    began: Timestamp,
) -> Result<(), RecoveryError> {
    let known = stored(parts, issue.id).await?;
    if !may_lack(known.as_ref()) {
        return Ok(());
    }
    let verified = match parts.api.verify(target, issue.number, "").await {
        Ok(verified) => verified,
        // It was deleted or transferred in between.
        Err(GitHubError::NotFound(_) | GitHubError::Gone(_) | GitHubError::Moved { .. }) => {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let policy = parts.intake.triggers();
    let is_trigger = |label: &str| policy.is_trigger_label(label);
    let is_there = verified.labels.iter().any(|label| is_trigger(label));
    let act = verified
        .acts
        .iter()
        .rev()
        .find(|act| act.action == "labeled" && act.label.as_deref().is_some_and(is_trigger));
    let at = act.map_or(issue.updated_at, |act| act.at);
    let is_on_its_way = at > began && verified.at.since(at) < DELIVERY_WAIT;
    if !verified.is_open || !is_there || is_on_its_way || !lacks(known.as_ref(), at) {
        return Ok(());
    }
    take(parts, target, &verified, act, at).await
}

/// Takes in the delivery that would have said that the label was put on. Without an `act` that was
/// before the last 50 changes, and it is not known by whom.
async fn take(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    verified: &VerifiedIssue,
    act: Option<&VerifiedAct>,
    at: Timestamp,
) -> Result<(), RecoveryError> {
    let sender = match act {
        Some(act) => Some(labeller(parts, target, act).await?),
        None => None,
    };
    let (label, number) = (&parts.intake.triggers().label, verified.number);
    let target = RepositoryTarget { id: Some(verified.repository_id), ..target.clone() };
    tracing::info!(repository = %target.name, issue = number.0, "an issue has the trigger label, and no delivery said so");
    let url = format!("{}/{}/issues/{number}", parts.web_url, target.name);
    let delivery = SyntheticDelivery {
        action: "labeled",
        target: &target,
        issue_id: verified.id,
        number,
        title: &verified.title,
        body: &verified.body,
        url: Some(&url),
        is_open: true,
        labels: &verified.labels,
        label: Some(label),
        author: Some(&verified.author),
        association: association(parts, verified, sender.as_ref()),
        sender: sender.map(|found| SyntheticSender { account: found.account, kind: found.kind }),
        at,
    };
    parts.take_synthetic(&AccountName::default_account(), &delivery).await
}

/// What is stored of an issue.
async fn stored(parts: &RecoveryParts, id: u64) -> Result<Option<Issue>, RecoveryError> {
    let (account, alias) = (AccountName::default_account(), Alias::Issue(IssueId::from_github(id)));
    match parts.store.resolve(&account, &alias).await? {
        Some(home) => Ok(parts.store.load(home).await?),
        None => Ok(None),
    }
}

/// The latest act against a sandbox that is newer than the latest request for one.
fn taken_back(issue: &Issue) -> Option<Timestamp> {
    let acts = &issue.facts.acts;
    let against = [acts.taken_away, acts.closed, acts.stopped, acts.deleted];
    against.into_iter().flatten().max().filter(|at| acts.asked.is_none_or(|asked| *at > asked))
}

/// Whether an issue that carries the label may lack a request for a sandbox.
fn may_lack(known: Option<&Issue>) -> bool {
    known.is_none_or(|issue| {
        !issue.is_asked_for() && (issue.facts.acts.asked.is_none() || taken_back(issue).is_some())
    })
}

/// Whether the label that was put on then is not known as a request.
fn lacks(known: Option<&Issue>, at: Timestamp) -> bool {
    known.and_then(taken_back).is_none_or(|taken_back| at > taken_back)
}

/// Who put the label on.
struct Labeller {
    account: GitHubAccount,
    kind: &'static str,
    may_write: bool,
}

/// Asks GitHub who did it. What is no user with that id is a bot: it passes by its configured id alone.
async fn labeller(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    act: &VerifiedAct,
) -> Result<Labeller, RecoveryError> {
    let account = GitHubAccount { id: act.actor_id, login: act.actor.clone() };
    let permission = match parts.api.permission(target, &act.actor).await {
        Ok(permission) if permission.user_id == act.actor_id => Some(permission),
        Ok(_) | Err(GitHubError::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let kind = if permission.is_some() { "User" } else { "Bot" };
    let may_write =
        permission.is_some_and(|it| matches!(it.permission.as_str(), "write" | "admin"));
    Ok(Labeller { account, kind, may_write })
}

/// What the author is to the repository. GitHub's GraphQL does not say it as deliveries do; an author
/// who put the label on and may write counts as one of those who may trigger.
fn association<'a>(
    parts: &'a RecoveryParts,
    verified: &VerifiedIssue,
    sender: Option<&Labeller>,
) -> Option<&'a str> {
    let is_own = sender.is_some_and(|it| it.may_write && it.account.id == verified.author.id);
    let known = parts.intake.triggers().associations.first();
    known.filter(|_| is_own).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::HomeId;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_ms(second * 1_000)
    }

    fn issue(change: impl FnOnce(&mut crate::issue::acts::Acts)) -> Issue {
        let id = IssueId::from_github(5);
        let mut issue = Issue::new(HomeId(1), AccountName::default_account(), id);
        change(&mut issue.facts.acts);
        issue
    }

    #[test]
    fn a_label_that_nothing_is_known_of_is_a_request() {
        assert!(may_lack(None) && lacks(None, at(1)));
        let heard_of = issue(|_| {});
        assert!(may_lack(Some(&heard_of)) && lacks(Some(&heard_of), at(1)));
    }

    #[test]
    fn a_sandbox_that_was_asked_for_and_stopped_for_being_idle_stays_stopped() {
        let idle = issue(|acts| acts.asked = Some(at(5)));
        assert!(!may_lack(Some(&idle)));
        let stopped_before = issue(|acts| (acts.stopped, acts.asked) = (Some(at(4)), Some(at(5))));
        assert!(!may_lack(Some(&stopped_before)));
    }

    #[test]
    fn what_a_person_ended_is_asked_for_by_a_later_label_alone() {
        let deleted = issue(|acts| (acts.asked, acts.deleted) = (Some(at(5)), Some(at(9))));
        assert!(may_lack(Some(&deleted)));
        assert!(!lacks(Some(&deleted), at(5)) && lacks(Some(&deleted), at(10)));
    }
}
