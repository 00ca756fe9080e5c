//! The served description and the server say the same: every route, status and code that is
//! described is seen here to happen, and nothing happens here that is not described.
//!
//! Each test provokes one kind of answer on every route that lists it. The last one adds up what
//! the others cover, so that a newly described code that no test provokes fails.

mod access;
mod clients;
mod codes;
mod runs;
mod well;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::document::{Operation, listed, operations};
use crate::common::server::{SECRET, TOKEN, TestServer, opened, opening, publisher, send};
use crate::common::store::Mood;
use issuebox::engine::Quotas;
use issuebox::git::{LatePublisher, PublishRefusal};
use issuebox::github::webhook::sign;
use issuebox::http::Limits;
use issuebox::sandbox::{Capability, WorkError};
use issuebox::types::Secret;
use reqwest::Method;
use serde_json::{Value, json};

/// Expects this code from every operation that lists it, and from no other that is asked.
async fn expect(server: &TestServer, code: &str, sandbox: &str, only: impl Fn(&Operation) -> bool) {
    let mut asked = 0;
    for operation in operations(server).await {
        if operation.lists(code) && only(&operation) {
            let request = operation.provoking(code, server, sandbox, "1").bearer_auth(TOKEN);
            let answer = send(signed(&operation, request, "1")).await;
            let seen = listed(&operation, &answer);
            assert_eq!(seen.1, code, "{}: {answer:?}", operation.name());
            asked += 1;
        }
    }
    assert!(asked > 0, "no operation lists {code}");
}

/// A delivery is signed; other calls are left as they are.
fn signed(
    operation: &Operation,
    request: reqwest::RequestBuilder,
    id: &str,
) -> reqwest::RequestBuilder {
    if operation.path != "/webhooks/github" {
        return request;
    }
    let body = opened(1, "a title");
    request
        .header("content-type", "application/json")
        .header("x-github-event", "issues")
        .header("x-github-delivery", id)
        .header("x-hub-signature-256", sign(&Secret::new(SECRET), body.as_bytes()))
        .body(body)
}

#[tokio::test]
async fn without_a_token_everything_that_lists_it_is_unauthorized() {
    let server = TestServer::start().await;
    for operation in operations(&server).await {
        let request = operation.bare(&server, "x", "1").header("x-forwarded-for", "203.0.113.9");
        let answer = send(request).await;
        assert_eq!(
            operation.lists("unauthorized"),
            answer.status == 401 && answer.text.contains("unauthorized"),
            "{}",
            operation.name()
        );
        assert!(!operation.is_v1() || listed(&operation, &answer).1 == "unauthorized");
    }
}

#[tokio::test]
async fn a_session_changes_nothing_from_another_origin() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    for operation in operations(&server).await {
        if operation.is_v1() && operation.method == Method::GET {
            continue; // It changes nothing.
        }
        let request = operation.bare(&server, "x", "1").header("cookie", &cookie);
        let answer = send(request.header("origin", "https://elsewhere.example")).await;
        let is_forbidden =
            answer.status == 403 && answer.header("content-type") == "application/json";
        assert_eq!(operation.lists("forbidden"), is_forbidden, "{}: {answer:?}", operation.name());
    }
}

#[tokio::test]
async fn an_address_that_guessed_is_refused_everywhere_under_v1() {
    let server = TestServer::start().await;
    for _ in 0..31 {
        let guess = server.client.get(server.url("/v1/system")).bearer_auth("guess");
        send(guess.header("x-forwarded-for", "203.0.113.9")).await;
    }
    for operation in operations(&server).await {
        let request = operation.bare(&server, "x", "1").bearer_auth(TOKEN);
        let answer = send(request.header("x-forwarded-for", "203.0.113.9")).await;
        let is_refused = answer.status == 429 && answer.text.contains("too_many_attempts");
        assert_eq!(operation.lists("too_many_attempts"), is_refused, "{}", operation.name());
    }
}

