//! The files of a sandbox's workspace: directories, previews and downloads.
//!
//! Files are untrusted: text is escaped, and a picture is sent only if its first bytes identify
//! one, under a policy that runs no code.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use crate::http::Shared;
use crate::http::api::exec::work_to_read;
use crate::http::api::sandboxes::load;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::http::work::OpenSandbox;
use crate::sandbox::{FileEntry, FileKind, FileListing, FilePart, WorkspacePath};
use crate::types::{Phase, Sandbox, Timestamp, inert, unfinished_len};

use super::ansi::Painter;
use super::error::{PageError, advice};
use super::shell::{Frame, PageSection};
use super::time::since;
use super::visitor::Visitor;

/// Bytes of a text that are shown.
const TEXT_LEN_MAX: usize = 256 * 1024;
/// Largest picture that is shown, in bytes.
const PICTURE_LEN_MAX: u64 = 8 * 1024 * 1024;
/// Entries of a directory that are shown.
const ENTRIES_MAX: usize = 1_000;
/// How long to wait for the sandbox: it already runs.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Shows a directory or a file of the workspace.
#[get("/sandboxes/{id}/files")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let path = read_path(&request)?;
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let title = format!("Files of {}", sandbox.name);
    let frame = Frame::begin(&shared, &visitor, PageSection::Sandboxes, title).await;
    let now = shared.edge.clock.now();
    let found = look(&shared, &visitor, &sandbox, &path).await;
    let base = format!("/sandboxes/{}", sandbox.id);
    let main = html! {
        p .back { a href=(base) { "← " (inert(&sandbox.name)) } }
        div .head { h1 { "Files" } }
        (crumbs(&base, &path))
        @match &found {
            Ok(FoundPath::Directory(listing)) => (directory(&base, listing, now)),
            Ok(FoundPath::File(entry, preview)) => (file(&base, &sandbox, entry, preview, now)),
            Err(error) => {
                div .notice .mild {
                    p { (inert(error.message())) "." }
                    @match sandbox.phase {
                        Some(Phase::Stopped | Phase::Stopping) => { (start_form(&base, &frame)) }
                        Some(Phase::Failed) => p { a .button href=(base) { "See why it failed" } },
                        Some(_) | None => {
                            @if let Some(advice) = advice(error.code()) { p { (advice) } }
                        }
                    }
                }
            }
        }
    };
    let mut answer = HttpResponse::Ok();
    if let Err(error) = &found {
        answer.status(error.code().status());
    }
    Ok(super::respond(answer, &frame.render(&main)))
}

/// Sends a picture of the workspace.
#[get("/sandboxes/{id}/picture")]
pub async fn picture(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let path = read_path(&request)?;
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let work = running(&shared, &visitor, &sandbox).await?;
    let bytes = read_up_to(&work, path, PICTURE_LEN_MAX as usize).await?;
    let kind = picture_type(&bytes)
        .ok_or_else(|| ApiError::new(Code::WrongKind, "the file is not a picture"))?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, kind))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"))
        .body(bytes))
}

/// Starts the sandbox; its own page then shows how that goes.
fn start_form(base: &str, frame: &Frame) -> Markup {
    html! {
        form method="post" action={ (base) "/start" } {
            (frame.token())
            p { button .primary type="submit" { "Start it" } }
        }
    }
}

fn read_path(request: &HttpRequest) -> Result<WorkspacePath, ApiError> {
    let mut query = Query::parse(request.query_string());
    let given = query.bytes("path").unwrap_or_default();
    query.finish()?;
    WorkspacePath::parse(&given)
        .map_err(|why| ApiError::new(Code::PathNotAllowed, format!("the path {why}")).about("path"))
}

/// A directory or a file.
enum FoundPath {
    Directory(FileListing),
    File(FileEntry, Preview),
}

