//! Tokens, roles and accounts over HTTP: who is admitted, what each may do, and that no account sees
//! anything of another one.

use std::time::Duration;

use crate::common::document::{Operation, operations};
use crate::common::server::{Answer, TestServer, opened, send};
use futures_util::StreamExt;
use issuebox::clock::{Clock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};

/// Long enough for anything here; what takes longer does not end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The title of the issue that the others must not see.
const TITLE: &str = "a title of one account alone";

async fn get(server: &TestServer, token: &str, path: &str) -> Answer {
    send(server.client.get(server.url(path)).bearer_auth(token)).await
}

#[tokio::test]
async fn a_token_is_shown_once_listed_without_itself_and_refused_when_deleted() {
    let server = TestServer::start().await;
    let body = json!({"name": "ci", "role": "viewer", "expiresInSeconds": 3600});
    let created = server.post("/v1/tokens", body).await;
    assert_eq!(created.status, 201, "{created:?}");
    let data = created.json()["data"].clone();
    let (id, token) = (data["id"].as_str().expect("an id"), data["token"].as_str().expect("it"));
    assert!(token.starts_with("ibx_"), "{token}");
    assert_eq!((&data["role"], &data["account"]), (&json!("viewer"), &json!("default")));
    assert_eq!(get(&server, token, "/v1/sandboxes").await.status, 200);
    let list = server.get("/v1/tokens").await;
    assert!(!list.text.contains(token) && list.json()["total"] == 1, "{list:?}");
    assert!(list.json()["data"][0]["lastUsedAt"].is_string(), "{list:?}");
    assert!(list.json()["data"][0]["expiresAt"].is_string(), "{list:?}");
    // Another one of the same form is refused.
    let last = if token.ends_with('0') { "1" } else { "0" };
    let other = format!("{}{last}", &token[..token.len() - 1]);
    assert_eq!(get(&server, &other, "/v1/sandboxes").await.status, 401);
    let delete = || send(server.request(Method::DELETE, &format!("/v1/tokens/{id}")));
    assert_eq!(delete().await.status, 204);
    assert_eq!(get(&server, token, "/v1/sandboxes").await.status, 401);
    assert_eq!(delete().await.code(), "token_not_found");
}

#[tokio::test]
async fn a_token_is_valid_after_a_restart_until_it_expires() {
    let server = TestServer::start().await;
    let token = server.token("acme", "viewer").await;
    let body = json!({"name": "short", "role": "viewer", "expiresInSeconds": 1});
    let short = server.post("/v1/tokens", body).await.json();
    let short = short["data"]["token"].as_str().expect("a token").to_owned();
    let data = std::sync::Arc::clone(&server.data);
    drop(server);
    let server = TestServer::over(data, "memory", |_| {}).await;
    assert_eq!(get(&server, &token, "/v1/sandboxes").await.status, 200);
    SystemClock.sleep_until(SystemClock.now().after(Duration::from_secs(1))).await;
    assert_eq!(get(&server, &short, "/v1/sandboxes").await.status, 401);
}

#[tokio::test]
async fn what_is_wrong_with_a_new_token_is_named() {
    let server = TestServer::start().await;
    for (body, field) in [
        (json!({"role": "viewer"}), "name"),
        (json!({"name": " ", "role": "viewer"}), "name"),
        (json!({"name": "a"}), "role"),
        (json!({"name": "a", "role": "root"}), "role"),
        (json!({"name": "a", "role": "viewer", "account": "a b"}), "account"),
        (json!({"name": "a", "role": "viewer", "account": "nowhere"}), "account"),
        (json!({"name": "a", "role": "viewer", "expiresInSeconds": 0}), "expiresInSeconds"),
        (json!({"name": "a", "role": "viewer", "more": 1}), "more"),
    ] {
        let answer = server.post("/v1/tokens", body).await;
        assert_eq!(answer.json()["error"]["field"], field, "{answer:?}");
    }
    for (rules, field) in [
        (json!({"repositories": ["acme"]}), "repositories"),
        (json!({"installations": ["7"]}), "installations"),
        (json!({"disabled": "yes"}), "disabled"),
    ] {
        let put = server.request(Method::PUT, "/v1/accounts/acme").json(&rules);
        let answer = send(put).await;
        assert_eq!(answer.json()["error"]["field"], field, "{answer:?}");
    }
}