#[tokio::test]
async fn requests_are_counted_by_the_pattern_of_their_route() {
    let server = TestServer::start().await;
    let operations = operations(&server).await;
    for operation in &operations {
        for request in [
            operation.bare(&server, "x", "1"),
            operation.bare(&server, "x", "1").bearer_auth("wrong"),
        ] {
            // Some answers do not end; their heads say enough.
            request.send().await.expect("an answer");
        }
    }
    for path in ["/sandboxes/x", "/nope", "/v1/nope", "/a/b/c/d/e/f/g/h"] {
        send(server.client.get(server.url(path))).await;
    }
    let metrics = send(server.client.get(server.url("/metrics"))).await.text;
    let routes: BTreeSet<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("issuebox_http_requests_total"))
        .filter_map(|line| line.split("route=\"").nth(1)?.split('"').next())
        .collect();
    let mut expected: BTreeSet<&str> = operations.iter().map(|one| one.path.as_str()).collect();
    expected.extend(["/sandboxes/{id}", "other"]);
    assert_eq!(routes, expected);
}

#[tokio::test]
async fn encoded_bodies_are_refused_by_every_route() {
    let server = TestServer::start().await;
    for operation in operations(&server).await {
        if operation.path.ends_with("{tail}") {
            continue; // What goes to a server in a sandbox is for that to understand.
        }
        let request = operation.bare(&server, "x", "1").bearer_auth(TOKEN);
        let answer = send(request.header("content-encoding", "gzip")).await;
        assert_eq!(listed(&operation, &answer).1, "unsupported_media_type", "{}", operation.name());
    }
}

#[tokio::test]
async fn bodies_are_bounded_in_size_time_and_sum_wherever_one_is_taken() {
    let tight = |change: fn(&mut Limits)| TestServer::with(move |edge| change(&mut edge.limits));
    let small = tight(|limits| {
        (limits.body_len_max, limits.delivery_len_max, limits.upload_len_max) = (2, 2, 2);
        limits.message_len_max = 2;
    });
    let slow = tight(|limits| {
        limits.body_time_max = Duration::from_millis(50);
        limits.upload_silence_max = Duration::from_millis(50);
        limits.linger = Duration::from_secs(1);
    });
    let full = tight(|limits| limits.bodies_sum_max = 0);
    let (small, slow, full) = tokio::join!(small, slow, full);
    slow.running("1").await;
    for operation in operations(&small).await {
        let request = operation.bare(&small, "x", "1").bearer_auth(TOKEN);
        let request = request.header("content-type", "application/json");
        if operation.takes_body {
            let answer = send(request.body("x".repeat(20_000))).await;
            assert_eq!(listed(&operation, &answer).1, "body_too_large", "{}", operation.name());
            let name = operation.name();
            assert_eq!(silent(&slow, &operation), (408, "request_timeout".into()), "{name}");
        }
        assert_eq!(operation.takes_body, operation.lists("request_timeout"));
        assert_eq!(operation.takes_body, operation.lists("body_too_large"));
        let is_upload = operation.path.ends_with("/files/content")
            || operation.path.ends_with("/files/archive");
        if operation.takes_body && !is_upload {
            let request = operation.bare(&full, "x", "1").bearer_auth(TOKEN);
            let request = request.header("content-type", "application/json");
            let answer = send(request.body("{}")).await;
            assert_eq!(listed(&operation, &answer).1, "overloaded", "{}", operation.name());
        }
    }
}

