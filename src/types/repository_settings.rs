//! `[repositories]`: what sandboxes of a repository have beside what their template says.

use std::sync::Arc;

use super::Template;

/// What the configuration says of the sandboxes of a repository. What is `None` or empty was not said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RepositorySettings {
    /// `template`: what triggers and callers that name no template get.
    pub template: Option<Template>,
    /// `base_branch`: the branch that the work begins at.
    pub base_branch: Option<String>,
    /// `working_dir`: the default working directory.
    pub working_dir: Option<String>,
    /// `instructions`: what agents are given to know after what their template says.
    pub instructions: String,
}

impl RepositorySettings {
    /// A template as the sandboxes of this repository are made from it.
    pub fn laid_over(&self, mut template: Template) -> Template {
        let Self { template: _, base_branch, working_dir, instructions } = self;
        let changes = base_branch.is_some() || working_dir.is_some() || !instructions.is_empty();
        if !changes {
            return template;
        }
        let workload = Arc::make_mut(&mut template.workload);
        if let (Some(git), Some(base)) = (&mut workload.git, base_branch) {
            git.base = Some(base.clone());
        }
        if let Some(dir) = working_dir {
            workload.working_dir = Some(dir.clone());
        }
        if let Some(agent) = &mut workload.agent
            && !instructions.is_empty()
        {
            if !agent.instructions.is_empty() {
                agent.instructions.push_str("\n\n");
            }
            agent.instructions.push_str(instructions);
        }
        template
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{
        AgentName, AgentWorkload, GitWorkload, Mode, Network, OnLimit, ProviderName, Resources,
        TemplateName, Workload,
    };

    fn template(instructions: &str) -> Template {
        let agent = AgentWorkload {
            instructions: instructions.to_owned(),
            ..AgentWorkload::usual(AgentName::trusted("codex"))
        };
        Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("local"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 1024, processes: 256, disk_mb: 2048 },
            network: Network::None,
            ports: vec![],
            on_limit: OnLimit::Kill,
            workload: Arc::new(Workload {
                agent: Some(agent),
                git: Some(GitWorkload::default()),
                working_dir: Some("web".to_owned()),
                ..Workload::default()
            }),
        }
    }

    fn instructions(template: &Template) -> &str {
        template.workload.agent.as_ref().map_or("", |agent| &agent.instructions)
    }

    #[test]
    fn what_a_repository_says_is_laid_over_a_copy_of_the_template() {
        let settings = RepositorySettings {
            template: None,
            base_branch: Some("next".to_owned()),
            working_dir: Some("server".to_owned()),
            instructions: "Run make.".to_owned(),
        };
        let before = template("Be brief.");
        let after = settings.laid_over(before.clone());
        assert_eq!(instructions(&after), "Be brief.\n\nRun make.");
        assert_eq!(after.workload.working_dir.as_deref(), Some("server"));
        let base = after.workload.git.as_ref().and_then(|git| git.base.as_deref());
        assert_eq!(base, Some("next"));
        assert_ne!(after.version(), before.version(), "a sandbox would differ");
        assert_eq!(instructions(&before), "Be brief.", "the template itself is as it was");
        assert_eq!(instructions(&settings.laid_over(template(""))), "Run make.");
    }

    #[test]
    fn what_a_repository_does_not_say_leaves_the_template_as_it_is() {
        let before = template("Be brief.");
        assert_eq!(RepositorySettings::default().laid_over(before.clone()), before);
        let plain = Template { workload: Workload::default().into(), ..before };
        let settings = RepositorySettings {
            base_branch: Some("next".to_owned()),
            instructions: "Run make.".to_owned(),
            ..RepositorySettings::default()
        };
        assert_eq!(settings.laid_over(plain.clone()), plain, "no checkout and no agent");
    }
}
