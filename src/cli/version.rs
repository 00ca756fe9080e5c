//! `issuebox version`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::output::{Shape, Shown};

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    #[command(flatten)]
    shape: Shape,
}

pub(super) fn run(args: VersionArgs) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    let text = match args.shape.shown() {
        Shown::Table => format!("issuebox {version}"),
        Shown::Json => json!({ "version": version }).to_string(),
        Shown::Ids => version.to_owned(),
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}
