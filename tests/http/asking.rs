//! Questions of agents: what the API and the page show of one, and that a person answers it once.

use issuebox::conversation::{RunEvent, RunReply};
use issuebox::store::Store as _;
use issuebox::types::{AccountName, AgentQuestion, Alias, AnswerOption, IssueId, RunId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::common::server::{TestServer, send};
use crate::pages::Person;

/// Has the agent of an issue with a running sandbox ask something; the run and the question's id.
pub async fn asking(server: &TestServer, issue: &str) -> (String, String) {
    let say = server.request(Method::PUT, &format!("/v1/issues/{issue}/messages"));
    let said = send(say.json(&json!({"text": "x", "agentId": "cat"}))).await.json();
    let run = said["data"]["run"]["id"].as_str().expect("a run").to_owned();
    let id = RunId::parse(&run).expect("an id");
    let alias = Alias::Issue(IssueId::parse(issue).expect("an id"));
    let account = AccountName::default_account();
    let home =
        server.store.resolve(&account, &alias).await.expect("it reads").expect("it is known");
    let messages = said["data"]["run"]["messages"].as_u64().expect("a number");
    let begin = RunEvent::Begin(id, u32::try_from(messages).expect("few"));
    let begun = server.engine.run_event(home, begin).await.expect("it begins");
    let RunReply::Begun(begun, _) = begun else { panic!("{begun:?}") };
    let option = |id: &str, name: &str, kind: &str| AnswerOption {
        id: id.into(),
        name: name.into(),
        kind: kind.into(),
    };
    let question = AgentQuestion {
        id: "1-1".into(),
        text: "execute: <script>rm</script>".into(),
        options: vec![
            option("once", "Allow <b>once</b>", "allow_once"),
            option("no", "Reject", "reject_once"),
        ],
    };
    let asks = RunEvent::Asks(id, begun.attempt, Box::new(question));
    server.engine.run_event(home, asks).await.expect("it asks");
    (run, "1-1".to_owned())
}

#[tokio::test]
async fn a_question_is_shown_and_answered_once() {
    let server = TestServer::start().await;
    server.running("1").await;
    let (run, question) = asking(&server, "1").await;
    let agent = server.get("/v1/sandboxes/claude-issue-1").await.json()["data"]["agent"].take();
    assert_eq!((&agent["state"], &agent["run"]), (&json!("waiting_for_person"), &json!(run)));
    assert_eq!(
        agent["question"]["options"][1],
        json!({"id": "no", "name": "Reject", "kind": "reject_once"})
    );
    let listed = server.get("/v1/runs?state=waiting_for_person").await.json();
    assert_eq!(listed["data"][0]["question"], agent["question"], "{listed}");
    let path = format!("/v1/runs/{run}/answer");
    for (body, field) in [
        (json!({"option": "once"}), "question"),
        (json!({"question": question}), "option"),
        (json!({"question": question, "option": "maybe"}), "option"),
    ] {
        let refused = server.post(&path, body).await;
        assert_eq!((refused.status, &refused.json()["error"]["field"]), (400, &json!(field)));
    }
    let other = server.post(&path, json!({"question": "1-9", "option": "once"})).await;
    assert_eq!((other.status, other.code().as_str()), (409, "run_refused"));
    let answered = server.post(&path, json!({"question": question, "option": "no"})).await;
    assert_eq!(answered.status, 202, "{answered:?}");
    let run = &answered.json()["data"];
    assert_eq!((&run["state"], &run["question"]), (&json!("running"), &Value::Null));
    assert_eq!(run["answers"][0]["option"]["name"], "Reject", "{run}");
    let again = server.post(&path, json!({"question": question, "option": "once"})).await;
    assert_eq!((again.status, again.code().as_str()), (409, "run_refused"));
    assert!(again.text.contains("\\\"Reject\\\" already"), "{again:?}");
}

#[tokio::test]
async fn a_question_is_answered_by_a_button_of_the_page() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let path = format!("/sandboxes/{id}/conversation");
    let (run, question) = asking(&server, "1").await;
    let page = person.see(&path).await.text;
    assert!(page.contains("Agent waiting for person") && !page.contains("<script>rm"), "{page}");
    assert!(page.contains("execute: &lt;script&gt;rm") && page.contains("value=\"no\""), "{page}");
    let act =
        async |fields: &[(&str, &str)]| person.submit(&format!("{path}/answer"), fields).await;
    for fields in [&[("run", run.as_str())][..], &[("run", &run), ("question", &question)]] {
        assert_eq!(act(fields).await.status, 400);
    }
    let all = [("run", run.as_str()), ("question", &question), ("option", "once")];
    let answered = act(&all).await;
    assert_eq!(answered.header("location"), format!("{path}?done=answer"), "{answered:?}");
    let page = person.see(answered.header("location")).await.text;
    assert!(page.contains("The answer is taken in") && page.contains("Agent running"), "{page}");
    assert!(!page.contains("value=\"no\"") && act(&all).await.status == 409, "{page}");
}
