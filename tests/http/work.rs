//! Commands and files over HTTP.

use std::time::Duration;

use crate::common::server::{Answer, TestServer, opened, send};
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(10);

async fn exec(server: &TestServer, body: Value) -> Answer {
    server.post("/v1/sandboxes/claude-issue-1/exec", body).await
}

#[tokio::test]
async fn a_command_is_answered_with_its_output_and_exit_code() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let answer = exec(&server, json!({"command": ["echo", "a", "b"]})).await.json();
    assert_eq!(answer["sandboxId"], id);
    let data = &answer["data"];
    assert_eq!(
        (&data["exitCode"], &data["stdout"], &data["stderr"]),
        (&json!(0), &json!("a b\n"), &json!(""))
    );
    assert_eq!((&data["truncated"], &data["timedOut"]), (&json!(false), &json!(false)));
    assert!(data["durationMs"].is_u64());
    let failed = exec(&server, json!({"command": ["fail", "3"]})).await.json();
    assert_eq!(
        (&failed["data"]["exitCode"], &failed["data"]["stderr"]),
        (&json!(3), &json!("failing"))
    );
    let cat = exec(&server, json!({"command": ["cat"], "stdin": "hi"})).await.json();
    assert_eq!(cat["data"]["stdout"], "hi");
    let raw = exec(&server, json!({"command": ["bytes"], "encoding": "base64"})).await.json();
    assert_eq!(raw["data"]["stdout"], "Yf9i");
    let lossy = exec(&server, json!({"command": ["bytes"]})).await.json();
    assert_eq!(lossy["data"]["stdout"], "a\u{fffd}b");
}

#[tokio::test]
async fn commands_that_cannot_run_have_different_errors() {
    let server = TestServer::start().await;
    server.running("1").await;
    let missing = exec(&server, json!({"command": ["nope"]})).await;
    assert_eq!((missing.status, missing.code().as_str()), (422, "command_not_found"));
    let gone = exec(&server, json!({"command": ["vanish"]})).await;
    assert_eq!((gone.status, gone.code().as_str()), (409, "not_running"));
    let empty = exec(&server, json!({"command": []})).await;
    assert_eq!((empty.status, &empty.json()["error"]["field"]), (400, &json!("command")));
    let unknown = server.post("/v1/sandboxes/nope/exec", json!({"command": ["echo"]})).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn output_beyond_the_bound_is_cut_and_said() {
    let server = TestServer::with(|edge| edge.limits.exec_output_max = 1_000).await;
    server.running("1").await;
    let answer = exec(&server, json!({"command": ["many", "5000"]})).await.json();
    assert_eq!(answer["data"]["stdout"].as_str().map(str::len), Some(1_000));
    assert_eq!(
        (&answer["data"]["truncated"], &answer["data"]["exitCode"]),
        (&json!(true), &json!(0))
    );
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_in_time_is_not_running() {
    let server = TestServer::start().await;
    server.provider.held.store(true, std::sync::atomic::Ordering::SeqCst);
    server.post("/v1/sandboxes", json!({"issueId": "1"})).await;
    let path = "/v1/sandboxes/claude-issue-1/exec?wait=1";
    let answer = server.post(path, json!({"command": ["echo"]})).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "not_running"));
    assert!(answer.text.contains("creating"), "{answer:?}");
    server.provider.open();
}

