//! What comes over HTTP and is wrong, odd or too much: each is answered clearly, and after each
//! the server lives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use issuebox::github::webhook::sign;
use issuebox::types::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::process::{Answer, Place, SECRET, Server, TOKEN, issue_event, send};

/// A server, and a check that it still does its work.
struct World {
    server: Server,
    _place: Place,
}

impl World {
    async fn new() -> Self {
        let place = Place::simulated("");
        Self { server: place.serve().await, _place: place }
    }

    /// It answers, and gives a new issue its sandbox.
    async fn lives(&self, after: &str) {
        assert_eq!(self.server.get("/healthz").await.status, 200, "after {after}");
        let digits: String = after.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        let sandbox = self.server.running(&format!("after-{digits}")).await;
        assert_eq!(sandbox["phase"], "running", "after {after}");
    }

    /// A refusal with this status and code, whose message says something.
    async fn refused(&self, what: &str, answer: Answer, status: u16, code: &str) -> Value {
        assert_eq!(answer.refusal(), (status, code.to_owned()), "{what}: {answer:?}");
        let body = answer.json();
        assert_eq!(body["success"], false);
        let message = body["error"]["message"].as_str().expect("a message");
        assert!(message.len() > 5, "{what}: {message}");
        self.lives(what).await;
        body["error"].clone()
    }

    /// Sends a delivery and returns its answer.
    async fn deliver(&self, event: &str, guid: &str, body: impl Into<Vec<u8>>) -> Answer {
        send(self.server.delivery(event, guid, body)).await
    }

    async fn ignored(&self, event: &str, guid: &str, body: &Value) -> String {
        let answer = self.deliver(event, guid, body.to_string()).await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("ignored")), "{guid}");
        let reason = answer.json()["reason"].as_str().expect("a reason").to_owned();
        self.lives(guid).await;
        reason
    }
}

