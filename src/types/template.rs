//! Templates of sandboxes, and the version of each: a hash of its content.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{
    AgentWorkload, GitWorkload, HookAction, HookName, Hooks, Mode, Network, ProviderName,
    SyncMoments, TemplateName, Workload, WorkloadSource,
};

/// A configuration from which sandboxes are created.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its name in the configuration.
    pub name: TemplateName,
    /// Its provider.
    pub provider: ProviderName,
    /// How its create is recorded.
    pub mode: Mode,
    /// Its resource limits.
    pub resources: Resources,
    /// Its network access.
    pub network: Network,
    /// TCP ports that are reachable through the server.
    pub ports: Vec<u16>,
    /// What happens when it reaches a limit.
    pub on_limit: OnLimit,
    /// What it is made from and what runs in it; shared, since every record has a copy.
    pub workload: Arc<Workload>,
}

/// What happens when a sandbox reaches a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The process is killed or the request refused, and the sandbox goes on.
    #[default]
    Kill,
    /// The sandbox is stopped.
    Stop,
}

impl OnLimit {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Kill, Self::Stop];

    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
        }
    }
}

/// Resource limits. A provider's [`Isolation`](crate::sandbox::Isolation) says which of them it enforces.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// CPUs.
    pub cpu: f64,
    /// Memory, in MiB.
    pub memory_mb: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Disk, in MiB.
    pub disk_mb: u64,
}

/// A hash of everything that a template says; a secret counts by its name. Two versions are the same
/// if and only if a sandbox would be made in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TemplateVersion([u8; Self::LEN]);

impl TemplateVersion {
    /// Its length in bytes; as text it is twice as long.
    const LEN: usize = 6;

    /// Reads the text that it prints as; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for TemplateVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TemplateVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Template {
    /// The version of its content as it is now. The text that is hashed leaves out what is not set,
    /// so that a key which a later release adds changes no version by itself.
    pub fn version(&self) -> TemplateVersion {
        let Self { name, provider, mode, resources, network, ports, on_limit, workload } = self;
        let Resources { cpu, memory_mb, processes, disk_mb } = resources;
        let mut hash = ContentHash::default();
        hash.put("name", name);
        hash.put("provider", provider);
        hash.put("mode", mode);
        hash.put("cpu", cpu);
        hash.put("memory_mb", memory_mb);
        hash.put("processes", processes);
        hash.put("disk_mb", disk_mb);
        hash.put("network", network.kind());
        network.hosts().iter().for_each(|host| hash.put("allow", host));
        network.private().iter().for_each(|address| hash.put("allow_private", address));
        ports.iter().for_each(|port| hash.put("ports", port));
        match on_limit {
            OnLimit::Kill => {}
            OnLimit::Stop => hash.put("on_limit", "stop"),
        }
        hash.put_workload(workload);
        hash.finish()
    }
}

/// Hashes names and values.
#[derive(Default)]
struct ContentHash(Sha256);

impl ContentHash {
    /// Adds a value. Its length is hashed, too, so that no two contents give the same text.
    fn put(&mut self, name: &str, value: impl fmt::Display) {
        let value = value.to_string();
        self.0.update(format!("{name}={}:", value.len()));
        self.0.update(value);
    }

    fn put_workload(&mut self, workload: &Workload) {
        let Workload { source, env, secrets, user, working_dir, command, mounts, .. } = workload;
        let Workload { git, agent, hooks, sync, options, .. } = workload;
        match source {
            None => {}
            Some(WorkloadSource::Image(image)) => self.put("image", image),
            Some(WorkloadSource::Snapshot(snapshot)) => self.put("snapshot", snapshot),
        }
        for (name, value) in env {
            self.put("env", name);
            self.put("value", value);
        }
        for (name, secret) in secrets {
            self.put("secrets", name);
            self.put("value", secret);
        }
        user.iter().for_each(|user| self.put("user", user));
        working_dir.iter().for_each(|dir| self.put("working_dir", dir));
        command.iter().for_each(|word| self.put("command", word));
        mounts.iter().for_each(|mount| self.put("mounts", mount));
        git.iter().for_each(|git| self.put_git(git));
        agent.iter().for_each(|agent| self.put_agent(agent));
        self.put_hooks(hooks);
        let SyncMoments { on_stop, before_delete } = sync;
        for (name, is_on) in [("on_stop", on_stop), ("before_delete", before_delete)] {
            if *is_on {
                self.put("sync", name);
            }
        }
        for (name, value) in options {
            self.put("options", name);
            self.put("value", value);
        }
    }

