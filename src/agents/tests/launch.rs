//! The exact command line, environment and files of each agent.

use std::time::Duration;

use super::*;
use crate::types::AgentSettings;

fn turn(session: SessionStart) -> AgentTurn {
    AgentTurn {
        prompt: "Fix it.".to_owned(),
        session,
        model: Some("a-model".to_owned()),
        limits: TurnLimits {
            max_turns: Some(50),
            request_timeout: Duration::from_secs(300),
            ..TurnLimits::default()
        },
        gateway: GATEWAY_URL.to_owned(),
        program: "/opt/agent".to_owned(),
        agent_dir: AGENT_DIR.to_owned(),
        cwd: "/workspace".to_owned(),
        append_system_prompt: Some("You are in a sandbox.\n\"Quoted\".".to_owned()),
        is_root: true,
        settings: AgentSettings::default(),
        session_name: None,
        attempt: 1,
    }
}

fn session() -> SessionId {
    SessionId::parse("5d6e1c1e-0b5e-4f3c-9a53-8d5f2a6b7c01").expect("an id")
}

/// A launch, a line a part.
fn shown(launch: &Launch) -> String {
    let env = launch.env.iter().map(|(name, value)| format!("env {name}={value}"));
    let files = launch.files.iter().map(|file| format!("file {}: {}", file.path, file.text));
    let cwd = format!("cwd {}", launch.cwd);
    let parts: Vec<String> =
        launch.argv.iter().cloned().chain([cwd]).chain(env).chain(files).collect();
    format!("{}\nstdin {}", parts.join("\n"), launch.stdin)
}

/// `INSTA_UPDATE=always` writes the snapshots again.
fn assert_launch(name: &str, launch: &Launch) {
    insta::with_settings!({
        snapshot_path => "../../../fixtures/agents/launch",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, shown(launch));
    });
}

#[test]
fn claude_is_started_so() {
    assert_launch("claude-code", &ClaudeCode.launch(&turn(SessionStart::New(session()))));
    let resumed = ClaudeCode.launch(&AgentTurn {
        model: None,
        append_system_prompt: None,
        is_root: false,
        ..turn(SessionStart::Resume(session()))
    });
    let arguments = resumed.argv[11..].join(" ");
    assert_eq!(arguments, format!("--resume {} --max-turns 50", session()));
    assert!(resumed.files.is_empty());
    assert!(!resumed.env.iter().any(|(name, _)| name == "IS_SANDBOX"));
}

#[test]
fn codex_is_started_so() {
    assert_launch("codex", &Codex.launch(&turn(SessionStart::New(session()))));
    let resumed = Codex.launch(&turn(SessionStart::Resume(session())));
    assert_eq!(resumed.argv[1..3], ["exec", "resume"]);
    assert_eq!(resumed.argv[resumed.argv.len() - 2..], [session().to_string(), "-".to_owned()]);
}

#[test]
fn a_command_is_started_so() {
    assert_launch("command", &CommandAgent.launch(&turn(SessionStart::Resume(session()))));
}

#[test]
fn an_agent_of_the_protocol_is_started_so() {
    let settings = AgentSettings {
        args: vec!["acp".to_owned()],
        env: vec![("OPENAI_API_KEY".to_owned(), "mine".to_owned())],
        ..AgentSettings::default()
    };
    let turn = AgentTurn { settings, ..turn(SessionStart::New(session())) };
    assert_launch("acp", &AcpAgent.launch(&turn));
    assert_eq!(CommandAgent.launch(&turn).argv, ["/opt/agent", "acp"]);
}

#[test]
fn a_prompt_is_never_an_argument() {
    for agent in BUILT_IN {
        let launch = agent.launch(&turn(SessionStart::New(session())));
        assert!(launch.argv.iter().all(|argument| !argument.contains("Fix it")));
        let turn = turn(SessionStart::New(session()));
        // One that is spoken to is given it by its dialogue.
        assert!(launch.stdin.ends_with("Fix it.") || agent.dialogue(&turn).is_some());
        assert!(launch.env.iter().all(|(name, value)| !name.ends_with("KEY") || value == NO_KEY));
    }
}

#[test]
fn session_files_are_those_that_the_agents_write() {
    let matches = |agent: &dyn Agent, path: &str| {
        agent.session_files(&session()).iter().any(|file| file.matches(path))
    };
    let id = session();
    assert!(matches(&ClaudeCode, &format!("claude/projects/-workspace/{id}.jsonl")));
    assert!(!matches(&ClaudeCode, "claude/.claude.json"));
    let rollout = format!("codex/sessions/2026/11/30/rollout-2026-11-30T05-31-08-{id}.jsonl");
    assert!(matches(&Codex, &rollout));
    assert!(matches(&CommandAgent, &format!("session/{id}")));
}
