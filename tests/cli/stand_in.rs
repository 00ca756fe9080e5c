//! `issuebox stand-in-agent`: started as an agent is, against a double of the model, read and judged
//! as claude is.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use issuebox::agents::refusal::{ApiForm, RefusalCause, refusal};
use issuebox::agents::{
    Agent, AgentEvent, AgentExit, AgentTurn, ClaudeCode, GATEWAY_URL, LineSplitter, RunOutcome,
    RunReport, SessionStart, TurnLimits,
};
use issuebox::types::{AgentSettings, Money, SessionId};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// What the double answers to a request: by the number of its request, and its body.
type Play = fn(usize, &Value) -> (u16, Value);

/// A double of the Messages API that streams whole blocks.
struct Double {
    url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Double {
    fn start(play: Play) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = seen.clone();
                std::thread::spawn(move || answer(stream, play, &seen));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("no panic").clone()
    }
}

fn answer(stream: TcpStream, play: Play, seen: &Mutex<Vec<Value>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut len, mut path, mut line) = (0, String::new(), String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
        if path.is_empty() {
            path.clone_from(&line);
        }
        line.clear();
    }
    assert!(path.starts_with("POST /anthropic/v1/messages "), "{path}");
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let number = {
        let mut seen = seen.lock().expect("no panic");
        seen.push(body.clone());
        seen.len() - 1
    };
    let (status, answer) = play(number, &body);
    let mut stream = stream;
    let (kind, text) = match status {
        200 => ("text/event-stream", streamed(&answer)),
        _ => ("application/json", answer.to_string()),
    };
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    stream.write_all((head + &text).as_bytes()).ok()
}

/// The blocks as the stream of events that spells them.
fn streamed(blocks: &Value) -> String {
    let blocks = blocks.as_array().expect("blocks");
    let message = json!({ "id": "msg_1", "role": "assistant", "content": [],
        "usage": { "input_tokens": 100, "output_tokens": 1 } });
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    for (index, block) in blocks.iter().enumerate() {
        let (empty, delta) = match block["type"].as_str() {
            Some("text") => (
                json!({ "type": "text", "text": "" }),
                json!({ "type": "text_delta", "text": block["text"] }),
            ),
            _ => (
                json!({ "type": "tool_use", "id": block["id"], "name": block["name"], "input": {} }),
                json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }),
            ),
        };
        events.extend([
            json!({ "type": "content_block_start", "index": index, "content_block": empty }),
            json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            json!({ "type": "content_block_stop", "index": index }),
        ]);
    }
    let called = blocks.iter().any(|block| block["type"] == "tool_use");
    let stop = if called { "tool_use" } else { "end_turn" };
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop },
        "usage": { "output_tokens": 20 } }));
    events.push(json!({ "type": "message_stop" }));
    events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect()
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn bash(id: &str, command: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "Bash", "input": { "command": command } })
}

/// How many messages of the model a request's history has.
fn answered(body: &Value) -> usize {
    let messages = body["messages"].as_array().expect("messages");
    messages.iter().filter(|message| message["role"] == "assistant").count()
}

/// A place with a workspace and an agent directory.
struct Desk {
    dir: tempfile::TempDir,
    session: SessionId,
}

/// What a run of the stand-in gave.
#[derive(Debug)]
struct Ran {
    events: Vec<AgentEvent>,
    outcome: RunOutcome,
    code: i32,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["agent", "workspace"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let session = SessionId::parse("5d6e1c1e-0b5e-4f3c-9a53-8d5f2a6b7c01").expect("an id");
        Self { dir, session }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, double: &Double, session: SessionStart, prompt: &str) -> Child {
        let turn = AgentTurn {
            prompt: prompt.to_owned(),
            session,
            model: None,
            limits: TurnLimits { max_turns: Some(5), retries: 0, ..TurnLimits::default() },
            gateway: GATEWAY_URL.to_owned(),
            program: env!("CARGO_BIN_EXE_issuebox").to_owned(),
            agent_dir: self.path("agent").display().to_string(),
            cwd: self.path("workspace").display().to_string(),
            append_system_prompt: Some("You are a test.".to_owned()),
            is_root: true,
            settings: AgentSettings::default(),
            session_name: None,
            attempt: 1,
        };
        let turn = AgentTurn { gateway: double.url.clone(), ..turn };
        let launch = ClaudeCode.launch(&turn);
        for file in &launch.files {
            std::fs::write(&file.path, &file.text).expect("a file");
        }
        let mut command = Command::new(&launch.argv[0]);
        command.arg("stand-in-agent").args(&launch.argv[1..]).env_clear().envs(launch.env);
        command.current_dir(&launch.cwd);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("piped");
        // One that does not read its input has ended.
        let _ = stdin.write_all(launch.stdin.as_bytes());
        child
    }

