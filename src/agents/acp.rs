//! Agents that speak the Agent Client Protocol: JSON-RPC 2.0, a line a message, on standard input and
//! output.
//!
//! Measured with opencode 1.18.33. The few messages that matter are read from plain JSON, as the lines of
//! the other agents are: what an agent adds or leaves out makes no line unreadable.

mod dialogue;
mod reader;

use super::launch::{configured_env, gateway_env};
use super::outcome::judge;
use super::{
    Agent, AgentDialogue, AgentExit, AgentTurn, Interrupt, Launch, LineReader, RunOutcome,
    RunReport, SessionFile, SessionStart,
};
use crate::types::SessionId;

/// Any program that speaks the Agent Client Protocol, version 1.
#[derive(Clone, Copy, Debug)]
pub struct AcpAgent;

/// The directory, below the agent's own, of files that hold what the agent calls its sessions.
const NAMES: &str = "acp/sessions";

impl Agent for AcpAgent {
    fn name(&self) -> &'static str {
        "acp"
    }

    fn program(&self) -> Option<&'static str> {
        None
    }

    fn install_hint(&self) -> &'static str {
        "name the program in [agents.NAME] path"
    }

    fn tested_versions(&self) -> &'static [&'static str] {
        &[]
    }

    fn launch(&self, turn: &AgentTurn) -> Launch {
        let home = format!("{}/acp", turn.agent_dir);
        let mut env = vec![
            ("ISSUEBOX_AGENT_DIR", turn.agent_dir.clone()),
            // What it keeps of its sessions is kept with the workspace.
            ("XDG_DATA_HOME", format!("{home}/data")),
            ("XDG_STATE_HOME", format!("{home}/state")),
            ("CLAUDE_CONFIG_DIR", format!("{home}/claude")),
            ("CODEX_HOME", format!("{home}/codex")),
        ];
        env.extend(gateway_env(turn));
        env.extend(turn.model.clone().map(|model| ("ANTHROPIC_MODEL", model)));
        Launch {
            argv: std::iter::once(&turn.program).chain(&turn.settings.args).cloned().collect(),
            cwd: turn.cwd.clone(),
            env: configured_env(env, &turn.settings),
            files: Vec::new(),
            // The dialogue says it.
            stdin: String::new(),
        }
    }

    fn reader(&self) -> Box<dyn LineReader> {
        Box::new(reader::AcpReader::default())
    }

    fn dialogue(&self, turn: &AgentTurn) -> Option<Box<dyn AgentDialogue>> {
        Some(Box::new(dialogue::AcpDialogue::new(turn)))
    }

    fn outcome(&self, exit: AgentExit, report: &RunReport) -> RunOutcome {
        if report.last_turn.is_none() {
            return judge(exit, report);
        }
        // It does not end by itself: it was ended after its turn, however it took that.
        let mut over = report.clone();
        over.is_turn_open = false;
        judge(AgentExit::Code(0), &over)
    }

    fn session_files(&self, session: &SessionId) -> Vec<SessionFile> {
        vec![SessionFile { directory: NAMES.to_owned(), depth: 0, name_end: session.to_string() }]
    }

    fn session_name_file(&self, session: &SessionId) -> Option<String> {
        Some(format!("{NAMES}/{session}"))
    }

    fn interrupt(&self) -> Interrupt {
        Interrupt::Dialogue
    }
}

/// The name of a resumed session, as the agent gave it; `None` for a new one.
fn resumed_name(turn: &AgentTurn) -> Option<&str> {
    match turn.session {
        SessionStart::New(_) => None,
        SessionStart::Resume(_) => Some(turn.session_name.as_deref().unwrap_or_default()),
    }
}
