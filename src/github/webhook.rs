//! From a delivery's headers and raw bytes to what it says of an issue, or of all issues of a
//! repository or installation, and what it may do.
//!
//! The order in which the edge must use this: [`verify`] the signature over the raw bytes, take
//! the JSON out with [`json_of`], then [`interpret`]. Nothing is parsed before it is verified.
//!
//! # Guarantees
//! - Pure: no IO, no clock. The same delivery under the same policy always means the same.
//! - Tolerant: only the fields that are used are named; what may be null or absent may be. A new
//!   action or event is acknowledged with a reason, never an error.
//! - No trigger or command without a right to it (`sender`); what any person does to an issue as a
//!   fact (it is closed, deleted, edited, transferred, the label is gone) applies for every sender.
//! - With credentials for GitHub nothing of the payload gives that right: whose permission is to be asked
//!   comes with the delivery ([`ConditionalDelivery`]).
//! - What repositories do not match the configured ones is ignored, with one exception: if one
//!   side of a transfer or of a new name matches, it is followed. So an issue that leaves them keeps
//!   its sandbox and is found by its new name; what happens to it there is ignored from then on.
//!
//! # Races accepted
//! Deliveries come late, twice and out of order. Nothing here knows: the times of the payload go
//! along as [`News::as_of`] and [`IssueDelivery::acted_at`], and the lifecycle decides what is newer. A
//! time that is more than five minutes ahead of our clock counts as of the delivery's receipt.

mod body;
mod effect;
mod instruction;
mod origin;
mod payload;
mod pull;
mod scope_event;
mod sender;
mod signature;

pub use body::{Unreadable, json_of};
pub use origin::origin_of;
pub use pull::{PullDelivery, PulledWork};
pub use signature::{Unsigned, sign, verify};

use crate::github::policy::{TriggerPolicies, TriggerPolicy};
use crate::issue::acts::plausible;
use crate::issue::event::{DeliveryEffect, News};
use crate::issue::instruction::GithubUser;
use crate::issue::{FanOut, IssueDelivery, IssueName};
use crate::types::{AccountName, DeliveryId, PermissionLevel, Repository, Timestamp};

use effect::{Decision, IssueAction, Moved, PermissionCondition};
use payload::{Payload, PayloadHead, RepositoryPart};
use scope_event::Happened;

/// What a delivery means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interpreted {
    /// It says something of one issue.
    Issue(Box<IssueDelivery>),
    /// It does something if its sender has a permission that GitHub is to be asked for.
    IfPermitted(Box<ConditionalDelivery>),
    /// It counts for the issue whose sandbox made a pull request or pushed a commit.
    OnPull(Box<PullDelivery>),
    /// It says something of every issue of a repository or an installation.
    FanOut(Box<FanOut>),
    /// It has no effect.
    Ignored {
        /// Its action, such as `pinned`; empty if it has none.
        action: String,
        /// Why it has no effect, in words.
        reason: String,
    },
}

/// A delivery about one issue whose effect depends on what an account may do in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalDelivery {
    /// Whose permission is asked.
    pub asker: GithubUser,
    /// Which permission it needs.
    pub level: PermissionLevel,
    /// The delivery if the account has the permission.
    pub permitted: IssueDelivery,
    /// The effect if it has not; `None` for nothing.
    pub otherwise: Option<DeliveryEffect>,
}

/// A verified delivery that is not what GitHub sends. The message is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload cannot be read: {0}")]
pub struct Malformed(pub(crate) String);

/// Says what a verified delivery means under the policy of its repository.
///
/// `event` is the value of `X-GitHub-Event`, `body` the JSON as [`json_of`] returned it.
///
/// # Errors
/// [`Malformed`] when the body is no JSON object, or lacks what identifies the issue or the
/// repository of an event that has an effect.
pub fn interpret(
    policies: &TriggerPolicies,
    delivery: DeliveryId,
    received_at: Timestamp,
    event: &str,
    body: &[u8],
) -> Result<Interpreted, Malformed> {
    if !event_name_ok(event) {
        return Err(Malformed(
            "the event's name must be of lower-case letters, digits and '_'".into(),
        ));
    }
    let head = DeliveryHead { delivery, received_at, event };
    match event {
        "repository" | "label" | "installation" | "installation_repositories" => {
            head.scope_event(policies, body)
        }
        _ => head.of_issue(policies, body),
    }
}

