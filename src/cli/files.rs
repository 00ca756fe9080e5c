//! `issuebox files`: looks into a sandbox's workspace, and takes files out of it and into it.
//!
//! A directory comes out as a tar archive and is not unpacked here: what a sandbox made is not let
//! loose on the caller's files. `tar -x` does that where it is wanted.
//!
//! # Guarantees
//! Names are bytes: one that is not UTF-8 is asked for as it is written on the command line. Content
//! goes through byte for byte and is never held whole in memory. A file that breaks off on its way
//! is an error, and on its way in leaves the old one as it was.

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

use super::Session;
use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::output::{Shape, Shown};
use super::table;
use super::target::IssueRef;
use super::wire;

#[derive(Debug, Subcommand)]
pub(super) enum FilesVerb {
    /// List a directory
    Ls(LsFilesArgs),
    /// Write a file's content to standard output
    Cat(CatArgs),
    /// Put a file or a directory into the workspace; directories above it are made
    Put(PutArgs),
    /// Write a directory to standard output as a tar archive
    Get(GetFileArgs),
    /// Make a directory; directories above it are made
    Mkdir(MkdirArgs),
    /// Move a file, a link or a directory; directories above its new place are made
    Mv(MvArgs),
    /// Set the permission bits of a file or directory
    Chmod(ChmodArgs),
}

#[derive(Debug, Args)]
pub(super) struct LsFilesArgs {
    /// How many levels of directories
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=32))]
    depth: u64,
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Relative to the workspace, which it is where left out
    path: Option<OsString>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Take what goes there for a tar archive, and unpack it into the directory PATH
    #[arg(long)]
    tar: bool,
    /// Where it goes, relative to the workspace
    path: OsString,
    /// What goes there: a file, or a directory, whose files are put into the directory PATH
    /// [default: standard input]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct GetFileArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Relative to the workspace, which it is where left out
    path: Option<OsString>,
    /// Where the archive goes [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct MkdirArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Relative to the workspace
    path: OsString,
}

#[derive(Debug, Args)]
pub(super) struct MvArgs {
    /// Let a file, link or empty directory at the new place give way
    #[arg(long)]
    overwrite: bool,
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// What, relative to the workspace
    from: OsString,
    /// Where to, relative to the workspace
    to: OsString,
}

#[derive(Debug, Args)]
pub(super) struct ChmodArgs {
    /// Which issue
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// Permission bits in octal, such as 0755
    mode: String,
    /// Relative to the workspace
    path: OsString,
}

/// What a directory holds.
#[derive(Debug, Deserialize)]
struct FileRows {
    entries: Vec<FileRow>,
    truncated: bool,
}

/// One entry, as far as it is shown.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileRow {
    path: Option<String>,
    path_base64: Option<String>,
    pub kind: String,
    pub size: u64,
    pub mode: String,
    pub modified_at: String,
}

impl FileRow {
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
        FilesVerb::Get(args) => get(&session.client, args).await?,
        FilesVerb::Mkdir(args) => {
            let path = ("path", args.path.as_os_str());
            let status =
                change(session, &args.issue, "directory", ApiRequest::put, &[path], &[]).await?;
            let what = if status == 201 { "made" } else { "is there" };
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

async fn list(session: &mut Session<'_>, args: LsFilesArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let mut call =
        ApiRequest::get(&["sandboxes", &sandbox.id, "files"]).query("depth", Some(args.depth));
    if let Some(path) = &args.path {
        call = call.query_bytes("path", path.as_bytes());
    }
    let answer = session.client.call(call).await?;
    let listed: FileRows = wire::read(answer.data())?;
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

async fn cat(client: &ApiClient, args: CatArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(client).await?;
    let call = content(|path| ApiRequest::get(path), &sandbox.id, &args.path);
    let mut out = io::stdout().lock();
    client.download(call, &mut out).await?;
    Ok(out.flush()?)
}

/// Asks for a change of what is in the workspace; the answer's status.
async fn change(
    session: &Session<'_>,
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

/// A path for people.
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
                "an archive is not for a terminal; send it on (| tar -x), or to a file (--to FILE)"
            );
            let mut out = out.lock();
            client.download(call, &mut out).await?;
            Ok(out.flush()?)
        }
    }
}

/// Writes what is downloaded to a file, or to the device or pipe that is there. A file that is there
/// stays until all of the new one has come. A link is not followed: where it leads is not what was
/// named, and whoever made it may have meant something else to be overwritten.
async fn save(client: &ApiClient, call: ApiRequest, path: &Path) -> anyhow::Result<()> {
    let cannot = |path: &Path| format!("{} cannot be written", path.display());
    match path.symlink_metadata().map(|there| there.file_type()) {
        Ok(there) if there.is_symlink() => {
            return Err(CliFailure::Usage {
                message: format!("{} is a link and is not written through", path.display()),
                hint: "name the file that it leads to, or remove it".to_owned(),
            }
            .into());
        }
        Ok(there) if !there.is_file() => {
            let flags = libc::O_NOFOLLOW;
            let file = std::fs::File::options().write(true).custom_flags(flags).open(path);
            return client.download(call, &mut file.with_context(|| cannot(path))?).await;
        }
        Ok(_) | Err(_) => {}
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".part-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = std::fs::File::create_new(&beside).with_context(|| cannot(&beside))?;
    let come = client.download(call, &mut file).await;
    let placed = come.and_then(|()| Ok(std::fs::rename(&beside, path)?));
    if placed.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    placed
}

async fn put(session: &mut Session<'_>, args: PutArgs) -> anyhow::Result<()> {
    let (name, file) = match &args.file {
        Some(path) => {
            let cannot = || format!("{} cannot be read", path.display());
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
        CliFailure::Unreachable { .. } => anyhow::Error::from(failure)
            .context(format!("{name} was not taken in whole; the old content is as it was")),
        CliFailure::Api { .. }
        | CliFailure::NotFound { .. }
        | CliFailure::Usage { .. }
        | CliFailure::Failed { .. }
        | CliFailure::Told(_) => failure.into(),
    })?;
    let path = args.path.to_string_lossy();
    let what = if status == 201 { "made" } else { "replaced" };
    session.screen.line(&format!("{} {what}", inert(&path)))?;
    Ok(())
}

/// Puts what is in a directory here into a directory of the workspace.
async fn put_directory(
    session: &mut Session<'_>,
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
    let packed = packing.join().map_err(|_| anyhow::anyhow!("the directory was not read"))?;
    // One whose reader has gone says nothing; why it has, the server says.
    match packed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(anyhow::Error::from(error)
                .context(format!("{} was not read in whole", from.display())));
        }
        Ok(()) | Err(_) => {}
    }
    uploaded?;
    session.screen.line(&format!("{} filled", shown(&args.path)))?;
    Ok(())
}

fn archive(sandbox_id: &str, path: &OsString) -> ApiRequest {
    ApiRequest::put(&["sandboxes", sandbox_id, "files", "archive"])
        .query_bytes("path", path.as_bytes())
}

fn content(method: fn(&[&str]) -> ApiRequest, sandbox_id: &str, path: &OsString) -> ApiRequest {
    method(&["sandboxes", sandbox_id, "files", "content"]).query_bytes("path", path.as_bytes())
}