/// The preview of a file.
enum Preview {
    /// Its text as HTML, and whether it is complete.
    Text(String, bool),
    Picture,
    Nothing(&'static str),
}

async fn look(
    shared: &Shared,
    visitor: &Visitor,
    sandbox: &Sandbox,
    path: &WorkspacePath,
) -> Result<FoundPath, ApiError> {
    let work = running(shared, visitor, sandbox).await?;
    let provider = &work.provider.workspace;
    let mut listing = provider.list_files(work.target.clone(), path.clone(), 1).await?;
    let is_entry = listing.entries.first().is_some_and(|one| one.path == path.as_bytes());
    if !is_entry || path.is_root() {
        return Ok(FoundPath::Directory(listing));
    }
    let entry = listing.entries.swap_remove(0);
    let preview = match entry.kind {
        FileKind::File => preview(&work, path.clone(), entry.size).await?,
        FileKind::Directory => return Ok(FoundPath::Directory(listing)),
        FileKind::Link => Preview::Nothing("A link; it is not followed."),
        FileKind::Other => Preview::Nothing("Not a regular file; there is nothing to show."),
    };
    Ok(FoundPath::File(entry, preview))
}

/// The sandbox to look into, which is not started for that.
async fn running(
    shared: &Shared,
    visitor: &Visitor,
    sandbox: &Sandbox,
) -> Result<OpenSandbox, ApiError> {
    if sandbox.phase != Some(Phase::Running) {
        let phase = sandbox.phase.map_or("deleted", Phase::as_str);
        let message = format!("cannot show files: the sandbox is {phase}, not running");
        return Err(ApiError::new(Code::NotRunning, message));
    }
    work_to_read(shared, &visitor.caller, sandbox.id.as_str(), WAIT_MAX).await
}

async fn preview(work: &OpenSandbox, path: WorkspacePath, size: u64) -> Result<Preview, ApiError> {
    let mut begin = read_up_to(work, path, TEXT_LEN_MAX).await?;
    if picture_type(&begin).is_some() {
        let is_small = size <= PICTURE_LEN_MAX;
        return Ok(if is_small {
            Preview::Picture
        } else {
            Preview::Nothing("The picture is too large to show; download it.")
        });
    }
    if begin.contains(&0) {
        return Ok(Preview::Nothing("This is not text; download it."));
    }
    let is_whole = begin.len() as u64 >= size;
    if !is_whole {
        begin.truncate(begin.len() - unfinished_len(&begin));
    }
    let mut painter = Painter::default();
    let text = painter.paint(&begin) + &painter.end();
    Ok(Preview::Text(text, is_whole))
}

/// Reads the beginning of a file, at most `max` bytes.
async fn read_up_to(
    work: &OpenSandbox,
    path: WorkspacePath,
    max: usize,
) -> Result<Vec<u8>, ApiError> {
    let mut content =
        work.provider.workspace.read_file(work.target.clone(), path, FilePart::Whole).await?;
    let mut bytes = Vec::new();
    while bytes.len() < max {
        match content.chunks.recv().await {
            Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            Some(Err(why)) => {
                tracing::debug!(error = %why, "failed to read a file to its end");
                return Err(ApiError::new(Code::ProviderFailed, "cannot read the file to its end"));
            }
            None => break,
        }
    }
    bytes.truncate(max);
    Ok(bytes)
}

/// The type of a picture by its first bytes. SVG is left out: it can contain scripts.
fn picture_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn crumbs(base: &str, path: &WorkspacePath) -> Markup {
    let parts: Vec<&[u8]> =
        path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    html! {
        nav .crumbs aria-label="Path" {
            a href={ (base) "/files" } { "workspace" }
            @for (at, part) in parts.iter().enumerate() {
                a href=(address(base, &parts[..=at].join(&b'/'))) { (shown(part)) }
            }
        }
    }
}

fn directory(base: &str, listing: &FileListing, now: Timestamp) -> Markup {
    let entries = &listing.entries;
    html! {
        @if entries.is_empty() {
            p .card .soft { "The directory is empty." }
        } @else {
            div .scroll tabindex="0" role="region" aria-label="Files" {
                table .table {
                    thead { tr { th { "Name" } th .num { "Size" } th { "Mode" } th { "Changed" } } }
                    tbody {
                        @for entry in entries.iter().take(ENTRIES_MAX) {
                            @let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                            tr {
                                td {
                                    a .name href=(address(base, &entry.path)) data-row {
                                        (shown(name)) (ending(entry.kind))
                                    }
                                }
                                td .num { @if entry.kind == FileKind::File { (size(entry.size)) } }
                                td { span .name .soft { (format!("{:04o}", entry.mode)) } }
                                td { (since(entry.modified_at, now)) }
                            }
                        }
                    }
                }
            }
            @if listing.truncated || entries.len() > ENTRIES_MAX {
                p .note { "The list is truncated." }
            }
        }
    }
}

fn file(
    base: &str,
    sandbox: &Sandbox,
    entry: &FileEntry,
    preview: &Preview,
    now: Timestamp,
) -> Markup {
    let query = percent_encode(&entry.path, NON_ALPHANUMERIC);
    let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    html! {
        div .card .stack {
            div .between {
                p .soft { (size(entry.size)) " · changed " (since(entry.modified_at, now)) }
                a .button href={ "/v1/sandboxes/" (sandbox.id) "/files/content?path=" (query) }
                    download=(shown(name)) { "Download" }
            }
            @match preview {
                Preview::Text(text, is_whole) => {
                    pre .preview tabindex="0" aria-label="Content" { (maud::PreEscaped(text)) }
                    @if !is_whole { p .soft { "Only the beginning is shown; download the file for the rest." } }
                }
                Preview::Picture => {
                    img .preview src={ (base) "/picture?path=" (query) } alt=(shown(name));
                }
                Preview::Nothing(why) => p .soft { (why) },
            }
        }
    }
}

fn address(base: &str, path: &[u8]) -> String {
    format!("{base}/files?path={}", percent_encode(path, NON_ALPHANUMERIC))
}

fn shown(name: &[u8]) -> String {
    inert(&String::from_utf8_lossy(name)).into_owned()
}

const fn ending(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "/",
        FileKind::Link => "@",
        FileKind::File | FileKind::Other => "",
    }
}

/// Such as `312 B`, `4.0 KiB` or `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_at_a_glance() {
        assert_eq!([size(0), size(1023), size(1024)], ["0 B", "1023 B", "1.0 KiB"]);
        assert_eq!([size(1_572_864), size(u64::MAX)], ["1.5 MiB", "16777216.0 TiB"]);
    }

    #[test]
    fn pictures_are_known_by_their_first_bytes_alone() {
        assert_eq!(picture_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(picture_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(picture_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        for other in [&b"<svg xmlns="[..], b"<html>", b"", b"GIF8", b"%PDF-1.7"] {
            assert_eq!(picture_type(other), None, "{other:?}");
        }
    }

    #[test]
    fn any_name_is_linked_and_shown_as_what_it_is() {
        let path = WorkspacePath::parse(b"a b/\xff<x>").expect("a path");
        let page = crumbs("/sandboxes/1", &path).into_string();
        assert!(page.contains("path=a%20b%2F%FF%3Cx%3E"), "{page}");
        assert!(page.contains("\u{fffd}&lt;x&gt;"), "{page}");
    }
}
