//! How an agent's program is started: its arguments, environment, files and standard input.

use std::fmt;
use std::time::Duration;

use crate::types::{AgentSettings, SessionId};

/// Where an agent's own directory is in every sandbox, beside the workspace.
pub const AGENT_DIR: &str = "/agent";
/// The gateway's address in every sandbox.
pub const GATEWAY_URL: &str = "http://127.0.0.1:3129";
/// What an agent in a sandbox has in place of a key. It opens nothing: the gateway knows a sandbox by
/// the socket that its requests come through.
pub const NO_KEY: &str = "held-by-the-gateway";
/// A file of the agent directory with the words that are added to the system prompt.
pub(super) const SYSTEM_PROMPT_FILE: &str = "system-prompt.md";

/// One run of an agent: what it is to do, and within which limits.
#[derive(Clone, Debug)]
pub struct AgentTurn {
    /// What the agent is to do.
    pub prompt: String,
    /// The session that it begins or goes on with.
    pub session: SessionStart,
    /// The model; `None` for the agent's own choice.
    pub model: Option<String>,
    /// Its limits.
    pub limits: TurnLimits,
    /// The gateway's address without a path, such as [`GATEWAY_URL`].
    pub gateway: String,
    /// The agent's program in the sandbox, an absolute path.
    pub program: String,
    /// The agent's own directory in the sandbox, such as [`AGENT_DIR`]. It outlives the process.
    pub agent_dir: String,
    /// The directory in which the agent is started: the workspace or one below it.
    pub cwd: String,
    /// What is added to the agent's system prompt.
    pub append_system_prompt: Option<String>,
    /// Whether the process is root in its sandbox, which some agents refuse unless they are informed
    /// that they are in a sandbox.
    pub is_root: bool,
    /// What the configuration says of this agent.
    pub settings: AgentSettings,
    /// What the agent calls the session that it resumes, if that is not our id and it is known.
    pub session_name: Option<String>,
    /// Which attempt of its run this is.
    pub attempt: u32,
}

/// Which session a run is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStart {
    /// A new one. An agent that chooses the id of its sessions says it in
    /// [`Started`](super::AgentEvent::Started), see [`Agent::chooses_session`](super::Agent::chooses_session).
    New(SessionId),
    /// One of which the session files are there.
    Resume(SessionId),
}

/// The limits of one run that the agent itself keeps. They are belts: the gateway and the server keep
/// theirs, whatever the agent does.
#[derive(Clone, Debug)]
pub struct TurnLimits {
    /// How many requests to the model; `None` for no limit.
    pub max_turns: Option<u32>,
    /// The most output tokens of one answer.
    pub max_output_tokens: u64,
    /// How long one request to the model may take.
    pub request_timeout: Duration,
    /// How often a failed request is repeated.
    pub retries: u32,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            max_turns: None,
            max_output_tokens: 8192,
            request_timeout: Duration::from_secs(600),
            retries: 4,
        }
    }
}

/// How to start an agent's program. Nothing in it passes through a shell.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The directory in which it starts.
    pub cwd: String,
    /// Added to the sandbox's own environment.
    pub env: Vec<(String, String)>,
    /// Files that must be there before the start.
    pub files: Vec<LaunchFile>,
    /// What the program reads; then end of file. Agents wait for ever on an input that stays open.
    pub stdin: String,
}

impl fmt::Debug for Launch {
    /// Without the texts, which may be long and are for the agent alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        f.debug_struct("Launch")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &self.env)
            .field("files", &paths)
            .field("stdin_bytes", &self.stdin.len())
            .finish()
    }
}

impl Launch {
    /// The same start with the input from a file: for a start that must not depend on a caller that
    /// writes the input and could end before. A shell opens the file and becomes the program.
    #[must_use]
    pub fn with_input_file(mut self, path: &str) -> Self {
        let shell = ["/bin/sh", "-c", "exec \"$@\" <\"$0\"", path].map(str::to_owned);
        self.argv.splice(0..0, shell);
        let text = std::mem::take(&mut self.stdin);
        self.files.push(LaunchFile { path: path.to_owned(), text });
        self
    }
}

