//! Agents that speak the Agent Client Protocol and ask a person: in real sandboxes, over a restart of the
//! server, and with opencode as npm installs it.

use issuebox::models::double::{DoubleBlock, DoubleScript, DoubleTurn};
use serde_json::{Value, json};

use crate::agent_place::{KEY, give_agent_of, is_below, run_in, run_when, say, succeeded};
use crate::agents::installed;
use crate::process::{Answer, Place, Server};

/// A bash that speaks the protocol. Each turn of it asks whether it may write a line of `greeting`; with
/// the word *linger* in its prompt the line is never answered. It loads a session that it began.
const ASKER: &str = r#"
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
update() { say '"method":"session/update","params":{"sessionId":"s-1","update":{'"$1"'}}'; }
while IFS= read -r line; do
  case $line in
  *'"method":"session/prompt"'*)
    printf '%s\n' "$line" >> prompts
    update '"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I would greet."}'
    update '"sessionUpdate":"tool_call","toolCallId":"t","kind":"execute","title":"greet","status":"pending"'
    say '"id":7,"method":"session/request_permission","params":{"sessionId":"s-1","toolCall":{"toolCallId":"t","rawInput":{"command":"echo hello >> greeting"}},"options":[{"optionId":"once","name":"Allow once","kind":"allow_once"},{"optionId":"no","name":"Reject","kind":"reject_once"}]}' ;;
  *'"method":"initialize"'*)
    say '"id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"asker","version":"1"}}' ;;
  *'"method":"session/new"'*) echo s-1 >> sessions; say '"id":2,"result":{"sessionId":"s-1"}' ;;
  *'"method":"session/load"'*)
    update '"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Of before."}'
    say '"id":2,"result":{}' ;;
  *'"optionId":"once"'*)
    echo hello >> greeting
    update '"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"'
    update '"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"It is written."}'
    say '"id":3,"result":{"stopReason":"end_turn"}' ;;
  *'"optionId":"no"'*)
    update '"sessionUpdate":"tool_call_update","toolCallId":"t","status":"failed"'
    update '"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I may not."}'
    say '"id":3,"result":{"stopReason":"end_turn"}' ;;
  *'"method":"session/cancel"'*) say '"id":3,"result":{"stopReason":"cancelled"}' ;;
  esac
done
"#;

/// A place whose sandboxes have this agent, which asks.
async fn asking(place: &Place, program: &str, more: &str, script: DoubleScript) -> Server {
    let lines = format!("kind = \"acp\"\npermissions = \"ask\"\n{program}");
    // The double ends with the place's test; nothing else asks it.
    std::mem::forget(give_agent_of(place, "asker", &lines, script, more).await);
    serve(place).await
}

async fn serve(place: &Place) -> Server {
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", "asker");
    Server::start(command.stdout(std::process::Stdio::null())).await
}

fn bash() -> String {
    format!("path = \"/bin/bash\"\nargs = [\"-c\", '''{ASKER}''']")
}

/// Waits until a run waits for an answer; the run.
async fn asks(server: &Server, issue: &str, run: &str, attempt: u64) -> Value {
    let is_asked = |one: &Value| {
        let is_over = matches!(one["state"].as_str(), Some("failed" | "succeeded" | "cancelled"));
        assert!(!is_over, "{one}");
        one["state"] == "waiting_for_person" && one["attempt"] == attempt
    };
    run_when(server, issue, run, "a run that waits for a person", is_asked).await
}

async fn answer(server: &Server, run: &str, question: &Value, option: &str) -> Answer {
    let body = json!({"question": question, "option": option});
    server.post(&format!("/v1/runs/{run}/answer"), &body).await
}