#[tokio::test]
async fn output_streams_as_events() {
    let server = TestServer::start().await;
    server.running("1").await;
    let request = server
        .request(Method::POST, "/v1/sandboxes/claude-issue-1/exec")
        .header("accept", "text/event-stream")
        .json(&json!({"command": ["echo", "hi"]}));
    let answer = send(request).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let out = "event: stdout\ndata: {\"data\":\"hi\\n\",\"encoding\":\"utf-8\"}\n\n";
    assert!(answer.text.contains(out), "{}", answer.text);
    assert!(answer.text.contains("event: exit\ndata: {\"exitCode\":0,\"timedOut\":false,"));
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_command() {
    let server = TestServer::start().await;
    server.running("1").await;
    for accept in ["text/event-stream", "application/json"] {
        let ended = server.provider.dropped.clone();
        let request = server
            .request(Method::POST, "/v1/sandboxes/claude-issue-1/exec")
            .header("accept", accept)
            .json(&json!({"command": ["forever"]}));
        if accept == "text/event-stream" {
            let mut events = request.send().await.expect("an answer").bytes_stream();
            let mut seen = String::new();
            while !seen.contains("begun") {
                let piece = events.next().await.expect("it goes on").expect("it is sound");
                seen.push_str(&String::from_utf8_lossy(&piece));
            }
        } else {
            let gone = tokio::time::timeout(Duration::from_millis(300), request.send()).await;
            assert!(gone.is_err(), "it would never answer");
        }
        let ended = tokio::time::timeout(Duration::from_secs(5), ended.notified()).await;
        assert!(ended.is_ok(), "{accept}: the command goes on without its caller");
    }
}

#[tokio::test]
async fn files_are_written_listed_read_and_deleted() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let content = |path: &str| format!("/v1/sandboxes/{id}/files/content?path={path}");
    let body = vec![7_u8; 3 * 1024 * 1024];
    let put = |path: &str, body: Vec<u8>| server.request(Method::PUT, &content(path)).body(body);
    assert_eq!(send(put("a/b.bin", body.clone())).await.status, 201);
    assert_eq!(send(put("/workspace/a/b.bin", body.clone())).await.status, 204, "the same file");
    assert_eq!(send(put("%FF", b"odd".to_vec())).await.status, 201);
    let read = server.request(Method::GET, &content("a/b.bin")).send().await.expect("an answer");
    assert_eq!(read.headers()["content-type"], "application/octet-stream");
    assert_eq!(read.headers()["content-disposition"], "attachment");
    assert_eq!(read.content_length(), Some(body.len() as u64));
    assert!(read.bytes().await.expect("a body") == body);
    let list = server.get(&format!("/v1/sandboxes/{id}/files")).await.json();
    let entries = &list["data"]["entries"];
    assert_eq!((&entries[0]["path"], &entries[0]["size"]), (&json!("a/b.bin"), &json!(body.len())));
    assert_eq!((&entries[1]["name"], &entries[1]["nameBase64"]), (&Value::Null, &json!("/w==")));
    assert_eq!(send(server.request(Method::DELETE, &content("a/b.bin"))).await.status, 204);
    let gone = server.get(&content("a/b.bin")).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "file_not_found"));
}

