//! What GitHub answered, as the delivery that would have said the same.
//!
//! Its id is made of what is said and as of when: the same answer is taken in once.

use sha2::{Digest, Sha256};

use crate::github::api::{RepositoryTarget, VerifiedAct, VerifiedIssue};
use crate::issue::acts::plausible;
use crate::issue::event::{DeliveryEffect, News};
use crate::issue::{Facts, IssueDelivery, IssueName};
use crate::types::{DeliveryId, IssueId, Timestamp};

use super::lookup::FoundIssue;

/// Why a sandbox stops whose issue is closed.
const CLOSED: &str = "the issue was closed";

/// What was taken back at GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenBack {
    /// The issue was closed.
    Closed,
    /// The trigger label was taken off.
    Label,
    /// This account, the bot's, was unassigned.
    Assignee(u64),
    /// Who asked may not trigger any more.
    Permission,
}

/// The delivery about an issue as it was found. `known` is what is known of it here.
pub(super) fn of_found(found: &FoundIssue, known: Option<&Facts>, now: Timestamp) -> IssueDelivery {
    let formerly = known.filter(|_| found.moved_from.is_some()).and_then(name_of);
    let issue = &found.issue;
    let as_of = plausible(issue.updated_at, now);
    let known_as_of = known.and_then(|facts| facts.named_as_of());
    let (action, effect) = match (issue.is_open, &formerly) {
        (false, _) => ("closed", DeliveryEffect::Stop(CLOSED)),
        (true, Some(_)) => ("transferred", DeliveryEffect::Update),
        (true, None) => ("edited", DeliveryEffect::Update),
    };
    let news = News {
        issue_id: IssueId::from_github(issue.id),
        repository: found.repository.clone(),
        repository_id: found.repository_id,
        number: issue.number,
        title: issue.title.clone(),
        url: None,
        open: Some(issue.is_open),
        labelled: None,
        assigned: None,
        // GitHub's answer is newer than what is known, whatever the clocks say.
        as_of: known_as_of.map_or(as_of, |known| as_of.max(known)),
    };
    let installation = found.installation;
    IssueDelivery { installation, formerly, ..bare(news, action, effect, now) }
}

/// The delivery that says what was taken back. `label` is the trigger label, `facts` what is known.
pub(super) fn of_verified(
    taken_back: TakenBack,
    label: &str,
    target: &RepositoryTarget,
    facts: &Facts,
    verified: &VerifiedIssue,
    now: Timestamp,
) -> IssueDelivery {
    let known = match taken_back {
        TakenBack::Closed => &facts.open,
        TakenBack::Label => &facts.labelled,
        TakenBack::Assignee(_) => &facts.assigned,
        TakenBack::Permission => &None,
    };
    let known_as_of = known.as_ref().map(|known| known.as_of);
    let (action, reason) = match taken_back {
        TakenBack::Closed => ("closed", CLOSED),
        TakenBack::Label => ("unlabeled", "the trigger label was taken off"),
        TakenBack::Assignee(_) => ("unassigned", "the bot was unassigned"),
        TakenBack::Permission => ("withdrawn", "who asked for it may not trigger any more"),
    };
    let is_it = |act: &&VerifiedAct| match taken_back {
        TakenBack::Closed | TakenBack::Permission => true,
        TakenBack::Label => {
            act.label.as_ref().is_some_and(|name| name.to_lowercase() == label.to_lowercase())
        }
        TakenBack::Assignee(id) => act.assignee == Some(id),
    };
    let of_action = verified.acts.iter().filter(|act| act.action == action);
    let last = of_action.filter(is_it).map(|act| act.at).max();
    // What is known is not undone by an act that is older: then it is the answer that is newer.
    let as_of = last.filter(|at| whole(Some(*at)) >= whole(known_as_of)).unwrap_or(verified.at);
    let news = News {
        labelled: (taken_back == TakenBack::Label).then_some(false),
        assigned: matches!(taken_back, TakenBack::Assignee(_)).then_some(false),
        ..news_of(target, verified, as_of, now)
    };
    bare(news, action, DeliveryEffect::Stop(reason), now)
}

/// Something for the timeline that verification found.
pub(super) struct IssueNote {
    /// What kind of thing, in place of GitHub's action.
    pub kind: &'static str,
    /// As of when it is true: one of a kind and a time is noted once.
    pub as_of: Timestamp,
    /// What people should know.
    pub text: String,
}

/// The delivery that puts a note on the timeline.
pub(super) fn of_note(
    note: IssueNote,
    target: &RepositoryTarget,
    verified: &VerifiedIssue,
    now: Timestamp,
) -> IssueDelivery {
    let news = news_of(target, verified, note.as_of, now);
    bare(news, note.kind, DeliveryEffect::Note(note.text), now)
}

/// The second of a time: GitHub's times have no more.
fn whole(at: Option<Timestamp>) -> Option<i64> {
    at.map(|at| at.unix_ms() / 1000)
}

fn news_of(
    target: &RepositoryTarget,
    verified: &VerifiedIssue,
    as_of: Timestamp,
    now: Timestamp,
) -> News {
    News {
        issue_id: IssueId::from_github(verified.id),
        repository: target.name.clone(),
        repository_id: verified.repository_id,
        number: verified.number,
        title: verified.title.clone(),
        url: None,
        open: Some(verified.is_open),
        labelled: None,
        assigned: None,
        as_of: plausible(as_of, now),
    }
}

/// The delivery that says that a known issue is deleted; `None` if its place is not known.
pub(super) fn deletion(known: &Facts, now: Timestamp) -> Option<IssueDelivery> {
    let IssueName { issue_id, repository, repository_id, number } = name_of(known)?;
    let news = News {
        issue_id,
        repository,
        repository_id,
        number,
        title: String::new(),
        url: None,
        open: None,
        labelled: None,
        assigned: None,
        as_of: now,
    };
    Some(bare(news, "deleted", DeliveryEffect::Delete, now))
}

fn bare(news: News, action: &str, effect: DeliveryEffect, now: Timestamp) -> IssueDelivery {
    IssueDelivery {
        delivery: id_of(&news, action),
        received_at: now,
        recovered: false,
        event: "issues".to_owned(),
        action: action.to_owned(),
        acted_at: news.as_of,
        formerly: None,
        comment: None,
        installation: None,
        news,
        effect,
        instruction: None,
    }
}

/// How a known issue is called on GitHub.
fn name_of(facts: &Facts) -> Option<IssueName> {
    Some(IssueName {
        issue_id: facts.issue_id.clone(),
        repository: facts.repository.clone()?,
        repository_id: facts.repository_id?,
        number: facts.number?,
    })
}

/// How much of the digest an id has, in hexadecimal digits.
const DIGEST_LEN: usize = 32;

fn id_of(news: &News, action: &str) -> DeliveryId {
    let News { issue_id, repository, number, as_of, .. } = news;
    let said = format!("{issue_id} {repository}#{number} {action} {}", as_of.unix_ms());
    let digest = hex::encode(Sha256::digest(said));
    DeliveryId::trusted(format!("{}{}", DeliveryId::VERIFIED_PREFIX, &digest[..DIGEST_LEN]))
}
