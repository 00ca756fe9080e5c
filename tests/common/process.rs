//! A whole `issuebox serve` under test: the real binary, a directory of its own, a free port.
//!
//! A [`Place`] is what outlives the process: configuration, data, the simulated provider's
//! objects. A [`Server`] is one process over it, which a test may end politely or kill. Nothing is
//! shared with it but HTTP, signals, its log and the files of the place, as with any operator.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::future::Future;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use issuebox::github::webhook::sign;
use issuebox::types::Secret;
use reqwest::{Method, RequestBuilder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The admin token of every place.
pub const TOKEN: &str = "the-admin-token";
/// The webhook secret of every place.
pub const SECRET: &str = "the-webhook-secret";
/// How long a condition may take to become true. Only what is broken takes this long.
pub const WAIT: Duration = Duration::from_secs(60);

/// The program under test: the one that `ISSUEBOX_BINARY` names, so that a release build can be
/// tested without building the tests in release; else the one that cargo built beside them.
pub fn built() -> PathBuf {
    let named = std::env::var_os("ISSUEBOX_BINARY");
    let path = named.map_or_else(|| env!("CARGO_BIN_EXE_issuebox").into(), PathBuf::from);
    assert!(path.is_file(), "there is no program {}; see ISSUEBOX_BINARY", path.display());
    path
}

/// What outlives a server: its configuration, its data, its provider's objects.
pub struct Place {
    dir: TempDir,
    provider: &'static str,
    /// How creates are recorded: `strong` or `fast`.
    mode: &'static str,
    /// The user that servers run as, where that is not the test's own.
    user: Option<u32>,
}

impl Place {
    /// A place whose sandboxes are simulated, with these lines under `[providers.simulated]`.
    pub fn simulated(faults: &str) -> Self {
        let place = Self::new("simulated", None);
        place.configure(faults);
        place
    }

    /// The same place, in which creates are recorded in this mode from the next configuration on.
    pub fn in_mode(self, mode: &'static str) -> Self {
        Self { mode, ..self }
    }

    /// A place whose sandboxes are real, for servers of this user; `None` where this machine can't
    /// make them, which is said, or is a failure with `ISSUEBOX_REQUIRE_LOCAL=1`.
    pub async fn local(user: Option<u32>) -> Option<Self> {
        let place = Self::new("local", user);
        place.configure("");
        let server = place.serve().await;
        let system = server.get("/v1/system").await.json();
        server.stop().await;
        let Some(trouble) = system["data"]["providers"][0]["trouble"].as_str() else {
            return Some(place);
        };
        let required = std::env::var("ISSUEBOX_REQUIRE_LOCAL").is_ok_and(|v| v == "1");
        assert!(!required, "{trouble}");
        // Not `eprintln!`, which the test harness would swallow.
        writeln!(std::io::stderr(), "SKIPPED: {trouble}").expect("standard error");
        None
    }

    /// A place whose sandboxes are containers; to be configured with the engine and an image.
    pub fn docker() -> Self {
        Self::new("docker", None)
    }

    fn new(provider: &'static str, user: Option<u32>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        if let Some(id) = user {
            chown(dir.path(), Some(id), Some(id)).expect("root may give it away");
        }
        let place = Self { dir, provider, mode: "strong", user };
        let built = built();
        // Real sandboxes get a program file of their own, which distinguishes this place's processes
        // from all others.
        let is_shared = provider == "simulated";
        if !is_shared || std::fs::hard_link(&built, place.binary()).is_err() {
            std::fs::copy(&built, place.binary()).expect("copied");
        }
        place
    }

    /// Writes the configuration, with these lines at the end of it.
    pub fn configure(&self, more: &str) {
        let text = format!(
            "[auth]\nadmin_token = {TOKEN:?}\n[github]\nwebhook_secrets = [{SECRET:?}]\n\
             [triggers]\nopened = true\n[quota]\nlive = 0\n\
             [templates.default]\nprovider = {provider:?}\nmode = {mode:?}\n\
             [providers.simulated]\ndir = {dir:?}\n{more}\n",
            provider = self.provider,
            mode = self.mode,
            dir = self.simulated_dir(),
        );
        std::fs::write(self.config(), text).expect("written");
    }

    /// Where the program of this place is.
    pub fn binary(&self) -> PathBuf {
        self.dir.path().join("issuebox")
    }

    /// The configuration's file.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("issuebox.toml")
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Where the simulated provider keeps its objects and its log of calls.
    pub fn simulated_dir(&self) -> PathBuf {
        self.dir.path().join("simulated")
    }

    /// The program with these arguments and nothing of this test's environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.binary());
        command.args(args).env_clear().current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        if let Some(id) = self.user {
            command.uid(id).gid(id);
        }
        command
    }

    /// `serve` over this place, on this address.
    pub fn serve_command(&self, listen: &str) -> Command {
        let mut command = self.command(&["serve", "--listen", listen]);
        command.arg("--config").arg(self.config()).arg("--data").arg(self.data());
        command
    }

    /// Starts a server and returns once it is ready.
    pub async fn serve(&self) -> Server {
        Server::start(self.serve_command("127.0.0.1:0").stdout(Stdio::null())).await
    }

    /// Every object of the simulated provider.
    pub fn objects(&self) -> Vec<Object> {
        let names = std::fs::read_dir(self.simulated_dir()).into_iter().flatten();
        let paths = names.map(|entry| entry.expect("an entry").path());
        paths.filter_map(|path| Object::read(&path)).collect()
    }

    /// Two objects of one name that were there at one moment, if there are.
    pub fn coexisting(&self) -> Option<(Object, Object)> {
        let objects = self.objects();
        let pairs = objects.iter().enumerate().flat_map(|(at, one)| {
            objects[at + 1..].iter().filter(|other| other.name == one.name).map(move |o| (one, o))
        });
        // A directory is not read in one moment: the first may have gone before the second came.
        let mut at_once = pairs.filter(|(one, other)| one.path.exists() && other.path.exists());
        at_once.find(|(one, _)| one.path.exists()).map(|(one, other)| (one.clone(), other.clone()))
    }

    /// The calls of this verb that the simulated provider got.
    pub fn calls(&self, verb: &str) -> Vec<Value> {
        let log = self.simulated_dir().join("calls.jsonl");
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let calls = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        calls.filter(|call| call["verb"] == verb).collect()
    }
}

