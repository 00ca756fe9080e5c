//! `issuebox files`: reads and changes the files of a sandbox's workspace.
//!
//! A directory is downloaded as a tar archive and not unpacked, so that a sandbox cannot overwrite
//! the caller's files. `tar -x` unpacks it.
//!
//! # Guarantees
//! Names are bytes; they need not be UTF-8. Content is transferred byte for byte and never held whole
//! in memory. An interrupted transfer is an error; an interrupted upload leaves the old file intact.

mod left_out;
mod pack;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::clock::{Clock, SystemClock};
use crate::types::inert;

use self::left_out::WatchedArchive;
use super::CliSession;
use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::table;
use super::target::IssueRef;
use super::wire;

#[derive(Debug, Subcommand)]
pub(super) enum FilesVerb {
    /// List a directory
    Ls(LsFilesArgs),
    /// Write a file's content to standard output
    Cat(CatArgs),
    /// Upload a file or a directory; missing parent directories are created
    Put(PutArgs),
    /// Download a directory as a tar archive
    Get(GetFileArgs),
    /// Create a directory and its missing parents
    Mkdir(MkdirArgs),
    /// Move a file, link or directory; missing parent directories are created
    Mv(MvArgs),
    /// Set the permissions of a file or directory
    Chmod(ChmodArgs),
}

#[derive(Debug, Args)]
pub(super) struct LsFilesArgs {
    /// Levels of directories to list
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=32))]
    depth: u64,
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// A directory, relative to the workspace [default: the workspace]
    path: Option<OsString>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// A file, relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Treat the input as a tar archive and unpack it into the directory PATH
    #[arg(long)]
    tar: bool,
    /// The target, relative to the workspace
    path: OsString,
    /// What to upload: a file, or a directory whose content goes into the directory PATH
    /// [default: standard input]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct GetFileArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// A directory, relative to the workspace [default: the workspace]
    path: Option<OsString>,
    /// Write the archive to FILE [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct MkdirArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// The directory, relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct MvArgs {
    /// Replace a file, link or empty directory at the target
    #[arg(long)]
    overwrite: bool,
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// The source, relative to the workspace
    from: OsString,
    /// The target, relative to the workspace
    to: OsString,
}

#[derive(Debug, Args)]
pub(super) struct ChmodArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
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

