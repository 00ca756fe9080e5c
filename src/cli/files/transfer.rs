//! Uploads and downloads of files and directories, for `files put`, `files get` and `cp`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::CliSession;
use crate::cli::client::{ApiClient, ApiRequest};
use crate::cli::failure::CliFailure;
use crate::cli::wire;
use crate::http::error::Code;
use crate::sandbox::WorkspacePath;

use super::left_out::{self, WatchedArchive};
use super::{FileRows, GetFileArgs, PutArgs, pack, shown};

/// The FILE that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// What is at a path of the workspace: `file`, `directory`, `link` or `other`; `None` if nothing is.
pub async fn kind_at(
    client: &ApiClient,
    sandbox_id: &str,
    path: &OsStr,
) -> Result<Option<String>, CliFailure> {
    let call = ApiRequest::get(&["sandboxes", sandbox_id, "files"])
        .query("depth", Some(1))
        .query_bytes("path", path.as_bytes());
    let answer = match client.call(call).await {
        Ok(answer) => answer,
        Err(failure) if failure.is_code(Code::FileNotFound) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let listed: FileRows = wire::read_exact(answer.data())?;
    // A list of what is not a directory has its own entry alone.
    let asked = WorkspacePath::parse(path.as_bytes()).ok();
    let own =
        listed.entries.into_iter().next().filter(|first| {
            asked.as_ref().is_some_and(|asked| asked.as_bytes() == first.path_bytes())
        });
    Ok(Some(own.map_or_else(|| "directory".to_owned(), |own| own.kind)))
}

/// The path that something gets at a target: below it if the target is a directory.
pub async fn into_directory(
    client: &ApiClient,
    sandbox_id: &str,
    target: &OsStr,
    from: &OsStr,
) -> Result<OsString, CliFailure> {
    let is_root = WorkspacePath::parse(target.as_bytes()).is_ok_and(|path| path.is_root());
    let is_directory = is_root
        || target.as_bytes().ends_with(b"/")
        || kind_at(client, sandbox_id, target).await?.as_deref() == Some("directory");
    match Path::new(from).file_name() {
        Some(name) if is_directory => Ok(Path::new(target).join(name).into_os_string()),
        Some(_) | None => Ok(target.to_owned()),
    }
}

/// Carries out `files get`.
pub async fn get(client: &ApiClient, args: GetFileArgs) -> anyhow::Result<()> {
    let sandbox = args.issue.sandbox(client).await?;
    let mut call = ApiRequest::get(&["sandboxes", &sandbox.id, "files", "archive"]);
    if let Some(path) = &args.path {
        call = call.query_bytes("path", path.as_bytes());
    }
    let got = match &args.to {
        Some(to) => save(client, call, to, true).await,
        None => archive_to_output(client, call).await,
    };
    match (got, &args.path) {
        (Err(error), Some(path)) if is_wrong_kind(&error) => {
            let call = content(|path| ApiRequest::get(path), &sandbox.id, path);
            match &args.to {
                Some(to) => save(client, call, to, false).await,
                None => {
                    let mut out = io::stdout().lock();
                    client.download(call, &mut out).await?;
                    Ok(out.flush()?)
                }
            }
        }
        (got, _) => got,
    }
}

/// Whether what was asked for as a directory is something else.
fn is_wrong_kind(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CliFailure>().is_some_and(|failure| failure.is_code(Code::WrongKind))
}

async fn archive_to_output(client: &ApiClient, call: ApiRequest) -> anyhow::Result<()> {
    let mut out = WatchedArchive::new(UnlessTerminal(io::stdout().lock()));
    client.download(call, &mut out).await?;
    out.flush()?;
    out.check()
}

/// Standard output, which takes an archive unless it is a terminal.
struct UnlessTerminal(io::StdoutLock<'static>);

impl Write for UnlessTerminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_terminal() {
            let refused =
                "cannot write an archive to a terminal; pipe it (| tar -x) or use --to FILE";
            return Err(io::Error::other(refused));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Downloads to a file, or to an existing device or pipe. An existing file stays until the new one is
/// complete. A link is not followed: an attacker may have made it to have another file
/// overwritten.
pub async fn save(
    client: &ApiClient,
    call: ApiRequest,
    path: &Path,
    is_archive: bool,
) -> anyhow::Result<()> {
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
            let file = File::options().write(true).custom_flags(flags).open(path);
            return download(client, call, file.with_context(|| cannot(path))?, is_archive).await?;
        }
        Ok(_) | Err(_) => {}
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".part-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let file = File::create_new(&beside).with_context(|| cannot(&beside))?;
    let come = download(client, call, file, is_archive).await;
    let placed = come.and_then(|checked| {
        std::fs::rename(&beside, path)?;
        Ok(checked)
    });
    if placed.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    placed?
}

/// Downloads into a file. The inner result says whether an archive is complete.
async fn download(
    client: &ApiClient,
    call: ApiRequest,
    mut file: File,
    is_archive: bool,
) -> anyhow::Result<anyhow::Result<()>> {
    if !is_archive {
        client.download(call, &mut file).await?;
        return Ok(Ok(()));
    }
    let mut out = WatchedArchive::new(file);
    client.download(call, &mut out).await?;
    Ok(out.check())
}

/// Carries out `files put`.
pub async fn put(session: &mut CliSession<'_>, args: PutArgs) -> anyhow::Result<()> {
    let is_named = args.file.is_some();
    let file = args.file.filter(|file| file.as_os_str() != STANDARD_INPUT);
    let sandbox_id = async |session: &CliSession<'_>| {
        args.issue.sandbox(&session.client).await.map(|sandbox| sandbox.id)
    };
    match file {
        Some(from) if !args.tar => {
            let opened = open(&from)?;
            let id = sandbox_id(session).await?;
            send(session, &id, &args.path, &from, opened).await
        }
        Some(from) => {
            let file = open(&from)?;
            let is_directory = file.metadata()?.is_dir();
            anyhow::ensure!(!is_directory, "{} is a directory, not an archive", from.display());
            let id = sandbox_id(session).await?;
            unpack(session, &id, &args.path, file).await
        }
        None => {
            let stdin = io::stdin();
            if !is_named && stdin.is_terminal() {
                return Err(CliFailure::Usage {
                    message: format!("nothing to upload as {} is named", shown(&args.path)),
                    hint: "name a local FILE after PATH, pipe the content in, or give - to type it"
                        .to_owned(),
                }
                .into());
            }
            if !is_named {
                eprintln!(
                    "note: reading the content from standard input; name a FILE to upload it"
                );
            }
            let file = File::from(stdin.as_fd().try_clone_to_owned()?);
            let id = sandbox_id(session).await?;
            match args.tar {
                true => unpack(session, &id, &args.path, file).await,
                false => send_file(session, &id, &args.path, "standard input", file).await,
            }
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Uploads a local file to a path, or the content of a local directory into a directory.
pub async fn send(
    session: &mut CliSession<'_>,
    sandbox_id: &str,
    path: &OsStr,
    from: &Path,
    opened: File,
) -> anyhow::Result<()> {
    if opened.metadata()?.is_dir() {
        return send_directory(session, sandbox_id, path, from).await;
    }
    send_file(session, sandbox_id, path, &from.display().to_string(), opened).await
}

async fn unpack(
    session: &mut CliSession<'_>,
    sandbox_id: &str,
    path: &OsStr,
    file: File,
) -> anyhow::Result<()> {
    session.client.upload(archive(sandbox_id, path), file).await?;
    session.screen.line(&format!("{} filled", shown(path)))?;
    Ok(())
}

async fn send_file(
    session: &mut CliSession<'_>,
    sandbox_id: &str,
    path: &OsStr,
    name: &str,
    file: File,
) -> anyhow::Result<()> {
    let call = content(ApiRequest::put, sandbox_id, path);
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
    let what = if status == 201 { "created" } else { "replaced" };
    session.screen.line(&format!("{} {what}", shown(path)))?;
    Ok(())
}

/// Uploads the content of a local directory into a directory of the workspace.
async fn send_directory(
    session: &mut CliSession<'_>,
    sandbox_id: &str,
    path: &OsStr,
    from: &Path,
) -> anyhow::Result<()> {
    let (reader, writer) = io::pipe()?;
    let packing = {
        let from = from.to_owned();
        std::thread::spawn(move || pack::pack(&from, writer))
    };
    let reader = File::from(OwnedFd::from(reader));
    let uploaded = session.client.upload(archive(sandbox_id, path), reader).await;
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
    session.screen.line(&format!("{} filled", shown(path)))?;
    left_out::report(&left_out, &format!("not all of {} was uploaded", from.display()))
}

fn archive(sandbox_id: &str, path: &OsStr) -> ApiRequest {
    ApiRequest::put(&["sandboxes", sandbox_id, "files", "archive"])
        .query_bytes("path", path.as_bytes())
}

/// A call about a file's content.
pub fn content(method: fn(&[&str]) -> ApiRequest, sandbox_id: &str, path: &OsStr) -> ApiRequest {
    method(&["sandboxes", sandbox_id, "files", "content"]).query_bytes("path", path.as_bytes())
}
