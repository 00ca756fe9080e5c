//! An *ensure* asks an in-memory GitHub about its issue: whether it exists, whether it is open, and its place.

use std::sync::Arc;

use issuebox::github::model::{FaultKind, GithubModel, ModelFault};
use issuebox::issue_sandbox::{IssueRef, IssueSandbox, SandboxContext, SandboxError};
use issuebox::types::AccountName;
use serde_json::{Value, json};

use crate::common::server::{Answer, TestServer};
use crate::permission::{REPOSITORY, client};
use crate::process::until;

const MAINTAINER: &str = "mona";

/// A GitHub with one open issue, and a server with credentials for it. Nothing is delivered.
struct AskingWorld {
    github: Arc<GithubModel>,
    server: TestServer,
    number: u64,
}

impl AskingWorld {
    async fn new() -> Self {
        let github = Arc::new(GithubModel::start().expect("it starts"));
        github.repository(REPOSITORY);
        github.repository("octo/other");
        github.set_role(REPOSITORY, MAINTAINER, "admin");
        github.install("octo");
        let number = github.open_issue(REPOSITORY, MAINTAINER, "A title", "A body");
        let api = client(&github);
        let server = TestServer::with(move |edge| edge.github = Some(api)).await;
        Self { github, server, number }
    }

    async fn ensure(&self, more: Value) -> Answer {
        let mut body = json!({"repository": REPOSITORY, "issueNumber": self.number});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        self.server.post("/v1/sandboxes?wait=10", body).await
    }

    /// The same for a program of the server's own process.
    async fn ensure_by_library(&self, account: AccountName) -> Result<IssueSandbox, SandboxError> {
        let issue = IssueRef::number(REPOSITORY, self.number).expect("a reference");
        let context = SandboxContext::new(account, "bot");
        IssueSandbox::get_or_create(&self.server.services(), context, issue, None).await
    }

    /// The issue's id at GitHub.
    fn id(&self) -> String {
        self.github.issue((REPOSITORY, self.number))["id"].to_string()
    }

