//! claude-code: one process a run, which prints `stream-json`.
//!
//! Settings of ours pin all that leads to the model and switch off whatever runs programs by a
//! repository's settings: hooks, key helpers, MCP servers. `CLAUDE.md` is still read.

mod reader;
mod usage;

use serde_json::{Map, Value, json};

use super::launch::SYSTEM_PROMPT_FILE;
use super::outcome::judge;
use super::{
    Agent, AgentExit, AgentTurn, Interrupt, Launch, LaunchFile, LineReader, NO_KEY, RunOutcome,
    RunReport, SessionFile, SessionStart,
};
use crate::types::SessionId;

/// Anthropic's `claude` command line.
#[derive(Clone, Copy, Debug)]
pub struct ClaudeCode;

/// Switches of a repository's settings that would send requests elsewhere. Ours have them empty, which
/// is off.
const PINNED_EMPTY: [&str; 13] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_PROXY_URL",
    "CLAUDE_CODE_HTTP_PROXY",
    "CLAUDE_CODE_HTTPS_PROXY",
];

/// Settings by which a repository would run a program of its choice for a key or a header.
const HELPERS: [&str; 5] = [
    "apiKeyHelper",
    "awsAuthRefresh",
    "awsCredentialExport",
    "gcpAuthRefresh",
    "otelHeadersHelper",
];

impl Agent for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude-code"
    }

    fn program(&self) -> Option<&'static str> {
        Some("claude")
    }

    fn install_hint(&self) -> &'static str {
        "npm install -g @anthropic-ai/claude-code"
    }

    fn tested_versions(&self) -> &'static [&'static str] {
        &["2.1.332", "2.1.197"]
    }

    fn launch(&self, turn: &AgentTurn) -> Launch {
        let pinned = pinned_env(turn);
        let mut argv: Vec<String> = [
            turn.program.as_str(),
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-partial-messages",
            "--permission-mode",
            "bypassPermissions",
            "--strict-mcp-config",
            "--settings",
            &settings(&pinned).to_string(),
        ]
        .map(str::to_owned)
        .into();
        let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
        match turn.session {
            SessionStart::New(id) => option("--session-id", id.to_string()),
            SessionStart::Resume(id) => option("--resume", id.to_string()),
        }
        if let Some(model) = &turn.model {
            option("--model", model.clone());
        }
        if let Some(turns) = turn.limits.max_turns {
            option("--max-turns", turns.to_string());
        }
        let mut files = Vec::new();
        if let Some(words) = &turn.append_system_prompt {
            let path = format!("{}/{SYSTEM_PROMPT_FILE}", turn.agent_dir);
            option("--append-system-prompt-file", path.clone());
            files.push(LaunchFile { path, text: words.clone() });
        }
        let mut env = pinned;
        env.push(("CLAUDE_CONFIG_DIR".to_owned(), format!("{}/claude", turn.agent_dir)));
        if turn.is_root {
            // Without this it refuses to bypass permissions as root.
            env.push(("IS_SANDBOX".to_owned(), "1".to_owned()));
        }
        Launch { argv, cwd: turn.cwd.clone(), env, files, stdin: turn.prompt.clone() }
    }

    fn reader(&self) -> Box<dyn LineReader> {
        Box::new(reader::ClaudeReader::default())
    }

    fn outcome(&self, exit: AgentExit, report: &RunReport) -> RunOutcome {
        // Wrong flags and a session id that is taken give no line of JSON, only this.
        let said = |words: &str| report.last_turn.is_none() && report.stderr.contains(words);
        match exit {
            AgentExit::Code(1) if said("is already in use") => RunOutcome::SessionTaken,
            AgentExit::Code(1) if said("No conversation found") => RunOutcome::SessionMissing,
            _ => judge(exit, report),
        }
    }

    fn session_files(&self, session: &SessionId) -> Vec<SessionFile> {
        let (directory, name_end) = ("claude/projects".to_owned(), format!("{session}.jsonl"));
        vec![SessionFile { directory, depth: 1, name_end }]
    }

    fn interrupt(&self) -> Interrupt {
        Interrupt::Sigint
    }
}

/// What leads to the model, and the limits: in the environment, and in settings that are above the
/// repository's.
fn pinned_env(turn: &AgentTurn) -> Vec<(String, String)> {
    let limits = &turn.limits;
    let loopback = "127.0.0.1,localhost";
    let env = [
        ("ANTHROPIC_BASE_URL", format!("{}/anthropic", turn.gateway)),
        ("ANTHROPIC_AUTH_TOKEN", NO_KEY.to_owned()),
        ("API_TIMEOUT_MS", limits.request_timeout.as_millis().to_string()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        // It would ask again without a stream, where silence is only noticed after ten minutes.
        ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1".to_owned()),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", limits.max_output_tokens.to_string()),
        ("CLAUDE_CODE_MAX_RETRIES", limits.retries.to_string()),
        // It uses a proxy for the gateway on loopback, too.
        ("NO_PROXY", loopback.to_owned()),
        ("no_proxy", loopback.to_owned()),
    ];
    env.map(|(name, value)| (name.to_owned(), value)).into()
}

fn settings(pinned: &[(String, String)]) -> Value {
    let ours = pinned.iter().map(|(name, value)| (name.clone(), json!(value)));
    let empty = PINNED_EMPTY.iter().map(|name| ((*name).to_owned(), json!("")));
    let env: Map<String, Value> = ours.chain(empty).collect();
    let mut settings = Map::from_iter([
        ("disableAllHooks".to_owned(), json!(true)),
        ("env".to_owned(), Value::Object(env)),
    ]);
    settings.extend(HELPERS.map(|name| (name.to_owned(), json!(""))));
    Value::Object(settings)
}