pub(super) async fn run(session: &mut CliSession<'_>, verb: FilesVerb) -> anyhow::Result<ExitCode> {
    match verb {
        FilesVerb::Ls(args) => list(session, args).await?,
        FilesVerb::Cat(args) => cat(&session.client, args).await?,
        FilesVerb::Put(args) => put(session, args).await?,
        FilesVerb::Get(args) => get(&session.client, args).await?,
        FilesVerb::Mkdir(args) => {
            let path = ("path", args.path.as_os_str());
            let status =
                change(session, &args.issue, "directory", ApiRequest::put, &[path], &[]).await?;
            let what = if status == 201 { "created" } else { "exists" };
            session.screen.line(&format!("{} {what}", shown(&args.path)))?;
        }
        FilesVerb::Mv(args) => {
            let paths = [("from", args.from.as_os_str()), ("to", args.to.as_os_str())];
            let more = [("overwrite", args.overwrite.to_string())];
            change(session, &args.issue, "move", ApiRequest::post, &paths, &more).await?;
            let line = format!("{} moved to {}", shown(&args.from), shown(&args.to));
            session.screen.line(&line)?;
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
    issue: &IssueRef,
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

/// A path for display.
fn shown(path: &OsStr) -> String {
    inert(&path.to_string_lossy()).to_string()
}

async fn get(client: &ApiClient, args: GetFileArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(client).await?;
    let mut call = ApiRequest::get(&["sandboxes", &sandbox.id, "files", "archive"]);
    if let Some(path) = &args.path {
        call = call.query_bytes("path", path.as_bytes());
    }
    match &args.to {
        Some(path) => save(client, call, path).await,
        None => {
            let out = io::stdout();
            anyhow::ensure!(
                !out.is_terminal(),
                "cannot write an archive to a terminal; pipe it (| tar -x) or use --to FILE"
            );
            let mut out = WatchedArchive::new(out.lock());
            client.download(call, &mut out).await?;
            out.flush()?;
            out.check()
        }
    }
}

/// Downloads to a file, or to an existing device or pipe. An existing file stays until the new one is
/// complete. A link is not followed: an attacker may have made it to have another file
/// overwritten.
async fn save(client: &ApiClient, call: ApiRequest, path: &Path) -> anyhow::Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    match path.symlink_metadata().map(|there| there.file_type()) {
        Ok(there) if there.is_symlink() => {
            return Err(CliFailure::Usage {
                message: format!("cannot write {}: it is a symbolic link", path.display()),
                hint: "name the link's target, or remove the link".to_owned(),
            }
            .into());
        }
        Ok(there) if !there.is_file() => {
            let flags = libc::O_NOFOLLOW;
            let file = std::fs::File::options().write(true).custom_flags(flags).open(path);
            let mut out = WatchedArchive::new(file.with_context(|| cannot(path))?);
            client.download(call, &mut out).await?;
            return out.check();
        }
        Ok(_) | Err(_) => {}
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".part-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let file = std::fs::File::create_new(&beside).with_context(|| cannot(&beside))?;
    let mut out = WatchedArchive::new(file);
    let come = client.download(call, &mut out).await;
    let placed = come.and_then(|()| Ok(std::fs::rename(&beside, path)?));
    if placed.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    placed?;
    out.check()
}

async fn put(session: &mut CliSession<'_>, args: PutArgs) -> anyhow::Result<()> {
    let (name, file) = match &args.file {
        Some(path) => {
            let cannot = || format!("cannot read {}", path.display());
            let file = std::fs::File::open(path).with_context(cannot)?;
            if file.metadata()?.is_dir() {
                anyhow::ensure!(!args.tar, "{} is a directory, not an archive", path.display());
                return put_directory(session, &args, path).await;
            }
            (path.display().to_string(), file)
        }
        None => {
            let stdin = io::stdin().as_fd().try_clone_to_owned()?;
            ("standard input".to_owned(), std::fs::File::from(stdin))
        }
    };
    let sandbox = args.issue.sandbox(&session.client).await?;
    if args.tar {
        session.client.upload(archive(&sandbox.id, &args.path), file).await?;
        session.screen.line(&format!("{} filled", shown(&args.path)))?;
        return Ok(());
    }
    let call = content(ApiRequest::put, &sandbox.id, &args.path);
    let status = session.client.upload(call, file).await.map_err(|failure| match failure {
        CliFailure::Unreachable { .. } | CliFailure::BrokenOff { .. } => {
            anyhow::Error::from(failure)
                .context(format!("cannot upload {name}: the old content is unchanged"))
        }
        CliFailure::Api { .. }
        | CliFailure::NotFound { .. }
        | CliFailure::Usage { .. }
        | CliFailure::Failed { .. }
        | CliFailure::Reported(_) => failure.into(),
    })?;
    let path = args.path.to_string_lossy();
    let what = if status == 201 { "created" } else { "replaced" };
    session.screen.line(&format!("{} {what}", inert(&path)))?;
    Ok(())
}

/// Uploads the content of a local directory into a directory of the workspace.
async fn put_directory(
    session: &mut CliSession<'_>,
    args: &PutArgs,
    from: &Path,
) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let (reader, writer) = io::pipe()?;
    let packing = {
        let from = from.to_owned();
        std::thread::spawn(move || pack::pack(&from, writer))
    };
    let reader = std::fs::File::from(OwnedFd::from(reader));
    let uploaded = session.client.upload(archive(&sandbox.id, &args.path), reader).await;
    let packed = packing
        .join()
        .map_err(|_| anyhow::anyhow!("cannot read the directory: the packer crashed"))?;
    // A broken pipe says nothing; the server's answer has the reason.
    let left_out = match packed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(
                anyhow::Error::from(error).context(format!("cannot read {}", from.display()))
            );
        }
        Ok(left_out) => left_out,
        Err(_) => Vec::new(),
    };
    uploaded?;
    session.screen.line(&format!("{} filled", shown(&args.path)))?;
    left_out::report(&left_out, &format!("not all of {} was uploaded", from.display()))
}

fn archive(sandbox_id: &str, path: &OsString) -> ApiRequest {
    ApiRequest::put(&["sandboxes", sandbox_id, "files", "archive"])
        .query_bytes("path", path.as_bytes())
}

fn content(method: fn(&[&str]) -> ApiRequest, sandbox_id: &str, path: &OsString) -> ApiRequest {
    method(&["sandboxes", sandbox_id, "files", "content"]).query_bytes("path", path.as_bytes())
}
