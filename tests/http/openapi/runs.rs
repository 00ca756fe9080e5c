//! What is refused of messages to agents and of their runs.

use serde_json::{Value, json};

use super::expect;
use crate::common::document::{listed, operations};
use crate::common::server::{TestServer, send};

#[tokio::test]
async fn messages_and_runs_are_refused_as_described() {
    let server = TestServer::start().await;
    server.running("1").await;
    expect(&server, "run_not_found", "claude-issue-1", |_| true).await;
    for operation in operations(&server).await.iter().filter(|o| o.lists("agent_unknown")) {
        for body in [json!({"text": "x"}), json!({"text": "x", "agentId": "nope"})] {
            let address = operation.address("claude-issue-1", "1");
            let answer = server.request(operation.method.clone(), &address).json(&body);
            let answer = send(answer).await;
            assert_eq!(listed(operation, &answer).1, "agent_unknown", "{}", operation.name());
        }
    }
    let say = async || {
        let body = json!({"text": "x", "agentId": "cat"});
        server.post("/v1/sandboxes/claude-issue-1/messages", body).await
    };
    let said = say().await;
    let run = said.json()["data"]["run"]["id"].as_str().expect("a run").to_owned();
    for _ in 1..100 {
        assert_eq!(say().await.json()["data"]["run"]["id"], run.as_str());
    }
    expect(&server, "queue_full", "claude-issue-1", |_| true).await;
    assert_eq!(say().await.header("retry-after"), "60");
    for verb in ["retry", "cancel", "cancel"] {
        let answer = server.post(&format!("/v1/runs/{run}/{verb}"), Value::Null).await;
        let pattern = format!("/v1/runs/{{run}}/{verb}");
        let all = operations(&server).await;
        let operation = all.iter().find(|o| o.path == pattern).expect("it is described");
        match listed(operation, &answer) {
            (202, _) => assert_eq!(answer.json()["data"]["state"], "cancelled"),
            (_, code) => assert_eq!(code, "run_refused"),
        }
    }
    let body = json!({"question": "1-1", "option": "once"});
    let answer = server.post(&format!("/v1/runs/{run}/answer"), body).await;
    let all = operations(&server).await;
    let operation = all.iter().find(|o| o.path == "/v1/runs/{run}/answer");
    assert_eq!(listed(operation.expect("it is described"), &answer).1, "run_refused");
}