    fn put_git(&mut self, git: &GitWorkload) {
        let GitWorkload { clone, base, read, push_max_mb, workflows, repository_file } = git;
        self.put("git.clone", clone.as_str());
        base.iter().for_each(|branch| self.put("git.base", branch));
        read.iter().for_each(|repository| self.put("git.read", repository));
        self.put("git.push_max_mb", push_max_mb);
        self.put("git.workflows", workflows);
        // What the file says is the repository's, and no part of the template.
        if repository_file.is_some() {
            self.put("git.repository_file", true);
        }
    }

    fn put_agent(&mut self, agent: &AgentWorkload) {
        let AgentWorkload { name, model, run_time_max, quiet_time_max, .. } = agent;
        let AgentWorkload { turns_max, while_running, instructions, .. } = agent;
        self.put("agent", name);
        model.iter().for_each(|model| self.put("model", model));
        self.put("run_ms", run_time_max.as_millis());
        self.put("quiet_ms", quiet_time_max.as_millis());
        turns_max.iter().for_each(|turns| self.put("max_turns", turns));
        self.put("while_running", while_running.as_str());
        if !instructions.is_empty() {
            self.put("instructions", instructions);
        }
    }

    fn put_hooks(&mut self, hooks: &Hooks) {
        for name in HookName::ALL {
            for step in hooks.of(name) {
                self.put("hook", name.as_str());
                match &step.action {
                    HookAction::Run(command) => {
                        command.iter().for_each(|word| self.put("run", word));
                    }
                    HookAction::GitCheckout | HookAction::SyncPull | HookAction::SyncPush => {
                        self.put("uses", step.action.uses().unwrap_or_default());
                    }
                }
                step.cwd.iter().for_each(|dir| self.put("cwd", dir));
                self.put("timeout_ms", step.timeout.as_millis());
                for (name, value) in &step.env {
                    self.put("env", name);
                    self.put("value", value);
                }
            }
        }
        if hooks.grace != Hooks::GRACE_DEFAULT {
            self.put("grace_ms", hooks.grace.as_millis());
        }
    }

    fn finish(self) -> TemplateVersion {
        let digest = self.0.finalize();
        let mut version = [0; TemplateVersion::LEN];
        version.copy_from_slice(&digest[..TemplateVersion::LEN]);
        TemplateVersion(version)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::types::{AgentName, HookStep, HostMount, RepositoryFile, SecretName, WhileRunning};

    fn plain() -> Template {
        Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("local"),
            mode: Mode::Strong,
            resources: Resources { cpu: 0.5, memory_mb: 1024, processes: 256, disk_mb: 2048 },
            network: Network::None,
            ports: vec![],
            on_limit: OnLimit::Kill,
            workload: Workload::default().into(),
        }
    }

    fn working(change: impl FnOnce(&mut Workload)) -> Template {
        let mut workload = Workload::default();
        change(&mut workload);
        Template { workload: workload.into(), ..plain() }
    }

    fn agent(instructions: &str) -> AgentWorkload {
        AgentWorkload {
            name: AgentName::trusted("codex"),
            model: None,
            run_time_max: Duration::from_secs(60),
            quiet_time_max: Duration::from_secs(30),
            turns_max: None,
            while_running: WhileRunning::Queue,
            instructions: instructions.to_owned(),
        }
    }

    fn hooked(change: impl FnOnce(&mut Hooks)) -> Template {
        working(|one| change(&mut one.hooks))
    }

    fn hook_step(action: HookAction) -> HookStep {
        HookStep { action, cwd: None, timeout: Duration::from_secs(60), env: BTreeMap::new() }
    }

    #[test]
    fn the_version_of_a_template_stays_the_same_from_release_to_release() {
        // Kept in the records of deleted sandboxes, and compared by people and programs.
        assert_eq!(plain().version().to_string(), "9a26859c3ea5");
    }

