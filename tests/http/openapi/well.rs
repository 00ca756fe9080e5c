//! What goes well, on every route and with every status that is not a refusal.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use reqwest::Method;
use serde_json::{Value, json};

use crate::common::document::{Operation, listed, operations};
use crate::common::server::{TOKEN, TestServer, opened, opening, send};

/// Calls that succeed in this order: method, address and body.
const CALLS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/sandboxes?wait=5", r#"{"issueId":"1"}"#),
    ("POST", "/v1/sandboxes", r#"{"issueId":"1"}"#),
    ("PUT", "/v1/issues/2/sandbox?wait=5", ""),
    ("PUT", "/v1/issues/2/sandbox", ""),
    ("GET", "/v1/sandboxes", ""),
    ("GET", "/v1/sandboxes/claude-issue-1", ""),
    ("GET", "/v1/issues/1/sandbox", ""),
    ("GET", "/v1/issues/1/events", ""),
    ("GET", "/v1/repos/o/r/issues/1/sandbox", ""),
    ("GET", "/v1/repos/o/r/issues/1/events", ""),
    ("POST", "/v1/sandboxes/claude-issue-1/exec", r#"{"command":["echo"]}"#),
    ("GET", "/v1/sandboxes/claude-issue-1/ports", ""),
    ("GET", "/v1/sandboxes/claude-issue-1/limits", ""),
    ("GET", "/v1/sandboxes/claude-issue-1/checkout", ""),
    ("GET", "/v1/sandboxes/claude-issue-1/configuration", ""),
    ("GET", "/v1/sandboxes/claude-issue-1/logs?tail=5", ""),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/content?path=f", "x"),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/content?path=f", "y"),
    ("GET", "/v1/sandboxes/claude-issue-1/files/content?path=f", ""),
    ("GET", "/v1/sandboxes/claude-issue-1/files", ""),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/directory?path=d", ""),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/directory?path=d", ""),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/mode?path=f&mode=600", ""),
    ("POST", "/v1/sandboxes/claude-issue-1/files/move?from=f&to=g", ""),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/content?path=f", "x"),
    ("POST", "/v1/sandboxes/claude-issue-1/files/move?from=g&to=f&overwrite=true", ""),
    ("PUT", "/v1/sandboxes/claude-issue-1/files/archive?path=d", "x"),
    ("GET", "/v1/sandboxes/claude-issue-1/files/archive?path=d", ""),
    ("DELETE", "/v1/sandboxes/claude-issue-1/files/content?path=f", ""),
    ("POST", "/v1/sandboxes/claude-issue-1/sync", ""),
    ("GET", "/v1/sandboxes/claude-issue-1/sync/versions", ""),
    ("POST", "/v1/sandboxes/claude-issue-1/stop?wait=5", ""),
    ("POST", "/v1/sandboxes/claude-issue-1/start?wait=5", ""),
    ("POST", "/v1/sandboxes/claude-issue-1/publish", ""),
    ("POST", "/v1/sandboxes/claude-issue-2/messages", r#"{"text":"x","agentId":"cat"}"#),
    ("PUT", "/v1/sandboxes/claude-issue-1/meta", r#"{"meta":{"team":"core"}}"#),
    ("PUT", "/v1/issues/2/messages", r#"{"text":"x","agentId":"cat"}"#),
    ("GET", "/v1/sandboxes/claude-issue-2/conversation", ""),
    ("GET", "/v1/issues/2/conversation", ""),
    ("GET", "/v1/issues/nope/conversation", ""),
    ("GET", "/v1/issues/nope/conversation/events", ""),
    ("GET", "/v1/runs?state=queued,running", ""),
    ("GET", "/v1/usage?by=model", ""),
    ("DELETE", "/v1/sandboxes/claude-issue-1", ""),
    ("DELETE", "/v1/sandboxes/claude-issue-1?wait=5", ""),
    ("GET", "/v1/deliveries", ""),
    ("PUT", "/v1/holds/server", ""),
    ("DELETE", "/v1/holds/server", ""),
    ("PUT", "/v1/holds/accounts/a", ""),
    ("DELETE", "/v1/holds/accounts/a", ""),
    ("PUT", "/v1/holds/repositories/o/r", r#"{"reason":"x"}"#),
    ("GET", "/v1/holds", ""),
    ("DELETE", "/v1/holds/repositories/o/r", ""),
    ("PUT", "/v1/holds/issues/9", ""),
    ("DELETE", "/v1/holds/issues/9", ""),
    ("PUT", "/v1/accounts/a", r#"{"owners":["x"]}"#),
    ("GET", "/v1/accounts", ""),
    ("POST", "/v1/tokens", r#"{"name":"t","role":"viewer","account":"a"}"#),
    ("GET", "/v1/tokens", ""),
    ("POST", "/v1/login-links", ""),
    ("GET", "/v1/system", ""),
    ("GET", "/v1/templates", ""),
    ("GET", "/v1/system/drift", ""),
    ("GET", "/v1/github", ""),
    ("POST", "/v1/github/effects/1/retry", ""),
    ("GET", "/healthz", ""),
    ("GET", "/readyz", ""),
    ("GET", "/metrics", ""),
    ("GET", "/openapi.json", ""),
    ("GET", "/docs", ""),
    ("GET", "/", ""),
    ("GET", "/login", ""),
];

/// Operations with the statuses that they were seen to answer.
type Seen = BTreeSet<(String, u16)>;

/// The operation of an address.
fn operation<'a>(all: &'a [Operation], method: &str, address: &str) -> &'a Operation {
    let path = address.split('?').next().unwrap_or_default();
    let fits = |operation: &&Operation| {
        let (pattern, path) = (operation.path.split('/'), path.split('/'));
        let is_part = |(pattern, part): (&str, &str)| pattern.starts_with('{') || pattern == part;
        operation.method.as_str() == method
            && pattern.clone().count() == path.clone().count()
            && pattern.zip(path).all(is_part)
    };
    // A path without parameters comes before one with them.
    let found = all.iter().filter(fits).min_by_key(|operation| operation.path.matches('{').count());
    found.unwrap_or_else(|| panic!("{method} {address} is not described"))
}

#[tokio::test]
async fn what_goes_well_goes_as_described() {
    let server = TestServer::start().await;
    let all = operations(&server).await;
    let mut seen = Seen::new();
    let cookie = server.log_in().await;
    let page = server.client.get(server.url("/")).header("cookie", &cookie);
    let page = send(page).await.text;
    let style = page.split('"').find(|part| part.starts_with("/assets/style")).expect("a style");
    for (method, address, body) in CALLS.iter().copied().chain([("GET", style, "")]) {
        let operation = operation(&all, method, address);
        let request = server.request(operation.method.clone(), address).body(body);
        let answer = send(request).await;
        assert!(answer.status < 400, "{method} {address}: {answer:?}");
        seen.insert((operation.name(), listed(operation, &answer).0));
    }
    let tokens = server.get("/v1/tokens").await.json();
    let token = tokens["data"][0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/tokens/{token}");
    let deleted = send(server.request(Method::DELETE, &path)).await;
    let of_token = operation(&all, "DELETE", &path);
    seen.insert((of_token.name(), listed(of_token, &deleted).0));
    let webhook = operation(&all, "POST", "/webhooks/github");
    for (id, duplicate) in [("d-1", 202), ("d-1", 200)] {
        let answer = server.deliver("issues", id, &opened(9, "x")).await;
        assert_eq!(answer.status, duplicate);
        seen.insert((webhook.name(), listed(webhook, &answer).0));
    }
    for (path, form) in [("/login", format!("token={TOKEN}")), ("/logout", String::new())] {
        let request = server.client.post(server.url(path)).header("origin", server.url(""));
        let answer = send(request.body(form)).await;
        seen.insert((format!("POST {path}"), answer.status));
    }
    let tunnel = operation(&all, "GET", "/v1/sandboxes/1/ports/3000");
    let ordinary = send(server.request(Method::GET, "/v1/sandboxes/1/ports/3000")).await;
    seen.insert((tunnel.name(), listed(tunnel, &ordinary).0));
    see_retry_and_range(&server, &mut seen).await;
    see_runs(&server, &mut seen).await;
    see_streams(&server, &mut seen).await;
    let missing: Vec<_> = all
        .iter()
        .filter(|o| !o.is_remedy())
        .flat_map(|o| o.answers.iter().map(|(status, _)| (o.name(), *status)))
        .filter(|(name, status)| *status < 400 && !seen.contains(&(name.clone(), *status)))
        .collect();
    assert!(missing.is_empty(), "described, but not seen: {missing:?}");
}

async fn see_retry_and_range(server: &TestServer, seen: &mut Seen) {
    server.provider.refusing.store(true, Ordering::SeqCst);
    server.post("/v1/sandboxes?wait=5", json!({"issueId": "3"})).await;
    let retried = server.post("/v1/sandboxes/claude-issue-3/retry", Value::Null).await;
    seen.insert(("POST /v1/sandboxes/{id}/retry".into(), retried.status));
    let put = server.request(Method::PUT, "/v1/sandboxes/claude-issue-2/files/content?path=r");
    send(put.body("abc")).await;
    let part = server.request(Method::GET, "/v1/sandboxes/claude-issue-2/files/content?path=r");
    let part = send(part.header("range", "bytes=1-")).await;
    seen.insert(("GET /v1/sandboxes/{id}/files/content".into(), part.status));
}

async fn see_runs(server: &TestServer, seen: &mut Seen) {
    let runs = server.get("/v1/runs").await.json();
    let run = runs["data"][0]["id"].as_str().expect("a run").to_owned();
    for verb in ["cancel", "retry"] {
        let answer = server.post(&format!("/v1/runs/{run}/{verb}"), Value::Null).await;
        seen.insert((format!("POST /v1/runs/{{run}}/{verb}"), answer.status));
    }
    let (run, question) = crate::asking::asking(server, "2").await;
    let body = json!({"question": question, "option": "once"});
    let answer = server.post(&format!("/v1/runs/{run}/answer"), body).await;
    seen.insert(("POST /v1/runs/{run}/answer".into(), answer.status));
    let address = "/v1/sandboxes/claude-issue-2/conversation/events";
    let events = server.request(Method::GET, address).send().await.expect("an answer");
    seen.insert(("GET /v1/sandboxes/{id}/conversation/events".into(), events.status().as_u16()));
}

/// WebSockets, ports and event streams: their heads say enough.
async fn see_streams(server: &TestServer, seen: &mut Seen) {
    for way in ["terminal", "exec"] {
        let socket = server.request(Method::GET, &format!("/v1/sandboxes/claude-issue-2/{way}"));
        let socket = send(opening(socket)).await;
        seen.insert((format!("GET /v1/sandboxes/{{id}}/{way}"), socket.status));
    }
    for (tail, opens) in [("", true), ("/x", true), ("/x", false)] {
        let address = format!("/v1/sandboxes/claude-issue-2/ports/3000{tail}");
        let request = server.request(Method::GET, &address);
        let request = if opens { opening(request) } else { request };
        let below = if tail.is_empty() { "" } else { "/{tail}" };
        let answer = request.send().await.expect("an answer");
        let name = format!("GET /v1/sandboxes/{{id}}/ports/{{port}}{below}");
        seen.insert((name, answer.status().as_u16()));
    }
    let events = server.request(Method::GET, "/v1/events").send().await.expect("an answer");
    seen.insert(("GET /v1/events".into(), events.status().as_u16()));
}
