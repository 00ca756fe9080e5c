//! `issuebox version`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::connect::Environment;
use super::output::{Screen, Shape, Shown};

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    #[command(flatten)]
    shape: Shape,
}

pub(super) fn run(args: VersionArgs, env: &Environment) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    let mut screen = Screen::new(env);
    match args.shape.shown() {
        Shown::Table(_) => screen.line(&format!("issuebox {version}"))?,
        Shown::Data(notation) => screen.record(notation, &json!({ "version": version }))?,
        Shown::Ids => screen.line(version)?,
    }
    Ok(ExitCode::SUCCESS)
}
