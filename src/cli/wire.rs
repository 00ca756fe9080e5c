//! The API's answers, as far as the command line uses them. Unknown fields are ignored, so that an
//! older command line works with a newer server.
//!
//! What is read here is printed, so every text is inert from the moment it is read: a server, or a
//! person who wrote a title, must not command the terminal. [`read_exact`] is for what is not printed
//! as text.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::types::{acts, beginning, inert};

use super::failure::CliFailure;

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiSandbox {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub account: String,
    pub issue_id: String,
    pub repository: Option<String>,
    pub issue_number: Option<u64>,
    pub issue_title: Option<String>,
    pub issue_url: Option<String>,
    pub provider: String,
    pub external_id: Option<String>,
    pub template: String,
    pub template_version: Option<String>,
    pub agent_id: Option<String>,
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
    pub mode: Option<String>,
    /// Its network access; `None` from an older server.
    pub network: Option<String>,
    /// `None` once deleted.
    pub phase: Option<String>,
    pub wanted: String,
    pub generation: u64,
    pub attempt: Option<u64>,
    pub failure: Option<SandboxFailure>,
    pub reason: Option<String>,
    pub created_at: String,
    pub phase_since: String,
    pub last_activity_at: Option<String>,
    pub deleted_at: Option<String>,
    /// What its agent does; `None` from an older server.
    pub agent: Option<AgentNow>,
}

/// What an agent does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentNow {
    pub state: String,
    pub since: Option<String>,
    #[serde(default)]
    pub reason: String,
    /// The run in progress or the last one; `None` if there was none.
    pub run: Option<String>,
    /// What that run cost, in US dollars.
    pub cost: Option<f64>,
}

impl ApiSandbox {
    /// What its agent does, in a word; `None` if it was never asked for anything.
    pub fn agent_word(&self) -> Option<&str> {
        let agent = self.agent.as_ref()?;
        (agent.run.is_some() || agent.state != "idle").then_some(agent.state.as_str())
    }

    /// The phase, or `deleted`.
    pub fn phase_word(&self) -> &str {
        self.phase.as_deref().unwrap_or("deleted")
    }

    /// The issue for display: `owner/repo#number` if known, else its id.
    pub fn issue(&self) -> String {
        match (&self.repository, self.issue_number) {
            (Some(repository), Some(number)) => format!("{repository}#{number}"),
            (None, _) | (_, None) => self.issue_id.clone(),
        }
    }
}

/// The checkout of a sandbox.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Checkout {
    pub state: String,
    pub reason: String,
    pub branch: Option<String>,
}

/// One limit of a sandbox.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Limit {
    pub name: String,
    pub allowed: Option<f64>,
    pub unit: Option<String>,
    pub holds: String,
}

impl Limit {
    /// The limit in words, such as `memory 512 MiB` or `open files (limited per process)`.
    pub fn words(&self) -> String {
        let name = match self.name.as_str() {
            "cpu" => "CPUs",
            "openFiles" => "open files",
            "fileSize" => "file size",
            other => other,
        };
        let allowed = self.allowed.map(|allowed| allowed.to_string());
        let unit = self.unit.as_deref().filter(|unit| *unit != "CPU").map(str::to_owned);
        let holds = match self.holds.as_str() {
            "enforced" => None,
            "per process" => Some("(limited per process)".to_owned()),
            "none" => Some("(not enforced)".to_owned()),
            other => Some(format!("({other})")),
        };
        let parts = [Some(name.to_owned()), allowed, unit, holds];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// A server in a sandbox, by its port.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Endpoint {
    pub port: u16,
    pub state: Option<String>,
}

/// Why a sandbox failed, or why its delete fails.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxFailure {
    pub code: String,
    pub step: String,
    pub message: String,
}

/// The answer of *ensure* besides the sandbox.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnsureResult {
    pub outcome: String,
    pub reason: String,
    pub settled: Option<bool>,
    #[serde(default)]
    pub mismatch: Vec<String>,
}

/// One timeline entry of an issue.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TimelineRow {
    pub at: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub reason: String,
    pub cause: String,
    /// `None` from an older server.
    pub instruction: Option<AskedWords>,
}

