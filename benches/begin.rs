//! From what a person writes to claude's first request to its model: in a sandbox that is up, and for
//! an issue that has none yet; beside claude by hand, in turn, in the same run. The model is a double
//! in this process, the sandboxes are local.
//!
//! `ISSUEBOX_AGENTS` names the `node_modules` with claude. Nothing is measured without it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::median;
use common::served::Served;
use issuebox::models::double::{DoubleScript, DoubleTurn, ModelDouble};
use serde_json::json;
use tempfile::TempDir;

const CLAUDE: &str = "@anthropic-ai/claude-code-linux-x64/claude";
const ROUNDS: usize = 7;
/// Anything that takes longer has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let modules = std::env::var_os("ISSUEBOX_AGENTS").map(PathBuf::from).unwrap_or_default();
    let claude = modules.join(CLAUDE);
    if !claude.is_file() {
        println!("nothing measured: there is no claude below ISSUEBOX_AGENTS");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure(&claude));
}

async fn measure(claude: &Path) {
    let script = DoubleScript { turns: vec![DoubleTurn::says("Done.")], side: None };
    let double = ModelDouble::start(script).await.expect("a free port");
    let dir = tempfile::tempdir().expect("a directory");
    let server = Served::start(&configure(&dir, claude, &double));
    let (mut by_hand, mut warm, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let took = [
            run_by_hand(claude, &double).await,
            say(&server, &double, "9000", round).await,
            say(&server, &double, &format!("{}", 100 + round), 0).await,
        ];
        // The first round warms all of them up, and makes the sandbox of the second.
        if round > 0 {
            by_hand.push(took[0]);
            warm.push(took[1]);
            cold.push(took[2]);
        }
    }
    let hand = median(&mut by_hand);
    let said = |what: &str, took: &mut [f64]| {
        let took = median(took);
        println!(
            "{what}: {took:.3} s to claude's first request, {:+.3} s beside claude by hand (at most \
             +0.6 s; median of {ROUNDS})",
            took - hand
        );
    };
    println!("claude by hand: {hand:.3} s to its first request");
    said("a message to a sandbox that is up", &mut warm);
    said("a message to an issue without a sandbox", &mut cold);
    server.end();
}

/// A server of local sandboxes with claude, whose model is the double.
fn configure(dir: &TempDir, claude: &Path, double: &ModelDouble) -> PathBuf {
    let (file, key) = (dir.path().join("issuebox.toml"), dir.path().join("model-key"));
    std::fs::write(&key, "a-key").expect("written");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {data:?}\n[auth]\nadmin_token = {token:?}\n\
         [quota]\nlive = 0\n[templates.default]\nprovider = \"local\"\nagent = \"claude-code\"\n\
         [agents.claude-code]\npath = {claude:?}\n\
         [models.anthropic]\nbase_url = {url:?}\nkey_file = {key:?}\n",
        data = dir.path().join("data"),
        token = common::TOKEN,
        url = double.base_url(),
    );
    std::fs::write(&file, text).expect("written");
    file
}

/// Waits for the next request of the model; how long it was until then.
async fn asked(double: &ModelDouble, before: usize, began: Instant) -> f64 {
    let next = double.wait_for(|counts| counts.requests > before);
    assert!(tokio::time::timeout(WAIT_MAX, next).await.is_ok(), "claude asks its model nothing");
    began.elapsed().as_secs_f64()
}

/// Seconds from the start of claude, by hand in an empty directory, to its first request.
async fn run_by_hand(claude: &Path, double: &ModelDouble) -> f64 {
    let home = tempfile::tempdir().expect("a directory");
    let before = double.counts().requests;
    let began = Instant::now();
    let mut child = tokio::process::Command::new(claude)
        .args(["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"])
        .args([
            "--permission-mode",
            "bypassPermissions",
            "--strict-mcp-config",
            "Say that you are done.",
        ])
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin")
        .env("CLAUDE_CONFIG_DIR", home.path().join("claude"))
        .env("ANTHROPIC_BASE_URL", double.base_url())
        .env("ANTHROPIC_AUTH_TOKEN", "a-key")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        // Without this it refuses to bypass permissions as root.
        .env("IS_SANDBOX", "1")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("claude starts");
    let took = asked(double, before, began).await;
    let end = tokio::time::timeout(WAIT_MAX, child.wait()).await.expect("claude ends");
    assert!(end.expect("waited for").success(), "claude ends well");
    took
}

/// Seconds from a message to an issue's agent to its first request; returns once its run has ended.
async fn say(server: &Served, double: &ModelDouble, issue: &str, run: usize) -> f64 {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let url = format!("http://{}/v1/issues/{issue}/messages", server.address);
    let before = double.counts().requests;
    let message = http.put(url).bearer_auth(common::TOKEN);
    let began = Instant::now();
    let answer = message.json(&json!({"text": "Say that you are done."})).send().await;
    let answer = answer.expect("it answers");
    assert_eq!(answer.status(), 202, "{}", answer.text().await.expect("a body"));
    let took = asked(double, before, began).await;
    let succeeded = format!("/v1/runs?issueId={issue}&state=succeeded");
    server.until_answered(&succeeded, &format!("\"total\":{}", run + 1));
    took
}