#[tokio::test]
async fn each_role_may_do_what_the_description_says_and_no_more() {
    let server = TestServer::start().await;
    let viewer = server.token("default", "viewer").await;
    let operator = server.token("default", "operator").await;
    let is_refused = async |operation: &Operation, token: &str| {
        let answer = send(operation.bare(&server, "x", "1").bearer_auth(token)).await;
        let needs = answer.text.contains("this needs the role");
        assert_eq!(needs, answer.status == 403, "{}: {answer:?}", operation.name());
        needs
    };
    let mut refused = (0, 0);
    for operation in operations(&server).await {
        if !operation.is_v1() || operation.path == "/v1/events" {
            continue; // The latter reads, and does not end.
        }
        let is_of_admins = ["/v1/tokens", "/v1/accounts", "/v1/system/drift", "/v1/github"];
        let is_of_admins = is_of_admins.iter().any(|path| operation.path.starts_with(path))
            || operation.path == "/v1/holds/server";
        let acts = operation.method != Method::GET
            || operation.is_socket()
            || operation.path.contains("{port}");
        let may_view = operation.path == "/v1/login-links" || !acts;
        assert_eq!(is_refused(&operation, &operator).await, is_of_admins, "{}", operation.name());
        let of_viewer = is_refused(&operation, &viewer).await;
        assert_eq!(of_viewer, is_of_admins || !may_view, "{}", operation.name());
        refused.0 += usize::from(is_of_admins);
        refused.1 += usize::from(of_viewer);
    }
    assert!(refused.0 > 5 && refused.1 > 20, "{refused:?}");
    // From another machine: on this one they are open.
    let metrics =
        server.client.get(server.url("/metrics")).header("x-forwarded-for", "203.0.113.9");
    let metrics = send(metrics.bearer_auth(&viewer)).await;
    assert_eq!(metrics.status, 403, "they are of all accounts");
}

#[tokio::test]
async fn a_path_that_is_percent_encoded_needs_the_same_role() {
    let server = TestServer::start().await;
    let viewer = server.token("default", "viewer").await;
    let operator = server.token("default", "operator").await;
    let mut asked = 0;
    for operation in operations(&server).await.iter().filter(|operation| operation.is_v1()) {
        if operation.path == "/v1/events" {
            continue;
        }
        let address = operation.address("x", "1");
        for (at, letter) in address.char_indices().skip(4).filter(|(_, c)| c.is_ascii_lowercase()) {
            let encoded = format!("%{:02x}", u32::from(letter));
            let encoded = format!("{}{encoded}{}", &address[..at], &address[at + 1..]);
            for token in [&viewer, &operator] {
                let ask = async |address: &str| {
                    let request =
                        server.client.request(operation.method.clone(), server.url(address));
                    send(request.bearer_auth(token)).await
                };
                let (plain, answer) = (ask(&address).await, ask(&encoded).await);
                if plain.text.contains("this needs the role") {
                    assert_eq!(answer.status, 403, "{} {encoded}: {answer:?}", operation.method);
                    asked += 1;
                }
            }
            // One letter of each part that may be a word of a rule.
            if asked % 3 == 0 && at > 12 {
                break;
            }
        }
    }
    assert!(asked > 50, "{asked}");
}

