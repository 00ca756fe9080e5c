//! codex: `codex exec --json`, one process a run. It chooses the ids of its sessions.
//!
//! Configuration of a repository is ignored, because no one trusted the repository; `AGENTS.md` is read.

mod reader;

use serde_json::json;

use super::outcome::judge;
use super::{
    Agent, AgentExit, AgentTurn, Interrupt, Launch, LaunchFile, LineReader, NO_KEY, RunOutcome,
    RunReport, SessionFile, SessionStart,
};
use crate::types::SessionId;

/// OpenAI's `codex` command line.
#[derive(Clone, Copy, Debug)]
pub struct Codex;

/// The environment variable from which it reads its key.
const KEY_VARIABLE: &str = "ISSUEBOX_MODEL_KEY";

/// What it must not do: ask other hosts, wait for ever for a network that refuses, and compress what the
/// gateway must read.
const OFF: [&str; 6] = [
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
    "features.apps=false",
    "features.enable_request_compression=false",
    "features.plugins=false",
    "features.unbounded_connection_retries=false",
];

impl Agent for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn program(&self) -> Option<&'static str> {
        Some("codex")
    }

    fn companions(&self) -> &'static [&'static str] {
        // Without it, models whose tools are code have no tools.
        &["codex-code-mode-host"]
    }

    fn install_hint(&self) -> &'static str {
        "npm install -g @openai/codex"
    }

    fn tested_versions(&self) -> &'static [&'static str] {
        &["0.171.0"]
    }

    fn chooses_session(&self) -> bool {
        true
    }

    fn launch(&self, turn: &AgentTurn) -> Launch {
        let mut argv = vec![turn.program.clone(), "exec".to_owned()];
        if let SessionStart::Resume(_) = turn.session {
            argv.push("resume".to_owned());
        }
        let flags =
            ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
        argv.extend(flags.map(str::to_owned));
        let retries = turn.limits.retries;
        // A JSON text is a TOML text.
        let provider = format!(
            "model_providers.issuebox={{name=\"issuebox\",base_url={},env_key=\"{KEY_VARIABLE}\",\
             wire_api=\"responses\",request_max_retries={retries},stream_max_retries={retries},\
             stream_idle_timeout_ms={}}}",
            json!(format!("{}/openai/v1", turn.gateway)),
            turn.limits.request_timeout.as_millis(),
        );
        let model = turn.model.as_ref().map(|model| format!("model={}", json!(model)));
        let settings = ["model_provider=\"issuebox\"".to_owned(), provider].into_iter();
        for setting in settings.chain(OFF.map(str::to_owned)).chain(model) {
            argv.extend(["-c".to_owned(), setting]);
        }
        if let SessionStart::Resume(id) = turn.session {
            argv.push(id.to_string());
        }
        argv.push("-".to_owned());
        let home = format!("{}/codex", turn.agent_dir);
        // Its directory must exist, and what an agent wrote there does not count in the next run.
        let words = turn.append_system_prompt.as_deref();
        let config = words.map(|words| format!("developer_instructions = {}\n", json!(words)));
        let path = format!("{home}/config.toml");
        let env = [("CODEX_HOME", home.as_str()), (KEY_VARIABLE, NO_KEY)]
            .into_iter()
            .chain(["NO_PROXY", "no_proxy"].map(|name| (name, "127.0.0.1,localhost")));
        Launch {
            argv,
            cwd: turn.cwd.clone(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            files: vec![LaunchFile { path, text: config.unwrap_or_default() }],
            stdin: turn.prompt.clone(),
        }
    }

    fn reader(&self) -> Box<dyn LineReader> {
        Box::new(reader::CodexReader)
    }

    fn outcome(&self, exit: AgentExit, report: &RunReport) -> RunOutcome {
        match exit {
            AgentExit::Code(1) if report.last_turn.is_none() => {
                if report.stderr.contains("no rollout found for thread id") {
                    return RunOutcome::SessionMissing;
                }
                // After SIGINT it ends without a line.
                if report.is_turn_open {
                    return RunOutcome::Interrupted;
                }
                judge(exit, report)
            }
            _ => judge(exit, report),
        }
    }

    fn session_files(&self, session: &SessionId) -> Vec<SessionFile> {
        let (directory, name_end) = ("codex/sessions".to_owned(), format!("-{session}.jsonl"));
        vec![SessionFile { directory, depth: 3, name_end }]
    }

    fn interrupt(&self) -> Interrupt {
        Interrupt::Sigint
    }
}
