//! `[agents.NAME]`: how an agent's program is started and treated.

use super::*;
use crate::types::{AgentName, AgentPermissions, AgentSettings, AgentWorkload};

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

#[test]
fn an_agent_has_a_template_that_is_as_the_default_one_until_it_is_configured() {
    let load = |text: &str| load(text).expect("accepted").config;
    let config = load(
        "[templates.default]\nmemory_mb = 64\nagent = \"codex\"\nmodel = \"m\"\nmax_turns = 3",
    );
    let all = config.all_templates();
    let names: Vec<_> = all.keys().map(TemplateName::as_str).collect();
    assert_eq!(names, ["claude-code", "codex", "command", "default"]);
    let agent = |name: &str| {
        let template = &all[&TemplateName::trusted(name)];
        assert_eq!(template.resources.memory_mb, 64, "as the default template");
        let agent = template.workload.agent.clone().expect("an agent");
        (agent.name.to_string(), agent.model, agent.turns_max)
    };
    assert_eq!(agent("codex"), ("codex".into(), Some("m".into()), Some(3)));
    assert_eq!(agent("claude-code"), ("claude-code".into(), None, Some(3)));
    assert_eq!(config.templates.len(), 1, "built-in templates are not among the configured ones");

    let config = load("[templates.codex]\nmemory_mb = 32\n[templates.command]\nagent = \"\"");
    let all = config.all_templates();
    let codex = &all[&TemplateName::trusted("codex")];
    assert_eq!(codex.resources.memory_mb, 32);
    let agent = codex.workload.agent.as_ref().expect("the one that it is called like");
    assert_eq!(*agent, AgentWorkload::usual(AgentName::trusted("codex")));
    assert_eq!(all[&TemplateName::trusted("command")].workload.agent, None);
}
