//! A server whose sandboxes have an agent, and a double of the model behind its gateway.

use std::path::Path;
use std::process::Stdio;

use issuebox::models::double::{DoubleBlock, DoubleScript, DoubleTurn, ModelDouble};
use serde_json::{Value, json};

use crate::process::{Place, Server, until};

/// The key that only the gateway holds.
pub const KEY: &str = "sk-only-the-gateway-has-this";

/// A place with an agent, and the model that answers it.
pub struct Talk {
    pub place: Place,
    pub double: ModelDouble,
    agent: &'static str,
}

impl Talk {
    /// A place where this agent is this program, with these lines at the end of its configuration, behind
    /// those of `[models.anthropic]`.
    pub async fn new(
        agent: &'static str,
        program: &Path,
        script: DoubleScript,
        more: &str,
    ) -> Option<Self> {
        let place = Place::local(None).await?;
        let double = give_agent(&place, agent, program, script, more).await;
        Some(Self { place, double, agent })
    }

    pub async fn serve(&self) -> Server {
        let mut command = self.place.serve_command("127.0.0.1:0");
        command.env("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", self.agent).stdout(Stdio::null());
        Server::start(&mut command).await
    }
}

/// Configures an agent of a place to be this program, answered by the double that is returned.
pub async fn give_agent(
    place: &Place,
    agent: &str,
    program: &Path,
    script: DoubleScript,
    more: &str,
) -> ModelDouble {
    let lines = format!("path = {program:?}");
    give_agent_of(place, agent, &lines, script, more).await
}

/// Configures an agent of a place with these lines, answered by the double that is returned.
pub async fn give_agent_of(
    place: &Place,
    agent: &str,
    lines: &str,
    script: DoubleScript,
    more: &str,
) -> ModelDouble {
    let double = ModelDouble::start(script).await.expect("a free port");
    let key = place.config().with_file_name("model-key");
    std::fs::write(&key, KEY).expect("written");
    let url = double.base_url();
    place.configure(&format!(
        "[agents.{agent}]\n{lines}\n\
         [models.openai]\nbase_url = {url:?}\nkey_file = {key:?}\n\
         [models.anthropic]\nbase_url = {url:?}\nkey_file = {key:?}\n{more}"
    ));
    double
}

/// A program of this name is the stand-in for claude.
pub fn stand_in(place: &Path) -> std::path::PathBuf {
    let link = place.join("issuebox-stand-in-agent");
    if !link.exists() {
        std::os::unix::fs::symlink(crate::process::built(), &link).expect("linked");
    }
    link
}

/// A turn in which the agent runs a command.
pub fn runs(command: &str) -> DoubleTurn {
    let input = json!({"command": command, "description": "What the test has it do"});
    DoubleTurn::of(vec![DoubleBlock::Tool { name: "Bash".to_owned(), input }])
}

/// Says something to an issue's agent; the run that takes it.
pub async fn say(server: &Server, issue: &str, text: &str) -> String {
    let path = format!("/v1/issues/{issue}/messages");
    let request = server.request(reqwest::Method::PUT, &path).json(&json!({"text": text}));
    let answer = crate::process::send(request).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let run = &answer.json()["data"]["run"]["id"];
    run.as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// The issue's conversation.
pub async fn conversation(server: &Server, issue: &str) -> Value {
    server.get(&format!("/v1/issues/{issue}/conversation")).await.json()["data"].clone()
}

/// A run as it is now; null if there is none.
pub async fn run_of(server: &Server, issue: &str, run: &str) -> Value {
    let conversation = conversation(server, issue).await;
    let runs = conversation["runs"].as_array().cloned().unwrap_or_default();
    runs.into_iter().find(|one| one["id"] == run).unwrap_or_default()
}

/// Waits until a run is so; the run as it was then.
pub async fn run_when(
    server: &Server,
    issue: &str,
    run: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let found = std::cell::RefCell::new(Value::Null);
    until(what, || async {
        let now = run_of(server, issue, run).await;
        if *found.borrow() != now {
            // Shown if it never becomes so.
            println!("{issue}: {now}");
        }
        found.replace(now);
        is_so(&found.borrow())
    })
    .await;
    found.into_inner()
}

/// Waits until a run is in one of these states; the run.
pub async fn run_in(server: &Server, issue: &str, run: &str, states: &[&str]) -> Value {
    let what = format!("a run that is {}", states.join(" or "));
    let is_in = |one: &Value| states.iter().any(|state| one["state"] == *state);
    run_when(server, issue, run, &what, is_in).await
}

/// Waits until a run has ended well; the run.
pub async fn succeeded(server: &Server, issue: &str, run: &str) -> Value {
    let ended = ["succeeded", "failed", "over_budget", "cancelled"];
    let run = run_in(server, issue, run, &ended).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    run
}

/// Whether a text is in any file of a directory.
pub fn is_below(directory: &Path, text: &str) -> bool {
    let found =
        std::process::Command::new("grep").args(["-rqaF", "--", text]).arg(directory).status();
    found.expect("grep runs").success()
}
