//! A stub of a server's API: a function answers, and requests are recorded.

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::{Value, json};

/// One request as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Method, path and query: `GET /v1/sandboxes?limit=1`.
    pub line: String,
    /// The `Authorization` header.
    pub authorization: String,
    /// The `Accept` header.
    pub accept: String,
    /// The `Last-Event-ID` header.
    pub resume_from: String,
    /// The JSON body; null where there is none.
    pub body: Value,
}

/// What to answer: a status, a content type and a body, which for a redirection is its target.
pub type Reply = (u16, &'static str, String);

/// A JSON answer.
pub fn json_reply(status: u16, body: &Value) -> Reply {
    (status, "application/json", body.to_string())
}

/// A refusal as the API says it.
pub fn refusal(status: u16, code: &str, message: &str, hint: &str) -> Reply {
    let error = json!({"code": code, "message": message, "hint": hint});
    json_reply(status, &json!({"success": false, "error": error}))
}

/// A stream of events that ends.
pub fn events(text: &str) -> Reply {
    (200, "text/event-stream", text.to_owned())
}

/// A sandbox as the API shows it.
pub fn sandbox(issue_id: &str, phase: Option<&str>) -> Value {
    json!({
        "id": format!("id-of-{issue_id}"), "name": format!("claude-issue-{issue_id}"),
        "account": "default", "issueId": issue_id, "repository": "pear-garden/orchard",
        "issueNumber": 12, "issueTitle": "Sign-in \u{1b}[31mloops", "issueUrl": null,
        "provider": "simulated", "externalId": null, "template": "default", "mode": "strong",
        "phase": phase, "wanted": "running", "generation": 1, "attempt": 1, "failure": null,
        "reason": "it is so", "endpoints": [], "agent": {"state": "idle"}, "meta": {},
        "createdAt": "2026-03-02T09:00:00.000Z", "phaseSince": "2026-03-02T09:00:05.000Z",
        "lastActivityAt": "2026-03-02T09:00:05.000Z", "deletedAt": null,
        "somethingNew": {"of": "a later version"},
    })
}

/// A successful answer with this data.
pub fn success(data: &Value) -> Reply {
    json_reply(200, &json!({"success": true, "data": data}))
}

/// A running stand-in. It ends with the test's process.
pub struct Stub {
    /// Its address.
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    /// Starts one on a free port of the loopback.
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (log, answer) = (asked.clone(), Arc::new(answer));
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            let app = move || {
                let (log, answer) = (log.clone(), answer.clone());
                let service = move |request: HttpRequest, body: web::Bytes| {
                    let asked = read(&request, &body);
                    let (status, content_type, text) = answer(&asked);
                    log.lock().expect("not poisoned").push(asked);
                    let status = StatusCode::from_u16(status).expect("a status");
                    let mut reply = HttpResponse::build(status);
                    if status.is_redirection() {
                        reply.insert_header(("location", text.as_str()));
                    }
                    let reply = reply.content_type(content_type).body(text);
                    std::future::ready(reply)
                };
                App::new().default_service(web::to(service))
            };
            let server = HttpServer::new(app).workers(1).disable_signals().listen(listener);
            let server = server.expect("listening").run();
            ready.send(()).expect("the test waits");
            actix_web::rt::System::new().block_on(server).expect("served");
        });
        is_ready.recv().expect("started");
        Self { url, asked }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }

    /// The request lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// The program, set to speak to this server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = program(args);
        command.env("ISSUEBOX_SERVER", &self.url).env("ISSUEBOX_TOKEN", "the-token");
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args))
    }
}

fn read(request: &HttpRequest, body: &[u8]) -> Asked {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    Asked {
        line: format!("{} {}", request.method(), request.uri()),
        authorization: header("authorization"),
        accept: header("accept"),
        resume_from: header("last-event-id"),
        body: serde_json::from_slice(body).unwrap_or_default(),
    }
}

/// The program with an empty environment and nothing to read.
pub fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_issuebox"));
    command.args(args).env_clear().stdin(Stdio::null()).current_dir(std::env::temp_dir());
    command
}

/// How a run of the program ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ran {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Self {
        Self::ended(command.output().expect("the program starts"))
    }

    /// Of what a command left.
    pub fn ended(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}
