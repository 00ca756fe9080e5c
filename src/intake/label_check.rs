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

/// Takes in that the label was put on, if that is not known. One that was put on and taken off within
/// one second counts as of GitHub's answer: it says which was last.
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
    if !verified.is_open || !is_there || is_on_its_way {
        return Ok(());
    }
    match counts_as_of(known.as_ref(), at, verified.at) {
        Some(at) => take(parts, target, &verified, StandingRequest::Label(act), at).await,
        None => Ok(()),
    }
}

/// What of an issue asks for a sandbox as GitHub shows it.
#[derive(Clone, Copy)]
pub(super) enum StandingRequest<'a> {
    /// It carries the label; by this act, unless that was before the last 50 changes.
    Label(Option<&'a VerifiedAct>),
    /// The bot is assigned by this act.
    Assignee(&'a VerifiedAct),
    /// It is open again by this act.
    Reopened(&'a VerifiedAct),
}

impl<'a> StandingRequest<'a> {
    /// What made it so.
    pub const fn act(self) -> Option<&'a VerifiedAct> {
        match self {
            Self::Label(act) => act,
            Self::Assignee(act) | Self::Reopened(act) => Some(act),
        }
    }
}

/// Takes in the delivery that would have said so. It is not known by whom if there is no act.
pub(super) async fn take(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    verified: &VerifiedIssue,
    request: StandingRequest<'_>,
    at: Timestamp,
) -> Result<(), RecoveryError> {
    let policy = parts.intake.triggers();
    let act = request.act();
    let (action, label) = match request {
        StandingRequest::Label(_) => ("labeled", Some(policy.label.as_str())),
        StandingRequest::Assignee(_) => ("assigned", None),
        StandingRequest::Reopened(_) => ("reopened", None),
    };
    let sender = match act {
        Some(act) => Some(actor(parts, target, act).await?),
        None => None,
    };
    let number = verified.number;
    let target = RepositoryTarget { id: Some(verified.repository_id), ..target.clone() };
    tracing::info!(repository = %target.name, issue = number.0, action, "GitHub shows that an issue asks for a sandbox, and no delivery said so");
    let url = format!("{}/{}/issues/{number}", parts.web_url, target.name);
    let delivery = SyntheticDelivery {
        action,
        target: &target,
        issue_id: verified.id,
        number,
        title: &verified.title,
        body: &verified.body,
        url: Some(&url),
        is_open: true,
        labels: &verified.labels,
        label,
        assignee: act.and_then(|act| act.assignee),
        author: Some(&verified.author),
        association: association(parts, verified, sender.as_ref()),
        sender: sender.map(|found| SyntheticSender { account: found.account, kind: found.kind }),
        at,
    };
    parts.take_synthetic(&AccountName::default_account(), &delivery).await
}

/// What is stored of an issue.
pub(super) async fn stored(parts: &RecoveryParts, id: u64) -> Result<Option<Issue>, RecoveryError> {
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

/// As of when a request of this time counts that is not known; `None` if it was taken back since. Where
/// GitHub's times do not say which of two came last, its answer does, `answered_at` by its clock.
pub(super) fn counts_as_of(
    known: Option<&Issue>,
    at: Timestamp,
    answered_at: Timestamp,
) -> Option<Timestamp> {
    match known.and_then(taken_back) {
        Some(taken_back) if at <= taken_back => {
            let is_tied = known.is_some_and(|issue| issue.facts.acts.is_tied());
            Some(answered_at).filter(|answered_at| is_tied && *answered_at > taken_back)
        }
        Some(_) | None => Some(at),
    }
}

/// Who did something.
struct Actor {
    account: GitHubAccount,
    kind: &'static str,
    may_write: bool,
}

/// Asks GitHub who did it. What is no user with that id is a bot: it passes by its configured id alone.
async fn actor(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    act: &VerifiedAct,
) -> Result<Actor, RecoveryError> {
    let account = GitHubAccount { id: act.actor_id, login: act.actor.clone() };
    let permission = match parts.api.permission(target, &act.actor).await {
        Ok(permission) if permission.user_id == act.actor_id => Some(permission),
        Ok(_) | Err(GitHubError::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let kind = if permission.is_some() { "User" } else { "Bot" };
    let may_write =
        permission.is_some_and(|it| matches!(it.permission.as_str(), "write" | "admin"));
    Ok(Actor { account, kind, may_write })
}

/// What the author is to the repository. GitHub's GraphQL does not say it as deliveries do; an author
/// who put the label on and may write counts as one of those who may trigger.
fn association<'a>(
    parts: &'a RecoveryParts,
    verified: &VerifiedIssue,
    sender: Option<&Actor>,
) -> Option<&'a str> {
    let is_own = sender.is_some_and(|it| it.may_write && it.account.id == verified.author.id);
    let known = parts.intake.triggers().associations.first();
    known.filter(|_| is_own).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::acts::ActKind;
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
        let heard_of = issue(|_| {});
        for known in [None, Some(&heard_of)] {
            assert!(may_lack(known));
            assert_eq!(counts_as_of(known, at(1), at(9)), Some(at(1)));
        }
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
        assert_eq!(counts_as_of(Some(&deleted), at(5), at(20)), None);
        assert_eq!(counts_as_of(Some(&deleted), at(10), at(20)), Some(at(10)));
    }

    #[test]
    fn of_two_acts_within_one_second_githubs_answer_says_which_was_last() {
        let tied = issue(|acts| {
            acts.on_github(ActKind::Asked, at(5));
            acts.on_github(ActKind::TakenAway, at(5));
        });
        assert!(may_lack(Some(&tied)));
        assert_eq!(counts_as_of(Some(&tied), at(5), at(7)), Some(at(7)));
        assert_eq!(counts_as_of(Some(&tied), at(5), at(5)), None, "the same second says nothing");
        let mut stopped = tied;
        stopped.facts.acts.on_github(ActKind::Stopped, at(6));
        assert_eq!(counts_as_of(Some(&stopped), at(5), at(7)), None, "by a person, since");
    }
}
