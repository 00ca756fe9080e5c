//! What every route has in common: who may call, what a body may be, what an answer carries.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::server::{TOKEN, TestServer, send};
use issuebox::http::{Limits, LiveToken, TokenHash};
use issuebox::types::Secret;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn everything_under_v1_asks_for_the_token() {
    let server = TestServer::start().await;
    for path in ["/v1/sandboxes", "/v1/system", "/v1/events", "/v1/issues/1/sandbox", "/v1/nope"] {
        let answer = send(server.client.get(server.url(path))).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{path}");
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{path}");
        let wrong = send(server.client.get(server.url(path)).bearer_auth("wrong")).await;
        assert_eq!(wrong.status, 401, "{path}");
    }
    assert_eq!(server.get("/v1/system").await.status, 200);
}

/// A token that cannot be guessed.
const LONG_TOKEN: &str = "0123456789abcdef0123456789abcdef";

async fn guess_until_refused(server: &TestServer) {
    let mut last = 0;
    for _ in 0..40 {
        last = send(server.client.get(server.url("/v1/system")).bearer_auth("guess")).await.status;
    }
    assert_eq!(last, 429);
}

#[tokio::test]
async fn wrong_tokens_are_refused_for_a_while_and_the_right_one_is_not() {
    let server = TestServer::with(|edge| {
        edge.admin_token = LiveToken::new(TokenHash::of(&Secret::new(LONG_TOKEN)));
    })
    .await;
    guess_until_refused(&server).await;
    let system = || server.client.get(server.url("/v1/system"));
    assert_eq!(send(system().bearer_auth(LONG_TOKEN)).await.status, 200);
    assert_eq!(send(system().bearer_auth("guess")).await.status, 429, "guesses still are");
}

#[tokio::test]
async fn a_short_token_is_refused_with_the_wrong_ones_of_its_address() {
    let server = TestServer::start().await;
    guess_until_refused(&server).await;
    let right = server.get("/v1/system").await;
    assert_eq!((right.status, right.code().as_str()), (429, "too_many_attempts"));
    assert!(right.header("retry-after").parse::<u32>().is_ok_and(|secs| secs > 0));
}

#[tokio::test]
async fn every_answer_carries_a_request_id_of_its_own() {
    let server = TestServer::start().await;
    let mut seen = std::collections::HashSet::new();
    for path in ["/healthz", "/v1/system", "/nope", "/v1/sandboxes/nope", "/openapi.json"] {
        let request = server.request(Method::GET, path).header("x-request-id", "forged");
        let id = send(request).await.header("x-request-id").to_owned();
        assert!(!id.is_empty() && id != "forged", "{path}");
        assert!(seen.insert(id), "{path}: used before");
    }
}

#[tokio::test]
async fn unknown_routes_and_methods_have_different_answers() {
    let server = TestServer::start().await;
    let unknown = server.get("/nope").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "route_not_found"));
    for (method, path, allow) in [
        (Method::DELETE, "/v1/sandboxes", "GET, HEAD, POST"),
        (Method::PATCH, "/v1/issues/1/sandbox", "GET, HEAD, PUT"),
        (Method::GET, "/webhooks/github", "POST"),
        (Method::POST, "/healthz", "GET, HEAD"),
    ] {
        let answer = send(server.request(method, path)).await;
        assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"), "{path}");
        assert_eq!(answer.header("allow"), allow, "{path}");
    }
    let head = send(server.request(Method::HEAD, "/healthz")).await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert_ne!(head.header("content-length"), "0", "as long as GET's");
}

