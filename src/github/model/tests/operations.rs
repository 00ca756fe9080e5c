//! Each operation once, in the form that GitHub describes; and the answers that are not the usual one.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Garden, ORCHARD, receive};
use crate::github::model::description;
use crate::github::model::rest::operation_names;

#[tokio::test]
async fn each_operation_answers_as_it_is_described() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.open_issue(ORCHARD, "mira-holt", "Leaves fall", "Early.");
    github.label((ORCHARD, 1), "mira-holt", "agent");
    github.assign((ORCHARD, 1), "mira-holt", "mira-holt");
    github.edit_issue((ORCHARD, 1), "mira-holt", Some("Leaves fall early"), None);
    github.set_locked((ORCHARD, 1), "mira-holt", true);
    github.set_locked((ORCHARD, 1), "mira-holt", false);
    github.close((ORCHARD, 1), "mira-holt");
    github.reopen((ORCHARD, 1), "mira-holt");
    github.add_rule(ORCHARD, "main", "required_signatures");
    let hook = github.add_hook(ORCHARD, "http://127.0.0.1:9/", &["*"]);
    github.comment((ORCHARD, 1), "mira-holt", "/issuebox start");
    let tip = github.commit(ORCHARD, "issuebox/issue-1", &[("a.txt", "A")], "Add a");
    apps_and_deliveries(&garden, hook).await;
    reads(&garden).await;
    comments_reactions_and_labels(&garden).await;
    pulls_and_statuses(&garden, &tip).await;
    manifests(&garden).await;

    garden.assert_clean();
    let called: BTreeSet<String> =
        github.calls().into_iter().filter_map(|call| call.operation).collect();
    let known: BTreeSet<String> = operation_names().collect();
    let left: Vec<_> = known.difference(&called).collect();
    assert_eq!(left, ["DELETE /installation/token"], "another test calls it");
    let described: BTreeSet<String> =
        description::operations().into_iter().map(str::to_owned).collect();
    assert_eq!(known, described);
}

async fn apps_and_deliveries(garden: &Garden, hook: u64) {
    let (github, repo) = (&garden.github, format!("/repos/{ORCHARD}"));
    let jwt = garden.jwt();
    let app = async |method, path: &str| garden.call_as(&jwt, method, path, Value::Null).await;
    app(Method::GET, "/app").await.expect(200);
    app(Method::GET, "/app/installations?per_page=100").await.expect(200);
    app(Method::GET, &format!("/app/installations/{}", garden.installation)).await.expect(200);
    app(Method::GET, &format!("{repo}/installation")).await.expect(200);
    app(Method::GET, "/orgs/pear-garden/installation").await.expect(200);
    for (source, id) in [("/app/hook".to_owned(), None), (format!("{repo}/hooks/{hook}"), Some(()))]
    {
        let owner = github.user_token("pear-garden", None);
        let token = if id.is_some() { &owner } else { &jwt };
        let call =
            async |method, path: String| garden.call_as(token, method, &path, Value::Null).await;
        let list = call(Method::GET, format!("{source}/deliveries?per_page=2")).await.expect(200);
        let path = format!("{source}/deliveries/{}", list[0]["id"]);
        let full = call(Method::GET, path.clone()).await.expect(200);
        assert_eq!(full["request"]["payload"]["action"], "created");
        call(Method::POST, format!("{path}/attempts")).await.expect(202);
        if id.is_some() {
            call(Method::GET, format!("{repo}/hooks")).await.expect(200);
        }
    }
}