/// Declares a body and does not send it.
fn silent(server: &TestServer, operation: &Operation) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time-out");
    let path = operation.address("claude-issue-1", "1");
    let head = format!(
        "{} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: 2\r\n\r\n",
        operation.method
    );
    stream.write_all(head.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    if let Err(error) = stream.read_to_string(&mut answer) {
        panic!("{}: {error} after {answer:?}", operation.name());
    }
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body: Value = serde_json::from_str(body).expect("JSON");
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn input_that_is_wrong_is_invalid_wherever_there_is_input() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    for operation in operations(&server).await.iter().filter(|o| o.lists("invalid_request")) {
        let address = operation.address("x", "1");
        let with = if address.contains('?') { '&' } else { '?' };
        let request = server
            .client
            .request(operation.method.clone(), server.url(&format!("{address}{with}nope=1")));
        let request = match operation.path.as_str() {
            "/webhooks/github" => request
                .header("content-type", "application/json")
                .header("x-hub-signature-256", sign(&Secret::new(SECRET), b"{}"))
                .body("{}"),
            path if path.ends_with("/ports/{port}") => opening(request.bearer_auth(TOKEN)),
            path if operation.is_v1() => {
                let body = if path.ends_with("/exec") { "{\"command\":[\"a\"]}" } else { "" };
                request.bearer_auth(TOKEN).body(body)
            }
            _ => request.header("cookie", &cookie).body(vec![0xff]),
        };
        let answer = send(request).await;
        assert_eq!(
            listed(operation, &answer).1,
            "invalid_request",
            "{}: {answer:?}",
            operation.name()
        );
    }
    let listing: Vec<_> = operations(&server).await.into_iter().filter(Operation::is_v1).collect();
    // What is below a port means something to the server there alone.
    let is_ours = |operation: &&Operation| !operation.path.ends_with("{tail}");
    assert!(listing.iter().filter(is_ours).all(|operation| operation.lists("invalid_request")));
}

#[tokio::test]
async fn unknown_things_are_not_found() {
    let server = TestServer::start().await;
    expect(&server, "sandbox_not_found", "nope", |_| true).await;
    expect(&server, "route_not_found", "nope", |_| true).await;
    for operation in operations(&server).await {
        assert_eq!(operation.path.contains("/{id}"), operation.lists("sandbox_not_found"));
        if operation.lists("port_not_listed") {
            let id = server.running("1").await;
            let address = operation.address(&id, "1").replace("3000", "4000");
            let answer = send(server.request(operation.method.clone(), &address)).await;
            let is_redirect = !operation.path.ends_with("{tail}");
            assert!(is_redirect || listed(&operation, &answer).1 == "port_not_listed");
        }
    }
    let unsigned = server.client.post(server.url("/webhooks/github"));
    let unsigned = send(unsigned.header("content-type", "application/json").body("{}")).await;
    assert_eq!((unsigned.status, unsigned.code().as_str()), (401, "bad_signature"));
}

#[tokio::test]
async fn a_web_socket_is_not_opened_by_an_ordinary_request() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    // Without the final slash an ordinary request to a port is redirected.
    let is_tunnel = |operation: &Operation| operation.path.ends_with("/ports/{port}");
    expect(&server, "upgrade_required", &id, |operation| !is_tunnel(operation)).await;
}

#[tokio::test]
async fn drift_that_is_not_there_is_over() {
    let server = TestServer::start().await;
    expect(&server, "drift_over", "nope", |_| true).await;
}

