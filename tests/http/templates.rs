//! Templates over HTTP: the list, and what a create may say of them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::common::server::{TestServer, send};
use crate::pages::Person;

/// A step of a hook, as it is shown.
fn run(command: &[&str]) -> Value {
    json!({"run": command, "uses": null, "cwd": null, "env": [], "timeoutSeconds": 10})
}

#[tokio::test]
async fn templates_are_listed_by_name_without_the_values_of_variables() {
    let server = TestServer::start().await;
    let answer = server.get("/v1/templates").await;
    let list = answer.json();
    assert_eq!((answer.status, &list["total"]), (200, &json!(2)), "{list}");
    let mut big = list["data"][0].clone();
    let version = big.as_object_mut().and_then(|big| big.remove("version")).expect("a version");
    let expected = json!({
        "name": "big", "isDefault": false, "unusable": null, "provider": "memory", "agent": null, "model": null,
        "runSeconds": null, "maxTurns": null, "instructions": "", "clone": null, "baseBranch": null,
        "repositoryFile": null, "mode": "strong", "image": "debian:13", "snapshot": null, "user": "agent",
        "workingDir": "src", "command": ["make", "watch"], "env": ["PLAIN"],
        "secrets": {"NPM_TOKEN": "npm"}, "mounts": [], "network": "full", "allow": [],
        "allowPrivate": ["10.0.0.5:443"], "ports": [], "onLimit": "stop",
        "resources": {"cpu": 1.0, "memoryMb": 512, "processes": 64, "diskMb": 512},
        "options": {"runtime": "runsc"}, "graceSeconds": 30,
        "hooks": {
            "on_message": [run(&["echo", "first"]), run(&["fail", "3"])],
            "on_stream_finish": [run(&["echo", "built"])],
        },
        "sync": {"onStop": false, "beforeDelete": false},
    });
    assert_eq!(big, expected);
    assert!(!answer.text.contains("a plain value"), "{}", answer.text);
    let default = &list["data"][1];
    assert_eq!((&default["name"], &default["isDefault"]), (&json!("default"), &json!(true)));
    assert_ne!(default["version"], version);
    let is_short_hex = |version: &Value| {
        let version = version.as_str().unwrap_or_default();
        version.len() == 12 && version.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    assert!(is_short_hex(&version) && is_short_hex(&default["version"]), "{list}");

    let first = server.get("/v1/templates?limit=1").await.json();
    let next = first["nextCursor"].as_str().expect("a second page");
    let second = server.get(&format!("/v1/templates?limit=1&cursor={next}")).await.json();
    assert_eq!((&second["data"][0], &second["nextCursor"]), (default, &Value::Null));
    assert_eq!(server.get("/v1/templates?name=big").await.code(), "invalid_request");
}

#[tokio::test]
async fn an_unknown_template_is_answered_with_the_known_ones() {
    let server = TestServer::start().await;
    let body = json!({"issueId": "1", "template": "bigg"});
    for request in [
        server.request(Method::POST, "/v1/sandboxes").json(&body),
        server.request(Method::PUT, "/v1/issues/1/sandbox").json(&body),
    ] {
        let answer = send(request).await;
        let error = json!({"code": "template_unknown", "field": "template",
            "message": "there is no template bigg; the configuration has big, default",
            "hint": "issuebox templates, or GET /v1/templates, lists them",
            "known": ["big", "default"]});
        assert_eq!((answer.status, &answer.json()["error"]), (422, &error));
    }
    assert_eq!(server.get("/v1/issues/1/sandbox").await.json()["data"], Value::Null);
}

#[tokio::test]
async fn a_provider_means_its_default_template_and_an_existing_sandbox_is_kept() {
    let server = TestServer::start().await;
    let ask = json!({"issueId": "1", "provider": "memory", "agentId": "reviewer"});
    let made = server.post("/v1/sandboxes?wait=10", ask).await.json();
    let (template, agent) = (&made["data"]["template"], &made["data"]["agentId"]);
    assert_eq!((template, agent), (&json!("default"), &json!("reviewer")), "{made}");
    for (ask, mismatch) in [
        (json!({"provider": "memory", "agentId": "reviewer"}), json!([])),
        (json!({"template": "default"}), json!([])),
        (json!({"template": "big", "agentId": "other"}), json!(["template", "agentId"])),
    ] {
        let mut ask = ask;
        ask["issueId"] = "1".into();
        let answer = server.post("/v1/sandboxes", ask.clone()).await.json();
        assert_eq!((&answer["mismatch"], &answer["outcome"]), (&mismatch, &json!("existing")));
        assert_eq!(answer["data"]["agentId"], "reviewer", "{ask}");
    }
    let unknown = json!({"issueId": "2", "provider": "cloud"});
    let unknown = server.post("/v1/sandboxes", unknown).await;
    let error = &unknown.json()["error"];
    assert_eq!((unknown.status, &error["code"]), (422, &json!("template_unknown")), "{error}");
    assert_eq!((&error["field"], &error["known"]), (&json!("provider"), &json!(["memory"])));
    let long = json!({"issueId": "2", "agentId": "x".repeat(2_000)});
    let long = server.post("/v1/sandboxes", long).await;
    assert_eq!((long.status, &long.json()["error"]["field"]), (400, &json!("agentId")));
    assert_eq!(server.get("/v1/issues/2/sandbox").await.json()["data"], Value::Null);
}

#[tokio::test]
async fn an_agent_id_that_is_asked_for_while_a_sandbox_is_deleted_is_that_of_the_next() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    server.provider.keeping.store(true, std::sync::atomic::Ordering::SeqCst);
    let path = format!("/v1/sandboxes/{id}");
    send(server.request(Method::DELETE, &path)).await;
    let ask = json!({"issueId": "1", "template": "big", "agentId": "second"});
    let queued = server.post("/v1/sandboxes", ask).await.json();
    assert_eq!((&queued["outcome"], &queued["mismatch"]), (&json!("queued"), &json!([])));
    server.provider.keeping.store(false, std::sync::atomic::Ordering::SeqCst);
    send(server.request(Method::GET, &format!("{path}?until=deleted&wait=15"))).await;
    let next = server.get("/v1/sandboxes/claude-issue-1").await.json()["data"].clone();
    assert_eq!((&next["template"], &next["agentId"]), (&json!("big"), &json!("second")), "{next}");
}