async fn reads(garden: &Garden) {
    let (github, repo) = (&garden.github, format!("/repos/{ORCHARD}"));
    for path in ["/installation/repositories", "/meta", "/rate_limit", "/users/issuebox-model[bot]"]
    {
        garden.get(path).await.expect(200);
    }
    let user = github.user_token("mira-holt", None);
    garden.call_as(&user, Method::GET, "/user", Value::Null).await.expect(200);
    for (is_member, status) in [(false, 302), (true, 204)] {
        github.set_member("pear-garden", "mira-holt", is_member);
        let path = "/orgs/pear-garden/members/mira-holt";
        garden.call_as(&user, Method::GET, path, Value::Null).await.expect(status);
    }
    for path in [
        "",
        "/issues?labels=agent&state=open&assignee=mira-holt&sort=updated&direction=asc",
        "/issues/1",
        "/issues/1/events?per_page=100",
        "/issues/1/comments?since=2026-01-01T00:00:00Z",
        "/issues/1/labels",
        "/collaborators/mira-holt/permission",
        "/git/ref/heads/issuebox/issue-1",
        "/rules/branches/main",
        "/contents/README.md",
        "/contents/a.txt?ref=issuebox/issue-1",
        "/pulls?head=pear-garden:issuebox/issue-1&state=all",
    ] {
        garden.get(&format!("{repo}{path}")).await.expect(200);
    }
}

async fn comments_reactions_and_labels(garden: &Garden) {
    let repo = format!("/repos/{ORCHARD}");
    let comment = garden.post(&format!("{repo}/issues/1/comments"), json!({"body": "Hello"})).await;
    let comment = format!("{repo}/issues/comments/{}", comment.expect(201)["id"]);
    garden.get(&comment).await.expect(200);
    let call =
        async |method, path: &str, body| garden.call_as(&garden.token, method, path, body).await;
    let edited = call(Method::PATCH, &comment, json!({"body": "Hello again"})).await.expect(200);
    assert_eq!(edited["body"], "Hello again");
    for target in [format!("{repo}/issues/1"), comment.clone()] {
        let reactions = format!("{target}/reactions");
        let eyes = json!({"content": "eyes"});
        let id = garden.post(&reactions, eyes.clone()).await.expect(201)["id"].clone();
        garden.post(&reactions, eyes).await.expect(200);
        garden.get(&format!("{reactions}?content=eyes")).await.expect(200);
        call(Method::DELETE, &format!("{reactions}/{id}"), Value::Null).await.expect(204);
    }
    call(Method::DELETE, &comment, Value::Null).await.expect(204);
    garden.get(&comment).await.expect(404);

    let labels = format!("{repo}/issues/1/labels");
    garden.post(&labels, json!({"labels": ["in work"]})).await.expect(200);
    let label = format!("{labels}/in%20work");
    assert_eq!(
        call(Method::DELETE, &label, Value::Null).await.expect(200).as_array().map(Vec::len),
        Some(1)
    );
    call(Method::DELETE, &label, Value::Null).await.expect(404);
}

async fn pulls_and_statuses(garden: &Garden, tip: &str) {
    let repo = format!("/repos/{ORCHARD}");
    let pull = json!({
        "title": "Add a", "head": "issuebox/issue-1", "base": "main", "body": "Fixes #1",
        "draft": true, "maintainer_can_modify": true,
    });
    let made = garden.post(&format!("{repo}/pulls"), pull).await.expect(201);
    let pull = format!("{repo}/pulls/{}", made["number"]);
    let number = made["number"].as_u64().expect("a number");
    let remarks = [("a.txt", "@@ -0,0 +1 @@\n+A", "Why A?")];
    let review = garden.github.review((ORCHARD, number), "mira-holt", "commented", "Hm.", &remarks);
    let path = format!("{pull}/reviews/{review}/comments?per_page=100");
    let listed = garden.get(&path).await.expect(200);
    assert_eq!(listed[0]["body"], "Why A?");
    assert_eq!((&made["head"]["sha"], &made["draft"]), (&json!(tip), &json!(true)));
    garden.get(&pull).await.expect(200);
    let edit = json!({"body": "Fixes #1."});
    garden.call_as(&garden.token, Method::PATCH, &pull, edit).await.expect(200);

    let status = json!({"state": "success", "context": "issuebox", "description": "done"});
    garden.post(&format!("{repo}/statuses/{tip}"), status).await.expect(201);
    garden.get(&format!("{repo}/commits/{tip}/statuses")).await.expect(200);
}

