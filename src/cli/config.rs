//! `issuebox config check`, and how the command line finds the configuration.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

use crate::app::providers::load_config;
use crate::config::{Config, Loaded, Overrides};

use super::ServerArgs;
use super::connect::Environment;

/// The file that is read where none is named.
const FILE_DEFAULT: &str = "issuebox.toml";

#[derive(Debug, Subcommand)]
pub(super) enum ConfigVerb {
    /// Say whether the configuration is right, and what of it is not in force yet
    Check,
}

pub(super) fn run(
    place: &ServerArgs,
    verb: ConfigVerb,
    env: &Environment,
) -> anyhow::Result<ExitCode> {
    match verb {
        ConfigVerb::Check => check(place, env),
    }
}

fn check(place: &ServerArgs, env: &Environment) -> anyhow::Result<ExitCode> {
    let loaded = load(place, env, None)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    let Config { server, templates, .. } = &loaded.config;
    let mut out = std::io::stdout().lock();
    writeln!(out, "the configuration is right")?;
    writeln!(out, "  listen     {}", server.listen)?;
    writeln!(out, "  data       {}", server.data.display())?;
    for template in templates.values() {
        writeln!(out, "  template   {} on {}", template.name, template.provider)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the configuration that was asked for: the named file, else `issuebox.toml` in the
/// working directory where there is one.
pub(super) fn load(
    place: &ServerArgs,
    env: &Environment,
    listen: Option<String>,
) -> anyhow::Result<Loaded> {
    let default = Path::new(FILE_DEFAULT);
    let file = place.config.as_deref().or_else(|| default.exists().then_some(default));
    let overrides = Overrides { listen, data: place.data.clone() };
    Ok(load_config(file, env.vars(), overrides)?)
}