    fn nothing_wrong(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_issue_that_is_not_known_is_asked_for_and_ensured() {
    let world = AskingWorld::new().await;
    let made = world.ensure(json!({})).await;
    assert_eq!((made.status, &made.json()["outcome"]), (201, &json!("created")), "{made:?}");
    let data = &made.json()["data"];
    assert_eq!(data["issueId"], json!(world.id()));
    assert_eq!(data["repository"], REPOSITORY);
    assert_eq!(data["issueNumber"], json!(world.number));
    assert_eq!(data["issueTitle"], "A title");
    // By its other names it is the same issue, also in another spelling.
    let named = world.ensure(json!({"repository": "Octo/HELLO", "issueId": world.id()})).await;
    let by_id = world.server.post("/v1/sandboxes", json!({"issueId": world.id()})).await;
    for again in [&named, &by_id] {
        assert_eq!((again.status, &again.json()["outcome"]), (200, &json!("existing")));
        assert_eq!(again.json()["sandboxId"], made.json()["sandboxId"]);
    }
    until("one object", || async { world.server.provider.object_count() == 1 }).await;
    world.nothing_wrong();
}

#[tokio::test]
async fn what_github_does_not_know_gets_no_sandbox() {
    let world = AskingWorld::new().await;
    let deleted = world.github.open_issue(REPOSITORY, MAINTAINER, "Gone", "");
    world.github.delete_issue((REPOSITORY, deleted), MAINTAINER);
    let ours = "octo/hello";
    for (repository, number) in [(ours, 77), (ours, deleted), ("octo/none", 1), ("who/ever", 1)] {
        let refused = world.ensure(json!({"repository": repository, "issueNumber": number})).await;
        let said = (refused.status, refused.code());
        assert_eq!(said, (404, "issue_unknown".to_owned()), "{repository}#{number}: {refused:?}");
        let hint = refused.json()["error"]["hint"].to_string();
        assert!(hint.contains("check the repository and the number"), "{hint}");
    }
    let listed = world.server.get("/v1/sandboxes?deleted=true").await.json();
    assert_eq!(listed["data"], json!([]));
    assert_eq!(world.server.provider.object_count(), 0);
    world.nothing_wrong();
}

#[tokio::test]
async fn a_closed_issue_gets_no_sandbox_and_a_running_one_stops() {
    let world = AskingWorld::new().await;
    world.github.close((REPOSITORY, world.number), MAINTAINER);
    let refused = world.ensure(json!({})).await;
    assert_eq!((refused.status, refused.code()), (409, "issue_closed".to_owned()));
    let by_library = world.ensure_by_library(AccountName::default_account()).await;
    let closed = "the issue octo/hello#1 is closed on GitHub";
    assert_eq!(by_library.err().expect("it is closed").to_string(), closed);
    let other = world.ensure_by_library(AccountName::trusted("other")).await;
    let foreign = "the repository octo/hello is not of the account other";
    assert_eq!(other.err().expect("it is another account's").to_string(), foreign);
    assert_eq!(world.server.provider.object_count(), 0);
    world.github.reopen((REPOSITORY, world.number), MAINTAINER);
    let made = world.ensure(json!({})).await;
    assert_eq!((made.status, &made.json()["data"]["phase"]), (201, &json!("running")));
    // It was closed while nothing was delivered.
    world.github.close((REPOSITORY, world.number), MAINTAINER);
    assert_eq!(world.ensure(json!({})).await.code(), "issue_closed");
    let id = made.json()["sandboxId"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sandboxes/{id}?until=stopped&wait=10");
    assert_eq!(world.server.get(&path).await.json()["data"]["phase"], "stopped");
    // Opened again, it is the same sandbox that starts.
    world.github.reopen((REPOSITORY, world.number), MAINTAINER);
    let by_library = world.ensure_by_library(AccountName::default_account()).await;
    assert_eq!(by_library.expect("it is open").sandbox().id.as_str(), id);
    let again = world.ensure(json!({})).await;
    assert_eq!((again.status, &again.json()["sandboxId"]), (200, &json!(id)), "{again:?}");
    assert_eq!(again.json()["data"]["phase"], "running");
    world.nothing_wrong();
}

#[tokio::test]
async fn a_transferred_issue_keeps_its_sandbox() {
    let world = AskingWorld::new().await;
    let made = world.ensure(json!({})).await.json();
    world.github.open_issue("octo/other", MAINTAINER, "Another", "");
    let there = world.github.transfer_issue((REPOSITORY, world.number), MAINTAINER, "octo/other");
    let followed = world.ensure(json!({})).await;
    assert_eq!((followed.status, &followed.json()["sandboxId"]), (200, &made["sandboxId"]));
    let data = followed.json()["data"].clone();
    assert_eq!((&data["repository"], &data["issueNumber"]), (&json!("octo/other"), &json!(there)));
    let new = world.ensure(json!({"repository": "octo/other", "issueNumber": there})).await;
    assert_eq!(new.json()["sandboxId"], made["sandboxId"]);
    until("one object", || async { world.server.provider.object_count() == 1 }).await;
    world.nothing_wrong();
}

#[tokio::test]
async fn an_issue_that_was_transferred_before_it_was_known_is_followed() {
    let world = AskingWorld::new().await;
    let there = world.github.transfer_issue((REPOSITORY, world.number), MAINTAINER, "octo/other");
    let made = world.ensure(json!({})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let data = made.json()["data"].clone();
    assert_eq!((&data["repository"], &data["issueNumber"]), (&json!("octo/other"), &json!(there)));
    world.nothing_wrong();
}

#[tokio::test]
async fn a_silent_github_is_no_reason_to_call_an_issue_unknown() {
    let world = AskingWorld::new().await;
    let path = "repos/*/*/issues/*";
    for fault in [FaultKind::Status(502), FaultKind::LostBefore] {
        world.github.order(ModelFault::on("GET", path, fault));
        let refused = world.ensure(json!({})).await;
        assert_eq!((refused.status, refused.code()), (503, "github_unavailable".to_owned()));
        assert_eq!(refused.header("retry-after"), "10");
    }
    assert_eq!(world.server.provider.object_count(), 0);
    let made = world.ensure(json!({})).await;
    assert_eq!(made.status, 201, "{made:?}");
    // One that is known is ensured as it is known here.
    world.github.order(ModelFault::on("GET", path, FaultKind::Status(502)));
    let known = world.ensure(json!({})).await;
    assert_eq!((known.status, &known.json()["outcome"]), (200, &json!("existing")), "{known:?}");
    world.github.order(ModelFault::on("GET", path, FaultKind::SecondaryLimit(429, Some(50))));
    let other = world.github.open_issue(REPOSITORY, MAINTAINER, "Second", "");
    let limited = world.ensure(json!({"issueNumber": other})).await;
    assert_eq!((limited.status, limited.code()), (503, "github_unavailable".to_owned()));
    let secs: u32 = limited.header("retry-after").parse().expect("seconds");
    assert!((40..=52).contains(&secs), "{secs}");
    world.nothing_wrong();
}

#[tokio::test]
async fn another_id_than_githubs_is_a_conflict_and_one_without_a_number_is_not_asked_about() {
    let world = AskingWorld::new().await;
    let refused = world.ensure(json!({"issueId": "test-1"})).await;
    assert_eq!((refused.status, refused.code()), (409, "issue_id_conflict".to_owned()));
    assert_eq!(world.server.provider.object_count(), 0);
    let before = world.github.calls().len();
    let made = world.server.post("/v1/sandboxes", json!({"issueId": "test-1"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(world.github.calls().len(), before);
}

#[tokio::test]
async fn a_deleted_issue_takes_its_sandbox_with_it() {
    let world = AskingWorld::new().await;
    let made = world.ensure(json!({})).await.json();
    world.github.delete_issue((REPOSITORY, world.number), MAINTAINER);
    let refused = world.ensure(json!({})).await;
    assert_eq!((refused.status, refused.code()), (404, "issue_unknown".to_owned()));
    let id = made["sandboxId"].as_str().expect("an id");
    let path = format!("/v1/sandboxes/{id}?until=deleted&wait=10");
    assert!(world.server.get(&path).await.json()["data"]["deletedAt"].is_string());
    assert_eq!(world.server.provider.object_count(), 0);
}