/// An object of the simulated provider, as its file says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    pub name: String,
    pub external_id: String,
    pub sandbox: String,
    pub issue: String,
    pub state: String,
    path: PathBuf,
}

impl Object {
    /// `None` where there is no object, any more.
    fn read(path: &Path) -> Option<Self> {
        path.extension().filter(|ending| *ending == "json")?;
        let file: Value = serde_json::from_slice(&std::fs::read(path).ok()?).expect("whole JSON");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Some(Self {
            name: text(&file["name"]),
            external_id: text(&file["externalId"]),
            sandbox: text(&file["labels"]["issuebox.sandbox"]),
            issue: text(&file["labels"]["issuebox.issue"]),
            state: text(&file["state"]),
            path: path.to_owned(),
        })
    }
}

/// A running server. Dropping it kills it.
pub struct Server {
    pub url: String,
    pub client: reqwest::Client,
    pub pid: u32,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts it by this command and returns once it is ready.
    pub async fn start(command: &mut Command) -> Self {
        let mut child = loop {
            match command.spawn() {
                // A child that another test starts just now may still hold the program open for
                // writing, from when this place copied it, until it becomes its own program.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    tokio::task::yield_now().await;
                }
                spawned => break spawned.expect("it starts"),
            }
        };
        let pid = child.id().expect("it runs");
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let kept = Arc::clone(&log);
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().expect("not poisoned").push(line);
            }
        });
        let url = || {
            let log = log.lock().expect("not poisoned");
            log.iter().find_map(|line| Some(line.split_once("ready on ")?.1.trim().to_owned()))
        };
        until("ready", || async { url().is_some() || reading.is_finished() }).await;
        let url = url().unwrap_or_else(|| panic!("it ended: {log:?}"));
        let client = reqwest::Client::builder().no_proxy().timeout(WAIT).build().expect("a client");
        Self { url, client, pid, child, log }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("not poisoned").join("\n")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it has not been waited for");
    }

    /// Takes a changed configuration into force and waits until it says so.
    pub async fn reload(&self) {
        let count = || self.log().matches("configuration reloaded").count();
        let before = count();
        self.signal(Signal::HUP);
        until("the configuration is read again", || async { count() > before }).await;
    }

    /// Kills it, as a crash would, and returns once it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it is killed");
    }

    /// Asks it to end by SIGTERM; how it ended, how long that took, and its log.
    pub async fn stop(mut self) -> (ExitStatus, Duration, String) {
        let began = Instant::now();
        self.signal(Signal::TERM);
        let ended = tokio::time::timeout(WAIT, self.child.wait()).await;
        let status = ended.expect("it ends in bounded time").expect("waited for");
        (status, began.elapsed(), self.log())
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(TOKEN)
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.request(Method::POST, path).json(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        send(self.request(Method::DELETE, path)).await
    }

    /// Ensures an issue's sandbox.
    pub async fn ensure(&self, issue: &str) -> Answer {
        self.post("/v1/sandboxes", &json!({"issueId": issue})).await
    }

    /// Ensures an issue's sandbox and waits until it runs; the sandbox.
    pub async fn running(&self, issue: &str) -> Value {
        let answer = self.post("/v1/sandboxes?wait=60", &json!({"issueId": issue})).await.json();
        assert_eq!(answer["data"]["phase"], "running", "{answer}");
        answer["data"].clone()
    }

    /// Waits until no sandbox is changing.
    pub async fn settled(&self) {
        let is_settled = || async {
            let system = self.get("/v1/system").await.json();
            let of = |phase: &str| system["data"]["sandboxes"][phase].as_u64().expect("a count");
            of("creating") + of("starting") + of("stopping") + of("deleting") == 0
        };
        until("what was under way is settled", is_settled).await;
    }

    /// The issue's sandbox, or null.
    pub async fn sandbox(&self, issue: &str) -> Value {
        self.get(&format!("/v1/issues/{issue}/sandbox")).await.json()["data"].clone()
    }

    /// Runs a shell script in a sandbox; what the answer holds.
    pub async fn sh(&self, sandbox: &str, script: &str) -> Value {
        let path = format!("/v1/sandboxes/{sandbox}/exec");
        let answer = self.post(&path, &json!({"command": ["sh", "-c", script]})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["data"].clone()
    }

    /// A signed delivery, to be sent.
    pub fn delivery(&self, event: &str, guid: &str, body: impl Into<Vec<u8>>) -> RequestBuilder {
        let body = body.into();
        let signature = sign(&Secret::new(SECRET), &body);
        let request = self.client.post(format!("{}/webhooks/github", self.url)).body(body);
        request
            .header("content-type", "application/json")
            .header("x-github-event", event)
            .header("x-github-delivery", guid)
            .header("x-hub-signature-256", signature)
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The status and the error's code.
    pub fn refusal(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        (self.status, code)
    }

    /// The id of the sandbox it is about.
    pub fn sandbox_id(&self) -> String {
        self.json()["sandboxId"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Sends a request and reads the answer.
pub async fn send(request: RequestBuilder) -> Answer {
    match request.send().await {
        Ok(answer) => read(answer).await,
        Err(error) => panic!("there is no answer: {error:?}"),
    }
}

/// Sends a request to a server that may be killed meanwhile.
pub async fn try_send(request: RequestBuilder) -> Option<Answer> {
    Some(read(request.send().await.ok()?).await)
}

async fn read(answer: reqwest::Response) -> Answer {
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    // An answer whose status has come is an answer, whatever becomes of its body.
    Answer { status, headers, text: answer.text().await.unwrap_or_default() }
}

/// An `issues` delivery in the shape of GitHub's, by the owner of the repository.
pub fn issue_event(action: &str, id: u64) -> Value {
    let user = json!({"id": 7, "login": "octocat", "type": "User"});
    json!({
        "action": action,
        "label": {"id": 1, "name": "agent"},
        "issue": {
            "id": id, "number": id % 1_000_000 + 1, "title": format!("Issue {id}"),
            "state": "open", "labels": [{"id": 1, "name": "agent"}], "user": user,
            "html_url": format!("https://github.example/octo/hello/issues/{id}"),
            "author_association": "OWNER", "body": "",
            "updated_at": "2026-01-31T12:00:00Z", "created_at": "2026-01-31T12:00:00Z"
        },
        "repository": {"id": 9, "name": "hello", "full_name": "octo/hello", "owner": user},
        "sender": user
    })
}

/// Waits until a condition holds.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    until_within(WAIT, what, holds).await;
}

/// Waits until a condition holds that may take so long.
pub async fn until_within<F: Future<Output = bool>>(
    at_most: Duration,
    what: &str,
    mut holds: impl FnMut() -> F,
) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < at_most, "{what}: must come true");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
