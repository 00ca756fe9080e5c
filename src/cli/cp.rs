//! `issuebox cp`: copies files and directories between this machine and a workspace.
//!
//! # Guarantees
//! What a sandbox sends is written below the target alone, and through no link: names in its archive
//! lead nowhere else.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::sandbox::WorkError;
use crate::sandbox::confined::files::Files;
use crate::types::inert;

use super::CliSession;
use super::client::ApiRequest;
use super::failure::CliFailure;
use super::files::left_out::WatchedArchive;
use super::files::transfer::{self, content, kind_at};
use super::target::IssueArg;

#[derive(Debug, Args)]
pub(super) struct CpArgs {
    /// What to copy: a local path, or ISSUE:PATH in a workspace
    #[arg(value_name = "SRC", value_parser = OsStringValueParser::new().map(CopyPlace::parse))]
    from: CopyPlace,
    /// Where to: ISSUE:PATH, or a local path. A directory that exists gets SRC below it
    #[arg(value_name = "DST", value_parser = OsStringValueParser::new().map(CopyPlace::parse))]
    to: CopyPlace,
}

/// One side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyPlace {
    Local(PathBuf),
    /// A path in an issue's workspace; empty for the workspace itself.
    Workspace(IssueArg, OsString),
}

impl CopyPlace {
    /// The text before the first colon after which it names an issue is that issue. A local path with
    /// a colon begins with `./` or `/`.
    fn parse(text: OsString) -> Self {
        let bytes = text.as_bytes();
        let is_path = bytes.starts_with(b"/") || bytes.starts_with(b".");
        let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
        let issue = colons.filter(|at| !is_path && !bytes[at + 1..].starts_with(b"//"));
        let mut issue = issue.filter_map(|at| {
            let issue = IssueArg::parse(std::str::from_utf8(&bytes[..at]).ok()?).ok()?;
            Some(Self::Workspace(issue, OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
        });
        match issue.next() {
            Some(place) => place,
            None => Self::Local(text.into()),
        }
    }
}

pub(super) async fn run(session: &mut CliSession<'_>, args: CpArgs) -> anyhow::Result<ExitCode> {
    match (args.from, args.to) {
        (CopyPlace::Local(from), CopyPlace::Workspace(issue, to)) => {
            upload(session, &from, &issue, &to).await?;
        }
        (CopyPlace::Workspace(issue, from), CopyPlace::Local(to)) => {
            download(session, &issue, &from, &to).await?;
        }
        (CopyPlace::Local(_), CopyPlace::Local(_))
        | (CopyPlace::Workspace(..), CopyPlace::Workspace(..)) => {
            return Err(CliFailure::Usage {
                message: "one of SRC and DST must be in a workspace, the other on this machine"
                    .to_owned(),
                hint: "write a path in a workspace as ISSUE:PATH, such as octo/hello#7:src/main.rs"
                    .to_owned(),
            }
            .into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a directory's content is copied, not the directory.
fn is_content(path: &OsStr) -> bool {
    path.as_bytes().ends_with(b"/.") || Path::new(path).file_name().is_none()
}

async fn upload(
    session: &mut CliSession<'_>,
    from: &Path,
    issue: &IssueArg,
    to: &OsStr,
) -> anyhow::Result<()> {
    let opened = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    let sandbox = issue.sandbox(&session.client).await?;
    let path = match is_content(from.as_os_str()) {
        true => to.to_owned(),
        false => {
            transfer::into_directory(&session.client, &sandbox.id, to, from.as_os_str()).await?
        }
    };
    transfer::send(session, &sandbox.id, &path, from, opened).await
}

async fn download(
    session: &mut CliSession<'_>,
    issue: &IssueArg,
    from: &OsStr,
    to: &Path,
) -> anyhow::Result<()> {
    let sandbox = issue.sandbox(&session.client).await?;
    let kind = kind_at(&session.client, &sandbox.id, from).await?;
    let is_directory = to.is_dir() || to.as_os_str().as_bytes().ends_with(b"/");
    let target = match Path::new(from).file_name() {
        Some(name) if is_directory && !is_content(from) => to.join(name),
        Some(_) | None => to.to_owned(),
    };
    if kind.as_deref() == Some("directory") {
        let call = ApiRequest::get(&["sandboxes", &sandbox.id, "files", "archive"])
            .query_bytes("path", from.as_bytes());
        unpack(session, call, &target).await?;
    } else {
        let call = content(|path| ApiRequest::get(path), &sandbox.id, from);
        transfer::save(&session.client, call, &target, false).await?;
    }
    session.screen.line(&format!("{} written", inert(&target.to_string_lossy())))?;
    Ok(())
}

/// Unpacks an archive into a local directory as it arrives.
async fn unpack(session: &CliSession<'_>, call: ApiRequest, to: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", to.display());
    std::fs::create_dir_all(to).with_context(cannot)?;
    let files = Files::below(to).map_err(io::Error::from).with_context(cannot)?;
    let (reader, writer) = io::pipe()?;
    let unpacking = std::thread::spawn(move || files.unpack(b"", Some(OwnedFd::from(reader))));
    let mut archive = WatchedArchive::new(writer);
    let downloaded = session.client.download(call, &mut archive).await;
    let complete = archive.check();
    // Closes the pipe, which ends the archive.
    drop(archive);
    let unpacked = unpacking.join().map_err(|_| anyhow::anyhow!("the unpacker crashed"))?;
    let is_pipe_broken = |error: &anyhow::Error| {
        error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    match downloaded {
        // Nothing reads the pipe any more: the unpacker has the reason.
        Err(error) if !is_pipe_broken(&error) => return Err(error),
        Err(_) | Ok(()) => {}
    }
    unpacked.map_err(WorkError::from).with_context(cannot)?;
    complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_workspace_is_an_issue_and_a_path() {
        let workspace = |issue: &str, path: &str| {
            CopyPlace::Workspace(IssueArg::parse(issue).expect("an issue"), path.into())
        };
        for (text, expected) in [
            ("octo/hello#7:src/a:b", workspace("octo/hello#7", "src/a:b")),
            ("5:", workspace("5", "")),
            ("https://github.com/octo/hello/issues/7:a", workspace("octo/hello#7", "a")),
            ("http://git.example:80/octo/hello/issues/7:a", workspace("octo/hello#7", "a")),
            ("notes.txt", CopyPlace::Local("notes.txt".into())),
            ("./5:a", CopyPlace::Local("./5:a".into())),
            ("/tmp/5:a", CopyPlace::Local("/tmp/5:a".into())),
            ("octo/hello:a", CopyPlace::Local("octo/hello:a".into())),
        ] {
            assert_eq!(CopyPlace::parse(text.into()), expected, "{text}");
        }
    }
}
