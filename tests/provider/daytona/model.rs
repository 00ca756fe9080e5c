//! A model of Daytona: sandboxes in memory whose states move over time, behind HTTP on the loopback.
//! Their toolboxes run commands for real, each sandbox's in a directory of its own.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::pty::ModelTerminal;
use super::server;

/// The key that the model accepts.
pub const KEY: &str = "dtn_0123456789abcdef";
/// The variable that marks the processes of one sandbox.
pub const MARK: &str = "ISSUEBOX_MODEL_OF_DAYTONA";
/// Sandboxes of one page, whatever is asked for.
const PAGE_LEN: usize = 5;
/// How old the list is.
const INDEX_AGE: Duration = Duration::from_millis(15);

/// How long the model takes for what it does in the background.
#[derive(Clone, Copy, Debug)]
pub struct Paces {
    pub create: Duration,
    pub start: Duration,
    pub stop: Duration,
    pub destroy: Duration,
}

impl Default for Paces {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { create: ms(20), start: ms(10), stop: ms(10), destroy: ms(30) }
    }
}

/// One sandbox.
pub struct ModelSandbox {
    pub id: String,
    pub name: String,
    pub state: &'static str,
    pub desired: &'static str,
    pub is_recoverable: bool,
    /// What it was asked to be.
    pub asked: Value,
    /// When it comes to another state by itself.
    next: Option<(Instant, &'static str)>,
    made: Instant,
    /// By session: the number of its commands.
    pub sessions: BTreeMap<String, usize>,
    pub terminals: BTreeMap<String, ModelTerminal>,
}

/// What goes wrong with some requests.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is answered with a status, headers and a message, and does nothing.
    Status(u16, Option<&'static str>, &'static str),
    /// It is carried out, and the answer is lost.
    LoseAnswer,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub is_toolbox: bool,
    pub method: String,
    /// Without the toolbox's own part.
    pub path: String,
    pub query: String,
    pub request: Vec<u8>,
    pub status: u16,
    pub answer_type: String,
    pub answer: Vec<u8>,
}

/// The model.
pub struct Model {
    pub dir: PathBuf,
    pub address: SocketAddr,
    pub paces: Mutex<Paces>,
    sandboxes: Mutex<Vec<ModelSandbox>>,
    faults: Mutex<Vec<(&'static str, usize, Fault)>>,
    pub exchanges: Mutex<Vec<Exchange>>,
}

/// The running models, by directory.
static MODELS: Mutex<Option<HashMap<PathBuf, Arc<Model>>>> = Mutex::new(None);

/// Ends a model and everything that runs in it.
pub struct ModelGuard(PathBuf);

impl Drop for ModelGuard {
    fn drop(&mut self) {
        let model = MODELS.lock().expect("not poisoned").get_or_insert_default().remove(&self.0);
        if let Some(model) = model {
            for sandbox in &*model.sandboxes() {
                kill_all(&sandbox.id);
            }
        }
    }
}

/// The model in a directory.
pub fn model_in(dir: &Path) -> Arc<Model> {
    let mut models = MODELS.lock().expect("not poisoned");
    let model = models.get_or_insert_default().get(dir);
    Arc::clone(model.expect("it was started"))
}

/// Starts a model in a directory, on a free port of the loopback.
pub fn start(dir: &Path) -> ModelGuard {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let model = Arc::new(Model {
        dir: dir.to_owned(),
        address: listener.local_addr().expect("bound"),
        paces: Mutex::default(),
        sandboxes: Mutex::default(),
        faults: Mutex::default(),
        exchanges: Mutex::default(),
    });
    MODELS
        .lock()
        .expect("not poisoned")
        .get_or_insert_default()
        .insert(dir.to_owned(), Arc::clone(&model));
    server::serve(model, listener);
    ModelGuard(dir.to_owned())
}

/// Kills every process of a sandbox, also what they start meanwhile.
pub fn kill_all(id: &str) {
    let mark = format!("{MARK}={id}");
    for _ in 0..20 {
        let mut was_one = false;
        for entry in fs::read_dir("/proc").expect("there is one").flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid else { continue };
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                was_one = true;
                let pid = rustix::process::Pid::from_raw(pid).expect("no process is 0");
                // It may have ended.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        if !was_one {
            return;
        }
    }
}

/// An answer: a status and JSON.
pub type Reply = (u16, Value);

fn no(status: u16, message: &str) -> Reply {
    (status, json!({"statusCode": status, "error": "Error", "message": message}))
}

impl Model {
    pub fn url(&self) -> String {
        format!("http://{}/api", self.address)
    }

