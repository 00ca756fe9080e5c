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
use super::standing::{StandingRequest, stored, take, taken_back, verified};
use crate::github::api::{Conditional, GitHubIssue, PageCursor, RepositoryTarget};
use crate::issue::Issue;
use crate::types::Timestamp;

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
        let label = &parts.intake.triggers().of(&known.target.name).label;
        if label.is_empty() {
            return Ok(());
        }
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
    let Some(verified) = verified(parts, target, issue.id, issue.number).await? else {
        return Ok(());
    };
    let request = StandingRequest::of(parts.intake.triggers().of(&target.name), &verified);
    let Some(StandingRequest::Label(act)) = request else { return Ok(()) };
    let at = act.map_or(issue.updated_at, |act| act.at);
    if at > began && verified.at.since(at) < DELIVERY_WAIT {
        // Its delivery is on its way.
        return Ok(());
    }
    take(parts, target, &verified, StandingRequest::Label(act), known.as_ref(), at).await
}

/// Whether an issue that carries the label may lack a request for a sandbox.
fn may_lack(known: Option<&Issue>) -> bool {
    known.is_none_or(|issue| {
        !issue.is_asked_for() && (issue.facts.acts.asked.is_none() || taken_back(issue).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::super::standing::counts_as_of;
    use super::*;
    use crate::issue::acts::ActKind;
    use crate::types::{AccountName, HomeId, IssueId};

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
