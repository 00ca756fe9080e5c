//! Lists, conditional answers, limits of reading, verification and the delivery log.

use super::*;
use crate::github::api::{Conditional, DeliverySource, GitHubFile, PageCursor};
use crate::types::Timestamp;

#[tokio::test]
async fn every_page_is_asked_with_our_token() {
    let fixture = TestRepository::new();
    for number in 0..230 {
        fixture.model.comment((REPOSITORY, 1), "mira", &format!("comment {number}"));
    }
    let (mut page, mut bodies) = (PageCursor::FIRST, Vec::new());
    for expected in [100, 100, 30] {
        let since = Timestamp::from_unix_ms(0);
        let asked = fixture.client.comments_since(&fixture.target(), ONE, since, &page).await;
        let (comments, next) = asked.expect("a page");
        assert_eq!(comments.len(), expected);
        bodies.extend(comments.into_iter().map(|comment| comment.body));
        page = next.unwrap_or_default();
    }
    assert_eq!(page, PageCursor::FIRST, "it was the last");
    assert_eq!(bodies.len(), 230);
    assert!(bodies.iter().enumerate().all(|(at, body)| *body == format!("comment {at}")));
    let calls = fixture.model.calls();
    let lists = calls.iter().filter(|call| call.path.ends_with("/comments"));
    let identity = format!("installation {}", fixture.installation);
    assert!(lists.clone().count() == 3 && lists.clone().all(|call| call.identity == identity));
    // An address of another host is no page.
    let elsewhere = PageCursor(Some("http://git.example.org/repos/x".to_owned()));
    let since = Timestamp::from_unix_ms(0);
    let asked = fixture.client.comments_since(&fixture.target(), ONE, since, &elsewhere).await;
    assert!(matches!(asked, Err(GitHubError::Refused { .. })), "{asked:?}");
    assert_eq!(fixture.model.violations(), [""; 0]);
}

#[tokio::test]
async fn what_did_not_change_is_not_read_again() {
    let fixture = TestRepository::new();
    let first = fixture.client.issue(&fixture.target(), ONE, None).await.expect("read");
    let Conditional::Changed { value, etag } = first else { panic!("nothing was known") };
    assert!(value.is_open && value.title == "It breaks");
    let etag = etag.expect("an ETag");
    let second = fixture.client.issue(&fixture.target(), ONE, Some(&etag)).await.expect("read");
    assert_eq!(second, Conditional::Unchanged);
    fixture.model.close((REPOSITORY, 1), "mira");
    let third = fixture.client.issue(&fixture.target(), ONE, Some(&etag)).await.expect("read");
    assert!(third.changed().is_some_and(|issue| !issue.is_open));
    let results: Vec<_> = fixture.client.figures().requests;
    let counted = |result| results.iter().find(|c| c.kind == "issue" && c.result == result);
    assert_eq!(counted("unchanged").map(|count| count.count), Some(1));
    assert_eq!(counted("done").map(|count| count.count), Some(2));
}

#[tokio::test]
async fn background_work_stands_back_where_little_is_left() {
    let fixture = TestRepository::new();
    let identity = format!("installation {}", fixture.installation);
    fixture.model.label((REPOSITORY, 1), "mira", "agent");
    let labelled = async || {
        let target = fixture.target();
        fixture.client.labelled_issues(&target, "agent", &PageCursor::FIRST, None).await
    };
    let (issues, _) = labelled().await.expect("much is left").changed().expect("new");
    assert_eq!(issues.len(), 1);
    fixture.model.leave_calls(&identity, 900);
    fixture.issue().await.expect("this answer says how little is left");
    let calls = fixture.model.calls().len();
    let stood_back = labelled().await;
    assert!(matches!(stood_back, Err(GitHubError::Limited { .. })), "{stood_back:?}");
    assert_eq!(fixture.model.calls().len(), calls);
    fixture.issue().await.expect("what is waited for goes on");
    assert!(fixture.client.figures().remaining.is_some_and(|remaining| remaining < 900));
}

