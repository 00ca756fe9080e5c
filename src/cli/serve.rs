//! `issuebox serve`: reads the configuration, sets up the log, and hands over to the server.

use std::process::ExitCode;

use clap::Args;

use crate::{app, telemetry};

use super::ServerArgs;
use super::config;
use super::connect::Environment;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Where to listen [env: ISSUEBOX_LISTEN] [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

pub(super) fn run(
    place: &ServerArgs,
    args: ServeArgs,
    env: &Environment,
) -> anyhow::Result<ExitCode> {
    let load = || config::load(place, env, args.listen.clone());
    let loaded = load()?;
    let _telemetry = telemetry::init("info,actix_server=warn")?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    app::serve(loaded.config, load)?;
    Ok(ExitCode::SUCCESS)
}