/// The events of a conversation that are of this type.
async fn events(server: &Server, issue: &str, kind: &str) -> Vec<Value> {
    let path = format!("/v1/issues/{issue}/conversation/events");
    let mut answer = server.request(reqwest::Method::GET, &path).send().await.expect("an answer");
    let (mut text, mut found) = (String::new(), Vec::new());
    // The run that is asked about has ended, and its end is the last event.
    while !text.contains("\"state\":\"succeeded\"") {
        let piece = answer.chunk().await.expect("a piece").expect("more");
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).expect("JSON");
        if event["type"] == kind {
            found.push(event);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isolated sandboxes; run by .ci/run"]
async fn a_question_waits_over_a_restart_and_is_answered_once() {
    let Some(place) = Place::local(None).await else { return };
    let server = asking(&place, &bash(), "", DoubleScript::default()).await;
    let run = say(&server, "ask-1", "Write a greeting.").await;
    let asked = asks(&server, "ask-1", &run, 1).await;
    let question = asked["question"].clone();
    assert_eq!(question["text"], "execute: echo hello >> greeting", "{asked}");
    let sandbox = server.sandbox("ask-1").await;
    assert_eq!(sandbox["agent"]["state"], "waiting_for_person", "{sandbox}");
    assert_eq!(sandbox["agent"]["question"], question);
    let sandbox = sandbox["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer(&server, &run, &question["id"], "maybe").await.status, 400);
    server.kill().await;

    // The process ended with the server: another one goes on with the session, and asks again.
    let server = serve(&place).await;
    let again = asks(&server, "ask-1", &run, 2).await["question"].clone();
    assert_ne!(again["id"], question["id"]);
    let late = answer(&server, &run, &question["id"], "once").await;
    assert_eq!(late.refusal(), (409, "run_refused".to_owned()), "{late:?}");
    assert_eq!(server.sh(&sandbox, "cat greeting").await["stdout"], "", "it waits");
    let first = answer(&server, &run, &again["id"], "once").await;
    assert_eq!(
        (first.status, &first.json()["data"]["state"]),
        (202, &"running".into()),
        "{first:?}"
    );
    let second = answer(&server, &run, &again["id"], "no").await;
    assert_eq!(second.refusal(), (409, "run_refused".to_owned()), "{second:?}");
    assert!(second.text.contains("Allow once") && second.text.contains("already"), "{second:?}");
    let ended = succeeded(&server, "ask-1", &run).await;
    assert_eq!(ended["summary"], "It is written.");
    assert_eq!(
        (&ended["question"], &ended["answers"][0]["option"]["id"]),
        (&Value::Null, &"once".into())
    );
    let said = server.sh(&sandbox, "cat greeting sessions; grep -c Continue prompts").await;
    assert_eq!(said["stdout"], "hello\ns-1\n1\n", "one session, which goes on");
    let questions = events(&server, "ask-1", "question").await;
    let ids: Vec<_> = questions.iter().map(|event| event["id"].clone()).collect();
    assert_eq!(ids, [question["id"].clone(), again["id"].clone()]);
    let answers = events(&server, "ask-1", "answered").await;
    assert!(matches!(&answers[..], [one] if one["name"] == "Allow once"), "{answers:?}");

    // What was said before is not said again by the next run, which is refused something.
    let next = say(&server, "ask-1", "Once more.").await;
    let asked = asks(&server, "ask-1", &next, 1).await;
    assert_eq!(answer(&server, &next, &asked["question"]["id"], "no").await.status, 202);
    assert_eq!(succeeded(&server, "ask-1", &next).await["summary"], "I may not.");
    let texts = events(&server, "ask-1", "text").await;
    assert!(texts.iter().all(|event| event["text"] != "Of before."), "{texts:?}");
    // One that waits can be cancelled.
    let last = say(&server, "ask-1", "And again.").await;
    asks(&server, "ask-1", &last, 1).await;
    server.post(&format!("/v1/runs/{last}/cancel"), &Value::Null).await;
    let ended = run_in(&server, "ask-1", &last, &["cancelled", "failed", "succeeded"]).await;
    assert_eq!((&ended["state"], &ended["question"]), (&"cancelled".into(), &Value::Null));
    assert_eq!(server.sh(&sandbox, "cat greeting").await["stdout"], "hello\n");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isolated sandboxes; run by .ci/run"]
async fn a_person_has_all_of_run_seconds_to_answer_and_no_more() {
    let Some(place) = Place::local(None).await else { return };
    let limits = "[templates.short]\nprovider = \"local\"\nagent = \"asker\"\n\
                  quiet_seconds = 1\nrun_seconds = 6\n";
    let server = asking(&place, &bash(), limits, DoubleScript::default()).await;
    let body = json!({"issueId": "ask-2", "template": "short"});
    assert!(server.post("/v1/sandboxes?wait=60", &body).await.is_success());
    let run = say(&server, "ask-2", "Write a greeting.").await;
    asks(&server, "ask-2", &run, 1).await;
    let ended = run_in(&server, "ask-2", &run, &["failed", "succeeded"]).await;
    assert_eq!(
        (&ended["state"], &ended["reason"]),
        (&"failed".into(), &"it took longer than 6 s".into())
    );
    server.stop().await;
}

/// How opencode finds the gateway, and that it asks.
const OPENCODE: &str = r#"{"model":"anthropic/claude-opus-4-5","autoupdate":false,"share":"disabled",
"provider":{"anthropic":{"options":{"baseURL":"http://127.0.0.1:3129/anthropic/v1","apiKey":"held-by-the-gateway"}}},
"permission":{"edit":"ask","bash":"ask"}}"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs opencode from npm, and isolated sandboxes; run by .ci/run"]
async fn opencode_asks_and_goes_on_with_its_session() {
    let Some(program) = installed("opencode-linux-x64/bin/opencode") else { return };
    let Some(place) = Place::local(None).await else { return };
    let input = json!({"command": "echo hello > greeting", "description": "Write a greeting"});
    let bash = DoubleBlock::Tool { name: "bash".to_owned(), input };
    let turns = vec![
        DoubleTurn::of(vec![bash]),
        DoubleTurn::says("The greeting is written."),
        DoubleTurn::says("It still is."),
    ];
    let program = format!("path = {program:?}\nargs = [\"acp\"]");
    let env = format!(
        "[agents.asker.env]\nOPENCODE_CONFIG_CONTENT = '''{OPENCODE}'''\n\
         OPENCODE_DISABLE_MODELS_FETCH = \"1\"\n"
    );
    let script = DoubleScript { turns, side: Some(DoubleTurn::says("A title")) };
    let server = asking(&place, &program, &env, script).await;
    let run = say(&server, "opencode-1", "Write a greeting.").await;
    let asked = asks(&server, "opencode-1", &run, 1).await;
    assert_eq!(asked["question"]["text"], "execute: echo hello > greeting", "{asked}");
    assert_eq!(answer(&server, &run, &asked["question"]["id"], "once").await.status, 202);
    assert_eq!(succeeded(&server, "opencode-1", &run).await["summary"], "The greeting is written.");
    let sandbox = server.sandbox("opencode-1").await["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.sh(&sandbox, "cat greeting").await["stdout"], "hello\n");
    // The double answers by the number of its own answers in the request: the session was loaded.
    let next = say(&server, "opencode-1", "Is it written?").await;
    assert_eq!(succeeded(&server, "opencode-1", &next).await["summary"], "It still is.");
    server.stop().await;
    assert!(!is_below(&place.data(), KEY), "the key stays outside");
}