#[tokio::test]
async fn verification_sees_the_issue_as_it_is() {
    let fixture = TestRepository::new();
    fixture.model.label((REPOSITORY, 1), "mira", "agent");
    fixture.model.comment((REPOSITORY, 1), "mira", "/issuebox");
    fixture.model.edit_issue((REPOSITORY, 1), "mira", None, Some("Very badly"));
    for api_url in [fixture.model.api_url(), fixture.model.enterprise_api_url()] {
        let client = app_client(&fixture.model, &api_url);
        let seen = client.verify(&fixture.target(), ONE, "main").await.expect("seen");
        assert_eq!((seen.repository_id, seen.number), (fixture.repository_id, ONE));
        assert!(seen.is_open && !seen.is_locked);
        assert_eq!((seen.title.as_str(), seen.body.as_str()), ("It breaks", "Very badly"));
        assert_eq!(seen.labels, ["agent"]);
        let mira = fixture.model.user("mira");
        assert_eq!(seen.editor.map(|editor| editor.id), Some(mira));
        let acts: Vec<_> = seen.acts.iter().map(|act| (act.action, act.actor_id)).collect();
        assert_eq!(acts, [("labeled", mira)]);
        let comments: Vec<_> =
            seen.comments.iter().map(|c| (c.body.as_str(), c.author.id)).collect();
        assert_eq!((comments, seen.comments_total), (vec![("/issuebox", mira)], 1));
        assert_eq!(seen.base_commit, fixture.model.tip(REPOSITORY, "main"));
        let elsewhere = client.verify(&fixture.target(), ONE, "nowhere").await.expect("seen");
        assert_eq!(elsewhere.base_commit, None);
    }
    let mints = fixture.mints();
    assert!(mints.iter().all(|mint| mint.request["permissions"]["contents"] == "read"));
    assert_eq!(fixture.model.violations(), [""; 0]);
}

#[tokio::test]
async fn permissions_branches_and_installations_are_read() {
    let fixture = TestRepository::new();
    let (target, client) = (fixture.target(), &fixture.client);
    let permission = client.permission(&target, "mira").await.expect("known");
    assert_eq!(
        (permission.user_id, permission.permission.as_str()),
        (fixture.model.user("mira"), "write")
    );
    let unknown = client.permission(&target, "no-such-user").await;
    assert!(matches!(unknown, Err(GitHubError::NotFound(_))), "{unknown:?}");
    let tip = client.branch_tip(&target, "main").await.expect("read");
    assert_eq!(tip, fixture.model.tip(REPOSITORY, "main"));
    assert_eq!(client.branch_tip(&target, "a/b").await, Ok(None));
    let installation = client.installation_of(&TestRepository::named()).await.expect("found");
    assert_eq!(installation.id, fixture.installation);
    let (all, _) = client.installations(&PageCursor::FIRST).await.expect("listed");
    assert_eq!(all, [installation]);
}

#[tokio::test]
async fn a_file_is_read_as_a_commit_has_it() {
    let fixture = TestRepository::new();
    let (target, client) = (fixture.target(), &fixture.client);
    let text = "é\n".repeat(100);
    let large = "x".repeat((1 << 20) + 1);
    let files = [(".github/a b.toml", text.as_str()), ("large", large.as_str())];
    let before = fixture.model.tip(REPOSITORY, "main").expect("a commit");
    let commit = fixture.model.commit(REPOSITORY, "main", &files, "Add files");
    let file = async |path: &str, commit: &str| client.file(&target, path, commit).await;
    let content = GitHubFile::Content(text.clone().into_bytes());
    assert_eq!(file(".github/a b.toml", &commit).await, Ok(Some(content)));
    assert_eq!(file("large", &commit).await, Ok(Some(GitHubFile::TooLarge((1 << 20) + 1))));
    assert_eq!(file(".github", &commit).await, Ok(Some(GitHubFile::Other)));
    assert_eq!(file(".github/a b.toml", &before).await, Ok(None), "it was added later");
    assert_eq!(fixture.model.violations(), [""; 0]);
}

#[tokio::test]
async fn the_delivery_log_gives_what_was_sent() {
    let fixture = TestRepository::new();
    fixture.model.label((REPOSITORY, 1), "mira", "agent");
    fixture.model.until(|model| model.pending_deliveries() == 0).await;
    let guids = fixture.model.delivered_guids();
    let source = DeliverySource::App;
    let log = fixture.client.delivery_log(&source, &PageCursor::FIRST).await.expect("listed");
    let newest = log.deliveries.first().expect("there is one");
    assert_eq!(Some(newest.guid.as_str()), guids.last().map(String::as_str));
    assert_eq!((newest.event.as_str(), newest.action.as_deref()), ("issues", Some("labeled")));
    let whole = fixture.client.delivery(&source, newest.id).await.expect("read");
    let payload: serde_json::Value =
        serde_json::from_str(&whole.payload.expect("kept")).expect("JSON");
    assert_eq!(payload["label"]["name"], "agent");
    fixture.client.redeliver(&source, newest.id).await.expect("accepted");
    let calls = fixture.model.calls();
    let log = calls.iter().filter(|call| call.path.starts_with("/app/hook/"));
    assert!(log.clone().count() == 3 && log.clone().all(|call| call.identity == "app"));
}
