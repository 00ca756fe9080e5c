//! Transfers: both sides say the same, and neither starts anything.

use super::*;

fn name(text: &str, repository_id: u64, issue_id: &str) -> IssueName {
    let (repository, number) = text.split_once('#').expect("owner/name#number");
    IssueName {
        issue_id: crate::types::IssueId::parse(issue_id).expect("a valid id"),
        repository: Repository::parse(repository).expect("a valid name"),
        repository_id,
        number: crate::types::IssueNumber(number.parse().expect("a number")),
    }
}

fn new_name(news: &News) -> IssueName {
    IssueName {
        issue_id: news.issue_id.clone(),
        repository: news.repository.clone(),
        repository_id: news.repository_id,
        number: news.number,
    }
}

const SIDES: [&str; 2] = ["issues.transferred", "issues.opened.transferred"];

#[test]
fn both_sides_of_a_transfer_name_where_it_is_and_where_it_was() {
    // Also if opening an issue triggers.
    for policy in [policy(), TriggerPolicy { opened: true, ..policy() }] {
        for side in SIDES {
            let issue_delivery = issue_delivery_of(changed(&policy, side, |_payload| ()));
            let before = name("pear-garden/orchard#16", 810_200_301, "2874100016");
            let after = name("pear-garden/press#8", 810_200_302, "2874100108");
            assert_eq!(issue_delivery.formerly, Some(before), "{side}");
            assert_eq!(new_name(&issue_delivery.news), after, "{side}");
            assert_eq!(issue_delivery.effect, DeliveryEffect::Update, "{side}");
        }
    }
}

#[test]
fn what_the_new_side_says_counts() {
    let news = news_of(changed(&policy(), "issues.transferred", |payload| {
        payload["issue"]["state"] = json!("closed");
        payload["issue"]["title"] = json!("old");
        payload["changes"]["new_issue"]["title"] = json!("new");
        payload["changes"]["new_issue"]["labels"] = json!([]);
        payload["changes"]["new_issue"]["updated_at"] = json!("2026-03-02T19:00:00Z");
    }));
    assert_eq!((news.title.as_str(), news.open, news.labelled), ("new", Some(true), Some(false)));
    assert_eq!(Some(news.as_of), Timestamp::parse("2026-03-02T19:00:00Z"));
}

#[test]
fn a_transfer_is_followed_where_one_side_is_covered() {
    for side in SIDES {
        for (pattern, followed) in [("*/orchard", true), ("*/press", true), ("*/fields", false)] {
            let policy = TriggerPolicy { repositories: patterns(&[pattern]), ..policy() };
            let meant = changed(&policy, side, |_payload| ());
            let is_followed = matches!(meant, Ok(Interpreted::Issue(_)));
            assert_eq!(is_followed, followed, "{side} {pattern}");
        }
    }
}

#[test]
fn a_transfer_that_does_not_say_enough_starts_nothing() {
    let policy = TriggerPolicy { opened: true, ..policy() };
    for gone in ["changes", "changes/new_issue", "changes/new_repository", "changes/new_issue/id"] {
        let meant = changed(&policy, "issues.transferred", |payload| {
            *payload.pointer_mut(&format!("/{gone}")).expect("a field") = Value::Null;
        });
        assert_eq!(effect(meant), ignored("the payload does not name the new issue"), "{gone}");
    }
    for gone in ["changes/old_issue", "changes/old_repository", "changes/old_issue/id"] {
        let issue_delivery =
            issue_delivery_of(changed(&policy, "issues.opened.transferred", |payload| {
                *payload.pointer_mut(&format!("/{gone}")).expect("a field") = Value::Null;
            }));
        assert_eq!(
            (issue_delivery.effect, issue_delivery.formerly),
            (DeliveryEffect::Update, None),
            "{gone}"
        );
    }
    let opened = changed(&policy, "issues.opened.transferred", |payload| {
        payload["changes"] = json!({"old_issue": null, "old_repository": null});
    });
    assert_eq!(effect(opened), trigger(TriggerKind::Opened), "without any old side it is opened");
}