#[tokio::test]
async fn two_accounts_see_nothing_of_each_other_by_any_route() {
    let server = TestServer::start().await;
    let (ours, theirs) =
        (server.token("acme", "operator").await, server.token("other", "operator").await);
    let body = json!({"issueId": "7001", "issueTitle": TITLE});
    let ensure = server.client.post(server.url("/v1/sandboxes?wait=10")).bearer_auth(&ours);
    let made = send(ensure.json(&body)).await;
    assert_eq!(made.json()["data"]["phase"], "running", "{made:?}");
    assert_eq!(made.json()["data"]["account"], "acme");
    let id = made.json()["sandboxId"].as_str().expect("an id").to_owned();
    for operation in operations(&server).await {
        if !operation.is_v1() || operation.path == "/v1/events" {
            continue; // Its stream is asked below.
        }
        let ask = async |sandbox: &str, issue: &str| {
            let request = operation.bare(&server, sandbox, issue).bearer_auth(&theirs);
            let answer = send(request).await;
            assert!(!answer.text.contains(TITLE), "{}: {answer:?}", operation.name());
            (answer.status, answer.text.replace(sandbox, "ID").replace(issue, "ISSUE"))
        };
        let (foreign, unknown) = (ask(&id, "7001").await, ask("sb-unknown", "7002").await);
        assert_eq!(foreign.0, unknown.0, "{}: {foreign:?}", operation.name());
        // What was made for each has ids and times of its own.
        if foreign.0 >= 400 {
            // Each was held at a time of its own.
            let words = |(_, text): &(u16, String)| text.split(" since ").next().map(str::to_owned);
            assert_eq!(words(&foreign), words(&unknown), "{}", operation.name());
        }
        assert!(!foreign.1.contains("\"ID\""), "{}: {foreign:?}", operation.name());
    }
    // By the name of the sandbox too, which both accounts have then.
    let release = server.client.delete(server.url("/v1/holds/issues/7001"));
    assert_eq!(send(release.bearer_auth(&theirs)).await.status, 200);
    let ensure = server.client.post(server.url("/v1/sandboxes")).bearer_auth(&theirs);
    assert!(send(ensure.json(&json!({"issueId": "7001"}))).await.status < 300);
    let of_theirs = get(&server, &theirs, "/v1/sandboxes/claude-issue-7001").await.json();
    assert_eq!(of_theirs["data"]["account"], "other");
    assert_ne!(of_theirs["data"]["id"], id);
    let of_ours = get(&server, &ours, "/v1/sandboxes").await.json();
    assert_eq!((&of_ours["total"], &of_ours["data"][0]["id"]), (&json!(1), &json!(id)));
    assert_eq!(of_ours["data"][0]["phase"], "running", "it was not stopped or deleted");
    let system = get(&server, &ours, "/v1/system").await.json();
    assert_eq!(system["data"]["sandboxes"]["running"], 1, "{system}");
}

#[tokio::test]
async fn an_admin_acts_in_another_account_and_nobody_else_does() {
    let server = TestServer::start().await;
    let operator = server.token("acme", "operator").await;
    let admin = server.token("other", "admin").await;
    let put = server.request(Method::PUT, "/v1/issues/7/sandbox?wait=10");
    let made = send(put.header("x-issuebox-account", "acme").body("{}")).await;
    assert_eq!(made.json()["data"]["account"], "acme", "{made:?}");
    assert_eq!(get(&server, &operator, "/v1/sandboxes").await.json()["total"], 1);
    assert_eq!(get(&server, &admin, "/v1/sandboxes").await.json()["total"], 0);
    let inside = |token: &str, account: &str| {
        let request = server.client.get(server.url("/v1/sandboxes")).bearer_auth(token);
        send(request.header("x-issuebox-account", account))
    };
    assert_eq!(inside(&admin, "acme").await.json()["total"], 1);
    assert_eq!(inside(&operator, "acme").await.json()["total"], 1, "it is its own");
    assert_eq!(inside(&operator, "default").await.status, 403);
    assert_eq!(inside(&operator, "nowhere").await.status, 403, "as for one that is there");
}

