//! The doctor's look at agents: their programs, the models' keys, and the budgets.

use crate::config::{Config, ModelsConfig};
use crate::runs::{AgentPrograms, KnownAgent, ProgramError, ProgramVersion};
use crate::types::{AgentName, Check, Money};

/// Looks at the agents that templates name, and at those that are on this machine. Each program is started
/// with `--version`.
pub async fn look_at_agents(config: &Config) -> Vec<Check> {
    let wanted = config.agents_of_templates();
    let programs = AgentPrograms::of_machine(&config.agents);
    let mut checks = Vec::new();
    for (name, found) in programs.all() {
        checks.extend(program(name, found, wanted.contains(name)).await);
    }
    if !wanted.is_empty() {
        checks.push(models(&config.models));
        checks.push(budgets(&config.models));
    }
    checks
}

/// One agent's program; nothing of one that is neither there nor wanted.
async fn program(
    name: &AgentName,
    found: &Result<KnownAgent, ProgramError>,
    is_wanted: bool,
) -> Option<Check> {
    let what = format!("agent {name}");
    let agent = match found {
        Ok(agent) => agent,
        Err(_) if !is_wanted => return None,
        Err(ProgramError::Missing { hint, .. }) => {
            let remedy = format!("{hint}, or set agents.{name}.path");
            return Some(Check::broken(&what, "its program is not on this machine", remedy));
        }
        Err(error @ ProgramError::Unknown(_)) => {
            return Some(Check::broken(&what, error.to_string(), "see [agents]"));
        }
    };
    let program = agent.program.file().display();
    if agent.adapter.tested_versions().is_empty() {
        // It may do anything when it is started, whatever it is given.
        return Some(Check::right(&what, format!("{program} is there; its version is not asked")));
    }
    let tested = agent.adapter.tested_versions().join(" and ");
    Some(match ProgramVersion::ask(agent).await {
        Ok(ProgramVersion { text, is_tested: true }) => {
            Check::right(&what, format!("{program}, version {text}, which was tested"))
        }
        Ok(ProgramVersion { text, is_tested: false }) => Check::noted(
            &what,
            format!("{program}, version {text}, which was not tested"),
            format!("if runs fail, install one that was: {tested}"),
        ),
        Err(why) => {
            let hint = agent.adapter.install_hint();
            let remedy = format!("install it again ({hint}), or set agents.{name}.path");
            if is_wanted {
                Check::broken(&what, why, remedy)
            } else {
                Check::noted(&what, why, remedy)
            }
        }
    })
}

/// Whether agents reach a model. A key that cannot be read is an error of the configuration.
fn models(models: &ModelsConfig) -> Check {
    let what = "models";
    let endpoints = models.endpoints.iter().map(|(name, endpoint)| {
        let allowed: Vec<_> = endpoint.models.iter().map(ToString::to_string).collect();
        format!("{name} ({})", allowed.join(", "))
    });
    let endpoints: Vec<_> = endpoints.collect();
    match endpoints.is_empty() {
        false => Check::right(what, format!("keys are readable: {}", endpoints.join("; "))),
        true => Check::broken(
            what,
            "a template has an agent, and no model is configured: its runs fail",
            "set key_file in [models.anthropic] or [models.openai] to a file with the key",
        ),
    }
}

fn budgets(models: &ModelsConfig) -> Check {
    let what = "budgets";
    let budgets = models.budgets.usual();
    let all = [
        ("run", budgets.run),
        ("issue", budgets.issue),
        ("account_per_day", budgets.account_per_day),
    ];
    let open: Vec<_> =
        all.iter().filter(|(_, amount)| *amount == Money::ZERO).map(|(key, _)| *key).collect();
    let amounts: Vec<_> = all
        .iter()
        .filter(|(_, amount)| *amount > Money::ZERO)
        .map(|(key, amount)| format!("{} {amount}", key.replace('_', " ")))
        .collect();
    let limited = if amounts.is_empty() { "none".to_owned() } else { amounts.join(", ") };
    match open.as_slice() {
        [] => Check::right(what, limited),
        open => {
            let remedy = format!("set {} in [budgets]", open.join(" and "));
            Check::noted(what, format!("{limited}; no limit for {}", open.join(", ")), remedy)
        }
    }
}