#[tokio::test]
async fn paths_out_of_the_workspace_are_refused() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    for path in ["/etc/passwd", "../x", "a/%2e%2e/b", "%2Fetc%2Fpasswd", "a%00b", "/workspaces/x"] {
        let answer = server.get(&format!("/v1/sandboxes/{id}/files/content?path={path}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "path_not_allowed"), "{path}");
    }
    let root = server.get(&format!("/v1/sandboxes/{id}/files/content?path=")).await;
    assert_eq!((root.status, &root.json()["error"]["field"]), (400, &json!("path")));
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_the_file_as_it_was() {
    let server = TestServer::with(|edge| edge.limits.upload_len_max = 10_000).await;
    let id = server.running("1").await;
    let path = format!("/v1/sandboxes/{id}/files/content?path=f");
    let put = |body: reqwest::Body| server.request(Method::PUT, &path).body(body);
    assert_eq!(send(put("old".into())).await.status, 201);
    let declared = send(put("x".repeat(10_001).into())).await;
    assert_eq!((declared.status, declared.code().as_str()), (413, "body_too_large"));
    let pieces = [6_000, 6_000].map(|len| Ok::<_, std::io::Error>("x".repeat(len)));
    let streamed = send(put(reqwest::Body::wrap_stream(futures_util::stream::iter(pieces)))).await;
    assert_eq!(streamed.status, 413);
    let broken = vec![Ok("new".to_owned()), Err(std::io::Error::other("gone"))];
    let broken = put(reqwest::Body::wrap_stream(futures_util::stream::iter(broken)));
    assert!(broken.send().await.is_err(), "the client went away");
    assert_eq!(server.get(&path).await.text, "old");
}

#[tokio::test]
async fn reading_files_on_the_page_starts_no_sandbox() {
    let server = TestServer::start().await;
    server.deliver("issues", "d-1", &opened(1, "a title")).await;
    server.get("/v1/sandboxes/claude-issue-1?until=running&wait=10").await;
    let put = server.request(Method::PUT, "/v1/sandboxes/claude-issue-1/files/content?path=f");
    assert_eq!(send(put.body("x")).await.status, 201);
    let closed = opened(1, "a title").replace("opened", "closed").replace("\"open\"", "\"closed\"");
    let closed = closed.replace("2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z");
    assert_eq!(server.deliver("issues", "d-2", &closed).await.status, 202);
    let stopped = server.get("/v1/sandboxes/claude-issue-1?until=stopped&wait=10").await;
    let stopped = stopped.json()["data"].clone();
    assert_eq!(stopped["phase"], "stopped");
    let cookie = server.log_in().await;
    let (list, content) = ("claude-issue-1/files", "claude-issue-1/files/content?path=f");
    for path in ["/v1/sandboxes/", "/sandboxes/"].map(|of| format!("{of}{list}")) {
        let looks = send(server.client.get(server.url(&path)).header("cookie", &cookie)).await;
        assert!(looks.status == 409 && looks.text.contains("is stopped"), "{path}: {looks:?}");
    }
    let path = format!("/v1/sandboxes/{content}");
    let looks = send(server.client.get(server.url(&path)).header("cookie", &cookie)).await;
    assert_eq!((looks.status, looks.code().as_str()), (409, "not_running"));
    let after = server.get("/v1/sandboxes/claude-issue-1").await.json()["data"].clone();
    assert_eq!((&after["wanted"], &after["attempt"]), (&stopped["wanted"], &stopped["attempt"]));
    // A program that sends the token means it.
    let read = server.get(&path).await;
    assert_eq!((read.status, read.text.as_str()), (200, "x"));
    let looks = send(server.client.get(server.url(&path)).header("cookie", &cookie)).await;
    assert_eq!((looks.status, looks.text.as_str()), (200, "x"), "it runs");
}

#[tokio::test]
async fn a_range_of_a_file_is_answered_as_one() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let path = format!("/v1/sandboxes/{id}/files/content?path=f");
    send(server.request(Method::PUT, &path).body("0123456789")).await;
    let get = async |range: &str| {
        let answer = send(server.request(Method::GET, &path).header("range", range)).await;
        (answer.status, answer.header("content-range").to_owned(), answer.text)
    };
    let part = |range: &str, text: &str| (206, format!("bytes {range}/10"), text.to_owned());
    assert_eq!(get("bytes=2-4").await, part("2-4", "234"));
    assert_eq!(get("bytes=7-99").await, part("7-9", "789"));
    assert_eq!(get("bytes=8-").await, part("8-9", "89"));
    assert_eq!(get("bytes=-1").await, part("9-9", "9"));
    let whole = (200, String::new(), "0123456789".to_owned());
    for ignored in ["bytes=0-1,4-5", "bytes=4-2", "lines=1-2", "bytes"] {
        assert_eq!(get(ignored).await, whole, "{ignored}");
    }
    let (status, range, text) = get("bytes=10-").await;
    assert_eq!((status, range.as_str()), (416, "bytes */10"));
    assert!(text.contains("range_not_satisfiable"), "{text}");
    let request = server.request(Method::GET, &path).header("range", "bytes=2-4");
    let compared = send(request.header("if-range", "\"x\"")).await;
    assert_eq!((compared.status, compared.header("accept-ranges")), (200, "bytes"));
}

#[tokio::test]
async fn changes_take_their_paths_as_bytes_and_refuse_what_is_not_theirs() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let at = |rest: &str| format!("/v1/sandboxes/{id}/files/{rest}");
    let put = async |rest: &str| send(server.request(Method::PUT, &at(rest)).body("x")).await;
    let post = async |rest: &str| send(server.request(Method::POST, &at(rest))).await;
    for odd in ["-rf", "new%0Aline", "%FF%FE"] {
        assert_eq!(put(&format!("content?path={odd}")).await.status, 201);
        assert_eq!(put(&format!("mode?path={odd}&mode=0700")).await.status, 204, "{odd}");
        assert_eq!(post(&format!("move?from={odd}&to=b/{odd}")).await.status, 201, "{odd}");
    }
    assert_eq!(server.provider.file(b"b/\xff\xfe").as_deref(), Some(&b"x"[..]));
    let taken = post("move?from=b/-rf&to=b/%FF%FE").await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "file_exists"));
    assert_eq!(post("move?from=b/-rf&to=b/%FF%FE&overwrite=true").await.status, 204);
    for (rest, field) in [
        ("mode?path=f&mode=4755", "mode"),
        ("mode?path=f", "mode"),
        ("mode?mode=0755", "path"),
        ("directory?path=", "path"),
        ("archive?path=f&nope=1", "nope"),
    ] {
        let wrong = put(rest).await;
        assert_eq!((wrong.status, &wrong.json()["error"]["field"]), (400, &json!(field)), "{rest}");
    }
    let out = post("move?from=b&to=../b").await;
    assert_eq!((out.status, out.code().as_str()), (400, "path_not_allowed"));
    assert_eq!(out.json()["error"]["field"], "to");
}

