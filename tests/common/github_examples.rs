//! GitHub's published example deliveries, as the npm package `@octokit/webhooks-examples` holds
//! them: one directory a host, each with an `index.json` that lists examples by event.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

/// The environment variable that names the package's directory.
pub const DIRECTORY_VARIABLE: &str = "ISSUEBOX_WEBHOOK_EXAMPLES";

/// One published example.
pub struct Example {
    /// Its origin, for messages: host, event and position.
    pub name: String,
    /// The value of `X-GitHub-Event`.
    pub event: String,
    /// The payload.
    pub body: Vec<u8>,
}

/// All examples of all hosts.
///
/// # Errors
/// When the variable is not set or the directory does not hold the package.
pub fn load() -> anyhow::Result<Vec<Example>> {
    let directory = std::env::var(DIRECTORY_VARIABLE)
        .with_context(|| format!("{DIRECTORY_VARIABLE} must name the package's directory"))?;
    let mut examples = Vec::new();
    for host in hosts(Path::new(&directory))? {
        let index = host.join("index.json");
        let text = std::fs::read(&index).with_context(|| index.display().to_string())?;
        let events: Vec<Value> = serde_json::from_slice(&text)?;
        for event in &events {
            let name = event["name"].as_str().context("an event has a name")?;
            let payloads = event["examples"].as_array().context("an event has examples")?;
            for (at, payload) in payloads.iter().enumerate() {
                examples.push(Example {
                    name: format!("{} {name} {at}", index.display()),
                    event: name.to_owned(),
                    body: serde_json::to_vec(payload)?,
                });
            }
        }
    }
    Ok(examples)
}

/// The directories with an index, in the order of their names.
fn hosts(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut hosts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join("index.json").is_file() {
            hosts.push(path);
        }
    }
    hosts.sort();
    Ok(hosts)
}