async fn manifests(garden: &Garden) {
    let code = garden.github.approve_manifest(json!({
        "name": "My Issuebox", "default_permissions": {"issues": "write"}, "default_events": ["issues"],
    }));
    let path = format!("/app-manifests/{code}/conversions");
    let made = garden.call_as("", Method::POST, &path, Value::Null).await.expect(201);
    assert_eq!(made["slug"], "my-issuebox");
    garden.call_as("", Method::POST, &path, Value::Null).await.expect(404);
    let path = "/installation/token";
    let narrowed = garden.call_as(&garden.token, Method::DELETE, path, Value::Null).await;
    assert_eq!(narrowed.status, 401, "the old App's installations are gone");
}

#[test]
fn what_is_not_described_is_found() {
    let call = |operation: &str, query: &[(&str, &str)], request: Value, status, answer: Value| {
        let query = query.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let call = crate::github::model::ModelCall {
            identity: "app".to_owned(),
            operation: Some(operation.to_owned()),
            method: String::new(),
            path: String::new(),
            query,
            request,
            status,
            answer,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        description::check(&call).len()
    };
    let reaction = "POST /repos/{owner}/{repo}/issues/{issue_number}/reactions";
    let error = json!({"message": "no", "documentation_url": ""});
    assert_eq!(call(reaction, &[], json!({"content": "eyes"}), 422, error.clone()), 0);
    assert_eq!(call(reaction, &[], json!({"content": "ears"}), 404, error.clone()), 1, "body");
    assert_eq!(call(reaction, &[], json!({"content": "eyes", "a": 1}), 404, error.clone()), 1);
    assert_eq!(call(reaction, &[], json!({"content": "eyes"}), 201, json!({"id": 1})), 1, "answer");
    assert_eq!(call(reaction, &[], json!({"content": "eyes"}), 202, json!({})), 1, "status");
    let list = "GET /repos/{owner}/{repo}/issues";
    assert_eq!(call(list, &[("per_page", "9")], Value::Null, 200, json!([])), 0);
    assert_eq!(call(list, &[("per_page", "all")], Value::Null, 200, json!([])), 1);
    assert_eq!(call(list, &[("pages", "9")], Value::Null, 200, json!([])), 1);
    assert_eq!(call("GET /nothing", &[], Value::Null, 200, json!({})), 1);
}

#[tokio::test]
async fn names_lead_on_after_renames_transfers_and_deletions() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.repository("pear-garden/press");
    for title in ["One", "Two"] {
        github.open_issue(ORCHARD, "mira-holt", title, "");
    }
    let moved_to = github.transfer_issue((ORCHARD, 1), "mira-holt", "pear-garden/press");
    github.delete_issue((ORCHARD, 2), "mira-holt");
    let moved = garden.get(&format!("/repos/{ORCHARD}/issues/1")).await;
    assert_eq!(moved.status, 301);
    let target = moved.header("location").replace(&github.api_url(), "");
    assert_eq!(garden.get(&target).await.expect(200)["number"], moved_to);
    garden.get(&format!("/repos/{ORCHARD}/issues/2")).await.expect(410);
    garden.get(&format!("/repos/{ORCHARD}/issues/3")).await.expect(404);
    github.rename_repository(ORCHARD, "pear-garden/meadow");
    let moved =
        garden.post(&format!("/repos/{ORCHARD}/issues/1/comments"), json!({"body": "a"})).await;
    assert_eq!(moved.status, 301);
    let by_id = format!("/repositories/{}", garden.repository);
    assert_eq!(moved.header("location"), format!("{}{by_id}/issues/1/comments", github.api_url()));
    assert_eq!(garden.get(&by_id).await.expect(200)["full_name"], "pear-garden/meadow");
    garden.assert_clean();
    garden.get(&format!("{by_id}/nothing")).await.expect(404);
    assert_eq!(github.violations().len(), 1, "an operation that is not known");
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_in_githubs_words() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.open_issue(ORCHARD, "mira-holt", "One", "");
    let comments = format!("/repos/{ORCHARD}/issues/1/comments");
    let comment = async || garden.post(&comments, json!({"body": "Hello"})).await;
    let message = async |status| comment().await.expect(status)["message"].clone();
    github.set_locked((ORCHARD, 1), "mira-holt", true);
    assert_eq!(message(403).await, "Unable to create comment because issue is locked.");
    github.set_locked((ORCHARD, 1), "mira-holt", false);
    github.set_archived(ORCHARD, true);
    assert_eq!(message(403).await, "Repository was archived so is read-only.");
    github.set_archived(ORCHARD, false);
    github.set_permissions(garden.installation, &[("issues", "read"), ("metadata", "read")]);
    assert_eq!(message(403).await, "Resource not accessible by integration");
    github.set_permissions(garden.installation, &[("issues", "write"), ("pull_requests", "write")]);
    garden.post(&comments, json!({"body": "x".repeat(65_537)})).await.expect(422);
    github.set_permissions(
        garden.installation,
        &[("issues", "write"), ("metadata", "read"), ("pull_requests", "write")],
    );

    let pulls = format!("/repos/{ORCHARD}/pulls");
    let pull = |draft| json!({"title": "A", "head": "work", "base": "main", "draft": draft});
    let words = async |draft| {
        garden.post(&pulls, pull(draft)).await.expect(422)["errors"][0]["message"].clone()
    };
    assert_eq!(words(true).await, "head is invalid");
    github.commit(ORCHARD, "work", &[("a.txt", "A")], "Add a");
    github.refuse_drafts(ORCHARD);
    assert_eq!(words(true).await, "Draft pull requests are not supported in this repository.");
    garden.post(&pulls, pull(false)).await.expect(201);
    assert_eq!(words(false).await, "A pull request already exists for pear-garden:work.");
    github.merge_pull((ORCHARD, 2), "mira-holt");
    assert_eq!(words(false).await, "No commits between main and work");
    assert_eq!(github.pulls(ORCHARD)[0]["merged"], true);
    garden.assert_clean();
}

