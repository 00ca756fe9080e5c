//! What goes well, on every route and with every status that is not a refusal.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use reqwest::Method;
use serde_json::{Value, json};

use crate::common::document::{listed, operations};
use crate::common::server::{TOKEN, TestServer, opened, opening, send};

#[tokio::test]
async fn what_goes_well_goes_as_described() {
    let server = TestServer::start().await;
    let mut seen = BTreeSet::new();
    let all = operations(&server).await;
    let of = |method: &str, path: &str| {
        let found = all.iter().find(|o| o.method.as_str() == method && o.path == path);
        found.unwrap_or_else(|| panic!("{method} {path} is not described")).clone()
    };
    let cookie = server.log_in().await;
    let page = server.client.get(server.url("/")).header("cookie", &cookie);
    let page = send(page).await.text;
    let style = page.split('"').find(|part| part.starts_with("/assets/style")).expect("a style");
    let exec = "/v1/sandboxes/{id}/exec";
    let content = "/v1/sandboxes/{id}/files/content";
    let directory = "/v1/sandboxes/{id}/files/directory";
    let moved = "/v1/sandboxes/{id}/files/move";
    let archive = "/v1/sandboxes/{id}/files/archive";
    let issue = "/v1/issues/{issueId}/sandbox";
    let repository_hold = "/v1/holds/repositories/{owner}/{repo}";
    for (method, path, address, body) in [
        ("POST", "/v1/sandboxes", "/v1/sandboxes?wait=5", r#"{"issueId":"1"}"#),
        ("POST", "/v1/sandboxes", "/v1/sandboxes", r#"{"issueId":"1"}"#),
        ("PUT", issue, "/v1/issues/2/sandbox?wait=5", ""),
        ("PUT", issue, "/v1/issues/2/sandbox", ""),
        ("GET", "/v1/sandboxes", "/v1/sandboxes", ""),
        ("GET", "/v1/sandboxes/{id}", "/v1/sandboxes/claude-issue-1", ""),
        ("GET", issue, "/v1/issues/1/sandbox", ""),
        ("GET", "/v1/issues/{issueId}/events", "/v1/issues/1/events", ""),
        (
            "GET",
            "/v1/repos/{owner}/{repo}/issues/{number}/sandbox",
            "/v1/repos/o/r/issues/1/sandbox",
            "",
        ),
        (
            "GET",
            "/v1/repos/{owner}/{repo}/issues/{number}/events",
            "/v1/repos/o/r/issues/1/events",
            "",
        ),
        ("POST", exec, "/v1/sandboxes/claude-issue-1/exec", r#"{"command":["echo"]}"#),
        ("GET", "/v1/sandboxes/{id}/ports", "/v1/sandboxes/claude-issue-1/ports", ""),
        ("GET", "/v1/sandboxes/{id}/limits", "/v1/sandboxes/claude-issue-1/limits", ""),
        ("GET", "/v1/sandboxes/{id}/logs", "/v1/sandboxes/claude-issue-1/logs?tail=5", ""),
        ("PUT", content, "/v1/sandboxes/claude-issue-1/files/content?path=f", "x"),
        ("PUT", content, "/v1/sandboxes/claude-issue-1/files/content?path=f", "y"),
        ("GET", content, "/v1/sandboxes/claude-issue-1/files/content?path=f", ""),
        ("GET", "/v1/sandboxes/{id}/files", "/v1/sandboxes/claude-issue-1/files", ""),
        ("PUT", directory, "/v1/sandboxes/claude-issue-1/files/directory?path=d", ""),
        ("PUT", directory, "/v1/sandboxes/claude-issue-1/files/directory?path=d", ""),
        (
            "PUT",
            "/v1/sandboxes/{id}/files/mode",
            "/v1/sandboxes/claude-issue-1/files/mode?path=f&mode=600",
            "",
        ),
        ("POST", moved, "/v1/sandboxes/claude-issue-1/files/move?from=f&to=g", ""),
        ("PUT", content, "/v1/sandboxes/claude-issue-1/files/content?path=f", "x"),
        ("POST", moved, "/v1/sandboxes/claude-issue-1/files/move?from=g&to=f&overwrite=true", ""),
        ("PUT", archive, "/v1/sandboxes/claude-issue-1/files/archive?path=d", "x"),
        ("GET", archive, "/v1/sandboxes/claude-issue-1/files/archive?path=d", ""),
        ("DELETE", content, "/v1/sandboxes/claude-issue-1/files/content?path=f", ""),
        ("POST", "/v1/sandboxes/{id}/stop", "/v1/sandboxes/claude-issue-1/stop?wait=5", ""),
        ("POST", "/v1/sandboxes/{id}/start", "/v1/sandboxes/claude-issue-1/start?wait=5", ""),
        ("DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/claude-issue-1", ""),
        ("DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/claude-issue-1?wait=5", ""),
        ("GET", "/v1/deliveries", "/v1/deliveries", ""),
        ("PUT", "/v1/holds/server", "/v1/holds/server", ""),
        ("DELETE", "/v1/holds/server", "/v1/holds/server", ""),
        ("PUT", "/v1/holds/accounts/{account}", "/v1/holds/accounts/a", ""),
        ("DELETE", "/v1/holds/accounts/{account}", "/v1/holds/accounts/a", ""),
        ("PUT", repository_hold, "/v1/holds/repositories/o/r", r#"{"reason":"x"}"#),
        ("GET", "/v1/holds", "/v1/holds", ""),
        ("DELETE", repository_hold, "/v1/holds/repositories/o/r", ""),
        ("PUT", "/v1/holds/issues/{issueId}", "/v1/holds/issues/9", ""),
        ("DELETE", "/v1/holds/issues/{issueId}", "/v1/holds/issues/9", ""),
        ("POST", "/v1/login-links", "/v1/login-links", ""),
        ("GET", "/v1/system", "/v1/system", ""),
        ("GET", "/v1/system/drift", "/v1/system/drift", ""),
        ("GET", "/healthz", "/healthz", ""),
        ("GET", "/readyz", "/readyz", ""),
        ("GET", "/metrics", "/metrics", ""),
        ("GET", "/openapi.json", "/openapi.json", ""),
        ("GET", "/docs", "/docs", ""),
        ("GET", "/", "/", ""),
        ("GET", "/login", "/login", ""),
        ("GET", "/assets/{name}", style, ""),
    ] {
        let operation = of(method, path);
        let request = server.request(operation.method.clone(), address).body(body);
        let answer = send(request).await;
        assert!(answer.status < 400, "{method} {address}: {answer:?}");
        seen.insert((operation.name(), listed(&operation, &answer).0));
    }
    for (id, duplicate) in [("d-1", 202), ("d-1", 200)] {
        let answer = server.deliver("issues", id, &opened(9, "x")).await;
        assert_eq!(answer.status, duplicate);
        seen.insert((
            "POST /webhooks/github".into(),
            listed(&of("POST", "/webhooks/github"), &answer).0,
        ));
    }
    server.provider.refusing.store(true, Ordering::SeqCst);
    server.post("/v1/sandboxes?wait=5", json!({"issueId": "3"})).await;
    let retried = server.post("/v1/sandboxes/claude-issue-3/retry", Value::Null).await;
    seen.insert(("POST /v1/sandboxes/{id}/retry".into(), retried.status));
    let put = server.request(Method::PUT, "/v1/sandboxes/claude-issue-2/files/content?path=r");
    send(put.body("abc")).await;
    let part = server.request(Method::GET, "/v1/sandboxes/claude-issue-2/files/content?path=r");
    let part = send(part.header("range", "bytes=1-")).await;
    seen.insert((format!("GET {content}"), part.status));
    // Of a WebSocket the head says enough.
    let socket = server.request(Method::GET, "/v1/sandboxes/claude-issue-2/terminal");
    let socket = send(opening(socket)).await;
    seen.insert(("GET /v1/sandboxes/{id}/terminal".into(), socket.status));
    let port = "/v1/sandboxes/{id}/ports/{port}";
    for (path, tail, opens) in [(port, "", true), (port, "/x", true), (port, "/x", false)] {
        let address = format!("/v1/sandboxes/claude-issue-2/ports/3000{tail}");
        let request = server.request(Method::GET, &address);
        let request = if opens { opening(request) } else { request };
        let below = if tail.is_empty() { "" } else { "/{tail}" };
        let answer = request.send().await.expect("an answer");
        seen.insert((format!("GET {path}{below}"), answer.status().as_u16()));
    }
    // An event stream does not end; its head says enough.
    let events = server.request(Method::GET, "/v1/events").send().await.expect("an answer");
    seen.insert(("GET /v1/events".into(), events.status().as_u16()));
    for (path, form) in [("/login", format!("token={TOKEN}")), ("/logout", String::new())] {
        let request = server.client.post(server.url(path)).header("origin", server.url(""));
        let answer = send(request.body(form)).await;
        seen.insert((format!("POST {path}"), answer.status));
    }
    let missing: Vec<_> = all
        .iter()
        .filter(|o| !o.is_remedy())
        .flat_map(|o| o.answers.iter().map(|(status, _)| (o.name(), *status)))
        .filter(|(name, status)| *status < 400 && !seen.contains(&(name.clone(), *status)))
        .collect();
    assert!(missing.is_empty(), "described, but not seen: {missing:?}");
}