#[tokio::test]
async fn bodies_that_are_no_json_object_are_refused() {
    let server = TestServer::start().await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let nested = format!("{{\"issueId\":{deep}}}");
    for body in ["{", "[]", "null", "\u{0}", deep.as_str(), nested.as_str()] {
        let request = server.request(Method::POST, "/v1/sandboxes").body(body.to_owned());
        let answer = send(request).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
    }
    let as_form = server.request(Method::POST, "/v1/sandboxes?wait=5");
    let as_form = as_form.header("content-type", "application/x-www-form-urlencoded");
    let answer = send(as_form.body(r#"{"issueId":"by-curl"}"#)).await;
    assert_eq!(answer.status, 201, "what curl -d sends is taken as JSON");
}

#[tokio::test]
async fn encoded_bodies_are_refused_before_they_are_read() {
    let server = TestServer::start().await;
    for path in ["/v1/sandboxes", "/webhooks/github", "/login", "/nope"] {
        let request = server.request(Method::POST, path).header("content-encoding", "gzip");
        let answer = send(request.body("anything")).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (415, "unsupported_media_type"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn large_bodies_are_refused_and_the_answer_reaches_who_still_writes() {
    let server = TestServer::start().await;
    let small = "x".repeat(300 * 1024);
    let large = "x".repeat(8 * 1024 * 1024);
    let title = json!({"issueId": "1", "issueTitle": small}).to_string();
    let request = server.request(Method::POST, "/v1/sandboxes").body(title);
    assert_eq!(send(request).await.status, 400, "300 KB are read, and the title is too long");
    let request = server.request(Method::POST, "/v1/sandboxes").body(large.clone());
    let answer = send(request).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
    let chunks = futures_util::stream::iter([large.clone(), large].map(Ok::<_, std::io::Error>));
    let request = server.request(Method::POST, "/v1/sandboxes");
    let answer = send(request.body(reqwest::Body::wrap_stream(chunks))).await;
    assert_eq!(answer.status, 413, "without a declared length too");
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_cut_off() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { body_time_max: Duration::from_millis(300), ..edge.limits.clone() };
    })
    .await;
    let head = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-length: 100\r\n\r\n{{\"issue"
    );
    let answer = raw(&server, head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("request_timeout"), "{answer}");
}

#[tokio::test]
async fn headers_that_do_not_come_are_cut_off() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { header_time_max: Duration::from_millis(300), ..edge.limits.clone() };
    })
    .await;
    let answer = raw(&server, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[tokio::test]
async fn metrics_are_open_here_and_closed_through_a_proxy() {
    let server = TestServer::start().await;
    let open = send(server.client.get(server.url("/metrics"))).await;
    assert_eq!(open.status, 200);
    assert!(open.text.contains("issuebox_sandboxes_live{phase=\"running\"} 0"));
    let named =
        |host: &'static str| send(server.client.get(server.url("/metrics")).header("host", host));
    for host in ["localhost", "LOCALHOST:8787", "x.localhost", "127.0.0.1", "[::1]:8787", "[::1]"] {
        assert_eq!(named(host).await.status, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:8787", "localhost.evil.example"] {
        assert_eq!(named(host).await.status, 401, "its name may lead to this machine: {host}");
    }
    let proxied =
        server.client.get(server.url("/metrics")).header("x-forwarded-for", "203.0.113.9");
    assert_eq!(send(proxied).await.status, 401);
    let with_token =
        server.request(Method::GET, "/metrics").header("x-forwarded-for", "203.0.113.9");
    assert_eq!(send(with_token).await.status, 200);
    server.running("1").await;
    let text = send(server.client.get(server.url("/metrics"))).await.text;
    let labels = r#"{mode="strong",success="true",provider="memory"}"#;
    assert!(text.contains(&format!("issuebox_sandbox_create_seconds_count{labels} 1")), "{text}");
    assert!(text.contains(r#"route="/v1/sandboxes",status="201"} 1"#), "{text}");
}

#[tokio::test]
async fn a_providers_trouble_is_degraded_and_not_an_outage() {
    let server = TestServer::start().await;
    *server.provider.trouble.lock().expect("not poisoned") = Some("its disk is full".into());
    let ready = send(server.client.get(server.url("/readyz"))).await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.json()["data"],
        json!({
            "status": "degraded",
            "degraded": ["memory"],
            "reasons": ["memory: its disk is full"]
        })
    );
    let system = server.get("/v1/system").await.json();
    let provider = &system["data"]["providers"][0];
    assert_eq!(
        (&provider["healthy"], &provider["trouble"]),
        (&json!(false), &json!("its disk is full"))
    );
    assert_eq!(provider["isolation"]["limits"], json!({"memory": "none"}));
    assert_eq!(provider["isolation"]["memoryCounts"], json!(null));
    assert_eq!(system["data"]["sandboxes"]["running"], 0);
    assert!(system["data"]["uptimeSeconds"].is_u64());
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_shown_everywhere_and_used_again_once_it_can() {
    let server = TestServer::start().await;
    server.running("1").await;
    let trouble = "connection refused";
    *server.provider.trouble.lock().expect("not poisoned") = Some(trouble.into());
    server.provider.keeping.store(true, Ordering::SeqCst);
    let delete = server.request(Method::DELETE, "/v1/sandboxes/claude-issue-1");
    assert_eq!(send(delete).await.status, 202);
    let breaker = async || server.get("/v1/system").await.json()["data"]["providers"][0].clone();
    let shown = async |state: &str, healthy: bool| {
        let looking = async {
            loop {
                let provider = breaker().await;
                // How the provider said it was is good for a moment, and may lag behind.
                if provider["breaker"]["state"] == state && provider["healthy"] == healthy {
                    return provider;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), looking).await.expect("it comes to this")
    };
    let provider = shown("open", false).await;
    assert_eq!(provider["breaker"]["reason"], trouble);
    assert!(provider["breaker"]["since"].is_string(), "{provider}");
    assert!(provider["breaker"]["nextTryAt"].is_string(), "{provider}");
    let sentence = "memory is unreachable (connection refused), next try in ";
    let said = provider["trouble"].as_str().unwrap_or_default();
    assert!(said.starts_with(sentence), "{said}");
    let ready = send(server.client.get(server.url("/readyz"))).await;
    let reason = ready.json()["data"]["reasons"][0].as_str().unwrap_or_default().to_owned();
    assert!(ready.status == 200 && reason.starts_with(sentence), "{reason}");
    let session = server.log_in().await;
    let page = send(server.client.get(server.url("/")).header("cookie", session)).await.text;
    assert!(page.contains(sentence), "{page}");
    let text = send(server.client.get(server.url("/metrics"))).await.text;
    assert!(text.contains(r#"issuebox_provider_breaker_open{provider="memory"} 1"#), "{text}");

    *server.provider.trouble.lock().expect("not poisoned") = None;
    server.provider.keeping.store(false, Ordering::SeqCst);
    let provider = shown("closed", true).await;
    assert_eq!(provider["breaker"]["since"], json!(null));
    let wait = "/v1/sandboxes/claude-issue-1?wait=20&until=deleted";
    assert_eq!(server.get(wait).await.json()["data"]["phase"], json!(null));
    assert_eq!(server.provider.object_count(), 0);
}

/// Writes bytes and reads until the server closes.
fn raw(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time-out");
    stream.write_all(bytes).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server ends the connection in time");
    String::from_utf8_lossy(&answer).into_owned()
}
