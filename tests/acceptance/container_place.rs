//! A place whose sandboxes are containers, and what the engine says of them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use issuebox::clock::{IdSource, SystemIds};
use serde_json::Value;

use crate::engine;
use crate::process::{Place, Server};

/// A place with issues of its own at an engine that others use, too. Dropping it removes their containers.
pub struct ContainerPlace {
    pub place: Place,
    host: String,
    mark: String,
    instance: OnceLock<String>,
}

/// A container as the engine shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenContainer {
    pub issue: String,
    pub sandbox: String,
    pub id: String,
    pub state: String,
}

impl ContainerPlace {
    /// At the engine of `DOCKER_HOST`, with these lines at the end of the configuration.
    pub fn new(more: &str) -> Self {
        Self::at(engine::host(), more)
    }

    /// At this engine.
    pub fn at(host: String, more: &str) -> Self {
        let image = engine::image_at(&host);
        let section = format!("host = {host:?}\nimage = {image:?}\npull = \"never\"\n{more}");
        Self::with(host, &section)
    }

    /// At this engine, with this section `[providers.docker]`.
    pub fn with(host: String, section: &str) -> Self {
        let place = Place::docker();
        place.configure(&format!("[providers.docker]\n{section}"));
        let id = SystemIds.request_id();
        let mark = format!("life-{}", &id[id.len() - 12..]);
        Self { place, host, mark, instance: OnceLock::new() }
    }

    /// An issue that no other place has.
    pub fn issue(&self, n: usize) -> String {
        format!("{}-{n}", self.mark)
    }

    /// The name of an issue's sandbox and container.
    pub fn name(&self, n: usize) -> String {
        format!("claude-issue-{}", self.issue(n))
    }

    /// What docker's command line says with these arguments.
    pub fn docker(&self, args: &[&str]) -> String {
        engine::text_at(&self.host, args)
    }

    /// The containers of this place's issues.
    pub fn containers(&self) -> Vec<SeenContainer> {
        let format = "{{.Label \"issuebox.issue\"}}|{{.Label \"issuebox.sandbox\"}}|{{.ID}}|\
                      {{.State}}|{{.Label \"issuebox.instance\"}}";
        let name = format!("name=^/?claude-issue-{}-", self.mark);
        let list = ["ps", "--all", "--no-trunc", "--filter", &name, "--format", format];
        let mut all = Vec::new();
        for line in self.docker(&list).lines() {
            let parts: Vec<&str> = line.split('|').collect();
            let [issue, sandbox, id, state, instance] = parts[..] else { panic!("{line}") };
            if !instance.is_empty() {
                self.instance.get_or_init(|| instance.to_owned());
            }
            let [issue, sandbox, id, state] = [issue, sandbox, id, state].map(str::to_owned);
            all.push(SeenContainer { issue, sandbox, id, state });
        }
        all.sort();
        all
    }

    /// The issue's one container.
    pub fn container(&self, n: usize) -> SeenContainer {
        let issue = self.issue(n);
        let mut found = self.containers().into_iter().filter(|one| one.issue == issue);
        let first = found.next().expect("a container");
        assert_eq!(found.next(), None, "a second container of {issue}");
        first
    }

    /// The workspaces of this place's sandboxes, if there ever was one. That of a container whose server was
    /// killed between the two removals stays for ten minutes.
    pub fn workspaces(&self) -> Vec<String> {
        let Some(instance) = self.instance.get() else { return Vec::new() };
        let name = format!("name=issuebox-workspace-.*{instance}");
        let listed = self.docker(&["volume", "ls", "--quiet", "--filter", &name]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Checks that each live sandbox has its one container, and that there is no other. Returns the sandboxes by
    /// issue.
    pub async fn each_has_its_container(&self, server: &Server) -> BTreeMap<String, Value> {
        let list = server.get("/v1/sandboxes?limit=200").await.json();
        let live = list["data"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let mut recorded: Vec<_> = live
            .iter()
            .map(|s| (text(&s["issueId"]), text(&s["id"]), text(&s["externalId"])))
            .collect();
        recorded.sort();
        let of = |one: SeenContainer| (one.issue, one.sandbox, one.id);
        let there: Vec<_> = self.containers().into_iter().map(of).collect();
        assert_eq!(recorded, there, "one container each, and none else: {list}");
        live.iter().map(|sandbox| (text(&sandbox["issueId"]), sandbox.clone())).collect()
    }
}

impl Drop for ContainerPlace {
    fn drop(&mut self) {
        let remove = |verb: &[&str], names: Vec<String>| {
            if !names.is_empty() {
                let names = names.iter().map(String::as_str);
                engine::docker_at(
                    &self.host,
                    &verb.iter().copied().chain(names).collect::<Vec<_>>(),
                );
            }
        };
        // The engine may be away if the test failed.
        if engine::docker_at(&self.host, &["version"]).status.success() {
            let ids = self.containers().into_iter().map(|one| one.id).collect();
            remove(&["rm", "--force", "--volumes"], ids);
            remove(&["volume", "rm", "--force"], self.workspaces());
        }
    }
}