/// Whether deliveries of an event and action can have an effect, whatever is in their bodies.
///
/// # Errors
/// Why not, in words: what [`interpret`] says of them.
pub fn can_have_effect(event: &str, action: &str) -> Result<(), String> {
    match Happened::of(event, action) {
        Some(_) => Ok(()),
        None if pull::can_have_effect(event, action) => Ok(()),
        None => IssueAction::of(event, action).map(drop),
    }
}

/// What is known of a delivery besides its body.
struct DeliveryHead<'a> {
    delivery: DeliveryId,
    received_at: Timestamp,
    event: &'a str,
}

impl DeliveryHead<'_> {
    fn of_issue(self, policies: &TriggerPolicies, body: &[u8]) -> Result<Interpreted, Malformed> {
        let payload = match payload::parse::<Payload>(body) {
            Ok(payload) => payload,
            Err(error) => return without_effect(self.event, body).ok_or(error),
        };
        let policy = policy_of(policies, payload.repository.as_ref());
        let action = payload.action.clone().unwrap_or_default();
        if pull::can_have_effect(self.event, &action) {
            return self.of_pull(policy, &payload);
        }
        let act = match IssueAction::of(self.event, &action) {
            Ok(act) => act,
            Err(reason) => return ignored(&action, reason),
        };
        if payload.is_on_pull() && self.event == "issue_comment" && policy.permission.is_some() {
            return self.comment_on_pull(policy, &payload, act);
        }
        let here = payload.here().name()?;
        let (name, formerly) = match act.moved(&payload) {
            Moved::Not => (here, None),
            Moved::Away => match payload.after().name() {
                Ok(there) => (there, Some(here)),
                Err(_) => {
                    return ignored(&action, "the payload does not name the new issue".into());
                }
            },
            // Without what identifies it there the transfer can not be followed, and still is one.
            Moved::Here => (here, payload.before().name().ok()),
        };
        // After a transfer the rules of the new repository count.
        let policy = policies.of(&name.repository);
        let covered = |name: &IssueName| policy.covers(name.repository.as_str());
        if !covered(&name) && !formerly.as_ref().is_some_and(covered) {
            return ignored(&action, not_covered(&name.repository));
        }
        match effect::decide(policy, act, &payload) {
            Decision::Ignore(reason) => ignored(&action, reason),
            Decision::Apply { effect, comment, condition } => {
                let instruction =
                    instruction::instruction(policy, &effect, &payload, self.received_at);
                let news = news(policy, act, &payload, name, self.received_at);
                let delivery = IssueDelivery {
                    delivery: self.delivery,
                    received_at: self.received_at,
                    recovered: false,
                    event: self.event.to_owned(),
                    acted_at: acted_at(act, &payload, &news, self.received_at),
                    news,
                    formerly,
                    comment,
                    installation: payload.installation.as_ref().and_then(|it| it.id),
                    action,
                    effect,
                    instruction,
                };
                Ok(on_condition(delivery, condition))
            }
        }
    }

    fn scope_event(
        self,
        policies: &TriggerPolicies,
        body: &[u8],
    ) -> Result<Interpreted, Malformed> {
        let payload = match payload::parse::<scope_event::ScopePayload>(body) {
            Ok(payload) => payload,
            Err(error) => return without_effect(self.event, body).ok_or(error),
        };
        let action = payload.action.clone().unwrap_or_default();
        let Some(happened) = Happened::of(self.event, &action) else {
            return ignored(&action, no_effect(self.event, &action));
        };
        let policy = policy_of(policies, payload.repository.as_ref());
        match scope_event::decide(policy, happened, &payload, self.received_at)? {
            Err(reason) => ignored(&action, reason),
            Ok(scope_event::ScopedEvent { scope, scope_event }) => {
                Ok(Interpreted::FanOut(Box::new(FanOut {
                    account: AccountName::default_account(),
                    delivery: self.delivery,
                    received_at: self.received_at,
                    recovered: false,
                    event: self.event.to_owned(),
                    action,
                    scope,
                    news: scope_event,
                })))
            }
        }
    }
}

/// The policy of the repository that a payload names.
fn policy_of<'a>(
    policies: &'a TriggerPolicies,
    repository: Option<&RepositoryPart>,
) -> &'a TriggerPolicy {
    let name = repository.and_then(|repository| repository.full_name.as_deref());
    policies.of(name.and_then(|name| Repository::parse(name).ok()).as_ref())
}

/// A delivery about an issue whose effect may depend on a permission.
fn on_condition(delivery: IssueDelivery, condition: Option<PermissionCondition>) -> Interpreted {
    match condition {
        None => Interpreted::Issue(Box::new(delivery)),
        Some(PermissionCondition { asker, level, otherwise }) => {
            let permitted = delivery;
            let conditional = ConditionalDelivery { asker, level, permitted, otherwise };
            Interpreted::IfPermitted(Box::new(conditional))
        }
    }
}

