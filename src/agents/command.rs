//! Any program that reads the prompt on standard input and writes text, or our events as JSON, a line
//! each.

use super::bounds::{LINE_BYTES_MAX, TEXT_MAX, cut};
use super::launch::{configured_env, gateway_env};
use super::outcome::{judge, judge_signal};
use super::{
    Agent, AgentEvent, AgentExit, AgentTurn, Interrupt, Launch, LineReader, RunOutcome, RunReport,
    SessionFile, SessionStart, TextPart,
};
use crate::types::SessionId;

/// A program that is no known agent. It finds the gateway and its session in the environment. What it
/// wants to find in the session's next run, it keeps in the file that `ISSUEBOX_SESSION_FILE` names.
#[derive(Clone, Copy, Debug)]
pub struct CommandAgent;

impl Agent for CommandAgent {
    fn name(&self) -> &'static str {
        "command"
    }

    fn program(&self) -> Option<&'static str> {
        None
    }

    fn install_hint(&self) -> &'static str {
        "name the program in [agents.command] path"
    }

    fn tested_versions(&self) -> &'static [&'static str] {
        &[]
    }

    fn launch(&self, turn: &AgentTurn) -> Launch {
        let (session, is_resumed) = match turn.session {
            SessionStart::New(id) => (id, "0"),
            SessionStart::Resume(id) => (id, "1"),
        };
        let mut env = vec![
            ("ISSUEBOX_SESSION", session.to_string()),
            ("ISSUEBOX_RESUMED", is_resumed.to_owned()),
            ("ISSUEBOX_SESSION_FILE", format!("{}/session/{session}", turn.agent_dir)),
            ("ISSUEBOX_AGENT_DIR", turn.agent_dir.clone()),
        ];
        env.extend(gateway_env(turn));
        let stdin = match &turn.append_system_prompt {
            Some(words) => format!("{words}\n\n{}", turn.prompt),
            None => turn.prompt.clone(),
        };
        Launch {
            argv: std::iter::once(&turn.program).chain(&turn.settings.args).cloned().collect(),
            cwd: turn.cwd.clone(),
            env: configured_env(env, &turn.settings),
            files: Vec::new(),
            stdin,
        }
    }

    fn reader(&self) -> Box<dyn LineReader> {
        Box::new(CommandReader)
    }

    fn outcome(&self, exit: AgentExit, report: &RunReport) -> RunOutcome {
        if report.last_turn.is_some() {
            return judge(exit, report);
        }
        match exit {
            AgentExit::Code(0) => {
                RunOutcome::Succeeded { summary: report.last_text.trim().to_owned() }
            }
            _ => judge_signal(exit).unwrap_or_else(|| judge(exit, report)),
        }
    }

    fn session_files(&self, session: &SessionId) -> Vec<SessionFile> {
        let (directory, name_end) = ("session".to_owned(), session.to_string());
        vec![SessionFile { directory, depth: 0, name_end }]
    }

    fn interrupt(&self) -> Interrupt {
        Interrupt::Sigterm
    }
}

/// It keeps nothing between lines.
#[derive(Debug)]
struct CommandReader;

impl LineReader for CommandReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        if line.len() > LINE_BYTES_MAX {
            return vec![AgentEvent::unknown(line)];
        }
        if line.trim_ascii_start().starts_with(b"{")
            && let Ok(event) = serde_json::from_slice::<AgentEvent>(line)
            && !event.is_of_people()
        {
            return vec![event.bounded()];
        }
        let text = cut(&String::from_utf8_lossy(line), TEXT_MAX) + "\n";
        vec![AgentEvent::Text { text, part: TextPart::Piece, parent: None }]
    }
}