#[tokio::test]
async fn each_phase_refuses_what_it_is_said_to_refuse() {
    let server = TestServer::start().await;
    let (provider, command) = (&server.provider, async |id: &str, verb: &str| {
        server.post(&format!("/v1/sandboxes/{id}/{verb}?wait=5"), Value::Null).await
    });
    let running = server.running("1").await;
    expect(&server, "not_failed", &running, |_| true).await;
    let stopped = server.running("stopped").await;
    command(&stopped, "stop").await;
    expect(&server, "stopped", &stopped, |_| true).await;
    provider.refusing.store(true, Ordering::SeqCst);
    server.post("/v1/sandboxes?wait=5", json!({"issueId": "failed"})).await;
    let retried = server.post("/v1/sandboxes/claude-issue-failed/start?wait=5", Value::Null).await;
    assert_eq!((retried.status, retried.json()["data"]["phase"].as_str()), (202, Some("failed")));
    provider.refusing.store(false, Ordering::SeqCst);
    let gone = server.running("gone").await;
    send(server.request(Method::DELETE, &format!("/v1/sandboxes/{gone}?wait=5"))).await;
    expect(&server, "sandbox_deleted", &gone, |_| true).await;
    let deleting = server.running("deleting").await;
    provider.keeping.store(true, Ordering::SeqCst);
    send(server.request(Method::DELETE, &format!("/v1/sandboxes/{deleting}"))).await;
    expect(&server, "deleting", &deleting, |_| true).await;
    provider.held.store(true, Ordering::SeqCst);
    server.post("/v1/sandboxes", json!({"issueId": "creating"})).await;
    // What a delete pushes first waits for the sandbox; another test takes it down meanwhile.
    let waits = |o: &&Operation| o.lists("not_running") && !o.may_push_first();
    for operation in operations(&server).await.iter().filter(waits) {
        let address = operation.address("claude-issue-creating", "1");
        let with = if address.contains('?') { '&' } else { '?' };
        let url = server.url(&format!("{address}{with}wait=0"));
        let request = server.client.request(operation.method.clone(), url);
        // At a port nothing is waited for.
        let request = match operation.path.contains("{port}") {
            true => operation.bare(&server, "claude-issue-creating", "1"),
            false if operation.path.ends_with("/sync") => request,
            false => request.body(r#"{"command":["echo"]}"#),
        };
        let answer = send(request.bearer_auth(TOKEN)).await;
        assert_eq!(listed(operation, &answer).1, "not_running", "{}", operation.name());
    }
    provider.open();
}

#[tokio::test]
async fn each_failure_of_an_ensure_has_its_code() {
    let server = TestServer::start().await;
    let one = json!({"issueId": "1", "repository": "o/r", "issueNumber": 1});
    server.post("/v1/sandboxes?wait=5", one).await;
    server.running("2").await;
    for (code, body) in [
        ("issue_id_conflict", json!({"repository": "o/r", "issueNumber": 1})),
        ("template_unknown", json!({"template": "nope"})),
        ("template_only", json!({"image": "debian:13"})),
    ] {
        for operation in operations(&server).await {
            let is_ensure = operation.method != Method::DELETE && !operation.is_remedy();
            if operation.lists(code) && is_ensure {
                let mut body = body.clone();
                // A message has its issue in the path alone, and takes no template.
                if operation.path.ends_with("/messages") {
                    (body["text"], body["agentId"]) = ("x".into(), "cat".into());
                } else {
                    body["issueId"] = "2".into();
                }
                let address = operation.address("x", "2");
                let answer =
                    send(server.request(operation.method.clone(), &address).json(&body)).await;
                assert_eq!(listed(&operation, &answer).1, code, "{}", operation.name());
            }
        }
    }
    let unknown =
        server.post("/v1/sandboxes", json!({"repository": "o/x", "issueNumber": 1})).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (422, "issue_unknown"));
}