#[tokio::test]
async fn what_a_caller_notes_with_a_sandbox_is_kept_shown_and_changed() {
    let server = TestServer::start().await;
    let ask = json!({"issueId": "1", "meta": {"team": "core", "trace": "a/b-1"}});
    let made = server.post("/v1/sandboxes?wait=10", ask.clone()).await.json();
    assert_eq!(made["data"]["meta"], ask["meta"]);
    for (meta, mismatch) in [
        (json!({"team": "core"}), json!([])),
        (json!({"team": "other"}), json!(["meta"])),
        (json!({"colour": "red"}), json!(["meta"])),
    ] {
        let again =
            server.post("/v1/sandboxes", json!({"issueId": "1", "meta": meta})).await.json();
        assert_eq!((&again["mismatch"], &again["data"]["meta"]), (&mismatch, &ask["meta"]));
    }
    let path = "/v1/sandboxes/claude-issue-1/meta";
    let put = async |meta: Value| {
        let body = json!({ "meta": meta }).to_string();
        send(server.request(Method::PUT, path).body(body)).await
    };
    let set = put(json!({"owner": "ada"})).await;
    assert_eq!((set.status, &set.json()["data"]["meta"]), (200, &json!({"owner": "ada"})));
    let entries = |count: usize| (0..count).map(|n| (format!("n{n}"), json!("x"))).collect();
    for (wrong, why) in [
        (json!({"a b": "x"}), "name"),
        (json!({"a": 1}), "object of strings"),
        (json!({"a": "x".repeat(513)}), "longer"),
        (Value::Object(entries(17)), "17 entries"),
    ] {
        let refused = put(wrong).await;
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["field"]), (400, &json!("meta")), "{error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(why)), "{error}");
    }
    send(server.request(Method::DELETE, "/v1/sandboxes/claude-issue-1?wait=15")).await;
    assert_eq!(put(json!({})).await.code(), "sandbox_deleted");
    let id = made["sandboxId"].as_str().expect("an id");
    let deleted = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(deleted["data"]["meta"], json!({"owner": "ada"}), "also after its end");
}