/// Writes bytes and reads what comes until the server closes.
fn raw(server: &Server, bytes: &[u8]) -> String {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
    stream.write_all(bytes).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it closes in time");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_calls_of_the_api_get_an_explanation() {
    let world = World::new().await;
    let server = &world.server;
    let post = |body: &str| {
        let request = server.request(Method::POST, "/v1/sandboxes").body(body.to_owned());
        send(request)
    };
    let deep =
        format!("{{\"issueId\":\"x\",\"issueTitle\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    for (what, body, field) in [
        ("bad JSON", "{\"issueId\":", None),
        ("no JSON", "issueId=1", None),
        ("a list", "[]", None),
        ("deep JSON", deep.as_str(), None),
        ("no issue", "{}", Some("issueId")),
        ("a number as id", "{\"issueId\":5}", Some("issueId")),
        ("a path as id", "{\"issueId\":\"../x\"}", Some("issueId")),
        ("an unknown mode", "{\"issueId\":\"1\",\"mode\":\"quick\"}", Some("mode")),
        ("an unknown field", "{\"issueId\":\"1\",\"colour\":1}", Some("colour")),
    ] {
        let error = world.refused(what, post(body).await, 400, "invalid_request").await;
        assert_eq!(error["field"].as_str(), field, "{what}: {error}");
    }
    let unknown = post("{\"repository\":\"octo/none\",\"issueNumber\":1}").await;
    world.refused("an unknown pair", unknown, 422, "issue_unknown").await;

    for path in ["/v1/sandboxes/nope", "/v1/sandboxes/claude-issue-nope"] {
        world.refused(path, server.get(path).await, 404, "sandbox_not_found").await;
        let stop = server.post(&format!("{path}/stop"), &json!({})).await;
        world.refused("stop of none", stop, 404, "sandbox_not_found").await;
        let delete = server.delete(path).await;
        world.refused("delete of none", delete, 404, "sandbox_not_found").await;
        let exec = server.post(&format!("{path}/exec"), &json!({"command": ["true"]})).await;
        world.refused("exec in none", exec, 404, "sandbox_not_found").await;
    }
    world.refused("no route", server.get("/v1/nope").await, 404, "route_not_found").await;
    for (method, path) in [
        (Method::PATCH, "/v1/sandboxes"),
        (Method::GET, "/webhooks/github"),
        (Method::DELETE, "/healthz"),
    ] {
        let answer = send(server.request(method, path)).await;
        assert!(answer.headers.contains_key("allow"), "{answer:?}");
        world.refused("a wrong method", answer, 405, "method_not_allowed").await;
    }
    let bare = send(server.client.get(format!("{}/v1/sandboxes", server.url))).await;
    world.refused("no token", bare, 401, "unauthorized").await;
    let wrong = server.client.get(format!("{}/v1/sandboxes", server.url)).bearer_auth("wrong");
    world.refused("a wrong token", send(wrong).await, 401, "unauthorized").await;
    let zipped = server.request(Method::POST, "/v1/sandboxes").header("content-encoding", "gzip");
    let zipped = send(zipped.body("{}")).await;
    world.refused("an encoded body", zipped, 415, "unsupported_media_type").await;
    let large = post(&"x".repeat(2 * 1024 * 1024)).await;
    world.refused("a large body", large, 413, "body_too_large").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_are_not_signed_or_not_readable_are_refused() {
    let world = World::new().await;
    let server = &world.server;
    let body = issue_event("opened", 1).to_string();
    let url = format!("{}/webhooks/github", server.url);
    let bare = || {
        let request = server.client.post(&url).header("x-github-event", "issues");
        request.header("x-github-delivery", "refused").header("content-type", "application/json")
    };
    let good = sign(&Secret::new(SECRET), body.as_bytes());
    let wrong = sign(&Secret::new("another"), body.as_bytes());
    let sha1 = format!("sha1={}", &good["sha256=".len()..]);
    for signature in [None, Some(wrong.as_str()), Some(sha1.as_str()), Some(&good[..20]), Some("")]
    {
        let signed = signature.into_iter().fold(bare(), |r, s| r.header("x-hub-signature-256", s));
        let answer = send(signed.body(body.clone())).await;
        world.refused("a bad signature", answer, 401, "bad_signature").await;
    }
    let changed = bare().header("x-hub-signature-256", &good).body(body.replace('1', "2"));
    world.refused("a changed body", send(changed).await, 401, "bad_signature").await;
    let zipped = server.delivery("issues", "zipped", body.clone());
    let zipped = send(zipped.header("content-encoding", "gzip")).await;
    world.refused("an encoded delivery", zipped, 415, "unsupported_media_type").await;
    let signed = |kind: &str, body: &str| {
        let signature = sign(&Secret::new(SECRET), body.as_bytes());
        let request = server.client.post(&url).header("x-github-event", "issues");
        let request = request.header("x-github-delivery", "of-kind").header("content-type", kind);
        send(request.header("x-hub-signature-256", signature).body(body.to_owned()))
    };
    let text = signed("text/plain", &body).await;
    world.refused("plain text", text, 415, "unsupported_media_type").await;
    let form = signed("application/x-www-form-urlencoded", "a=b").await;
    let error = world.refused("a form without payload", form, 400, "invalid_request").await;
    assert_eq!(error["field"], "payload");
    for (what, body) in [
        ("half a delivery", &body[..100]),
        ("no object", "[]"),
        ("nothing", ""),
        ("no issue in it", r#"{"action":"opened","repository":{"id":1,"full_name":"a/b"}}"#),
    ] {
        let answer = world.deliver("issues", "malformed", body).await;
        world.refused(what, answer, 400, "invalid_request").await;
    }
    let mut negative = issue_event("opened", 1);
    negative["issue"]["id"] = json!(-5);
    let answer = world.deliver("issues", "negative", negative.to_string()).await;
    world.refused("a negative id", answer, 400, "invalid_request").await;
    let past_u64 = body.replace("\"id\":1,", "\"id\":99999999999999999999,");
    assert_ne!(past_u64, body);
    let answer = world.deliver("issues", "past-u64", past_u64).await;
    world.refused("an id past 64 bits", answer, 400, "invalid_request").await;
    for header in ["x-github-event", "x-github-delivery"] {
        let mut request = server.delivery("issues", "headless", body.clone()).build().expect("one");
        request.headers_mut().remove(header);
        let answer = server.client.execute(request).await.expect("an answer");
        assert_eq!(answer.status(), 400, "without {header}");
    }
    assert_eq!(server.sandbox("1").await, Value::Null, "none of it has made anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_deliveries_are_accepted_or_ignored_with_a_reason() {
    let world = World::new().await;
    let server = &world.server;
    let ping = json!({"zen": "Keep it logically awesome.", "hook_id": 1, "hook": {"id": 1}});
    assert!(world.ignored("ping", "ping", &ping).await.starts_with("pong"));
    let reason = world.ignored("issues", "unknown-action", &issue_event("teleported", 2)).await;
    assert!(reason.contains("teleported"), "{reason}");
    let reason = world.ignored("solar_flare", "unknown-event", &json!({"action": "seen"})).await;
    assert!(reason.contains("solar_flare"), "{reason}");

    let mut ghost = issue_event("opened", 3);
    ghost["issue"]["user"] = Value::Null;
    ghost["sender"] = Value::Null;
    let reason = world.ignored("issues", "ghost", &ghost).await;
    assert_eq!(reason, "the sender may not trigger");
    assert_eq!(server.sandbox("3").await, Value::Null);
    // An issue whose author's account was deleted, labelled by another account.
    let mut orphan = issue_event("labeled", 4);
    orphan["issue"]["user"] = Value::Null;
    orphan["issue"]["body"] = Value::Null;
    orphan["issue"]["assignee"] = Value::Null;
    let answer = world.deliver("issues", "orphan", orphan.to_string()).await;
    assert_eq!(answer.status, 202, "{answer:?}");

    for id in [9_007_199_254_740_993, u64::MAX] {
        let body = issue_event("labeled", id).to_string();
        let answer = world.deliver("issues", &format!("large-{id}"), body).await;
        assert_eq!((answer.status, &answer.json()["issueId"]), (202, &json!(id.to_string())));
        let sandbox = server.running(&id.to_string()).await;
        assert_eq!(sandbox["name"], format!("claude-issue-{id}"));
    }
    let json = issue_event("labeled", 5).to_string();
    let form: String = json.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let request = server.delivery("issues", "form", format!("payload={form}"));
    let mut request = request.build().expect("a request");
    let kind = "application/x-www-form-urlencoded".parse().expect("a header");
    request.headers_mut().insert("content-type", kind);
    let answer = server.client.execute(request).await.expect("an answer");
    assert_eq!(answer.status(), 202);
    assert_eq!(server.running("5").await["repository"], "octo/hello");

    // Deeper than any real delivery: in a field that is not read, and in one that is.
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let body = issue_event("labeled", 6).to_string();
    for depth in [200, 200_000] {
        let unread = format!("{{\"deep\":{},{}", deep(depth), &body[1..]);
        let answer = world.deliver("issues", &format!("deep-{depth}"), unread).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let mut read = issue_event("labeled", 7);
        read["issue"]["title"] = "deep".into();
        let read = read.to_string().replace("\"deep\"", &deep(depth));
        let answer = world.deliver("issues", "deep-title", read).await;
        world.refused("a deep title", answer, 400, "invalid_request").await;
    }
    world.lives("odd deliveries").await;
}

fn with_body(id: u64, len: usize) -> String {
    let mut event = issue_event("labeled", id);
    event["issue"]["body"] = "x".repeat(len).into();
    event.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_accepted_up_to_githubs_size_limit_and_refused_beyond_it() {
    let world = World::new().await;
    for (id, len) in [(11, 300 * 1024), (12, 24 * 1024 * 1024)] {
        let answer = world.deliver("issues", &format!("large-{len}"), with_body(id, len)).await;
        assert_eq!(answer.status, 202, "{len} bytes: {answer:?}");
        world.lives(&format!("{len} bytes")).await;
        assert_eq!(world.server.running(&id.to_string()).await["generation"], 1);
    }
    let large = with_body(13, 26 * 1024 * 1024);
    let answer = world.deliver("issues", "too-large", large.clone()).await;
    world.refused("26 MiB", answer, 413, "body_too_large").await;
    // Without a declared length it is found out while it comes.
    let signature = sign(&Secret::new(SECRET), large.as_bytes());
    let pieces: Vec<_> = large.as_bytes().chunks(1024 * 1024).map(<[u8]>::to_vec).collect();
    let pieces = futures_util::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
    let request = world.server.client.post(format!("{}/webhooks/github", world.server.url));
    let request = request
        .header("content-type", "application/json")
        .header("x-github-event", "issues")
        .header("x-github-delivery", "too-large-in-pieces")
        .header("x-hub-signature-256", signature)
        .body(reqwest::Body::wrap_stream(pieces));
    world.refused("26 MiB in pieces", send(request).await, 413, "body_too_large").await;
    assert_eq!(world.server.sandbox("13").await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as a body may; run by .ci/run"]
async fn slow_bodies_and_slow_headers_are_cut_off_while_others_are_served() {
    let world = World::new().await;
    let server = &world.server;
    let webhook = "POST /webhooks/github HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         x-github-event: issues\r\nx-github-delivery: slow\r\nx-hub-signature-256: sha256=00\r\n\
         content-length: 1000\r\n\r\n{\"action\""
        .to_owned();
    let call = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-length: 1000\r\n\r\n{{\"issueId\""
    );
    let headers = "GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ".to_owned();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let slow = [&webhook, &call, &headers].map(|bytes| {
            scope.spawn(move || {
                let answer = raw(server, bytes.as_bytes());
                (answer, began.elapsed())
            })
        });
        tokio::task::block_in_place(|| {
            let served = async { join_all((0..20).map(|_| world.lives("slow ones"))).await };
            tokio::runtime::Handle::current().block_on(served);
        });
        assert!(began.elapsed() < Duration::from_secs(8), "others are served meanwhile");
        for (at, slow) in slow.into_iter().enumerate() {
            let (answer, took) = slow.join().expect("it was read");
            assert!(took > Duration::from_secs(8) && took < Duration::from_secs(20), "{took:?}");
            let is_cut = answer.starts_with("HTTP/1.1 408 ");
            assert!(is_cut || (at == 2 && answer.is_empty()), "{at}: {answer}");
            assert!(at == 2 || answer.contains("request_timeout"), "{answer}");
        }
    });
    world.lives("slow bodies").await;
}
