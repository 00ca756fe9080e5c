//! The page of a conversation: what was said is shown harmlessly, and its forms end a run and try it again.

use reqwest::Method;
use serde_json::{Value, json};

use crate::common::server::{TestServer, send};
use crate::pages::Person;

async fn say(server: &TestServer, text: &str) -> Value {
    let body = json!({"text": text, "agentId": "cat"});
    let request = server.request(Method::PUT, "/v1/issues/1/messages").json(&body);
    let answer = send(request).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["data"]["run"]["id"].clone()
}

#[tokio::test]
async fn a_hostile_message_of_a_megabyte_does_nothing_on_the_page() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let path = format!("/sandboxes/{id}/conversation");
    let begin = "<script>alert(1)</script>\u{1b}[2J\u{202e}\nsecond line ";
    say(&server, &format!("{begin}{}", "y".repeat(1 << 20))).await;
    say(&server, "a short one").await;
    let shown = person.see(&path).await;
    let text = &shown.text;
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;\\u{1b}[2J\\u{202e}\nsecond line yyy";
    assert!(text.contains(escaped) && !text.contains("<script>"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.contains("more bytes are not shown"));
    assert!(text.contains("a short one") && text.len() < 100_000, "{}", text.len());
    assert!(shown.header("content-security-policy").starts_with("default-src 'none'"));
    assert!(!text.contains("Only the newest part"), "{text}");
}

#[tokio::test]
async fn what_does_not_fit_is_left_out_from_the_beginning() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    say(&server, "the oldest one").await;
    for _ in 0..3 {
        say(&server, &"z".repeat(3 << 20)).await;
    }
    let text = person.see(&format!("/sandboxes/{id}/conversation")).await.text;
    assert!(text.contains("Only the newest part") && text.contains("zzz"), "{}", text.len());
    assert!(!text.contains("the oldest one") && text.len() < 100_000, "{}", text.len());
}

#[tokio::test]
async fn a_run_is_stopped_and_tried_again_by_forms() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let path = format!("/sandboxes/{id}/conversation");
    let run = say(&server, "hello").await;
    let run = run.as_str().expect("an id");
    let overview = person.see(&format!("/sandboxes/{id}")).await.text;
    assert!(overview.contains("/conversation\"") && overview.contains(">queued</span>"));
    let page = person.see(&path).await.text;
    assert!(page.contains("Agent queued") && page.contains(&format!("value=\"{run}\"")), "{page}");
    let act = async |action: &str, fields: &[(&str, &str)]| {
        person.submit(&format!("{path}/{action}"), fields).await
    };
    let stopped = act("stop", &[("run", run)]).await;
    assert_eq!(stopped.header("location"), format!("{path}?done=stop"), "{stopped:?}");
    let page = person.see(stopped.header("location")).await.text;
    assert!(page.contains("Stop accepted") && page.contains("last run cancelled"), "{page}");
    assert!(page.contains("/retry\"") && !page.contains("/stop\""), "{page}");
    assert_eq!(act("stop", &[("run", run)]).await.status, 303, "it ended meanwhile");
    assert_eq!(act("retry", &[("run", run)]).await.status, 303);
    let again = person.see(&path).await.text;
    assert!(again.contains("Agent queued"), "{again}");
    assert_eq!(act("retry", &[("run", run)]).await.status, 409, "it goes on");
    for (action, fields, status) in [
        ("say", &[][..], 400),
        ("say", &[("text", " \r\n")], 400),
        ("stop", &[], 400),
        ("stop", &[("run", "x")], 400),
        ("explode", &[], 404),
        // The template of these sandboxes has no agent.
        ("say", &[("text", "hello"), ("interrupt", "true")], 422),
    ] {
        let refused = act(action, fields).await;
        assert_eq!(refused.status, status, "{action} {fields:?}: {refused:?}");
    }
}
