//! Every row of the table of answers.

use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::github::api::{HeldReason, NewPull, ReleasedBy};
use crate::github::model::{FaultKind, ModelFault};

fn fault(kind: FaultKind) -> ModelFault {
    ModelFault::on("POST", "/repos/*/*/issues/1/comments", kind)
}

#[tokio::test]
async fn an_unknown_outcome_is_told_apart_from_none() {
    let fixture = TestRepository::new();
    let written = || fixture.model.comments((REPOSITORY, 1)).len();
    for (kind, effects) in [
        (FaultKind::LostBefore, 0),
        (FaultKind::LostAfter, 1),
        (FaultKind::CutOff, 1),
        (FaultKind::Status(502), 0),
        (FaultKind::StatusAfter(504), 1),
    ] {
        let before = written();
        let calls = fixture.model.calls_to("POST", "/repos/", "/comments").len();
        fixture.model.order(fault(kind.clone()));
        let error = fixture.comment("hello").await.expect_err("no answer");
        assert!(matches!(error, GitHubError::Unknown(_)), "{kind:?}: {error:?}");
        assert!(!error.had_no_effect());
        assert_eq!(written() - before, effects, "{kind:?} is not repeated");
        let asked = fixture.model.calls_to("POST", "/repos/", "/comments").len() - calls;
        assert!(asked <= 1, "{kind:?} was sent {asked} times");
    }
    // Nothing listens there, and no other test is given this port.
    let nowhere = client("http://127.0.0.1:1", GitHubCredentials::Token(Secret::new("ghp_x")));
    let error = nowhere.issue(&TestRepository::named(), ONE, None).await.expect_err("no server");
    assert!(matches!(error, GitHubError::Unreachable(_)) && error.had_no_effect(), "{error:?}");
}

#[tokio::test]
async fn a_limit_stops_all_writing_until_its_end() {
    let now = || SystemClock.now();
    for (kind, at_least, at_most) in [
        (FaultKind::SecondaryLimit(403, Some(700)), 600, 700),
        (FaultKind::SecondaryLimit(429, Some(700)), 600, 700),
        (FaultKind::SecondaryLimit(403, None), 1, 60),
        (FaultKind::SecondaryLimit(429, None), 1, 60),
        (FaultKind::HourlyLimit, 1, 3_600),
    ] {
        let fixture = TestRepository::new();
        fixture.comment("before").await.expect("written");
        fixture.model.order(fault(kind.clone()));
        let before = now();
        let error = fixture.comment("hello").await.expect_err("limited");
        let GitHubError::Limited { until } = error else { panic!("{kind:?}: {error:?}") };
        assert!(until >= before.after(Duration::from_secs(at_least)), "{kind:?}: {until}");
        assert!(until <= now().after(Duration::from_secs(at_most)), "{kind:?}: {until}");
        let calls = fixture.model.calls().len();
        let turn = fixture.client.turn(&fixture.target(), WriteUrgency::Person).await;
        assert_eq!(turn.expect_err("it rests"), GitHubError::Limited { until });
        assert_eq!(fixture.issue().await, Err(GitHubError::Limited { until }), "reading, too");
        assert_eq!(fixture.model.calls().len(), calls, "nothing is sent");
    }
}

#[tokio::test]
async fn what_is_refused_for_a_reason_is_held_until_that_changes() {
    for (words, reason, released_by) in [
        (
            "Unable to create comment because issue is locked.",
            HeldReason::Locked,
            ReleasedBy::Unlocked,
        ),
        ("Repository was archived so is read-only.", HeldReason::Archived, ReleasedBy::Nothing),
        ("This installation has been suspended", HeldReason::Suspended, ReleasedBy::Unsuspended),
        (
            "Resource not accessible by integration",
            HeldReason::Permission(None),
            ReleasedBy::PermissionGranted,
        ),
        ("A reason of its own", HeldReason::Other, ReleasedBy::Person),
    ] {
        let fixture = TestRepository::new();
        fixture.model.order(fault(FaultKind::Refused(words.to_owned())));
        let error = fixture.comment("hello").await.expect_err("refused");
        assert_eq!(error, GitHubError::Held { reason: reason.clone(), words: words.to_owned() });
        assert_eq!(reason.released_by(), released_by);
        fixture.comment("hello").await.expect("the queue goes on");
    }
    // As the model says it by itself.
    let fixture = TestRepository::new();
    fixture.model.set_locked((REPOSITORY, 1), "mira", true);
    let error = fixture.comment("hello").await.expect_err("locked");
    assert!(matches!(error, GitHubError::Held { reason: HeldReason::Locked, .. }), "{error:?}");
    fixture.model.set_suspended(fixture.installation, true);
    let error = fixture.comment("hello").await.expect_err("suspended");
    assert!(matches!(error, GitHubError::Held { reason: HeldReason::Suspended, .. }), "{error:?}");
}