#[tokio::test]
async fn a_sandbox_keeps_the_version_and_the_configuration_that_it_was_made_from() {
    let server = TestServer::start().await;
    let ask = json!({"issueId": "1", "template": "big", "agentId": "reviewer"});
    let made = server.post("/v1/sandboxes?wait=10", ask).await.json()["data"].clone();
    let big = server.get("/v1/templates").await.json()["data"][0].clone();
    assert_eq!(made["templateVersion"], big["version"]);
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().expect("an id"));
    let answer = server.get(&format!("{path}/configuration")).await;
    let mut configuration = answer.json()["data"].clone();
    for (name, expected) in [
        ("template", "big".into()),
        ("templateVersion", big["version"].clone()),
        ("templateToday", "same".into()),
    ] {
        let found = configuration.as_object_mut().and_then(|all| all.remove(name));
        assert_eq!(found, Some(expected), "{name}");
    }
    let mut of_template = big.clone();
    for name in ["name", "version", "isDefault", "unusable"] {
        of_template.as_object_mut().and_then(|all| all.remove(name));
    }
    assert_eq!(configuration, of_template);
    assert!(!answer.text.contains("a plain value"), "{}", answer.text);

    send(server.request(Method::DELETE, &format!("{path}?wait=10"))).await;
    let gone = server.get(&format!("{path}/configuration")).await;
    assert_eq!((gone.status, gone.code().as_str()), (409, "sandbox_deleted"));
    let deleted = server.get(&path).await.json()["data"].clone();
    assert_eq!(deleted["templateVersion"], big["version"], "{deleted}");
    assert_eq!(deleted["agentId"], "reviewer", "{deleted}");
    assert_eq!(server.get("/v1/sandboxes/nope/configuration").await.status, 404);
}

#[tokio::test]
async fn a_create_that_configures_its_sandbox_makes_none() {
    let server = TestServer::start().await;
    let image = json!({"issueId": "1", "template": "big", "image": "evil"});
    let answer = server.post("/v1/sandboxes", image).await;
    assert_eq!((answer.status, answer.code().as_str()), (422, "template_only"), "{answer:?}");
    assert_eq!(answer.json()["error"]["field"], "image");
    let other = server.post("/v1/sandboxes", json!({"issueId": "1", "colour": "red"})).await;
    assert_eq!((other.status, other.code().as_str()), (400, "invalid_request"));
    assert_eq!(server.get("/v1/issues/1/sandbox").await.json()["data"], Value::Null);
    assert_eq!(server.provider.object_count(), 0);
}

#[tokio::test]
async fn the_pages_show_the_templates_and_the_version_of_a_sandbox() {
    let server = TestServer::start().await;
    let ask = json!({"issueId": "1", "template": "big", "agentId": "<b>reviewer"});
    let made = server.post("/v1/sandboxes?wait=10", ask).await.json();
    let version = made["data"]["templateVersion"].as_str().expect("a version").to_owned();
    let person = Person::at(&server).await;
    let page = person.see("/templates").await.text;
    for part in [version.as_str(), "big", "debian:13", "memory", "10.0.0.5"] {
        assert_eq!(page.contains(part), part != "10.0.0.5", "{part}: {page}");
    }
    let page = person.see("/sandboxes/claude-issue-1").await.text;
    assert!(page.contains(&version) && page.contains("&lt;b&gt;reviewer"), "{page}");
    assert!(!page.contains("changed since") && !page.contains("no longer configured"), "{page}");
}
