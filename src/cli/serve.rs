//! `issuebox serve`: loads the configuration, sets up logging and runs the server.

use std::process::ExitCode;

use clap::Args;

use crate::{app, telemetry};

use super::ServerArgs;
use super::config;
use super::connect::EnvVars;

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
    let load = || config::load(server_args, env, args.listen.clone());
    let loaded = load()?;
    let _telemetry = telemetry::init("info,actix_server=warn")?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    app::serve(loaded.config, args.new, load)?;
    Ok(ExitCode::SUCCESS)
}