    /// The sandboxes as they are now.
    pub fn sandboxes(&self) -> MutexGuard<'_, Vec<ModelSandbox>> {
        let mut sandboxes = self.sandboxes.lock().expect("not poisoned");
        let now = Instant::now();
        for sandbox in &mut *sandboxes {
            if let Some((at, state)) = sandbox.next
                && at <= now
            {
                sandbox.state = state;
                sandbox.next = None;
                if matches!(state, "stopped" | "destroyed") {
                    kill_all(&sandbox.id);
                    sandbox.sessions.clear();
                }
                if state == "destroyed" {
                    let _ = fs::remove_dir_all(self.dir.join(&sandbox.id));
                }
            }
        }
        sandboxes
    }

    /// Changes a sandbox from outside.
    pub fn with(&self, id: &str, change: impl FnOnce(&mut ModelSandbox)) {
        let mut sandboxes = self.sandboxes();
        change(sandboxes.iter_mut().find(|sandbox| sandbox.id == id).expect("it is there"));
    }

    /// Lets the next so many requests go wrong whose method and path begin like this.
    pub fn fail(&self, begin: &'static str, times: usize, fault: Fault) {
        self.faults.lock().expect("not poisoned").push((begin, times, fault));
    }

    pub fn fault_of(&self, line: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().expect("not poisoned");
        let found = faults.iter_mut().find(|(begin, left, _)| *left > 0 && line.starts_with(begin));
        found.map(|(_, left, fault)| {
            *left -= 1;
            fault.clone()
        })
    }

    /// How many requests began like this.
    pub fn count(&self, begin: &str) -> usize {
        let exchanges = self.exchanges.lock().expect("not poisoned");
        let line = |one: &&Exchange| format!("{} {}", one.method, one.path).starts_with(begin);
        exchanges.iter().filter(line).count()
    }

    fn shown(&self, sandbox: &ModelSandbox) -> Value {
        let asked = |key: &str, default: Value| sandbox.asked.get(key).cloned().unwrap_or(default);
        let mut shown = json!({
            "id": sandbox.id, "name": sandbox.name, "organizationId": "org-1",
            "user": asked("user", "daytona".into()), "env": asked("env", json!({})),
            "labels": asked("labels", json!({})), "public": asked("public", false.into()),
            "networkBlockAll": asked("networkBlockAll", false.into()), "target": "eu",
            "cpu": asked("cpu", 1.into()), "gpu": 0, "memory": asked("memory", 1.into()),
            "disk": asked("disk", 3.into()), "state": sandbox.state,
            "desiredState": sandbox.desired, "recoverable": sandbox.is_recoverable,
            "createdAt": "2026-01-01T00:00:00Z",
            "toolboxProxyUrl": format!("http://{}/toolbox", self.address),
        });
        if sandbox.state == "error" {
            shown["errorReason"] = "its runner lost it".into();
        }
        shown
    }

    /// Answers a request to the API.
    pub fn answer(
        &self,
        method: &str,
        path: &[&str],
        query: &[(String, String)],
        body: &[u8],
    ) -> Reply {
        match (method, path) {
            ("GET", ["api-keys", "current"]) => (
                200,
                json!({
                    "name": "issuebox", "value": "dtn_****", "createdAt": "2026-01-01T00:00:00Z",
                    "permissions": ["write:sandboxes", "delete:sandboxes"], "userId": "user-1",
                    "lastUsedAt": "2026-01-01T00:00:00Z", "expiresAt": "2027-01-01T00:00:00Z",
                }),
            ),
            ("GET", ["organizations"]) => (200, json!([organization()])),
            ("GET", ["sandbox"]) => self.list(query),
            ("POST", ["sandbox"]) => self.create(serde_json::from_slice(body).expect("JSON")),
            ("GET", ["sandbox", of]) => {
                let sandboxes = self.sandboxes();
                match sandboxes.iter().find(|sandbox| is_called(sandbox, of)) {
                    Some(sandbox) => (200, self.shown(sandbox)),
                    None => no(404, "Sandbox not found"),
                }
            }
            ("DELETE", ["sandbox", of]) => self.change(of, "delete"),
            ("POST", ["sandbox", of, change @ ("start" | "stop" | "recover")]) => {
                self.change(of, change)
            }
            ("GET", ["sandbox", of, "ports", port, "preview-url"]) => (
                200,
                json!({
                    "sandboxId": of, "token": "hush-hush",
                    "url": format!("https://{port}-{of}.proxy.example"),
                }),
            ),
            _ => no(404, "Cannot do that"),
        }
    }

    fn list(&self, query: &[(String, String)]) -> Reply {
        let value = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, v)| v.as_str());
        let wanted: BTreeMap<String, String> = value("labels")
            .map_or_else(BTreeMap::new, |v| serde_json::from_str(v).expect("labels"));
        let from: usize = value("cursor").map_or(0, |cursor| cursor.parse().expect("our own"));
        let sandboxes = self.sandboxes();
        let listed = sandboxes.iter().filter(|sandbox| {
            let has = |(key, word): (&String, &String)| sandbox.asked["labels"][key] == **word;
            let is_known = sandbox.made.elapsed() > INDEX_AGE && sandbox.state != "destroyed";
            is_known && wanted.iter().all(has)
        });
        let listed: Vec<Value> = listed.map(|sandbox| self.shown(sandbox)).collect();
        let page: Vec<Value> = listed.iter().skip(from).take(PAGE_LEN).cloned().collect();
        let mut answer = json!({"items": page, "nextCursor": null});
        if from + PAGE_LEN < listed.len() {
            answer["nextCursor"] = (from + PAGE_LEN).to_string().into();
        }
        (200, answer)
    }

    fn create(&self, asked: Value) -> Reply {
        let mut sandboxes = self.sandboxes();
        let name = asked["name"].as_str().expect("we always name them").to_owned();
        if sandboxes.iter().any(|sandbox| sandbox.name == name) {
            return no(409, &format!("Sandbox with name {name} already exists"));
        }
        let id = uuid::Uuid::now_v7().to_string();
        fs::create_dir_all(self.dir.join(&id).join("home")).expect("made");
        let made = Instant::now();
        let create = self.paces.lock().expect("not poisoned").create;
        let sandbox = ModelSandbox {
            id,
            name,
            state: "creating",
            desired: "started",
            is_recoverable: false,
            asked,
            next: Some((made + create, "started")),
            made,
            sessions: BTreeMap::new(),
            terminals: BTreeMap::new(),
        };
        let shown = self.shown(&sandbox);
        sandboxes.push(sandbox);
        (200, shown)
    }

    fn change(&self, of: &str, change: &str) -> Reply {
        let paces = *self.paces.lock().expect("not poisoned");
        let mut sandboxes = self.sandboxes();
        let count = sandboxes.len();
        let Some(sandbox) = sandboxes.iter_mut().find(|sandbox| is_called(sandbox, of)) else {
            return no(404, "Sandbox not found");
        };
        if sandbox.next.is_some() {
            return no(409, "Sandbox state change in progress");
        }
        let (state, desired, next) = match (change, sandbox.state) {
            ("start", "stopped" | "archived") => ("starting", "started", (paces.start, "started")),
            ("recover", "error") if sandbox.is_recoverable => {
                ("starting", "started", (paces.start, "started"))
            }
            ("stop", "started") => ("stopping", "stopped", (paces.stop, "stopped")),
            ("delete", _) => {
                // The name is free at once.
                sandbox.name = format!("DESTROYED_{}_{count}", sandbox.name);
                ("destroying", "destroyed", (paces.destroy, "destroyed"))
            }
            _ => return no(400, "Sandbox is not in a state for that"),
        };
        (sandbox.state, sandbox.desired) = (state, desired);
        sandbox.next = Some((Instant::now() + next.0, next.1));
        let shown = self.shown(sandbox);
        (200, shown)
    }
}

