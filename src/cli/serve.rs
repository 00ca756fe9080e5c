//! `issuebox serve`: reads the configuration, sets up the log, and hands over to the server.

use std::process::ExitCode;

use clap::Args;

use crate::config::Loaded;
use crate::telemetry;

use super::Place;
use super::config;
use super::connect::Environment;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Where to listen [env: ISSUEBOX_LISTEN] [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

pub(super) fn run(place: &Place, args: ServeArgs, env: &Environment) -> anyhow::Result<ExitCode> {
    let loaded = config::load(place, env, args.listen)?;
    telemetry::init()?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    hand_over(loaded)
}

/// Runs the server until it is told to end.
fn hand_over(loaded: Loaded) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build has no server to listen on {}", loaded.config.server.listen)
}