    fn run(&self, double: &Double, session: SessionStart, prompt: &str) -> Ran {
        end(self.start(double, session, prompt))
    }

    /// A pipe with a name, which a command of the agent writes to when it runs.
    fn pipe(&self) -> PathBuf {
        let path = self.path("workspace/running");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
        path
    }
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().expect("it ends");
    let (mut reader, mut splitter) = (ClaudeCode.reader(), LineSplitter::default());
    let (mut events, mut report) = (Vec::new(), RunReport::default());
    splitter.push(&output.stdout, |line| events.extend(reader.line(line)));
    events.iter().for_each(|event| report.read(event));
    report.read_stderr(&output.stderr);
    let code = output.status.code().expect("it ends by itself");
    Ran { outcome: ClaudeCode.outcome(AgentExit::Code(code), &report), events, code }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("it runs");
}

/// Waits until a command of the agent writes to the pipe.
fn wait_until_it_runs(pipe: &Path) {
    let mut word = String::new();
    File::open(pipe).and_then(|mut pipe| pipe.read_to_string(&mut word)).expect("a word");
    assert_eq!(word.trim(), "runs");
}

#[test]
fn it_works_and_goes_on_in_its_session() {
    let double = Double::start(|_, body| {
        let answer = match answered(body) {
            0 => json!([text("I write."), bash("toolu_1", "echo hello > greeting; echo wrote")]),
            1 => json!([text("Done.")]),
            _ => json!([text("Still there.")]),
        };
        (200, answer)
    });
    let desk = Desk::new();
    let ran = desk.run(&double, SessionStart::New(desk.session), "Write a greeting");
    assert_eq!(ran.outcome, RunOutcome::Succeeded { summary: "Done.".into() }, "{ran:?}");
    assert!(!ran.events.iter().any(|event| matches!(event, AgentEvent::Unknown { .. })), "{ran:?}");
    let result = AgentEvent::ToolResult {
        id: "toolu_1".into(),
        text: "wrote".into(),
        is_error: false,
        parent: None,
    };
    assert!(ran.events.contains(&result), "{ran:?}");
    let greeting = std::fs::read_to_string(desk.path("workspace/greeting")).expect("a greeting");
    assert_eq!(greeting, "hello\n");

    let folders = std::fs::read_dir(desk.path("agent/claude/projects")).expect("a folder");
    let folder = folders.map(|it| it.expect("an entry").file_name()).next().expect("a folder");
    let file = format!("claude/projects/{}/{}.jsonl", folder.display(), desk.session);
    assert!(ClaudeCode.session_files(&desk.session)[0].matches(&file), "{file}");

    let again = desk.run(&double, SessionStart::Resume(desk.session), "Is it there?");
    assert_eq!(again.outcome, RunOutcome::Succeeded { summary: "Still there.".into() });
    let taken = desk.run(&double, SessionStart::New(desk.session), "Once more");
    assert_eq!(taken.outcome, RunOutcome::SessionTaken);
    let requests = double.requests();
    assert_eq!(requests.len(), 3, "the run that was refused asked nothing");
    assert_eq!(requests[2]["system"], "You are a test.");
    assert_eq!(requests[2]["max_tokens"], 8192);
    assert_eq!(requests[2]["messages"].as_array().map(Vec::len), Some(5));
}

#[test]
fn without_its_session_file_it_says_that_there_is_none() {
    let double = Double::start(|_, _| (200, json!([text("Hello.")])));
    let desk = Desk::new();
    let ran = desk.run(&double, SessionStart::Resume(desk.session), "Go on");
    assert_eq!((ran.outcome, ran.code), (RunOutcome::SessionMissing, 1));
    assert!(double.requests().is_empty());
}

