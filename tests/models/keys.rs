//! What passes in both directions, and what is refused before a model is asked.

use std::collections::BTreeSet;

use issuebox::models::ModelActivity;
use issuebox::models::double::{DoubleFault, DoubleScript, DoubleTurn};
use issuebox::models::refusal::ModelRefusal;
use issuebox::types::Secret;
use serde_json::{Value, json};

use crate::world::{KEY, World, error, message, settings};

#[tokio::test]
async fn the_key_is_swapped_and_is_nowhere_else() {
    let world = World::free(vec![DoubleTurn::says("Done.")]).await;
    let mut seen = String::new();
    for (path, body) in [
        ("/anthropic/v1/messages?beta=true", message(true)),
        ("/anthropic/v1/messages", message(false)),
        ("/anthropic/v1/messages/count_tokens", message(false)),
        ("/openai/v1/responses", json!({"model": "gpt-y", "stream": true, "input": []})),
    ] {
        let answer = world.post(path, &body).await;
        assert_eq!(answer.status(), 200, "{path}");
        seen += &format!("{:?}", answer.headers());
        seen += &answer.text().await.expect("a text");
    }
    assert!(seen.contains("Done.") && !seen.contains("sk-"), "{seen}");
    assert_eq!(world.double.keys(), BTreeSet::from([KEY.to_owned()]));
    let requests = world.double.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(
        paths,
        ["/v1/messages?beta=true", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"]
    );
    for request in &requests {
        let is_messages = request.path.contains("messages");
        let (ours, other) = ["x-api-key", "authorization"].map(|name| request.header(name)).into();
        assert_eq!((ours.is_some(), other.is_some()), (is_messages, !is_messages));
        assert_eq!(request.header("cookie"), None);
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    }
    assert_eq!(requests[0].body["max_tokens"], 500);
    assert_eq!(requests[3].body["max_output_tokens"], 1_000, "the output is capped");
    let heard = format!("{:?}", world.runs.heard());
    assert!(!heard.contains("sk-"), "{heard}");
    assert_eq!(world.spent().await.requests, 3, "counting is free");
}

#[tokio::test]
async fn what_may_not_be_asked_is_refused_before_a_model_is_asked() {
    let world = World::free(vec![DoubleTurn::says("Done.")]).await;
    let with = |key: &str, value: Value| {
        let mut body = message(false);
        body[key] = value;
        body
    };
    let path = "/anthropic/v1/messages";
    for (path, body, status, kind, words) in [
        (path, with("model", "gpt-1".into()), 403, "permission_error", "gpt-1"),
        (
            path,
            with("tools", json!([{"type": "web_search_1"}])),
            403,
            "permission_error",
            "web_search_1",
        ),
        (path, with("model", Value::Null), 400, "invalid_request_error", "`model`"),
        ("/anthropic/v1/models", message(false), 404, "not_found_error", "route"),
        ("/", message(false), 404, "not_found_error", "route"),
        ("/other/v1/messages", message(false), 404, "not_found_error", "route"),
    ] {
        let (found, of, text) = error(world.post(path, &body).await).await;
        assert_eq!((found, of.as_str()), (status, kind), "{path} {body}");
        assert!(text.contains(words), "{text}");
    }
    let gpt = json!({"model": "claude-x", "input": []});
    let answer = world.post("/openai/v1/responses", &gpt).await;
    assert_eq!(error(answer).await.0, 400, "the status at which codex ends");
    let get =
        world.http.get(world.request(path, String::new()).build().expect("one").url().clone());
    assert_eq!(get.send().await.expect("an answer").status(), 405);
    let large = format!("{{\"model\":\"{}\"}}", "x".repeat(33 * 1024 * 1024));
    let answer = world.request(path, large).send().await.expect("an answer");
    assert_eq!(error(answer).await.0, 413);

    world.runs.change(|run| *run = None);
    let (status, kind, text) = error(world.ask(true).await).await;
    assert_eq!((status, kind.as_str()), (403, "permission_error"));
    assert!(text.starts_with("No run is in progress"), "{text}");
    assert_eq!(world.double.requests().len(), 0, "no model was asked");
}

#[tokio::test]
async fn a_network_that_allows_it_lets_the_maker_fetch() {
    let world = World::free(vec![DoubleTurn::says("Done.")]).await;
    world.runs.change(|run| run.as_mut().expect("one").may_fetch = true);
    let mut body = message(false);
    body["tools"] = json!([{"type": "web_search_1"}]);
    assert_eq!(world.post("/anthropic/v1/messages", &body).await.status(), 200);
}

#[tokio::test]
async fn a_key_that_is_refused_or_cannot_pay_is_named_by_its_setting_and_can_be_replaced() {
    let refuses = |status| DoubleTurn {
        fault: Some(DoubleFault::Status(status, Vec::new())),
        ..DoubleTurn::default()
    };
    let (key, credit) = (ModelRefusal::Key, ModelRefusal::NoCredit);
    for (status, refusal) in [(401, key as fn(String) -> _), (403, key), (402, credit)] {
        let world = World::free(vec![refuses(status)]).await;
        let (found, kind, text) = error(world.ask(true).await).await;
        assert_eq!((found, kind.as_str()), (403, "permission_error"));
        assert!(text.contains("models.anthropic.key_file") && !text.contains(KEY), "{text}");
        let refused = ModelActivity::Refused(refusal("anthropic".into()));
        assert!(world.runs.heard().contains(&refused));
        assert_eq!(world.spent().await.cost.nano_dollars(), 0);

        let turns = vec![DoubleTurn::says("Done.")];
        world.double.play(DoubleScript { turns, side: None });
        let mut settings = settings(&world.double.base_url());
        settings.endpoints[0].key = Secret::new("sk-newer");
        world.gateway.replace(settings);
        assert_eq!(world.ask(false).await.status(), 200);
        assert!(world.double.keys().contains("sk-newer"));
    }
    let world = World::free(vec![DoubleTurn::says("Done.")]).await;
    let mut settings = settings(&world.double.base_url());
    settings.endpoints.clear();
    world.gateway.replace(settings);
    let (status, _, text) = error(world.ask(true).await).await;
    assert_eq!((status, text.contains("`models.anthropic.key_file`")), (403, true), "{text}");
}
