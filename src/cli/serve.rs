//! `issuebox serve`: loads the configuration, sets up logging and runs the server.

use std::path::absolute;
use std::process::ExitCode;

use clap::Args;

use crate::config::{ConfigFile, Loaded};
use crate::{app, telemetry};

use super::ServerArgs;
use super::config;
use super::env::EnvVars;
use super::failure::CliFailure;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Address to listen on [env: ISSUEBOX_LISTEN] [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Start a new installation in a data directory whose database is gone: it knows no issue, and
    /// leaves the sandboxes of the one before at their providers
    #[arg(long)]
    new: bool,
}

pub(super) fn run(
    server_args: &ServerArgs,
    args: ServeArgs,
    env: &EnvVars,
) -> anyhow::Result<ExitCode> {
    let load = || load(server_args, &args, env);
    let loaded = load()?;
    let _telemetry = telemetry::init("info,actix_server=warn")?;
    match &loaded.file {
        Some(file) => {
            let path = absolute(&file.path).unwrap_or_else(|_| file.path.clone());
            tracing::info!(file = %path.display(), "read the configuration");
        }
        None => tracing::info!(
            "there is no configuration file: every key has its default, or its variable"
        ),
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    app::serve(loaded.config, args.new, load)?;
    Ok(ExitCode::SUCCESS)
}

fn load(server_args: &ServerArgs, args: &ServeArgs, env: &EnvVars) -> anyhow::Result<Loaded> {
    let loaded = config::load_here(server_args, env, args.listen.clone())?;
    if let Some(file) = &loaded.file {
        refuse_foreign(file, rustix::process::geteuid().as_raw())?;
    }
    Ok(loaded)
}

/// Refuses a file that others than the server's user and root decide: a server does what it says.
fn refuse_foreign(file: &ConfigFile, user: u32) -> Result<(), CliFailure> {
    let path = file.path.display();
    let message = if !file.is_regular() {
        return Ok(());
    } else if file.owner != 0 && file.owner != user {
        format!(
            "{path} belongs to {}, and this server runs as {}",
            shown_user(file.owner),
            shown_user(user)
        )
    } else if file.is_writable_by_all() {
        format!("{path} can be written by every user (mode {:04o})", file.mode & 0o7777)
    } else {
        return Ok(());
    };
    let hint = format!(
        "if you trust what it says: chown {user} {path} && chmod o-w {path}; else start the server \
         in another directory, or name its configuration with --config"
    );
    Err(CliFailure::Failed { message, hint })
}

/// A user's number, and the name if `/etc/passwd` has it.
fn shown_user(user: u32) -> String {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    });
    match name {
        Some(name) => format!("user {user} ({name})"),
        None => format!("user {user}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_another_user_is_refused() {
        let file = |owner, mode| ConfigFile { path: "f.toml".into(), owner, mode };
        for (owner, mode, user) in
            [(0, 0o100_644, 0), (0, 0o100_644, 7), (7, 0o100_660, 7), (0, 0o020_666, 7)]
        {
            assert!(refuse_foreign(&file(owner, mode), user).is_ok(), "{owner} {mode:o} {user}");
        }
        for (owner, mode, user, words) in [
            (7, 0o100_644, 0, "belongs to user 7"),
            (7, 0o100_600, 1_234_567, "and this server runs as user 1234567"),
            (0, 0o100_646, 0, "mode 0646"),
        ] {
            let refused = refuse_foreign(&file(owner, mode), user).expect_err("refused");
            assert!(refused.to_string().contains(words), "{refused}");
            assert!(
                refused.hint().is_some_and(|hint| hint.contains(&format!("chown {user} f.toml")))
            );
        }
    }
}