    #[test]
    fn each_part_of_a_template_changes_its_version() {
        let variable = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
        let secret = |name: &str| BTreeMap::from([("A".to_owned(), SecretName::trusted(name))]);
        let run = |word: &str| HookAction::Run(vec![word.to_owned()]);
        let all = [
            plain(),
            Template { name: TemplateName::trusted("other"), ..plain() },
            Template { provider: ProviderName::trusted("docker"), ..plain() },
            Template { mode: Mode::Fast, ..plain() },
            Template { resources: Resources { cpu: 0.51, ..plain().resources }, ..plain() },
            Template { resources: Resources { memory_mb: 1, ..plain().resources }, ..plain() },
            Template { resources: Resources { processes: 1, ..plain().resources }, ..plain() },
            Template { resources: Resources { disk_mb: 1, ..plain().resources }, ..plain() },
            Template { network: Network::Host, ..plain() },
            Template { network: Network::Full { private: vec![] }, ..plain() },
            Template { ports: vec![80, 81], ..plain() },
            Template { ports: vec![8081], ..plain() },
            Template { on_limit: OnLimit::Stop, ..plain() },
            working(|one| one.source = Some(WorkloadSource::Image("a".into()))),
            working(|one| one.source = Some(WorkloadSource::Snapshot("a".into()))),
            working(|one| one.env = variable("A", "b")),
            working(|one| one.env = variable("A", "c")),
            working(|one| one.secrets = secret("b")),
            working(|one| one.secrets = secret("c")),
            working(|one| one.user = Some("a".into())),
            working(|one| one.working_dir = Some("a".into())),
            working(|one| one.command = vec!["a".into(), "b".into()]),
            working(|one| one.command = vec!["ab".into()]),
            working(|one| one.mounts = HostMount::parse("/a:/b").into_iter().collect()),
            working(|one| one.mounts = HostMount::parse("/a:/b:ro").into_iter().collect()),
            working(|one| one.git = Some(GitWorkload::default())),
            working(|one| one.git = Some(GitWorkload { workflows: true, ..Default::default() })),
            working(|one| {
                let repository_file = Some(RepositoryFile::default());
                one.git = Some(GitWorkload { repository_file, ..Default::default() });
            }),
            working(|one| {
                let base = Some("next".to_owned());
                one.git = Some(GitWorkload { base, ..Default::default() });
            }),
            working(|one| one.agent = Some(agent(""))),
            working(|one| one.agent = Some(agent("be brief"))),
            working(|one| one.options = variable("A", "b")),
            working(|one| one.sync.on_stop = true),
            working(|one| one.sync.before_delete = true),
            hooked(|hooks| hooks.grace = Duration::from_secs(31)),
            hooked(|hooks| hooks.on_cold_start = vec![hook_step(run("a"))]),
            hooked(|hooks| hooks.on_cold_start = vec![hook_step(run("b"))]),
            hooked(|hooks| hooks.on_cold_start = vec![hook_step(run("a")), hook_step(run("b"))]),
            hooked(|hooks| hooks.on_message = vec![hook_step(run("a"))]),
            hooked(|hooks| hooks.on_stream_finish = vec![hook_step(run("a"))]),
            hooked(|hooks| hooks.on_terminate = vec![hook_step(run("a"))]),
            hooked(|hooks| hooks.on_terminate = vec![hook_step(HookAction::SyncPush)]),
            hooked(|hooks| {
                hooks.on_message = vec![HookStep { cwd: Some("a".into()), ..hook_step(run("a")) }];
            }),
            hooked(|hooks| {
                let timeout = Duration::from_secs(61);
                hooks.on_message = vec![HookStep { timeout, ..hook_step(run("a")) }];
            }),
            hooked(|hooks| {
                let env = variable("A", "b");
                hooks.on_message = vec![HookStep { env, ..hook_step(run("a")) }];
            }),
        ];
        let versions: std::collections::HashSet<_> = all.iter().map(Template::version).collect();
        assert_eq!(versions.len(), all.len());
        assert_eq!(plain().version(), plain().version());
    }

    #[test]
    fn what_a_repository_says_leaves_the_version_of_the_template() {
        let with = |file| {
            working(|one| {
                one.git = Some(GitWorkload { repository_file: Some(file), ..Default::default() });
            })
        };
        let file = RepositoryFile { working_dir: Some("web".into()), ..RepositoryFile::default() };
        assert_eq!(with(file).version(), with(RepositoryFile::default()).version());
    }

    #[test]
    fn a_version_is_read_as_it_is_written() {
        let version = plain().version();
        assert_eq!(TemplateVersion::parse(&version.to_string()), Some(version));
        for bad in ["", "12", "zz3456789abc", "0123456789abcd"] {
            assert_eq!(TemplateVersion::parse(bad), None, "{bad}");
        }
    }
}