#[tokio::test]
async fn a_delivery_belongs_to_the_account_of_its_repository_and_its_issue_stays_there() {
    let server = TestServer::start().await;
    let acme = server.token("acme", "operator").await;
    server.account("acme", json!({"repositories": ["octo/*"]})).await;
    assert_eq!(server.deliver("issues", "d-1", &opened(1, TITLE)).await.status, 202);
    let sandbox = get(&server, &acme, "/v1/issues/1/sandbox").await.json();
    assert_eq!(sandbox["data"]["account"], "acme", "{sandbox}");
    let deliveries = get(&server, &acme, "/v1/deliveries").await.json();
    assert_eq!((&deliveries["total"], &deliveries["data"][0]["issueId"]), (&json!(1), &json!("1")));
    // What has no effect is in no other account's list, either.
    let pinned = opened(1, TITLE).replace("opened", "pinned");
    assert_eq!(server.deliver("issues", "d-2", &pinned).await.status, 200);
    assert_eq!(server.get("/v1/deliveries").await.json()["total"], 0);
    assert_eq!(server.get("/v1/issues/1/sandbox").await.json()["data"], Value::Null);
    // A program of another account cannot take it.
    let body = json!({"issueId": "1", "repository": "octo/hello", "issueNumber": 1});
    let refused = server.post("/v1/sandboxes", body).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{refused:?}");
    // The rules change: the issue stays where it is, and new ones go elsewhere.
    server.account("acme", json!({})).await;
    let closed = opened(1, TITLE).replace("opened", "closed").replace("\"open\"", "\"closed\"");
    let closed = closed.replace("2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z");
    assert_eq!(server.deliver("issues", "d-3", &closed).await.status, 202);
    let path = "/v1/sandboxes/claude-issue-1?until=stopped&wait=10";
    let stopped = get(&server, &acme, path).await.json();
    assert_eq!(stopped["data"]["wanted"], "stopped", "{stopped}");
    assert_eq!(server.get("/v1/issues/1/sandbox").await.json()["data"], Value::Null);
}

#[tokio::test]
async fn the_id_of_a_program_takes_no_issue_of_githubs() {
    let server = TestServer::start().await;
    let thief = server.token("thief", "operator").await;
    let ensure = server.client.put(server.url("/v1/issues/1/sandbox")).bearer_auth(&thief);
    assert_eq!(send(ensure.body("{}")).await.status, 201);
    assert_eq!(server.deliver("issues", "d-1", &opened(1, TITLE)).await.status, 202);
    let theirs = get(&server, &thief, "/v1/issues/1/sandbox").await;
    assert!(!theirs.text.contains(TITLE), "{theirs:?}");
    let issue = server.get("/v1/issues/1/sandbox").await.json();
    assert_eq!(issue["data"]["account"], "default", "{issue}");
}

#[tokio::test]
async fn streams_end_at_once_when_their_token_is_deleted_or_its_account_disabled() {
    let server = TestServer::start().await;
    let stream = async |token: &str| {
        let request = server.client.get(server.url("/v1/events")).bearer_auth(token);
        request.timeout(PATIENCE * 2).send().await.expect("it begins")
    };
    let deleted = server.token("default", "viewer").await;
    let disabled = server.token("acme", "viewer").await;
    let kept = server.token("other", "viewer").await;
    let (first, second, third) =
        (stream(&deleted).await, stream(&disabled).await, stream(&kept).await);
    let tokens = server.get("/v1/tokens").await.json();
    let of_default = |token: &&Value| token["account"] == "default";
    let mut tokens = tokens["data"].as_array().expect("a list").iter();
    let id = tokens.find(of_default).and_then(|token| token["id"].as_str()).expect("it is there");
    let delete = server.request(Method::DELETE, &format!("/v1/tokens/{id}"));
    assert_eq!(send(delete).await.status, 204);
    server.account("acme", json!({"disabled": true})).await;
    for ended in [first, second] {
        let text = tokio::time::timeout(PATIENCE, ended.text()).await.expect("it ends");
        text.expect("it is read to its end");
    }
    let mut third = third.bytes_stream();
    server.client.put(server.url("/v1/issues/5/sandbox")).bearer_auth(&kept).send().await.ok();
    assert!(third.next().await.is_some_and(|piece| piece.is_ok()), "it goes on");
}