/// Whether a sandbox that is there has this id or name.
fn is_called(sandbox: &ModelSandbox, of: &str) -> bool {
    sandbox.state != "destroyed" && (sandbox.id == of || sandbox.name == of)
}

fn organization() -> Value {
    let numbers = [
        "authenticatedRateLimit",
        "authenticatedRateLimitTtlSeconds",
        "maxCpuPerSandbox",
        "maxDiskPerSandbox",
        "maxMemoryPerSandbox",
        "maxSecretsPerSandbox",
        "sandboxCreateRateLimit",
        "sandboxCreateRateLimitTtlSeconds",
        "sandboxLifecycleRateLimit",
        "sandboxLifecycleRateLimitTtlSeconds",
        "secretQuota",
        "snapshotDeactivationTimeoutMinutes",
        "suspensionCleanupGracePeriodHours",
    ];
    let date = "2026-01-01T00:00:00Z";
    let mut one = json!({
        "id": "org-1", "name": "Orchard", "createdBy": "user-1", "personal": true,
        "createdAt": date, "updatedAt": date, "suspended": false, "suspendedAt": date,
        "suspendedUntil": date, "suspensionReason": "", "experimentalConfig": {},
        "previewWarningEnabled": false, "ssoEnabled": false, "sandboxLimitedNetworkEgress": false,
        "otelConfig": {"endpoint": "https://otel.example", "headers": {}},
    });
    for number in numbers {
        one[number] = 10.into();
    }
    one
}
