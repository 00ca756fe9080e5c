//! What a repository has of its own: its label, its template, and what is laid over it.

use std::sync::Arc;

use issuebox::github::policy::TriggerPolicy;
use issuebox::http::Edge;
use issuebox::intake::Intake;
use issuebox::types::{PerRepository, RepositoryPattern, RepositorySettings};
use serde_json::{Value, json};

use crate::common::server::{TestServer, policy};

/// In `octo/tools` the label is `robot`, and the template `big` with a directory of the repository's own.
/// Everywhere else the label is `agent`.
fn with_tools(edge: &mut Edge) {
    let usual = TriggerPolicy { opened: false, ..policy() };
    let own = TriggerPolicy { label: "robot".into(), ..usual.clone() };
    let tools = || RepositoryPattern::parse("octo/tools").expect("a pattern");
    let policies = PerRepository::new(usual, vec![(tools(), own)]);
    let (engine, access) = (edge.engine.clone(), Arc::clone(&edge.access));
    edge.intake = Intake::new(engine.clone(), policies).by_account(access);
    let templates = engine.templates();
    let settings = RepositorySettings {
        template: templates.iter().find(|template| template.name.as_str() == "big").cloned(),
        working_dir: Some("tools".to_owned()),
        ..RepositorySettings::default()
    };
    let by_name = templates.into_iter().map(|template| (template.name.clone(), template));
    let settings = PerRepository::new(RepositorySettings::default(), vec![(tools(), settings)]);
    engine.replace_templates(engine.default_template(), by_name.collect(), settings);
}

/// A label was put on an issue.
fn labelled(id: u64, repository: (&str, u64), label: &str) -> String {
    let octocat = json!({"id": 7, "login": "octocat", "type": "User"});
    json!({
        "action": "labeled",
        "label": {"name": label},
        "issue": {
            "id": id, "number": id, "title": "Fix it", "state": "open", "labels": [{"name": label}],
            "user": octocat, "author_association": "OWNER", "updated_at": "2026-01-31T12:00:00Z",
        },
        "repository": {"id": repository.1, "full_name": repository.0},
        "sender": octocat,
    })
    .to_string()
}

/// What became of a delivery, and the template of its issue's sandbox.
async fn template_after(
    server: &TestServer,
    id: u64,
    repository: (&str, u64),
    label: &str,
) -> (Value, Value) {
    let guid = format!("delivery-{id}-{label}");
    let answer = server.deliver("issues", &guid, &labelled(id, repository, label)).await.json();
    let sandbox = server.get(&format!("/v1/issues/{id}/sandbox")).await.json();
    (answer["status"].clone(), sandbox["data"]["template"].clone())
}

#[tokio::test]
async fn a_label_triggers_by_the_rules_of_its_repository_and_gives_its_template() {
    let server = TestServer::with(with_tools).await;
    let (tools, hello) = (("octo/tools", 10), ("octo/hello", 9));
    for (id, repository, label, expected) in [
        (1, tools, "agent", ("ignored", Value::Null)),
        (1, tools, "Robot", ("accepted", json!("big"))),
        (2, hello, "robot", ("ignored", Value::Null)),
        (2, hello, "agent", ("accepted", json!("default"))),
    ] {
        let (status, template) = template_after(&server, id, repository, label).await;
        assert_eq!((status, template), (json!(expected.0), expected.1), "{id} {label}");
    }
}

#[tokio::test]
async fn a_sandbox_is_compared_with_the_template_as_its_repository_has_it() {
    let server = TestServer::with(with_tools).await;
    for (issue, repository, named, directory) in [
        ("3", "octo/tools", "default", json!("tools")),
        ("4", "octo/tools", "big", json!("tools")),
        ("5", "octo/hello", "big", json!("src")),
    ] {
        let number: u64 = issue.parse().expect("a number");
        let ask = json!({
            "issueId": issue, "repository": repository, "issueNumber": number, "template": named,
        });
        let made = server.post("/v1/sandboxes?wait=10", ask).await.json();
        let id = made["data"]["id"].as_str().unwrap_or_default();
        let path = format!("/v1/sandboxes/{id}/configuration");
        let configuration = server.get(&path).await.json()["data"].clone();
        assert_eq!(configuration["template"], named, "{made}");
        assert_eq!(configuration["workingDir"], directory, "{configuration}");
        assert_eq!(configuration["templateToday"], "same", "{configuration}");
    }
}