#[tokio::test]
async fn a_renamed_repository_is_found_by_its_id() {
    let fixture = TestRepository::new();
    fixture.comment("before").await.expect("written");
    fixture.model.rename_repository(REPOSITORY, "octo/other");
    fixture.comment("after").await.expect("written by id");
    fixture.issue().await.expect("read by id");
    assert_eq!(fixture.model.comments(("octo/other", 1)).len(), 2);
    let now = fixture.client.repository(&fixture.target()).await.expect("found");
    assert_eq!((now.id, now.name.as_str()), (fixture.repository_id, "octo/other"));
    let since = crate::types::Timestamp::from_unix_ms(0);
    let page = &crate::github::api::PageCursor::FIRST;
    let listed = fixture.client.comments_since(&fixture.target(), ONE, since, page).await;
    assert_eq!(listed.expect("the query is kept").0.len(), 2);
}

#[tokio::test]
async fn a_transferred_issue_is_moved_and_a_deleted_one_gone() {
    let fixture = TestRepository::new();
    let to = fixture.model.repository("octo/other");
    fixture.model.open_issue("octo/other", "mira", "First", "");
    let number = fixture.model.transfer_issue((REPOSITORY, 1), "mira", "octo/other");
    let moved = GitHubError::Moved { repository_id: to, number: Some(IssueNumber(number)) };
    assert_eq!(fixture.issue().await, Err(moved.clone()));
    assert_eq!(fixture.comment("hello").await, Err(moved.clone()));
    let verified = fixture.client.verify(&fixture.target(), ONE, "").await;
    assert_eq!(verified.expect_err("it is not there"), moved);
    fixture.model.open_issue(REPOSITORY, "mira", "Second", "");
    fixture.model.delete_issue((REPOSITORY, 2), "mira");
    let gone = fixture.client.issue(&fixture.target(), IssueNumber(2), None).await;
    assert!(matches!(gone, Err(GitHubError::Gone(_))), "{gone:?}");
    let never = fixture.client.issue(&fixture.target(), IssueNumber(77), None).await;
    assert!(matches!(never, Err(GitHubError::NotFound(_))), "{never:?}");
}

#[tokio::test]
async fn a_second_pull_request_of_a_branch_exists_already() {
    let fixture = TestRepository::new();
    fixture.model.commit(REPOSITORY, "issuebox/issue-1", &[("a", "b")], "Change");
    let pull = NewPull {
        head: "issuebox/issue-1".to_owned(),
        base: "main".to_owned(),
        title: "It breaks".to_owned(),
        body: "Fixes #1".to_owned(),
        draft: true,
    };
    let create =
        async || fixture.client.create_pull(WriteTurn::unlimited(), &fixture.target(), &pull).await;
    let made = create().await.expect("made");
    let error = create().await.expect_err("it is there");
    assert!(matches!(error, GitHubError::AlreadyExists(_)), "{error:?}");
    let found = fixture.client.pulls_of(&fixture.target(), &pull.head).await.expect("listed");
    assert_eq!(found, [made]);
    let wrong = NewPull { head: "nowhere".to_owned(), ..pull };
    let error = fixture.client.create_pull(WriteTurn::unlimited(), &fixture.target(), &wrong).await;
    assert!(matches!(error, Err(GitHubError::Refused { status: 422, .. })), "{error:?}");
}

#[tokio::test]
async fn credentials_that_are_not_accepted_make_the_queue_rest_a_minute() {
    let fixture = TestRepository::new();
    let client =
        client(&fixture.model.api_url(), GitHubCredentials::Token(Secret::new("ghp_unknown")));
    let turn = WriteTurn::unlimited();
    let error = client.create_comment(turn, &TestRepository::named(), ONE, "hello").await;
    assert!(matches!(error, Err(GitHubError::Unauthorized(_))), "{error:?}");
    let turn = client.turn(&TestRepository::named(), WriteUrgency::Person).await;
    assert!(matches!(turn, Err(GitHubError::Limited { .. })), "{turn:?}");
}
