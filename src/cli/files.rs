//! `issuebox files`: looks into a sandbox's workspace, and takes files out of it and into it.
//!
//! # Guarantees
//! Names are bytes: one that is not UTF-8 is asked for as it is written on the command line. Content
//! goes through byte for byte and is never held whole in memory. A file that breaks off on its way
//! is an error, and on its way in leaves the old one as it was.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::clock::{Clock, SystemClock};
use crate::types::inert;

use super::Session;
use super::client::{Call, Client};
use super::failure::Failure;
use super::output::{Shape, Shown};
use super::table;
use super::target::Target;
use super::wire;

#[derive(Debug, Subcommand)]
pub(super) enum FilesVerb {
    /// List a directory
    Ls(LsArgs),
    /// Write a file's content to standard output
    Cat(CatArgs),
    /// Put a file into the workspace; directories above it are made
    Put(PutArgs),
}

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// How many levels of directories
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=32))]
    depth: u64,
    /// Which issue
    #[arg(value_parser = Target::parse)]
    issue: Target,
    /// Relative to the workspace, which it is where left out
    path: Option<OsString>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// Which issue
    #[arg(value_parser = Target::parse)]
    issue: Target,
    /// Relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// Which issue
    #[arg(value_parser = Target::parse)]
    issue: Target,
    /// Where it goes, relative to the workspace
    path: OsString,
    /// What goes there [default: standard input]
    file: Option<PathBuf>,
}

/// What a directory holds.
#[derive(Debug, Deserialize)]
struct Listed {
    entries: Vec<Entry>,
    truncated: bool,
}

/// One entry, as far as it is shown.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    path: Option<String>,
    path_base64: Option<String>,
    pub kind: String,
    pub size: u64,
    pub mode: String,
    pub modified_at: String,
}

impl Entry {
    /// Its path for people; bytes that are no text become U+FFFD.
    pub fn path(&self) -> String {
        match (&self.path, &self.path_base64) {
            (Some(path), _) => path.clone(),
            (None, Some(bytes)) => {
                let bytes = BASE64.decode(bytes).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            (None, None) => String::new(),
        }
    }
}

pub(super) async fn run(session: &mut Session<'_>, verb: FilesVerb) -> anyhow::Result<ExitCode> {
    match verb {
        FilesVerb::Ls(args) => list(session, args).await?,
        FilesVerb::Cat(args) => cat(&session.client, args).await?,
        FilesVerb::Put(args) => put(session, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(session: &mut Session<'_>, args: LsArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let mut call = Call::get(&["sandboxes", &sandbox.id, "files"]).query("depth", Some(args.depth));
    if let Some(path) = &args.path {
        call = call.query_bytes("path", path.as_bytes());
    }
    let answer = session.client.call(call).await?;
    let listed: Listed = wire::read(answer.data())?;
    match args.shape.shown() {
        Shown::Data(notation) => session.screen.data(notation, &answer.data()["entries"])?,
        Shown::Ids => {
            for entry in &listed.entries {
                session.screen.line(&inert(&entry.path()))?;
            }
        }
        Shown::Table(width) if !listed.entries.is_empty() => {
            let now = SystemClock.now();
            let table = table::files(&session.screen, width, &listed.entries, now);
            session.screen.line(&table)?;
        }
        // Not a result: a program that reads standard output gets nothing.
        Shown::Table(_) => eprintln!("the directory is empty"),
    }
    if listed.truncated {
        eprintln!("note: there is more; list a directory below it, or fewer levels");
    }
    Ok(())
}

async fn cat(client: &Client, args: CatArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(client).await?;
    let call = content(|path| Call::get(path), &sandbox.id, &args.path);
    let mut out = io::stdout().lock();
    client.download(call, &mut out).await?;
    Ok(out.flush()?)
}

async fn put(session: &mut Session<'_>, args: PutArgs) -> anyhow::Result<()> {
    let (name, file) = match &args.file {
        Some(path) => {
            let cannot = || format!("{} cannot be read", path.display());
            let file = std::fs::File::open(path).with_context(cannot)?;
            anyhow::ensure!(!file.metadata()?.is_dir(), "{} is a directory", path.display());
            (path.display().to_string(), file)
        }
        None => {
            let stdin = io::stdin().as_fd().try_clone_to_owned()?;
            ("standard input".to_owned(), std::fs::File::from(stdin))
        }
    };
    let sandbox = args.issue.sandbox(&session.client).await?;
    let call = content(Call::put, &sandbox.id, &args.path);
    let status = session.client.upload(call, file).await.map_err(|failure| match failure {
        Failure::Unreachable { .. } => anyhow::Error::from(failure)
            .context(format!("{name} was not taken in whole; the old content is as it was")),
        Failure::Api { .. }
        | Failure::NotFound { .. }
        | Failure::Usage { .. }
        | Failure::Failed { .. }
        | Failure::Told(_) => failure.into(),
    })?;
    let path = args.path.to_string_lossy();
    let what = if status == 201 { "made" } else { "replaced" };
    session.screen.line(&format!("{} {what}", inert(&path)))?;
    Ok(())
}

fn content(method: fn(&[&str]) -> Call, sandbox_id: &str, path: &OsString) -> Call {
    method(&["sandboxes", sandbox_id, "files", "content"]).query_bytes("path", path.as_bytes())
}
