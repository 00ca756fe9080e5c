//! The first scenarios of this service, over a served program whose provider is the model of Daytona.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::model::{self, KEY, Model, ModelGuard, model_in};
use crate::process::{Server, TOKEN, until};

/// A server, the model behind it, and their files.
struct Served {
    server: Server,
    model: std::sync::Arc<Model>,
    _guard: ModelGuard,
    dir: tempfile::TempDir,
}

impl Served {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let guard = model::start(dir.path());
        let model = model_in(dir.path());
        std::fs::write(dir.path().join("key"), format!("{KEY}\n")).expect("written");
        let more = format!("key_file = {:?}\n", dir.path().join("key"));
        let server = Server::start(&mut command(&dir, &model.url(), &more, "")).await;
        Self { server, model, _guard: guard, dir }
    }

    /// The ids and states of what the model has.
    fn live(&self) -> Vec<(String, &'static str)> {
        let sandboxes = self.model.sandboxes();
        let live = sandboxes.iter().filter(|sandbox| sandbox.state != "destroyed");
        live.map(|sandbox| (sandbox.id.clone(), sandbox.state)).collect()
    }
}

/// `serve` with this provider section and these lines for the template.
fn command(dir: &tempfile::TempDir, url: &str, provider: &str, template: &str) -> Command {
    let config = dir.path().join("issuebox.toml");
    let text = format!(
        "[auth]\nadmin_token = {TOKEN:?}\n[quota]\nlive = 0\n[templates.default]\n\
         provider = \"daytona\"\n{template}\n[providers.daytona]\napi_url = {url:?}\n\
         workspace = \"workspace\"\n{provider}\n",
    );
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_issuebox"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
    command.arg("--data").arg(dir.path().join("data")).env_clear().stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_has_one_sandbox_whoever_asks_and_a_look_up_tells_which() {
    let served = Served::new().await;
    let server = &served.server;
    let first = server.running("test-123").await;
    for _ in 0..2 {
        let again = server.ensure("test-123").await.json();
        assert_eq!(again["data"]["id"], first["id"]);
    }
    let other = server.running("test-456").await;
    assert_ne!(other["id"], first["id"]);
    assert_eq!(server.sandbox("test-123").await["id"], first["id"]);
    let none = server.get("/v1/issues/non-existent-999/sandbox").await;
    assert_eq!((none.status, &none.json()["data"]), (200, &Value::Null));
    let name = server.get("/v1/sandboxes/claude-issue-non-existent-999").await;
    assert_eq!(name.status, 404);
    // What is stored is what is live.
    let mut stored = [&first, &other].map(|one| one["externalId"].as_str().expect("known"));
    stored.sort_unstable();
    let mut live = served.live();
    live.sort();
    assert_eq!(live, stored.map(|id| (id.to_owned(), "started")));
    let ran = server.sh(first["id"].as_str().expect("an id"), "echo it runs").await;
    assert_eq!(ran["stdout"], "it runs\n", "{ran}");
    assert!(!server.log().contains(KEY), "the key is in no log");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_at_once_get_one_sandbox() {
    let served = Served::new().await;
    let ask = || served.server.post("/v1/sandboxes?wait=60", &CONCURRENT);
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    let ids = [a, b, c].map(|answer| answer.json()["data"]["id"].clone());
    assert!(ids[0].is_string() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(served.live().len(), 1);
}

/// What three ask for at once.
static CONCURRENT: std::sync::LazyLock<Value> =
    std::sync::LazyLock::new(|| json!({"issueId": "concurrent-777"}));

#[tokio::test(flavor = "multi_thread")]
async fn creating_and_stopping_answer_the_sandbox_that_there_is_at_once() {
    let served = Served::new().await;
    let (server, model) = (&served.server, &served.model);
    let slow = Duration::from_millis(1_500);
    *model.paces.lock().expect("not poisoned") =
        model::Paces { create: slow, stop: slow, ..model::Paces::default() };
    let first = server.ensure("test-1").await.json();
    assert_eq!(first["data"]["phase"], "creating", "{first}");
    let again = server.ensure("test-1").await.json();
    assert_eq!(again["data"]["id"], first["data"]["id"]);
    assert_eq!(again["data"]["phase"], "creating", "{again}");
    let running = server.running("test-1").await;
    let stop = format!("/v1/sandboxes/{}/stop", running["id"].as_str().expect("an id"));
    server.post(&stop, &json!({})).await;
    until("Daytona stops it", || async { served.live()[0].1 == "stopping" }).await;
    let asked = server.ensure("test-1").await.json();
    assert_eq!(asked["data"]["id"], first["data"]["id"]);
    let again = server.running("test-1").await;
    assert_eq!(again["id"], first["data"]["id"], "it came up again");
    assert_eq!(served.live().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_cannot_be_carried_out_is_an_error_at_the_start() {
    let Served { server, model, _guard, dir } = Served::new().await;
    server.kill().await;
    let key = format!("key_file = {:?}", dir.path().join("key"));
    let listed = "network = \"allow\"\nallow = [\"example.org:8443\"]";
    for (provider, template, named) in [
        ("", "", "providers.daytona.key_file"),
        (key.as_str(), listed, "example.org:8443"),
        (&key, "command = [\"sleep\", \"9\"]", "starts no command"),
    ] {
        let mut command = command(&dir, &model.url(), provider, template);
        let ended = tokio::time::timeout(crate::process::WAIT, command.output()).await;
        let ended = ended.expect("it ends").expect("it ran");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains(named), "{said}");
        assert!(said.contains("templates.default") && said.contains("daytona"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_makes_a_sandbox_runs_true_and_leaves_nothing() {
    let Served { server, model, _guard, dir } = Served::new().await;
    server.kill().await;
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_issuebox"));
    doctor.arg("doctor").arg("--config").arg(dir.path().join("issuebox.toml"));
    doctor.arg("--data").arg(dir.path().join("data")).env_clear().stdin(Stdio::null());
    let ended = tokio::time::timeout(crate::process::WAIT, doctor.output()).await;
    let said = String::from_utf8(ended.expect("it ends").expect("it ran").stdout).expect("text");
    assert!(said.contains("made a sandbox, ran `true` in it and deleted it"), "{said}");
    assert_eq!(model.count("DELETE /sandbox/"), 1);
    until("it is gone", || async { model.sandboxes().iter().all(|one| one.state == "destroyed") })
        .await;
}

/// Answers a sync of a sandbox with what it did.
async fn sync(server: &Server, id: &str, direction: &str) -> Value {
    let call = json!({"direction": direction});
    let answer = server.post(&format!("/v1/sandboxes/{id}/sync"), &call).await;
    assert!(answer.is_success(), "{}", answer.text);
    answer.json()["data"]["stats"].clone()
}

/// What must survive a sync: modes, links, an empty directory, a name that is not UTF-8, an exact time.
const MAKE: &str = "git init -q . && git config user.email a@b && git config user.name a && \
    mkdir -p src/deep empty && echo one >src/deep/one && echo run >run.sh && chmod 755 run.sh && \
    ln -s src/deep/one link && ln -s /etc out && printf x >\"$(printf 'n\\351\\nm')\" && \
    git add -A && git commit -qm all && touch -d @1700000000.123456789 run.sh";

/// What it looks like.
const LOOK: &str = "git --no-optional-locks status --porcelain && find . -path ./.git -prune -o -printf '%P %y %m %l\\n' | \
    sort && stat -c %y run.sh";

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_pushed_and_pulled_whole() {
    let Served { server, model, _guard, dir } = Served::new().await;
    server.kill().await;
    let storage = dir.path().join("storage");
    let more = format!(
        "key_file = {:?}\n[sync]\nurl = \"file://{}\"",
        dir.path().join("key"),
        storage.display()
    );
    let server = Server::start(&mut command(&dir, &model.url(), &more, "")).await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    let sh = async |script: &str| {
        let ran = server.sh(&id, script).await;
        assert_eq!(ran["exitCode"], 0, "{script}: {ran}");
        ran["stdout"].clone()
    };
    sh(MAKE).await;
    let before = sh(LOOK).await;
    let pushed = sync(&server, &id, "push").await;
    assert!(pushed["filesUploaded"].as_u64().is_some_and(|files| files > 5), "{pushed}");
    // What is in the way of a pull has another kind, is a link, or is not in the version.
    sh("rm -r src link run.sh empty && ln -s /etc src && mkdir -p link run.sh && touch link/x new")
        .await;
    sync(&server, &id, "pull").await;
    assert_eq!(sh(LOOK).await, before);
    sh("echo other >src/deep/one && chmod 600 run.sh && rm -r .git").await;
    sync(&server, &id, "pull").await;
    assert_eq!(sh(LOOK).await, before);
    // What it wrote it need not read again.
    let reads = model.count("GET /files/download");
    let again = sync(&server, &id, "push").await;
    assert_eq!(model.count("GET /files/download"), reads, "no file is read");
    assert_eq!((&again["filesUploaded"], &again["bytesTransferred"]), (&json!(0), &json!(0)));
    let uploads = std::fs::read_dir(
        dir.path().join(model.sandboxes()[0].id.as_str()).join("home/.issuebox/tmp"),
    );
    assert_eq!(uploads.expect("there is one").count(), 0, "nothing of it stays");
}
