//! `[agents.NAME]`: the agents' programs, and what a template says of the agent that works in it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::reader::ConfigReader;
use super::workload::variables;
use crate::types::{
    AgentName, AgentPermissions, AgentSettings, AgentWorkload, Template, TemplateName,
    WhileRunning, Workload,
};

/// The agents that have a template of their own without configuration.
const IN_TEMPLATES: [&str; 3] = ["claude-code", "codex", COMMAND];

/// The kinds of agents. Each of them is an agent of its own, too, without configuration.
pub const KINDS: [&str; 4] = ["claude-code", "codex", COMMAND, ACP];

/// The kind of an agent that is any program.
const COMMAND: &str = "command";

/// The kind of an agent that speaks the Agent Client Protocol.
const ACP: &str = "acp";

/// Longest time that a run may be given, in seconds: a day.
const RUN_SECONDS_MAX: u64 = 86_400;
/// What a run may take if nothing is said, in seconds.
const RUN_SECONDS: u64 = 3_600;
/// How long a run may be quiet if nothing is said, in seconds.
const QUIET_SECONDS: u64 = 900;
/// Longest text of `instructions`, in bytes.
const INSTRUCTIONS_LEN_MAX: usize = 16 * 1024;

/// `[agents.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    /// `kind`: how it is started and read, one of `claude-code`, `codex`, `command` and
    /// `acp`.
    pub kind: String,
    /// `path`: where its program is on the server; `None` looks for it on the server's `PATH`.
    pub path: Option<PathBuf>,
    /// `args`, `env` and `permissions`: of the kinds `command` and `acp`.
    pub settings: AgentSettings,
}

impl AgentProgram {
    /// A program of this kind at this path, which is given nothing.
    pub fn new(kind: &str, path: Option<PathBuf>) -> Self {
        Self { kind: kind.to_owned(), path, settings: AgentSettings::default() }
    }
}

/// Reads `[agents]`.
pub(super) fn agents(r: &mut ConfigReader) -> BTreeMap<AgentName, AgentProgram> {
    let of_kind = |kind: &str| (AgentName::trusted(kind), AgentProgram::new(kind, None));
    let mut agents: BTreeMap<_, _> = KINDS.into_iter().map(of_kind).collect();
    for name in r.table_names("agents") {
        let key = |part: &str| format!("agents.{name}.{part}");
        let is_kind = KINDS.contains(&name.as_str());
        let default = if is_kind { name.clone() } else { COMMAND.to_owned() };
        let kind = r.parsed(&key("kind"), default, |text| match KINDS.contains(&text) {
            true if is_kind && text != name => Err(format!("must be {name:?}, as its name says")),
            true => Ok(text.to_owned()),
            false => Err(format!("must be one of {}", KINDS.join(", "))),
        });
        let path = r.path(&key("path"), None);
        let is_any_program = kind == COMMAND || kind == ACP;
        if is_any_program && path.is_none() {
            r.trouble(format!("agents.{name} needs a path: the program on this machine"));
        }
        let settings = settings(r, &key, &kind, is_any_program);
        agents.insert(AgentName::trusted(name.as_str()), AgentProgram { kind, path, settings });
    }
    agents
}

/// Reads how an agent's program is started and treated.
fn settings(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    kind: &str,
    is_any_program: bool,
) -> AgentSettings {
    let args = r.texts(&key("args"), &[]);
    let env = variables(r, &key("env"), |text| match text.contains('\0') {
        true => Err("must have no NUL".to_owned()),
        false => Ok(text.to_owned()),
    });
    let permissions = r.parsed(&key("permissions"), AgentPermissions::default(), |text| {
        let known = AgentPermissions::ALL.map(AgentPermissions::as_str).join(", ");
        AgentPermissions::parse(text).ok_or(format!("must be one of {known}"))
    });
    let is_given = !args.is_empty() || !env.is_empty();
    if is_given && !is_any_program {
        r.wrong(&key("args"), &format!("args and env are for the kinds {COMMAND} and {ACP}"));
    }
    if permissions == AgentPermissions::Ask && kind != ACP {
        r.wrong(&key("permissions"), &format!("only agents of the kind {ACP} ask"));
    }
    if args.iter().any(|word| word.contains('\0')) {
        r.wrong(&key("args"), "must have no NUL");
    }
    AgentSettings { args, env: env.into_iter().collect(), permissions }
}

/// The templates that exist without configuration beside `default`: as `default` is, each with the
/// agent that it is called like.
pub(super) fn built_in_templates(default: &Template) -> impl Iterator<Item = Template> {
    IN_TEMPLATES.into_iter().map(|name| {
        let agent = AgentName::trusted(name);
        let mut workload = Workload::clone(&default.workload);
        workload.agent = Some(match workload.agent.take() {
            None => AgentWorkload::usual(agent),
            Some(own) if own.name == agent => own,
            // A model of one agent is none of another.
            Some(other) => AgentWorkload { name: agent, model: None, ..other },
        });
        let name = TemplateName::trusted(name);
        Template { name, workload: workload.into(), ..default.clone() }
    })
}

/// The agent of a template that names none: the one that a built-in template is called like.
pub(super) fn default_agent(template: &str) -> Option<AgentName> {
    IN_TEMPLATES.contains(&template).then(|| AgentName::trusted(template))
}

/// Reads what a template says of its agent; `None` for none.
pub(super) fn agent(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    default: Option<AgentName>,
    known: &BTreeMap<AgentName, AgentProgram>,
) -> Option<AgentWorkload> {
    let name = r.parsed(&key("agent"), default, |text| {
        if text.is_empty() {
            return Ok(None);
        }
        let name = AgentName::trusted(text);
        if known.contains_key(&name) {
            return Ok(Some(name));
        }
        let known: Vec<_> = known.keys().map(AgentName::as_str).collect();
        Err(format!("must be an agent: {}", known.join(", ")))
    });
    let seconds = Duration::from_secs;
    let run_time_max = seconds(r.number(&key("run_seconds"), RUN_SECONDS, 1..=RUN_SECONDS_MAX));
    let quiet = r.number(&key("quiet_seconds"), QUIET_SECONDS, 1..=RUN_SECONDS_MAX);
    let turns_max = r.number(&key("max_turns"), 0, 0..=u64::from(u32::MAX));
    let while_running = r.parsed(&key("while_running"), WhileRunning::default(), |text| {
        let known = WhileRunning::ALL.map(WhileRunning::as_str).join(", ");
        WhileRunning::parse(text).ok_or(format!("must be one of {known}"))
    });
    let model = Some(r.text(&key("model"), "")).filter(|model| !model.is_empty());
    let instructions = instructions(r, &key("instructions"));
    Some(AgentWorkload {
        name: name?,
        model,
        run_time_max,
        quiet_time_max: seconds(quiet),
        turns_max: u32::try_from(turns_max).ok().filter(|turns| *turns > 0),
        while_running,
        instructions,
    })
}

/// Reads what agents are given to know.
pub(super) fn instructions(r: &mut ConfigReader, key: &str) -> String {
    let instructions = r.text(key, "");
    if instructions.len() > INSTRUCTIONS_LEN_MAX {
        r.wrong(key, &format!("is longer than {} KiB", INSTRUCTIONS_LEN_MAX / 1024));
    }
    instructions
}
