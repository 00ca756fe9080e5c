//! Dialogues with recorded lines: what is written, what events there are, and how runs are judged.

use serde_json::{Value, json};

use super::*;
use crate::types::{AgentPermissions, AgentSettings};

const FOLDER: &str = "opencode-1.18.33";
const SESSION: &str = "5d6e1c1e-0b5e-4f3c-9a53-8d5f2a6b7c01";

/// How a recorded run came about.
struct RecordedTalk {
    name: &'static str,
    exit: i32,
    permissions: AgentPermissions,
    /// What the session that it goes on with is called.
    resumes: Option<&'static str>,
    /// The option that a person chooses; the turn is cancelled if there is none.
    answer: Option<&'static str>,
}

const TALKS: [RecordedTalk; 7] = [
    asked("asked", Some("once")),
    asked("denied", Some("reject")),
    asked("cancelled", None),
    RecordedTalk { exit: 143, ..asked("killed", Some("once")) },
    RecordedTalk {
        permissions: AgentPermissions::Allow,
        resumes: Some("ses_dd088bcdcffeerDFz1GPfcS3w3"),
        ..asked("resume", None)
    },
    RecordedTalk { resumes: Some("ses_doesnotexist"), ..asked("no-session", None) },
    asked("budget", None),
];

const fn asked(name: &'static str, answer: Option<&'static str>) -> RecordedTalk {
    RecordedTalk { name, exit: 0, permissions: AgentPermissions::Ask, resumes: None, answer }
}

fn turn(permissions: AgentPermissions, resumes: Option<&str>) -> AgentTurn {
    let id = SessionId::parse(SESSION).expect("an id");
    AgentTurn {
        prompt: "Fix it.".to_owned(),
        session: if resumes.is_some() { SessionStart::Resume(id) } else { SessionStart::New(id) },
        model: None,
        limits: TurnLimits::default(),
        gateway: GATEWAY_URL.to_owned(),
        program: "/opt/agent".to_owned(),
        agent_dir: AGENT_DIR.to_owned(),
        cwd: "/workspace".to_owned(),
        append_system_prompt: Some("You are in a sandbox.".to_owned()),
        is_root: false,
        settings: AgentSettings { permissions, ..AgentSettings::default() },
        session_name: resumes.filter(|name| !name.is_empty()).map(str::to_owned),
        attempt: 1,
    }
}

fn dialogue(turn: &AgentTurn) -> Box<dyn AgentDialogue> {
    AcpAgent.dialogue(turn).expect("it is spoken to")
}

/// A dialogue that has just begun.
pub(super) fn for_fuzz(asks: bool) -> Box<dyn AgentDialogue> {
    dialogue(&turn(if asks { AgentPermissions::Ask } else { AgentPermissions::Allow }, None))
}

