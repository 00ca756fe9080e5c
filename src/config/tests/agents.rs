//! `[agents.NAME]`: how an agent's program is started and treated.

use super::*;
use crate::types::{AgentName, AgentPermissions, AgentSettings};

#[test]
fn an_agent_of_the_protocol_has_arguments_variables_and_someone_who_decides() {
    let settings = |text: &str| {
        let loaded = load(&format!("[agents.mine]\n{text}"));
        let settings =
            |loaded: Loaded| loaded.config.agents[&AgentName::trusted("mine")].settings.clone();
        loaded.map(settings).map_err(|error| error.to_string())
    };
    let bare = "kind = \"acp\"\npath = \"/bin/agent\"";
    assert_eq!(settings(bare), Ok(AgentSettings::default()));
    let full = format!(
        "{bare}\nargs = [\"acp\"]\npermissions = \"ask\"\n[agents.mine.env]\nMODEL = \"a\""
    );
    let expected = AgentSettings {
        args: vec!["acp".to_owned()],
        env: vec![("MODEL".to_owned(), "a".to_owned())],
        permissions: AgentPermissions::Ask,
    };
    assert_eq!(settings(&full), Ok(expected));
    for (text, wrong) in [
        ("kind = \"acp\"".to_owned(), "agents.mine needs a path"),
        (format!("{bare}\npermissions = \"maybe\""), "must be one of allow, ask"),
        (
            "kind = \"command\"\npath = \"/bin/cat\"\npermissions = \"ask\"".to_owned(),
            "only agents of the kind acp ask",
        ),
        ("kind = \"codex\"\nargs = [\"x\"]".to_owned(), "args and env are for the kinds"),
        (format!("{bare}\nargs = [\"a\\u0000b\"]"), "must have no NUL"),
    ] {
        let error = settings(&text).expect_err("it is refused");
        assert!(error.contains(wrong), "{text}: {error}");
    }
}
