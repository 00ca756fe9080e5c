//! What comes before an agent's process: its session is found or put back, its prompt composed, and its
//! files are put into the sandbox.

use bytes::Bytes;

use super::begin::BegunRun;
use super::dialogue::session_name;
use super::inside::{AGENT_DIR, WORKSPACE};
use super::process::{Bench, unless_down};
use super::worker::RunWorker;
use super::{RunParts, prompt};
use crate::agents::{AgentDialogue, AgentTurn, GATEWAY_URL, SessionStart, TurnLimits};
use crate::conversation::RunEnd;
use crate::sabotage::{Bug, on};
use crate::sandbox::{OUTPUT_KEPT_MAX, Overflow, ProcessSpec, StdinMode};
use crate::types::{RunId, SessionId};

/// By what the processes of an attempt of a run are found again.
pub(crate) fn process_tag(run: RunId, attempt: u32) -> String {
    format!("run-{run}-{attempt}")
}

/// A directory as a command finds it inside.
fn below_workspace(dir: &str) -> String {
    if dir.starts_with('/') { dir.to_owned() } else { format!("{WORKSPACE}/{dir}") }
}

/// A process that can be started.
pub(super) struct PreparedProcess {
    pub spec: ProcessSpec,
    /// What is said with it; `None` if it only reads its input.
    pub dialogue: Option<Box<dyn AgentDialogue>>,
    pub session: SessionStart,
}

impl RunWorker {
    /// Puts the files of a process into the sandbox, and says what is started, and what is said with it.
    /// `is_there` says whether the session's file is there, if that is known.
    pub(super) async fn prepare(
        &self,
        bench: &Bench,
        begun: &BegunRun,
        session: SessionId,
        is_there: Option<Option<String>>,
    ) -> Result<PreparedProcess, RunEnd> {
        let file = match is_there {
            Some(known) => known,
            None => {
                let found = self.session_file(bench, &session).await;
                found.map_err(unless_down)?
            }
        };
        let (session, text) = self.turn(bench, begun, session, file.as_deref()).await?;
        let dir = self.repository_dir(bench).await.map_err(unless_down)?;
        let turn = self.agent_turn(bench, begun, session, text, dir.as_deref()).await;
        let adapter = bench.agent.adapter;
        let dialogue = adapter.dialogue(&turn);
        let launch = match dialogue {
            Some(_) => adapter.launch(&turn),
            None => adapter.launch(&turn).with_input_file(&format!("{AGENT_DIR}/prompt.txt")),
        };
        for file in launch.files {
            let written = bench.inside.write(&file.path, Bytes::from(file.text)).await;
            written.map_err(unless_down)?;
        }
        let spec = ProcessSpec {
            command: launch.argv,
            cwd: dir,
            env: launch.env,
            stdin: if dialogue.is_some() { StdinMode::Open } else { StdinMode::Empty },
            timeout: None,
            keep: OUTPUT_KEPT_MAX,
            overflow: Overflow::Wait,
            tag: Some(process_tag(bench.run, bench.attempt)),
        };
        Ok(PreparedProcess { spec, dialogue, session })
    }

    /// Where the agent starts if the repository's file says so; `None` for where the template says, and
    /// if the directory is not there any more.
    async fn repository_dir(&self, bench: &Bench) -> Result<Option<String>, String> {
        let record = bench.issue.state.record();
        let dir = record.and_then(|record| record.template.workload.repository_dir());
        let Some(dir) = dir else { return Ok(None) };
        let is_there = bench.inside.has_dir(dir).await?;
        if !is_there {
            tracing::warn!(home = bench.home.0, run = %bench.run, dir,
                "the working directory of the repository's file is missing; the agent starts in the \
                 workspace");
        }
        Ok(is_there.then(|| dir.to_owned()))
    }

    /// The session's file in the sandbox, put back from its copy if it is missing.
    async fn session_file(
        &self,
        bench: &Bench,
        session: &SessionId,
    ) -> Result<Option<String>, String> {
        bench.inside.make_agent_dir().await?;
        let sessions = &self.parts.sessions;
        sessions.restore(&bench.inside, bench.home, bench.agent.adapter, session).await
    }

    /// How the session is begun or resumed, and the prompt.
    async fn turn(
        &self,
        bench: &Bench,
        begun: &BegunRun,
        session: SessionId,
        file: Option<&str>,
    ) -> Result<(SessionStart, String), RunEnd> {
        let RunParts { rows, gate, .. } = self.parts.as_ref();
        let start = match file {
            Some(_) => SessionStart::Resume(session),
            None => SessionStart::New(session),
        };
        let id = bench.run.to_string();
        if let Some(file) = file.filter(|file| begun.run.attempt > 1 && !file.is_empty())
            && bench.inside.contains(file, &id).await
            && !on(Bug::MessagesGivenAgain)
        {
            return Ok((start, prompt::CONTINUE.to_owned()));
        }
        let messages = rows.messages_of(bench.run).await;
        let messages = messages.map_err(|error| RunEnd::Failed(error.to_string()))?;
        let task = match start {
            SessionStart::New(_) => gate.task(bench.home).await.map_err(|why| {
                RunEnd::Unavailable(format!("GitHub did not show the issue: {why}"), None)
            })?,
            // It knows what the issue is about.
            SessionStart::Resume(_) => None,
        };
        Ok((start, prompt::prompt(&bench.issue.facts, task.as_ref(), &messages, &id)))
    }

    /// All that an agent's adapter must know of a run.
    async fn agent_turn(
        &self,
        bench: &Bench,
        begun: &BegunRun,
        session: SessionStart,
        text: String,
        dir: Option<&str>,
    ) -> AgentTurn {
        let workload = &bench.workload;
        let of_sandbox = bench.issue.state.record().map(|record| &record.template.workload);
        let dir = dir.or(of_sandbox.and_then(|sandbox| sandbox.working_dir.as_deref()));
        let session_name = match session {
            SessionStart::New(_) => None,
            SessionStart::Resume(id) => {
                let file = bench.agent.adapter.session_name_file(&id);
                session_name(&bench.inside, file, &id).await
            }
        };
        AgentTurn {
            prompt: text,
            session,
            model: workload.model.clone(),
            limits: TurnLimits { max_turns: workload.turns_max, ..TurnLimits::default() },
            gateway: GATEWAY_URL.to_owned(),
            program: bench.agent.program.inside(),
            agent_dir: AGENT_DIR.to_owned(),
            cwd: dir.map_or_else(|| WORKSPACE.to_owned(), below_workspace),
            append_system_prompt: Some(prompt::briefing(
                &bench.issue.facts,
                &begun.workplace,
                self.parts.publish,
                &workload.instructions,
                of_sandbox.and_then(|sandbox| sandbox.repository_file()),
            )),
            is_root: false,
            settings: bench.agent.settings.clone(),
            session_name,
            attempt: bench.attempt,
        }
    }
}