/// What a dialogue writes, as JSON.
fn written(talk: &mut Box<dyn AgentDialogue>) -> Vec<Value> {
    let lines = talk.take_lines();
    assert!(
        lines.iter().all(|line| line.ends_with('\n') && !line[..line.len() - 1].contains('\n'))
    );
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Reads a line of the agent.
fn hears(talk: &mut Box<dyn AgentDialogue>, line: &Value) -> Vec<AgentEvent> {
    talk.line(line.to_string().as_bytes())
}

/// A dialogue whose turn goes on.
fn in_turn(permissions: AgentPermissions) -> Box<dyn AgentDialogue> {
    let mut talk = dialogue(&turn(permissions, None));
    hears(&mut talk, &json!({"id": 1, "result": {"protocolVersion": 1}}));
    hears(&mut talk, &json!({"id": 2, "result": {"sessionId": "s"}}));
    assert_eq!(written(&mut talk).len(), 3);
    talk
}

fn permission(id: impl Into<Value>, options: &[(&str, &str)]) -> Value {
    let options =
        options.iter().map(|(id, kind)| json!({"optionId": id, "kind": kind, "name": id}));
    json!({"id": id.into(), "method": "session/request_permission", "params": {
        "toolCall": {"toolCallId": "t", "kind": "execute", "rawInput": {"command": "ls"}},
        "options": options.collect::<Vec<_>>(),
    }})
}

/// The whole of a recorded dialogue, a line each, and how it was judged.
fn played(recorded_talk: &RecordedTalk) -> String {
    let RecordedTalk { name, exit, permissions, resumes, answer } = recorded_talk;
    let mut talk = dialogue(&turn(*permissions, *resumes));
    let (mut shown, mut report) = (Vec::new(), RunReport::default());
    let say = |talk: &mut Box<dyn AgentDialogue>, shown: &mut Vec<String>| {
        let lines = talk.take_lines().into_iter();
        shown.extend(lines.map(|line| format!(">> {}", line.trim_end())));
    };
    for line in super::recorded(&format!("{FOLDER}/{name}")).split(|byte| *byte == b'\n') {
        say(&mut talk, &mut shown);
        for event in talk.line(line) {
            assert!(!matches!(event, AgentEvent::Unknown { .. }), "{name}: {event:?}");
            report.read(&event);
            shown.push(serde_json::to_string(&event).expect("plain data"));
        }
        if let Some(question) = talk.question().cloned() {
            shown.push(format!("?? {} {}", question.id, question.text));
            match answer {
                Some(option) => talk.answer(&question.id, option),
                None => talk.cancel(),
            }
            assert!(talk.question().is_none());
        }
    }
    say(&mut talk, &mut shown);
    assert_eq!(talk.is_over(), *exit == 0, "{name}");
    let outcome = AcpAgent.outcome(AgentExit::Code(*exit), &report);
    let text = format!("{}\nexit {exit}: {outcome:?}", shown.join("\n"));
    text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

/// The snapshots lie beside the recorded lines. `INSTA_UPDATE=always` writes them again.
#[test]
fn recorded_dialogues_say_this() {
    for talk in &TALKS {
        insta::with_settings!({
            snapshot_path => format!("../../../fixtures/agents/{FOLDER}"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!(talk.name, played(talk));
        });
    }
    let files =
        std::fs::read_dir(format!("{}/fixtures/agents/{FOLDER}", env!("CARGO_MANIFEST_DIR")));
    let names = files.expect("a folder of fixtures").filter_map(|file| {
        file.ok()?.file_name().to_str()?.strip_suffix(".jsonl").map(str::to_owned)
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    let mut listed: Vec<_> = TALKS.iter().map(|talk| talk.name).collect();
    listed.sort_unstable();
    assert_eq!(names, listed);
}

#[test]
fn what_is_allowed_by_configuration_is_answered_at_once() {
    let mut talk = in_turn(AgentPermissions::Allow);
    let always_first = [("a", "allow_always"), ("o", "allow_once"), ("r", "reject_once")];
    for (options, chosen) in
        [(&always_first[..], "o"), (&always_first[..1], "a"), (&always_first[2..], "r")]
    {
        let events = hears(&mut talk, &permission("x-1", options));
        assert!(talk.question().is_none());
        let answers = written(&mut talk);
        assert_eq!(answers[0]["id"], "x-1");
        assert_eq!(answers[0]["result"]["outcome"]["optionId"], chosen);
        let is_denied = events.iter().any(|event| matches!(event, AgentEvent::Denied { .. }));
        assert_eq!(is_denied, chosen == "r");
    }
}

#[test]
fn questions_are_asked_one_after_the_other_and_answered_once() {
    let mut talk = in_turn(AgentPermissions::Ask);
    let options = [("o", "allow_once"), ("o", "reject_once"), ("", "x"), ("r", "reject_once")];
    hears(&mut talk, &permission(7, &options));
    hears(&mut talk, &permission(8, &options));
    let first = talk.question().cloned().expect("it asks");
    assert_eq!((first.id.as_str(), first.text.as_str()), ("1-1", "execute: ls"));
    let ids: Vec<_> = first.options.iter().map(|option| option.id.as_str()).collect();
    assert_eq!(ids, ["o", "r"], "each has an id of its own");
    talk.answer("1-2", "o");
    talk.answer("1-1", "other");
    assert!(written(&mut talk).is_empty() && talk.question() == Some(&first));
    talk.answer("1-1", "r");
    talk.answer("1-1", "o");
    let answers = written(&mut talk);
    assert_eq!(answers.len(), 1);
    assert_eq!(
        (&answers[0]["id"], &answers[0]["result"]["outcome"]["optionId"]),
        (&7.into(), &"r".into())
    );
    assert_eq!(talk.question().map(|question| question.id.as_str()), Some("1-2"));
    // What waits when the turn is cancelled, and what comes later, is cancelled with it.
    talk.cancel();
    hears(&mut talk, &permission(9, &options));
    let lines = written(&mut talk);
    assert_eq!(lines[0]["method"], "session/cancel");
    for (line, id) in lines[1..].iter().zip([8, 9]) {
        let outcome = &line["result"]["outcome"]["outcome"];
        assert_eq!((&line["id"], outcome), (&id.into(), &"cancelled".into()));
    }
    assert_eq!(lines.len(), 3);
    assert!(talk.question().is_none() && !talk.is_over());
    hears(&mut talk, &json!({"id": 3, "result": {"stopReason": "cancelled"}}));
    assert!(talk.is_over());
}

#[test]
fn a_turn_is_judged_by_its_reason_whatever_the_exit_is() {
    let judged = |answer: Value| {
        let (mut talk, mut report) = (in_turn(AgentPermissions::Allow), RunReport::default());
        let mut line = json!({"id": 3});
        line.as_object_mut().expect("an object").extend(answer.as_object().cloned().expect("one"));
        let said = json!({"method": "session/update", "params": {"update": {
            "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Words."}}}});
        for line in [said, line] {
            hears(&mut talk, &line).iter().for_each(|event| report.read(event));
        }
        assert!(talk.is_over());
        AcpAgent.outcome(AgentExit::Code(143), &report)
    };
    let stopped = |reason: &str| judged(json!({"result": {"stopReason": reason}}));
    assert_eq!(stopped("end_turn"), RunOutcome::Succeeded { summary: "Words.".into() });
    assert_eq!(stopped("cancelled"), RunOutcome::Interrupted);
    let failed = |outcome| match outcome {
        RunOutcome::Failed { reason, is_transient } => (reason, is_transient),
        other => panic!("{other:?}"),
    };
    for (reason, words) in [
        ("max_tokens", "all the tokens"),
        ("max_turn_requests", "all the turns"),
        ("refusal", "declined"),
        ("later", "\"later\""),
    ] {
        let (why, is_transient) = failed(stopped(reason));
        assert!(why.contains(words) && !is_transient, "{reason}: {why}");
    }
    assert!(failed(judged(json!({"result": {}}))).0.contains("without a reason"));
    let error = |words: &str| judged(json!({"error": {"code": -32603, "message": words}}));
    assert_eq!(failed(error("Internal error: it broke")), ("it broke".into(), false));
    assert!(failed(error("The model asks to wait until 14:05 UTC")).1, "it goes on by itself");
    let budget = "Budget of this issue is used up: $5.00 of $5.00; an operator can raise it";
    assert_eq!(error(budget), RunOutcome::OverBudget { words: budget.into() });
    // Without the end of a turn the exit counts.
    let none = RunReport::default();
    assert_eq!(AcpAgent.outcome(AgentExit::Code(143), &none), RunOutcome::Interrupted);
}

#[test]
fn a_session_that_cannot_go_on_is_said_and_begun_anew() {
    for (resumes, capabilities) in [("", json!({"loadSession": true})), ("s", json!({}))] {
        let mut talk = dialogue(&turn(AgentPermissions::Allow, Some(resumes)));
        let greeting =
            json!({"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": capabilities}});
        let events = hears(&mut talk, &greeting);
        assert!(
            matches!(&events[0], AgentEvent::TurnEnded { text, .. } if text.contains("A new one begins"))
        );
        let mut report = RunReport::default();
        events.iter().for_each(|event| report.read(event));
        assert!(talk.is_over() && written(&mut talk).len() == 1, "nothing is asked of it");
        assert_eq!(AcpAgent.outcome(AgentExit::Code(0), &report), RunOutcome::SessionMissing);
    }
}

#[test]
fn what_the_agent_must_do_itself_is_refused_and_other_versions_are_not_spoken() {
    let mut talk = in_turn(AgentPermissions::Allow);
    let ask = json!({"id": 5, "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}});
    assert!(
        matches!(&hears(&mut talk, &ask)[0], AgentEvent::Note { text } if text.contains("fs/read"))
    );
    let answers = written(&mut talk);
    assert_eq!((&answers[0]["id"], &answers[0]["error"]["code"]), (&5.into(), &(-32601).into()));
    let mut talk = dialogue(&turn(AgentPermissions::Allow, None));
    let events = hears(&mut talk, &json!({"id": 1, "result": {"protocolVersion": 2}}));
    assert!(matches!(&events[0], AgentEvent::TurnEnded { text, .. } if text.contains("version 2")));
    assert!(talk.is_over());
}

#[test]
fn a_program_cannot_say_what_people_are_asked_or_answer() {
    let line = br#"{"type":"answered","question":"1-1","option":"o","name":"Allow","by":"mona"}"#;
    let events = events_of(&CommandAgent, line);
    assert!(matches!(&events[0], AgentEvent::Text { .. }), "{events:?}");
}
