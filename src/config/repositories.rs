//! `[repositories."owner/name"]`: what is different for the repositories that a pattern matches.

use std::collections::BTreeMap;

use super::models::budgets_of;
use super::reader::ConfigReader;
use super::{GitHub, Triggers, agents, sections, workload};
use crate::types::{
    ModelBudgets, PerRepository, PermissionLevel, RepositoryPattern, RepositorySettings, Template,
    TemplateName, is_branch,
};

/// What the configuration says of each repository.
pub(super) struct RepositoryValues {
    pub settings: PerRepository<RepositorySettings>,
    pub triggers: PerRepository<Triggers>,
    pub budgets: PerRepository<ModelBudgets>,
}

/// Reads `[repositories]`. `templates` are all that a sandbox can be created from; `triggers` and
/// `budgets` are those of all other repositories.
pub(super) fn repositories(
    r: &mut ConfigReader,
    templates: &BTreeMap<TemplateName, Template>,
    (triggers, budgets): (&Triggers, &ModelBudgets),
    github: &GitHub,
) -> RepositoryValues {
    let mut found: Vec<(RepositoryPattern, RepositorySettings)> = Vec::new();
    let (mut of_triggers, mut of_budgets) = (Vec::new(), Vec::new());
    for name in r.table_names("repositories") {
        let section = format!("repositories.{name}");
        let key = |part: &str| format!("{section}.{part}");
        // All keys are read, whatever the pattern is: each mistake is named.
        let settings = settings(r, &key, templates, github.login.is_some());
        let triggers = triggers_of(r, &key, triggers);
        let budgets = budgets_of(r, &key, budgets);
        match RepositoryPattern::parse(name.trim_matches('"')) {
            Ok(pattern) if found.iter().any(|(known, _)| *known == pattern) => {
                let again = "is there twice: upper and lower case are the same; keep one";
                r.trouble(format!("{section} {again}"));
            }
            Ok(pattern) => {
                if let Some(only) = pattern.only()
                    && !github.repositories.iter().any(|covering| covering.matches(only))
                {
                    let why = "github.repositories does not match it: nothing triggers there";
                    r.note(format!("{section}: {why}"));
                }
                of_triggers.push((pattern.clone(), triggers));
                of_budgets.push((pattern.clone(), budgets));
                found.push((pattern, settings));
            }
            Err(needed) => r.trouble(format!("{section}: its name {needed}")),
        }
    }
    RepositoryValues {
        settings: PerRepository::new(RepositorySettings::default(), found),
        triggers: PerRepository::new(triggers.clone(), of_triggers),
        budgets: PerRepository::new(*budgets, of_budgets),
    }
}

/// The triggers of a repository: what it does not say is as everywhere.
fn triggers_of(r: &mut ConfigReader, key: &impl Fn(&str) -> String, usual: &Triggers) -> Triggers {
    let command = usual.command.clone();
    let permission = (usual.permission, PermissionLevel::parse);
    Triggers {
        label: r.text(&key("triggers.label"), &usual.label).trim().to_owned(),
        command: r.parsed(&key("triggers.command"), command, sections::one_word),
        opened: r.flag(&key("triggers.opened"), usual.opened),
        permission: r.parsed(&key("triggers.permission"), permission.0, permission.1),
        ..usual.clone()
    }
}

fn settings(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    templates: &BTreeMap<TemplateName, Template>,
    has_credentials: bool,
) -> RepositorySettings {
    let template = r.parsed(&key("template"), None, |text| {
        let template = templates.get(&TemplateName::trusted(text)).cloned();
        let known: Vec<_> = templates.keys().map(ToString::to_string).collect();
        template.map(Some).ok_or_else(|| format!("must be one of {}", known.join(", ")))
    });
    let base_branch = r.parsed(&key("base_branch"), None, |text| match is_branch(text) {
        true => Ok(Some(text.to_owned())),
        false => Err("must be the name of a branch".to_owned()),
    });
    if !has_credentials {
        let why = "has no effect without credentials in [github]: nothing is checked out";
        r.warn(&key("base_branch"), why);
    }
    let working_dir = r.parsed(&key("working_dir"), None, |text| workload::path(text).map(Some));
    let instructions = agents::instructions(r, &key("instructions"));
    RepositorySettings { template, base_branch, working_dir, instructions }
}