/// What a person asked for in words, or the beginning of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AskedWords {
    pub author: Option<String>,
    pub sender: Option<String>,
    pub title: Option<String>,
    pub text: String,
}

impl AskedWords {
    /// Longest text that is shown, in characters.
    const SHOWN_LEN_MAX: usize = 160;

    /// Who asked for what, in one line.
    pub fn line(&self) -> String {
        let by = self.sender.as_ref().or(self.author.as_ref()).map_or("someone", String::as_str);
        let words = self.title.iter().map(String::as_str).chain([self.text.as_str()]);
        let words = words.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        let shown = beginning(&words, Self::SHOWN_LEN_MAX);
        inert(&format!("{by}: {shown}")).into_owned()
    }
}

/// One change of a sandbox on the event stream.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Changed {
    pub sandbox: ApiSandbox,
    /// `None` from an older server.
    pub at: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub reason: String,
    pub cause: String,
    /// `None` from an older server.
    pub instruction: Option<AskedWords>,
}

/// A delivery and its result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delivery {
    pub delivery: Option<String>,
    pub event: Option<String>,
    pub action: Option<String>,
    pub status: String,
    pub reason: String,
    pub issue_id: Option<String>,
    pub received_at: String,
    /// Whether it was read from GitHub; `false` from an older server.
    #[serde(default)]
    pub recovered: bool,
}

/// An active hold.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct HoldRow {
    pub id: String,
    pub scope: String,
    /// The account, repository or issue.
    pub name: Option<String>,
    /// What it covers, for people; `None` from an older server.
    pub label: Option<String>,
    pub reason: String,
    pub since: String,
    pub by: String,
}

impl HoldRow {
    /// What it covers, for people.
    pub fn shown(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }

    /// Whether it covers a sandbox.
    pub fn covers(&self, sandbox: &ApiSandbox) -> bool {
        let is_named = |name: &str| self.name.as_deref() == Some(name);
        match self.scope.as_str() {
            "server" => true,
            "account" => is_named(&sandbox.account),
            "repository" => {
                let of = sandbox.repository.as_deref().unwrap_or_default();
                self.name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(of))
            }
            "issue" => is_named(&sandbox.issue_id),
            // Scopes of later versions.
            _ => false,
        }
    }
}

/// The result of a release.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Released {
    pub id: String,
    /// What it covered, for people; `None` from an older server.
    pub label: Option<String>,
    pub released: bool,
}

/// A piece of a command's output.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OutputChunk {
    pub data: String,
    pub encoding: String,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecExit {
    pub exit_code: i32,
    #[serde(default)]
    pub timed_out: bool,
}

/// Why a stream ended early.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct BrokenOff {
    pub message: String,
}

/// Parses a part of an answer, with inert texts.
///
/// # Errors
/// [`CliFailure::Failed`] if the answer has an unexpected shape.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, CliFailure> {
    match has_active(value) {
        true => read_exact(&made_inert(value)),
        false => read_exact(value),
    }
}

/// Parses a part of an answer whose texts are not printed: names of files, values to pass on.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_exact<T: DeserializeOwned>(value: &Value) -> Result<T, CliFailure> {
    T::deserialize(value).map_err(|error| unknown_shape(&error))
}

/// Parses an event's data, with inert texts.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_event<T: DeserializeOwned>(data: &str) -> Result<T, CliFailure> {
    read(&read_event_exact(data)?)
}

/// Parses an event's data as it is: output of commands, values to pass on.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_event_exact<T: DeserializeOwned>(data: &str) -> Result<T, CliFailure> {
    serde_json::from_str(data).map_err(|error| unknown_shape(&error))
}

fn has_active(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(acts),
        Value::Array(items) => items.iter().any(has_active),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains(acts) || has_active(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn made_inert(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(inert(text).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(made_inert).collect()),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| (inert(name).into_owned(), made_inert(value));
            Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn unknown_shape(error: &serde_json::Error) -> CliFailure {
    CliFailure::Failed {
        message: format!("unexpected answer of the server: {error}"),
        hint: "check that server and command line have the same version".to_owned(),
    }
}