#[tokio::test]
async fn each_failure_of_work_has_its_code() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    for (code, error) in [
        ("file_not_found", WorkError::NoSuchFile),
        ("path_not_allowed", WorkError::PathNotAllowed("a link".into())),
        ("wrong_kind", WorkError::WrongKind("a FIFO".into())),
        ("file_exists", WorkError::Exists("the new place is taken".into())),
        ("bad_archive", WorkError::BadArchive("a: it is a device".into())),
        ("range_not_satisfiable", WorkError::OutOfRange { size: 3 }),
        ("command_not_found", WorkError::CommandNotFound("not found".into())),
        ("cannot_start", WorkError::CannotStart("not executable".into())),
        ("refused_inside", WorkError::Refused("disk full".into())),
        ("not_supported", WorkError::Unsupported(Capability::Snapshots)),
        ("provider_failed", WorkError::Broken("it is gone".into())),
        ("not_running", WorkError::NotRunning),
        ("port_closed", WorkError::NotListening),
    ] {
        let works = |o: &&Operation| o.lists(code) && !o.is_remedy() && !o.is_socket();
        for operation in operations(&server).await.iter().filter(works) {
            *server.provider.work_error.lock().expect("not poisoned") = Some(error.clone());
            let request = operation.provoking(code, &server, &id, "1").bearer_auth(TOKEN);
            let answer = send(request).await;
            assert_eq!(listed(operation, &answer).1, code, "{}", operation.name());
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_no_longer_configured_has_its_code() {
    let before = TestServer::start().await;
    let data = std::sync::Arc::clone(&before.data);
    let id = before.running("1").await;
    drop(before);
    let server = TestServer::over(data, "other", |_| {}).await;
    expect(&server, "provider_unknown", &id, |_| true).await;
}

#[tokio::test]
async fn a_store_in_trouble_is_503_on_every_route_that_needs_it() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    server.running("1").await;
    server.store.set(Mood::Fails);
    let needs_it =
        |o: &&Operation| o.lists("store_failed") && !o.is_remedy() && !o.needs_credentials();
    let needs_it = |o: &&Operation| needs_it(o) && !o.is_of_run() && !o.reads_conversations();
    for operation in operations(&server).await.iter().filter(needs_it) {
        // By an issue that is not live: look-ups of live ones do not need the store.
        let request = operation.bare(&server, "nope", "2");
        let request = if operation.is_v1() {
            request.bearer_auth(TOKEN)
        } else {
            request.header("cookie", &cookie)
        };
        let answer = send(signed(operation, request, "d-1")).await;
        assert_eq!(listed(operation, &answer).1, "store_failed", "{}", operation.name());
    }
    assert_eq!(server.get("/v1/issues/1/sandbox").await.status, 200, "it is live");
    server.store.set(Mood::Works);
}

#[tokio::test]
async fn an_overload_is_503_on_every_route_that_writes() {
    let server = TestServer::start().await;
    server.deliver("issues", "d-1", &opened(1, "a title")).await;
    server.get("/v1/sandboxes/claude-issue-1?until=running&wait=5").await;
    let closed = opened(1, "a title").replace("opened", "closed").replace("\"open\"", "\"closed\"");
    let closed = closed.replace("2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z");
    assert_eq!(server.deliver("issues", "d-2", &closed).await.status, 202);
    server.get("/v1/sandboxes/claude-issue-1?until=stopped&wait=5").await;
    server.store.set(Mood::Overloaded);
    let is_retry = |operation: &Operation| {
        operation.path.ends_with("/retry")
            && !operation.needs_credentials()
            && !operation.is_of_run()
    };
    let is_stop = |operation: &Operation| operation.path.ends_with("/stop");
    let is_page = |operation: &Operation| operation.path.starts_with("/log");
    let needs_no_write = |o: &Operation| {
        is_retry(o)
            || is_stop(o)
            || is_page(o)
            || o.is_remedy()
            || o.needs_credentials()
            || o.is_of_run()
    };
    expect(&server, "overloaded", "claude-issue-1", |o| !needs_no_write(o)).await;
    server.store.set(Mood::Works);
    server.running("2").await;
    server.provider.refusing.store(true, Ordering::SeqCst);
    server.post("/v1/sandboxes?wait=5", json!({"issueId": "3"})).await;
    server.store.set(Mood::Overloaded);
    expect(&server, "overloaded", "claude-issue-2", is_stop).await;
    expect(&server, "overloaded", "claude-issue-3", is_retry).await;
}

/// A sandbox that its closed issue stopped, `claude-issue-1`, and one that failed,
/// `claude-issue-3`: whatever may be refused to begin begins at one of them.
async fn resting(server: &TestServer) {
    server.deliver("issues", "d-1", &opened(1, "a title")).await;
    server.get("/v1/sandboxes/claude-issue-1?until=running&wait=5").await;
    let closed = opened(1, "a title").replace("opened", "closed").replace("\"open\"", "\"closed\"");
    let closed = closed.replace("2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z");
    assert_eq!(server.deliver("issues", "d-2", &closed).await.status, 202);
    server.get("/v1/sandboxes/claude-issue-1?until=stopped&wait=5").await;
    server.provider.refusing.store(true, Ordering::SeqCst);
    server.post("/v1/sandboxes?wait=5", json!({"issueId": "3"})).await;
    server.provider.refusing.store(false, Ordering::SeqCst);
}

#[tokio::test]
async fn a_hold_is_an_error_on_every_route_that_would_start_something() {
    let server = TestServer::start().await;
    resting(&server).await;
    let hold = server.request(Method::PUT, "/v1/holds/server").body("");
    assert_eq!(send(hold).await.status, 200);
    let is_retry = |operation: &Operation| operation.path.ends_with("/retry");
    expect(&server, "held", "claude-issue-1", |o| !is_retry(o)).await;
    expect(&server, "held", "claude-issue-3", is_retry).await;
}

#[tokio::test]
async fn a_lack_of_capacity_is_an_error_on_every_route_that_would_start_something() {
    let server = TestServer::start().await;
    resting(&server).await;
    let shortage = "the disk is nearly full".to_owned();
    server.provider.shortage.lock().expect("not poisoned").replace(shortage);
    let is_retry = |operation: &Operation| operation.path.ends_with("/retry");
    expect(&server, "no_room", "claude-issue-1", |o| !is_retry(o)).await;
    expect(&server, "no_room", "claude-issue-3", is_retry).await;
    let system = server.get("/v1/system").await.json();
    let shortage = &system["data"]["providers"][0]["capacity"]["shortage"];
    assert_eq!(shortage, "the disk is nearly full", "{system}");
    let refused = server.post("/v1/sandboxes", json!({"issueId": "9"})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (507, "60"));
}

#[tokio::test]
async fn an_exceeded_quota_is_an_error_with_a_retry_after() {
    let server = TestServer::limited(Quotas { account: 1, ..Quotas::default() }).await;
    server.running("9").await;
    expect(&server, "quota_exceeded", "claude-issue-9", |_| true).await;
    let refused = server.post("/v1/sandboxes", json!({"issueId": "1"})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "60"));
}

