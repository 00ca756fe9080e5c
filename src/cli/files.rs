//! `issuebox files`: reads and changes the files of a sandbox's workspace.
//!
//! `files get` does not unpack a directory's archive; `tar -x` or `issuebox cp` does.
//!
//! # Guarantees
//! Names are bytes; they need not be UTF-8. Content is transferred byte for byte and never held whole
//! in memory. An interrupted transfer is an error; an interrupted upload leaves the old file intact.

pub(super) mod left_out;
mod pack;
pub(super) mod transfer;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::clock::{Clock, SystemClock};
use crate::types::inert;

use self::transfer::{content, kind_at};
use super::CliSession;
use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::table;
use super::target::IssueArg;
use super::wire;

#[derive(Debug, Subcommand)]
pub(super) enum FilesVerb {
    /// List a directory
    Ls(LsFilesArgs),
    /// Write a file's content to standard output
    Cat(CatArgs),
    /// Upload a file or a directory; missing parent directories are created
    Put(PutArgs),
    /// Download a file, or a directory as a tar archive
    Get(GetFileArgs),
    /// Create a directory and its missing parents
    Mkdir(MkdirArgs),
    /// Move a file, link or directory, also into a directory; missing parent directories are created
    Mv(MvArgs),
    /// Delete files and links, and directories with -r
    #[command(visible_alias = "delete")]
    Rm(RmFilesArgs),
    /// Set the permissions of a file or directory
    Chmod(ChmodArgs),
}

#[derive(Debug, Args)]
pub(super) struct LsFilesArgs {
    /// Levels of directories to list
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=32))]
    depth: u64,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// A directory, relative to the workspace [default: the workspace]
    path: Option<OsString>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// A file, relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// Treat the input as a tar archive and unpack it into the directory PATH
    #[arg(long)]
    tar: bool,
    /// The target, relative to the workspace
    path: OsString,
    /// What to upload: a file, a directory whose content goes into the directory PATH, or - for
    /// standard input [default: standard input, unless it is a terminal]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct GetFileArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// A file or directory, relative to the workspace [default: the workspace]
    path: Option<OsString>,
    /// Write the file or archive to FILE [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct MkdirArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// The directory, relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct MvArgs {
    /// Replace a file, link or empty directory that has the new name
    #[arg(long)]
    overwrite: bool,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// The source, relative to the workspace
    from: OsString,
    /// The new name, or a directory to move into, relative to the workspace
    to: OsString,
}

#[derive(Debug, Args)]
pub(super) struct RmFilesArgs {
    /// Delete directories with their content
    #[arg(short, long)]
    recursive: bool,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// What to delete, relative to the workspace
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct ChmodArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// Permissions in octal, such as 0755
    mode: String,
    /// A file or directory, relative to the workspace
    path: OsString,
}

/// The answer of a listing.
#[derive(Debug, Deserialize)]
struct FileRows {
    entries: Vec<FileRow>,
    truncated: bool,
}

/// One directory entry.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileRow {
    path: Option<String>,
    path_base64: Option<String>,
    pub kind: String,
    pub size: u64,
    pub mode: String,
    pub modified_at: String,
    #[serde(default)]
    unreadable: bool,
}

impl FileRow {
    /// Its path for display; bytes that are not UTF-8 become U+FFFD.
    pub fn path(&self) -> String {
        String::from_utf8_lossy(&self.path_bytes()).into_owned()
    }