fn ignored(action: &str, reason: String) -> Result<Interpreted, Malformed> {
    Ok(Interpreted::Ignored { action: shown(action), reason })
}

/// The answer to a payload of unforeseen shape whose event or action has no effect anyway.
fn without_effect(event: &str, body: &[u8]) -> Option<Interpreted> {
    let action = payload::parse::<PayloadHead>(body).ok()?.action.unwrap_or_default();
    if Happened::of(event, &action).is_some() || pull::can_have_effect(event, &action) {
        return None;
    }
    let reason = IssueAction::of(event, &action).err()?;
    Some(Interpreted::Ignored { action: shown(&action), reason })
}

/// Why an event or an action of it has no effect.
fn no_effect(event: &str, action: &str) -> String {
    match action {
        "" => format!("{event} without an action"),
        _ => format!("{event} {} has no effect", shown(action)),
    }
}

/// Why a delivery of a repository that is not configured has no effect.
fn not_covered(repository: &Repository) -> String {
    format!("the repository {repository} does not match the configured ones")
}

/// What the payload says of its issue, completed by what the action itself says.
fn news(
    policy: &TriggerPolicy,
    act: IssueAction,
    payload: &Payload,
    name: IssueName,
    received_at: Timestamp,
) -> News {
    let issue = act.subject(payload);
    let IssueName { issue_id, repository, repository_id, number } = name;
    let open = match issue.and_then(|issue| issue.state.as_deref()) {
        Some("open") => Some(true),
        Some("closed") => Some(false),
        _ => act.says_open(),
    };
    let text = |field: fn(&payload::IssuePart) -> Option<&String>| issue.and_then(field).cloned();
    News {
        issue_id,
        repository,
        repository_id,
        number,
        title: issue.map(title_of).unwrap_or_default(),
        url: text(|issue| issue.html_url.as_ref())
            .filter(|url| url.len() <= URL_LEN_MAX && is_web_address(url)),
        open,
        labelled: effect::labelled(policy, act, payload),
        assigned: effect::assigned(policy, act, payload),
        as_of: time_of(issue.and_then(|issue| issue.updated_at.as_deref()), received_at),
    }
}

/// When what the delivery is about happened. A comment says so itself; one that is edited says
/// something new when it is.
fn acted_at(act: IssueAction, payload: &Payload, news: &News, received_at: Timestamp) -> Timestamp {
    let comment = payload.comment.as_ref();
    let written = match act {
        IssueAction::Commented => comment.and_then(|comment| comment.created_at.as_deref()),
        IssueAction::CommentEdited => comment.and_then(|comment| comment.updated_at.as_deref()),
        IssueAction::Opened
        | IssueAction::Labeled
        | IssueAction::Unlabeled
        | IssueAction::Assigned
        | IssueAction::Unassigned
        | IssueAction::Reopened
        | IssueAction::Closed
        | IssueAction::Deleted
        | IssueAction::Edited
        | IssueAction::Transferred
        | IssueAction::Unlocked => None,
    };
    written.map_or(news.as_of, |written| time_of(Some(written), received_at))
}

/// A time of a payload, as it counts: without one that can be read, or with one that is too far
/// ahead of our clock, when the delivery arrived.
fn time_of(text: Option<&str>, received_at: Timestamp) -> Timestamp {
    text.and_then(Timestamp::parse).map_or(received_at, |time| plausible(time, received_at))
}

/// The title of an issue, bounded; empty when there is none.
fn title_of(issue: &payload::IssuePart) -> String {
    issue.title.as_deref().unwrap_or_default().chars().take(TITLE_LEN_MAX).collect()
}

/// An address is shown as a link: anything but a web address (`javascript:`, …) is left out.
fn is_web_address(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

/// Longest title that is kept, in characters; GitHub's own limit is 256.
const TITLE_LEN_MAX: usize = 1024;
/// Longest address that is kept, in bytes.
const URL_LEN_MAX: usize = 2048;
/// Longest event name, in bytes; GitHub's longest has 39.
const EVENT_LEN_MAX: usize = 64;

fn event_name_ok(event: &str) -> bool {
    (1..=EVENT_LEN_MAX).contains(&event.len())
        && event.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Longest part of an unknown action that is kept and shown, in characters.
const ACTION_SHOWN_MAX: usize = 64;

/// An action as it may be stored and shown: bounded, without control characters.
fn shown(action: &str) -> String {
    action.chars().filter(|c| !c.is_control()).take(ACTION_SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests;