#[tokio::test]
async fn a_server_that_ends_says_so() {
    let server = TestServer::start().await;
    server.running("1").await;
    server.engine.stop(Duration::from_secs(1)).await;
    server.closing.send_replace(true);
    expect(&server, "shutting_down", "claude-issue-1", |o| !o.is_of_run()).await;
}

#[tokio::test]
async fn work_that_cannot_be_published_says_so() {
    for refused in [Some(PublishRefusal::NoCheckout), None] {
        let server = TestServer::with(move |edge| {
            edge.publisher = match refused {
                Some(refusal) => publisher(Some(refusal)),
                None => LatePublisher::default(),
            };
        });
        let server = server.await;
        server.running("1").await;
        expect(&server, "not_published", "claude-issue-1", |_| true).await;
    }
}

#[tokio::test]
async fn each_failure_of_a_sync_has_its_code() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let stored = server.data.path().join("synced");
    for (code, is_broken) in [("version_not_found", false), ("sync_failed", true)] {
        if is_broken {
            std::fs::remove_dir_all(&stored).expect("removed");
            std::fs::write(&stored, "in the way").expect("written");
        }
        let all = operations(&server).await;
        for operation in all.iter().filter(|operation| operation.lists(code)) {
            let (address, body) = match (&operation.method, operation.path.as_str()) {
                (&Method::POST, _) if is_broken => (operation.address(&id, "1"), "{}"),
                (&Method::POST, _) => (operation.address(&id, "1"), "{\"direction\":\"pull\"}"),
                (&Method::DELETE, _) if is_broken => {
                    (format!("{}?sync=true", operation.address(&id, "1")), "")
                }
                // A push, and the list of versions, find what is there.
                (_, path) if is_broken || !path.contains("/files") => continue,
                _ => {
                    let address = operation.address(&id, "1");
                    let with = if address.contains('?') { '&' } else { '?' };
                    (format!("{address}{with}source=synced"), "")
                }
            };
            let request = server.request(operation.method.clone(), &address).body(body);
            let answer = send(request).await;
            assert_eq!(listed(operation, &answer).1, code, "{}: {answer:?}", operation.name());
        }
    }
    let server = TestServer::with(|edge| edge.sync = None).await;
    let id = server.running("1").await;
    for path in ["files?source=synced", "sync/versions"] {
        let answer = server.get(&format!("/v1/sandboxes/{id}/{path}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "sync_not_configured"));
    }
}