    /// Its path as it is.
    fn path_bytes(&self) -> Vec<u8> {
        match (&self.path, &self.path_base64) {
            (Some(path), _) => path.clone().into_bytes(),
            (None, Some(bytes)) => BASE64.decode(bytes).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }
}

pub(super) async fn run(session: &mut CliSession<'_>, verb: FilesVerb) -> anyhow::Result<ExitCode> {
    match verb {
        FilesVerb::Ls(args) => list(session, args).await?,
        FilesVerb::Cat(args) => cat(&session.client, args).await?,
        FilesVerb::Put(args) => transfer::put(session, args).await?,
        FilesVerb::Get(args) => transfer::get(&session.client, args).await?,
        FilesVerb::Rm(args) => remove(session, args).await?,
        FilesVerb::Mkdir(args) => {
            let path = ("path", args.path.as_os_str());
            let status =
                change(session, &args.issue, "directory", ApiRequest::put, &[path], &[]).await?;
            let what = if status == 201 { "created" } else { "exists" };
            session.screen.line(&format!("{} {what}", shown(&args.path)))?;
        }
        FilesVerb::Mv(args) => {
            let sandbox = args.issue.sandbox(&session.client).await?;
            let to = transfer::into_directory(&session.client, &sandbox.id, &args.to, &args.from);
            let to = to.await?;
            let paths = [("from", args.from.as_os_str()), ("to", to.as_os_str())];
            let more = [("overwrite", args.overwrite.to_string())];
            change(session, &args.issue, "move", ApiRequest::post, &paths, &more).await?;
            session.screen.line(&format!("{} moved to {}", shown(&args.from), shown(&to)))?;
        }
        FilesVerb::Chmod(args) => {
            let path = ("path", args.path.as_os_str());
            let mode = [("mode", args.mode.clone())];
            change(session, &args.issue, "mode", ApiRequest::put, &[path], &mode).await?;
            session.screen.line(&format!("{} is {}", shown(&args.path), inert(&args.mode)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(session: &mut CliSession<'_>, args: LsFilesArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let mut call =
        ApiRequest::get(&["sandboxes", &sandbox.id, "files"]).query("depth", Some(args.depth));
    if let Some(path) = &args.path {
        call = call.query_bytes("path", path.as_bytes());
    }
    let answer = session.client.call(call).await?;
    let listed: FileRows = wire::read_exact(answer.data())?;
    match args.shape.mode() {
        OutputMode::Data(notation) => session.screen.data(notation, &answer.data()["entries"])?,
        OutputMode::Ids => {
            for entry in &listed.entries {
                session.screen.line(&inert(&entry.path()))?;
            }
        }
        OutputMode::Table(width) if !listed.entries.is_empty() => {
            let now = SystemClock.now();
            let table = table::files(&session.screen, width, &listed.entries, now);
            session.screen.line(&table)?;
        }
        // On standard error: a program that reads standard output gets no text.
        OutputMode::Table(_) => eprintln!("the directory is empty"),
    }
    let unreadable: Vec<_> =
        listed.entries.iter().filter(|entry| entry.unreadable).map(FileRow::path).collect();
    if let Some(first) = unreadable.first() {
        let more = match unreadable.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        eprintln!("note: {}{more} cannot be read; the list lacks what is in it", inert(first));
    }
    if listed.truncated {
        eprintln!("note: the list is truncated; list a subdirectory or fewer levels");
    }
    Ok(())
}

async fn cat(client: &ApiClient, args: CatArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(client).await?;
    let call = content(|path| ApiRequest::get(path), &sandbox.id, &args.path);
    let mut out = io::stdout().lock();
    client.download(call, &mut out).await?;
    Ok(out.flush()?)
}

/// Changes the workspace and returns the answer's status.
async fn change(
    session: &CliSession<'_>,
    issue: &IssueArg,
    what: &str,
    method: fn(&[&str]) -> ApiRequest,
    paths: &[(&str, &OsStr)],
    more: &[(&'static str, String)],
) -> anyhow::Result<u16> {
    let sandbox = issue.sandbox(&session.client).await?;
    let mut call = method(&["sandboxes", &sandbox.id, "files", what]);
    for (name, path) in paths {
        call = call.query_bytes(name, path.as_bytes());
    }
    for (name, value) in more {
        call = call.query(name, Some(value));
    }
    Ok(session.client.change(call).await?)
}

async fn remove(session: &mut CliSession<'_>, args: RmFilesArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    for path in &args.paths {
        let is_directory = || async {
            kind_at(&session.client, &sandbox.id, path)
                .await
                .map(|kind| kind.as_deref() == Some("directory"))
        };
        if !args.recursive && is_directory().await? {
            return Err(CliFailure::Usage {
                message: format!("{} is a directory", shown(path)),
                hint: "add -r to delete it with its content".to_owned(),
            }
            .into());
        }
        session.client.change(content(ApiRequest::delete, &sandbox.id, path)).await?;
        session.screen.line(&format!("{} deleted", shown(path)))?;
    }
    Ok(())
}

/// A path for display.
pub(super) fn shown(path: &OsStr) -> String {
    inert(&path.to_string_lossy()).to_string()
}
