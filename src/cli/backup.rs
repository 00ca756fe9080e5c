//! `issuebox backup` and `restore`: saves the records of the server on this machine to one file, and
//! restores them. Both work on the data directory and need neither a server nor a token.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::app;
use crate::types::inert;

use super::ServerArgs;
use super::config;
use super::confirm::{Question, confirm};
use super::env::EnvVars;
use super::output::{OutputMode, Screen, Shape};

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The file to write; it must not exist yet
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup file
    file: PathBuf,
    /// Do not ask before existing records are replaced
    #[arg(short, long)]
    yes: bool,
}

pub(super) fn backup(
    server_args: &ServerArgs,
    args: BackupArgs,
    env: &EnvVars,
) -> anyhow::Result<ExitCode> {
    let data = config::load_named(server_args, env)?.config.server.data;
    let size = app::backup(&data, &args.file)?;
    let mut screen = Screen::new(env);
    let file = args.file.to_string_lossy();
    match args.shape.mode() {
        OutputMode::Data(notation) => {
            screen.data(notation, &serde_json::json!({"file": file, "size": size}))?;
        }
        OutputMode::Ids => screen.line(&inert(&file))?,
        OutputMode::Table(_) => screen.line(&format!("{}  {size} bytes", inert(&file)))?,
    }
    eprintln!(
        "note: the backup has no workspaces and no secrets: admin token, webhook secret and the GitHub \
         App's key stay in {} alone",
        data.display()
    );
    Ok(ExitCode::SUCCESS)
}

pub(super) fn restore(
    server_args: &ServerArgs,
    args: RestoreArgs,
    env: &EnvVars,
) -> anyhow::Result<ExitCode> {
    let data = config::load_named(server_args, env)?.config.server.data;
    let (dir, file) = (data.display(), args.file.display());
    if app::has_records(&data) && !args.yes {
        confirm(&Question {
            prompt: &format!(
                "Replace the records in {dir} with those of {file}? The old ones are kept as a copy."
            ),
            consequence: &format!("restoring {file} replaces the records in {dir}"),
            declined: "nothing was restored",
        })?;
    }
    let kept = app::restore(&data, &args.file)?;
    let mut screen = Screen::new(env);
    screen
        .line(&format!(
            "{} was restored into {}",
            inert(&file.to_string()),
            inert(&dir.to_string())
        ))
        .context("standard output is closed")?;
    if let Some(kept) = kept {
        eprintln!("note: the previous records are kept as {}", kept.display());
    }
    eprintln!(
        "note: everything is held; start the server, check issuebox drift, then run \
         issuebox release --all"
    );
    Ok(ExitCode::SUCCESS)
}
