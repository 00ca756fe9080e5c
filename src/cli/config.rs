//! `issuebox config check`, and loading the configuration for the command line.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

use crate::app::providers::{load_config, notes};
use crate::config::{Config, Loaded, Overrides};
use crate::store::sqlite::{MisplacedIssue, SqliteStore};
use crate::types::inert;

use super::ServerArgs;
use super::env::EnvVars;

/// Most issues, and pairs of accounts, that `config check` names.
const MISPLACED_NAMED_MAX: usize = 20;
/// The configuration file if none is named.
const FILE_DEFAULT: &str = "issuebox.toml";

#[derive(Debug, Subcommand)]
pub(super) enum ConfigVerb {
    /// Check the configuration; list keys without an effect, and issues in another account than its rules say
    Check,
}

pub(super) fn run(
    server_args: &ServerArgs,
    verb: ConfigVerb,
    env: &EnvVars,
) -> anyhow::Result<ExitCode> {
    match verb {
        ConfigVerb::Check => check(server_args, env),
    }
}

fn check(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<ExitCode> {
    let loaded = load_here(server_args, env, None)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    let Config { server, templates, .. } = &loaded.config;
    let mut out = std::io::stdout().lock();
    writeln!(out, "the configuration is valid")?;
    let file =
        loaded.file.map_or_else(|| "none".to_owned(), |file| file.path.display().to_string());
    writeln!(out, "  file       {file}")?;
    writeln!(out, "  listen     {}", server.listen)?;
    writeln!(out, "  data       {}", server.data.display())?;
    for template in templates.values() {
        writeln!(out, "  template   {} on {}", template.name, template.provider)?;
    }
    for (provider, note) in notes(&loaded.config) {
        writeln!(out, "  {provider:<10} {note}")?;
    }
    misplaced(&mut out, &loaded.config)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the issues whose account is another one than the rules say: a change of rules moves none.
fn misplaced(out: &mut impl Write, config: &Config) -> anyhow::Result<()> {
    let (dir, configured) = (&config.server.data, &config.accounts);
    let misplaced = match SqliteStore::misplaced(dir, configured, MISPLACED_NAMED_MAX) {
        Ok(Some(misplaced)) => misplaced,
        Ok(None) => return Ok(()),
        Err(error) => {
            eprintln!("warning: cannot compare the accounts of issues with their rules: {error}");
            return Ok(());
        }
    };
    let count: u64 = misplaced.counts.values().sum();
    if count == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  accounts   {count} issues stay in another account than the rules give them now"
    )?;
    for ((account, by_rules), count) in misplaced.counts.iter().take(MISPLACED_NAMED_MAX) {
        writeln!(out, "             {count} of {account}; the rules say {by_rules}")?;
    }
    for MisplacedIssue { issue, place, account, by_rules } in &misplaced.first {
        let place = inert(place);
        writeln!(out, "             issue {} {place} of {account}, not {by_rules}", inert(issue))?;
    }
    let more = count.saturating_sub(misplaced.first.len() as u64);
    if more > 0 {
        writeln!(out, "             and {more} more")?;
    }
    Ok(())
}

/// Loads the named configuration file, else `issuebox.toml` in the working directory if it exists.
/// For the verbs of the server's operator alone: what they read there is sent to no server.
pub(super) fn load_here(
    server_args: &ServerArgs,
    env: &EnvVars,
    listen: Option<String>,
) -> anyhow::Result<Loaded> {
    let default = Path::new(FILE_DEFAULT);
    let file = server_args.config.as_deref().or_else(|| default.exists().then_some(default));
    load(file, server_args, env, listen)
}

/// Loads the named configuration file and no other.
pub(super) fn load_named(server_args: &ServerArgs, env: &EnvVars) -> anyhow::Result<Loaded> {
    load(server_args.config.as_deref(), server_args, env, None)
}

fn load(
    file: Option<&Path>,
    server_args: &ServerArgs,
    env: &EnvVars,
    listen: Option<String>,
) -> anyhow::Result<Loaded> {
    let overrides = Overrides { listen, data: server_args.data.clone() };
    Ok(load_config(file, env.vars(), overrides)?)
}