#[tokio::test]
async fn archives_pass_through_whole_or_break_off() {
    let server = TestServer::with(|edge| edge.limits.upload_len_max = 2_000_000).await;
    let id = server.running("1").await;
    let path = format!("/v1/sandboxes/{id}/files/archive?path=d");
    let put = |body: reqwest::Body| server.request(Method::PUT, &path).body(body);
    let body = vec![7_u8; 1_500_000];
    assert_eq!(send(put(body.clone().into())).await.status, 204);
    let got = server.request(Method::GET, &path).send().await.expect("an answer");
    assert_eq!(got.headers()["content-type"], "application/x-tar");
    assert_eq!(got.headers()["content-disposition"], "attachment");
    assert!(got.bytes().await.expect("a body") == body);
    let long = send(put(vec![7; 2_000_001].into())).await;
    assert_eq!((long.status, long.code().as_str()), (413, "body_too_large"));
    let broken = vec![Ok("new".to_owned()), Err(std::io::Error::other("gone"))];
    let broken = put(reqwest::Body::wrap_stream(futures_util::stream::iter(broken)));
    assert!(broken.send().await.is_err(), "the client went away");
    assert_eq!(server.provider.file(b"d.tar").map(|file| file.len()), Some(body.len()));
}

#[tokio::test]
async fn an_archive_under_way_ends_with_the_server_and_with_its_reader() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let path = format!("/v1/sandboxes/{id}/files/archive?path=forever");
    let begin = async || {
        let mut answer = server.request(Method::GET, &path).send().await.expect("an answer");
        let first = answer.chunk().await.expect("it begins");
        assert_eq!(first.as_deref(), Some(&b"begun"[..]));
        answer
    };
    let dropped = || tokio::time::timeout(WAIT, server.provider.dropped.notified());
    drop(begin().await);
    dropped().await.expect("the reader has gone");
    let mut answer = begin().await;
    server.closing.send_replace(true);
    let end = tokio::time::timeout(WAIT, answer.chunk()).await.expect("it ends");
    assert!(end.is_err(), "and is not taken for a whole one: {end:?}");
    dropped().await.expect("the writer has gone");
}
