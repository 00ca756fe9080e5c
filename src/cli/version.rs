//! `issuebox version`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::env::EnvVars;
use super::output::{OutputMode, Screen, Shape};

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    #[command(flatten)]
    shape: Shape,
}

pub(super) fn run(args: VersionArgs, env: &EnvVars) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    let mut screen = Screen::new(env);
    match args.shape.mode() {
        OutputMode::Table(_) => screen.line(&format!("issuebox {version}"))?,
        OutputMode::Data(notation) => screen.record(notation, &json!({ "version": version }))?,
        OutputMode::Ids => screen.line(version)?,
    }
    Ok(ExitCode::SUCCESS)
}