/// What leads any program to the models, and the model that the template names.
pub(super) fn gateway_env(turn: &AgentTurn) -> Vec<(&'static str, String)> {
    let gateway = turn.gateway.as_str();
    let mut env = vec![
        ("ANTHROPIC_BASE_URL", format!("{gateway}/anthropic")),
        ("ANTHROPIC_AUTH_TOKEN", NO_KEY.to_owned()),
        ("OPENAI_BASE_URL", format!("{gateway}/openai/v1")),
        ("OPENAI_API_KEY", NO_KEY.to_owned()),
        ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
        ("no_proxy", "127.0.0.1,localhost".to_owned()),
    ];
    env.extend(turn.model.clone().map(|model| ("ISSUEBOX_MODEL", model)));
    env
}

/// The environment of an agent with what the configuration says, which counts where both have a name.
pub(super) fn configured_env(
    env: Vec<(&str, String)>,
    settings: &AgentSettings,
) -> Vec<(String, String)> {
    let is_ours = |name: &str| !settings.env.iter().any(|(other, _)| other == name);
    let ours = env.into_iter().filter(|(name, _)| is_ours(name));
    let ours = ours.map(|(name, value)| (name.to_owned(), value));
    ours.chain(settings.env.iter().cloned()).collect()
}

/// A file that an agent reads at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFile {
    /// Its absolute path in the sandbox.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The file of a session, which must survive its sandbox. Where exactly it is depends on the day and on
/// the workspace's path, so it is found by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    /// The directory below the agent's own under which it lies, such as `claude/projects`.
    pub directory: String,
    /// How many directories lie between that and the file.
    pub depth: usize,
    /// How the file's name ends.
    pub name_end: String,
}

impl SessionFile {
    /// Whether this is the path of it, relative to the agent's own directory. It is put back at the
    /// same path.
    pub fn matches(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.directory.as_str()).and_then(|it| it.strip_prefix('/'));
        let Some(below) = below else { return false };
        let parts: Vec<&str> = below.split('/').collect();
        let is_plain = |part: &&str| !matches!(*part, "" | "." | "..");
        parts.len() == self.depth + 1
            && parts.iter().all(is_plain)
            && parts.last().is_some_and(|name| name.ends_with(self.name_end.as_str()))
    }
}

/// How an agent is asked to end its turn by itself, before it is terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// By SIGINT to the process.
    Sigint,
    /// By SIGTERM to the process.
    Sigterm,
    /// By a line of its [dialogue](super::AgentDialogue).
    Dialogue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_file_is_known_by_directory_depth_and_name() {
        let file = SessionFile { directory: "a/b".into(), depth: 1, name_end: "id.jsonl".into() };
        assert!(file.matches("a/b/-workspace/id.jsonl"));
        for other in [
            "a/b/id.jsonl",
            "a/b/c/d/id.jsonl",
            "a/bc/d/id.jsonl",
            "a/b/../id.jsonl",
            "a/b//id.jsonl",
            "a/b/c/id.json",
            "/a/b/c/id.jsonl",
            "",
        ] {
            assert!(!file.matches(other), "{other}");
        }
    }

    #[test]
    fn an_input_file_is_opened_by_a_shell_that_becomes_the_program() {
        let launch = Launch {
            argv: vec!["/bin/agent".into(), "-p".into()],
            cwd: "/workspace".into(),
            env: Vec::new(),
            files: Vec::new(),
            stdin: "do it".into(),
        };
        let launch = launch.with_input_file("/agent/prompt.txt");
        assert_eq!(launch.argv[3..], ["/agent/prompt.txt", "/bin/agent", "-p"]);
        assert_eq!((launch.stdin.as_str(), launch.files[0].text.as_str()), ("", "do it"));
    }
}