#[tokio::test]
async fn permissions_of_people_are_what_they_are_now() {
    let garden = Garden::new().await;
    let github = &garden.github;
    let permission = async |login: &str| {
        let path = format!("/repos/{ORCHARD}/collaborators/{login}/permission");
        garden.get(&path).await
    };
    let both = async |login: &str| {
        let body = permission(login).await.expect(200);
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        (text("permission"), text("role_name"))
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(both("mira-holt").await, pair("write", "write"));
    github.set_role(ORCHARD, "mira-holt", "triage");
    assert_eq!(both("mira-holt").await, pair("read", "triage"));
    github.set_role(ORCHARD, "mira-holt", "none");
    assert_eq!(both("mira-holt").await, pair("read", "read"), "the repository is public");
    github.set_private(ORCHARD, true);
    assert_eq!(both("mira-holt").await, pair("none", "none"));
    permission("unknown").await.expect(404);
    permission("issuebox-model%5Bbot%5D").await.expect(404);
    garden.assert_clean();
}

#[tokio::test]
async fn lists_have_pages_and_unchanged_ones_cost_nothing() {
    let garden = Garden::new().await;
    let github = &garden.github;
    for number in 1..=5 {
        github.open_issue(ORCHARD, "mira-holt", "One", "");
        github.label((ORCHARD, number), "mira-holt", "Agent");
    }
    let path = format!("/repos/{ORCHARD}/issues?labels=agent&per_page=2&page=2");
    let first = garden.get(&path).await;
    let etag = first.header("etag").to_owned();
    let link = first.header("link").to_owned();
    assert!(link.contains("page=3>; rel=\"next\"") && link.contains("rel=\"last\""), "{link}");
    let used = first.header("x-ratelimit-used").to_owned();
    assert_eq!(first.expect(200).as_array().map(Vec::len), Some(2));
    let again = || garden.request(&garden.token, Method::GET, &path).header("if-none-match", &etag);
    let unchanged = receive(again()).await.expect("an answer");
    assert_eq!((unchanged.status.as_u16(), unchanged.header("x-ratelimit-used")), (304, &*used));
    github.unlabel((ORCHARD, 1), "mira-holt", "agent");
    let changed = receive(again()).await.expect("an answer");
    assert_eq!(changed.status, 200);
    garden.assert_clean();
}
