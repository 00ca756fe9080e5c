//! `issuebox backup` and `restore`: the records of the server on this machine, as one file. They
//! work on the data directory itself and need neither a server nor a token.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::app;
use crate::types::inert;

use super::ServerArgs;
use super::config;
use super::confirm::{Question, confirm};
use super::connect::Environment;
use super::output::{Screen, Shape, Shown};

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// Where to; the file must not be there yet
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// Do not ask where there are records that it replaces
    #[arg(short, long)]
    yes: bool,
}

pub(super) fn backup(
    place: &ServerArgs,
    args: BackupArgs,
    env: &Environment,
) -> anyhow::Result<ExitCode> {
    let data = config::load(place, env, None)?.config.server.data;
    let size = app::backup(&data, &args.file)?;
    let mut screen = Screen::new(env);
    let file = args.file.to_string_lossy();
    match args.shape.shown() {
        Shown::Data(notation) => {
            screen.data(notation, &serde_json::json!({"file": file, "size": size}))?;
        }
        Shown::Ids => screen.line(&inert(&file))?,
        Shown::Table(_) => screen.line(&format!("{}  {size} bytes", inert(&file)))?,
    }
    eprintln!("note: neither workspaces nor the two secrets in {} are in it", data.display());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn restore(
    place: &ServerArgs,
    args: RestoreArgs,
    env: &Environment,
) -> anyhow::Result<ExitCode> {
    let data = config::load(place, env, None)?.config.server.data;
    let (dir, file) = (data.display(), args.file.display());
    if app::has_records(&data) && !args.yes {
        confirm(&Question {
            asked: &format!(
                "Replace the records in {dir} by those of {file}? They are kept aside."
            ),
            unasked: &format!("restoring {file} replaces the records in {dir}"),
            refused: "nothing was restored",
        })?;
    }
    let kept = app::restore(&data, &args.file)?;
    let mut screen = Screen::new(env);
    screen
        .line(&format!("{} is restored into {}", inert(&file.to_string()), inert(&dir.to_string())))
        .context("standard output is closed")?;
    if let Some(kept) = kept {
        eprintln!("note: the records that were there are kept as {}", kept.display());
    }
    eprintln!(
        "note: everything is held; start the server, look at issuebox drift, and then release it \
         with issuebox release --all"
    );
    Ok(ExitCode::SUCCESS)
}
