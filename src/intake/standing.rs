//! What of an issue asks for a sandbox as GitHub shows it, and the delivery that would have said so.

use super::recovery::{RecoveryError, RecoveryParts};
use super::synthetic::{SyntheticDelivery, SyntheticSender};
use crate::github::api::{
    GitHubAccount, GitHubError, RepositoryTarget, VerifiedAct, VerifiedIssue,
};
use crate::github::permissions::Standing;
use crate::github::policy::TriggerPolicy;
use crate::issue::Issue;
use crate::issue::instruction::GithubUser;
use crate::types::{AccountName, Alias, IssueId, IssueNumber, PermissionLevel, Timestamp};

/// What is stored of an issue.
pub(super) async fn stored(parts: &RecoveryParts, id: u64) -> Result<Option<Issue>, RecoveryError> {
    let (account, alias) = (AccountName::default_account(), Alias::Issue(IssueId::from_github(id)));
    match parts.store.resolve(&account, &alias).await? {
        Some(home) => Ok(parts.store.load(home).await?),
        None => Ok(None),
    }
}

/// How an issue is at GitHub; `None` if it was deleted or transferred in between.
pub(super) async fn verified(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    id: u64,
    number: IssueNumber,
) -> Result<Option<VerifiedIssue>, RecoveryError> {
    match parts.api.verify(target, number, "").await {
        Ok(verified) => Ok(Some(verified).filter(|verified| verified.id == id)),
        Err(GitHubError::NotFound(_) | GitHubError::Gone(_) | GitHubError::Moved { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
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
    /// What of an issue asks for a sandbox, if anything does.
    pub fn of(policy: &TriggerPolicy, verified: &'a VerifiedIssue) -> Option<Self> {
        if !verified.is_open {
            return None;
        }
        let is_trigger = |label: &String| policy.is_trigger_label(label);
        let last = |action: &str, is_it: &dyn Fn(&VerifiedAct) -> bool| {
            verified.acts.iter().rev().find(|act| act.action == action && is_it(act))
        };
        if verified.labels.iter().any(is_trigger) {
            let act = last("labeled", &|act| act.label.as_ref().is_some_and(is_trigger));
            return Some(Self::Label(act));
        }
        let bot = policy.assignee;
        if bot != 0 && verified.assignees.contains(&bot) {
            let act = last("assigned", &|act| act.assignee == Some(bot));
            return act.map(Self::Assignee);
        }
        // The label or the assignee was taken away, unless it was closed last and is open now.
        let last_change = verified.acts.last().filter(|act| act.action == "reopened");
        last_change.map(Self::Reopened)
    }

    /// What made it so.
    pub const fn act(self) -> Option<&'a VerifiedAct> {
        match self {
            Self::Label(act) => act,
            Self::Assignee(act) | Self::Reopened(act) => Some(act),
        }
    }
}

/// Takes in the delivery that would have said so at this time, unless what is known took it back since.
/// It is not known by whom if there is no act.
pub(super) async fn take(
    parts: &RecoveryParts,
    target: &RepositoryTarget,
    verified: &VerifiedIssue,
    request: StandingRequest<'_>,
    known: Option<&Issue>,
    at: Timestamp,
) -> Result<(), RecoveryError> {
    let Some(at) = counts_as_of(known, at, verified.at) else { return Ok(()) };
    let policy = parts.intake.triggers().of(&target.name);
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
        association: association(policy, verified, sender.as_ref()),
        sender: sender.map(|found| SyntheticSender { account: found.account, kind: found.kind }),
        at,
    };
    parts.take_synthetic(&delivery).await
}

/// The latest act against a sandbox that is newer than the latest request for one.
pub(super) fn taken_back(issue: &Issue) -> Option<Timestamp> {
    let acts = &issue.facts.acts;
    let against = [acts.taken_away, acts.closed, acts.stopped, acts.deleted];
    against.into_iter().flatten().max().filter(|at| acts.asked.is_none_or(|asked| *at > asked))
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
    let user = GithubUser { id: act.actor_id, login: act.actor.clone() };
    let standing = parts.permissions.ask(target, &user, PermissionLevel::Write).await?;
    let kind = match standing {
        Standing::Reached | Standing::Below(_) => "User",
        Standing::NoSuchUser | Standing::OtherAccount => "Bot",
    };
    Ok(Actor { account, kind, may_write: standing == Standing::Reached })
}

/// What the author is to the repository. GitHub's GraphQL does not say it as deliveries do; an author
/// who put the label on and may write counts as one of those who may trigger.
fn association<'a>(
    policy: &'a TriggerPolicy,
    verified: &VerifiedIssue,
    sender: Option<&Actor>,
) -> Option<&'a str> {
    let is_own = sender.is_some_and(|it| it.may_write && it.account.id == verified.author.id);
    let known = policy.associations.first();
    known.filter(|_| is_own).map(String::as_str)
}