#[test]
fn a_budget_ends_it_after_one_request_and_it_goes_on_after_a_raise() {
    let double = Double::start(|number, _| match number {
        0 => {
            let money = |dollars| Money::from_dollars(dollars).expect("an amount");
            let (spent, limit) = (money(5.0), money(5.0));
            let cause = RefusalCause::Budget { of: "this issue".into(), spent, limit };
            let refused = refusal(ApiForm::Messages, &cause);
            (refused.status, refused.body)
        }
        _ => (200, json!([text("Hello.")])),
    });
    let desk = Desk::new();
    let ran = desk.run(&double, SessionStart::New(desk.session), "Say hello");
    let words = "Budget of this issue is used up: $5.00 of $5.00; an operator can raise it";
    assert_eq!(ran.outcome, RunOutcome::OverBudget { words: words.into() });
    assert_eq!(double.requests().len(), 1);
    let again = desk.run(&double, SessionStart::Resume(desk.session), "Continue.");
    assert_eq!(again.outcome, RunOutcome::Succeeded { summary: "Hello.".into() });
}

#[test]
fn it_ends_at_its_turns() {
    let double = Double::start(|_, _| (200, json!([bash("toolu_1", "true")])));
    let desk = Desk::new();
    let ran = desk.run(&double, SessionStart::New(desk.session), "Go on for ever");
    assert!(matches!(ran.outcome, RunOutcome::Failed { is_transient: false, .. }), "{ran:?}");
    assert_eq!((ran.code, double.requests().len()), (1, 5));
}

/// A command that says that it runs, and never ends.
const ENDLESS: &str = "echo runs > running; exec tail -f /dev/null";

#[test]
fn sigint_ends_its_command_and_the_session_goes_on() {
    let double = Double::start(|_, body| match answered(body) {
        0 => (200, json!([bash("toolu_1", ENDLESS)])),
        _ => (200, json!([text("Hello.")])),
    });
    let desk = Desk::new();
    let pipe = desk.pipe();
    let child = desk.start(&double, SessionStart::New(desk.session), "Wait");
    wait_until_it_runs(&pipe);
    signal(&child, Signal::INT);
    let ran = end(child);
    assert_eq!((&ran.outcome, ran.code), (&RunOutcome::Interrupted, 0), "{ran:?}");
    let is_end = |event: &AgentEvent| matches!(event, AgentEvent::TurnEnded { .. });
    assert!(ran.events.last().is_some_and(is_end), "{ran:?}");
    let again = desk.run(&double, SessionStart::Resume(desk.session), "Continue.");
    assert_eq!(again.outcome, RunOutcome::Succeeded { summary: "Hello.".into() });
}

#[test]
fn sigterm_ends_it_without_a_result_and_two_runs_at_once_are_noticed() {
    let double = Double::start(|number, _| match number {
        0 => (200, json!([bash("toolu_1", ENDLESS)])),
        _ => (200, json!([text("Hello.")])),
    });
    let desk = Desk::new();
    let pipe = desk.pipe();
    let child = desk.start(&double, SessionStart::New(desk.session), "Wait");
    wait_until_it_runs(&pipe);
    let overlaps = desk.path("agent/claude/stand-in-overlaps");
    assert!(!overlaps.exists());
    let other = desk.run(&double, SessionStart::Resume(desk.session), "Beside it");
    assert_eq!(other.outcome, RunOutcome::Succeeded { summary: "Hello.".into() });
    let noticed = std::fs::read_to_string(&overlaps).expect("it was noticed");
    assert!(noticed.starts_with(&desk.session.to_string()), "{noticed}");
    signal(&child, Signal::TERM);
    let ran = end(child);
    assert_eq!((&ran.outcome, ran.code), (&RunOutcome::Interrupted, 143), "{ran:?}");
    let is_end = |event: &AgentEvent| matches!(event, AgentEvent::TurnEnded { .. });
    assert!(!ran.events.iter().any(is_end), "{ran:?}");
}