#[tokio::test]
async fn holds_are_of_the_account_whose_they_are() {
    let server = TestServer::start().await;
    let acme = server.token("acme", "operator").await;
    server.account("acme", json!({"repositories": ["acme/*"]})).await;
    let put = async |token: &str, id: &str| {
        let url = server.url(&format!("/v1/holds/{id}"));
        send(server.client.put(url).bearer_auth(token).body("")).await.status
    };
    for (id, status) in [
        ("issues/7", 200),
        ("accounts/acme", 200),
        ("repositories/acme/web", 200),
        ("accounts/default", 403),
        ("accounts/nowhere", 403),
        ("repositories/octo/hello", 403),
        ("server", 403),
    ] {
        assert_eq!(put(&acme, id).await, status, "{id}");
    }
    let ids = async |token: &str| {
        let list = get(&server, token, "/v1/holds").await.json();
        let ids = list["data"].as_array().expect("a list").iter();
        ids.map(|hold| hold["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let seen = ["accounts/acme", "repositories/acme/web", "issues/7"];
    assert_eq!(ids(&acme).await, seen);
    let other = server.token("other", "operator").await;
    assert_eq!(ids(&other).await, Vec::<String>::new());
    // An issue of this id in another account is another one.
    let ensure = server.client.put(server.url("/v1/issues/7/sandbox")).bearer_auth(&other);
    assert_eq!(send(ensure.body("{}")).await.status, 201);
    let release = server.client.delete(server.url("/v1/holds/issues/7")).bearer_auth(&other);
    assert_eq!(send(release).await.json()["data"]["released"], false);
    assert_eq!(ids(&acme).await, seen, "it is held still");
}

#[tokio::test]
async fn a_person_works_on_the_page_with_the_account_and_role_of_the_token() {
    let server = TestServer::start().await;
    let viewer = server.token("acme", "viewer").await;
    let ensure = server.request(Method::PUT, "/v1/issues/7/sandbox?wait=10");
    let body = json!({"issueTitle": TITLE});
    let made = send(ensure.header("x-issuebox-account", "acme").json(&body)).await;
    let id = made.json()["sandboxId"].as_str().expect("an id").to_owned();
    server.running("8").await;
    let log_in = server.client.post(server.url("/login")).header("origin", server.url(""));
    let answer = send(log_in.body(format!("token={viewer}"))).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let cookie = answer.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let page = async |path: &str| {
        send(server.client.get(server.url(path)).header("cookie", &cookie)).await
    };
    let list = page("/").await;
    assert!(list.text.contains(TITLE) && !list.text.contains("claude-issue-8"), "{list:?}");
    let sandbox = page(&format!("/sandboxes/{id}")).await;
    assert_eq!(sandbox.status, 200);
    assert_eq!(page("/sandboxes/claude-issue-8").await.status, 404);
    assert_eq!(page("/drift").await.status, 403);
    assert_eq!(page("/connect").await.status, 403);
    let token = sandbox.text.split("name=\"formToken\" value=\"").nth(1).expect("a form token");
    let token = token.split('"').next().expect("its value");
    let stop = server.client.post(server.url(&format!("/sandboxes/{id}/stop")));
    let stop = stop.header("cookie", &cookie).header("origin", server.url(""));
    let refused = send(stop.body(format!("formToken={token}"))).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let tokens = server.get("/v1/tokens").await.json();
    let of_viewer = tokens["data"][0]["id"].as_str().expect("an id");
    send(server.request(Method::DELETE, &format!("/v1/tokens/{of_viewer}"))).await;
    assert!(page("/").await.text.contains("Log in"), "the session ended with its token");
}
