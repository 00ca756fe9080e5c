//! Files of a workspace: list, read, write, delete. [Changes](changes) and [archives](archive) are
//! in modules of their own.
//!
//! Paths are percent-encoded bytes in the query, since names need not be UTF-8. Only their form is
//! checked here; the provider guarantees that they stay inside the workspace.

pub mod archive;
pub mod changes;
mod pages;
mod range;
mod source;
pub(in crate::http::api) mod transfer;

use std::time::Duration;

use actix_web::body::SizedStream;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use utoipa::ToSchema;

use super::exec::{work, work_to_read};
use crate::http::Shared;
use crate::http::answers;
use crate::http::body;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::{AnyBytes, FileWord};
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code, only};
use crate::http::query::Query;
use crate::http::wire::Success;
use crate::sandbox::{FileEntry, FileKind, FilePart, WorkspacePath, Written};

use pages::FilesPageAsk;
use source::FileSource;
use transfer::{Upload, pieces, under};

/// Deepest list, in levels of directories.
const DEPTH_MAX: u64 = 32;

/// What a list is asked for.
struct ListQuery {
    source: FileSource,
    /// `None` for the default.
    depth: Option<u32>,
    path: WorkspacePath,
    at_most: Duration,
}

/// The result of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileList {
    /// The entries, parents before children.
    pub entries: Vec<FileBody>,
    /// Whether the list is truncated.
    pub truncated: bool,
    /// With `format`: the `cursor` of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One file, directory or link.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = File)]
pub struct FileBody {
    /// Its path relative to the workspace; null if it is not UTF-8.
    pub path: Option<String>,
    /// Its name; null if it is not UTF-8.
    pub name: Option<String>,
    /// The bytes of its path, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// The bytes of its name, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    /// What it is.
    #[schema(value_type = FileWord)]
    pub kind: &'static str,
    /// Its size, in bytes.
    pub size: u64,
    /// Its permission bits in octal, such as `0644`.
    pub mode: String,
    /// When it was last changed.
    #[schema(format = DateTime)]
    pub modified_at: String,
    /// True if the content of a directory, or anything but a name, could not be read; else left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// With `format=tree`: what is in a directory, as far as it is on this page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub children: Option<Vec<FileBody>>,
}

impl From<FileEntry> for FileBody {
    fn from(entry: FileEntry) -> Self {
        let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let (name, name_base64) = text_or_base64(name);
        let (path, path_base64) = text_or_base64(entry.path);
        Self {
            path,
            name,
            path_base64,
            name_base64,
            kind: match entry.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Link => "link",
                FileKind::Other => "other",
            },
            size: entry.size,
            mode: format!("{:04o}", entry.mode),
            modified_at: entry.modified_at.to_string(),
            unreadable: entry.is_unreadable,
            children: None,
        }
    }
}

fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64.encode(error.as_bytes()))),
    }
}

/// Lists a directory of the workspace, or the entry of a file. A request with the token starts a
/// stopped sandbox; a request with a session of the dashboard is answered `not_running`. With
/// `source=synced` a stored version is listed, also of a stopped or deleted sandbox.
///
/// With `format`, everything below the directory comes in pages, in the order of the paths' parts:
/// `list` has one entry after the other, `tree` has entries below their directories. The directories
/// above the first entry of a page of a tree are on the page again.
#[utoipa::path(
    operation_id = "listFiles", tag = "work",
    params(
        params::OneSandbox,
        params::DirectoryPath,
        ("depth" = Option<u64>, Query,
         description = "Levels of directories, 1 to 32; default 1, or all with `format`"),
        params::FilesPage,
        params::FilesOf,
        params::StartupWait,
    ),
    responses(
        (status = 200, description = "the entries", body = Success<FileList>),
        answers::WorkspaceErrors, answers::SyncErrors,
    )
)]
#[get("/v1/sandboxes/{id}/files")]
pub async fn list(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let depth = query.number("depth", 1..=DEPTH_MAX)?;
    let depth = depth.map(|depth| u32::try_from(depth).expect("at most 32"));
    let (page, source) = (FilesPageAsk::read(&mut query)?, FileSource::read(&mut query)?);
    let (path, at_most) = read_query(query)?;
    if let Some(page) = page {
        let query = ListQuery { source, depth, path, at_most };
        return pages::answer(&shared, &caller, &id, page, query).await;
    }
    let depth = depth.unwrap_or(1);
    let (found, sandbox) = match source {
        FileSource::Sandbox => {
            let work = work_to_read(&shared, &caller, &id, at_most).await?;
            let found = work.provider.workspace.list_files(work.target, path, depth).await?;
            (found, work.sandbox)
        }
        FileSource::Synced(version) => {
            let (tree, sandbox) = source::synced(&shared, &caller, &id, version).await?;
            (tree.list(&path, depth)?, sandbox)
        }
    };
    let entries = found.entries.into_iter().map(FileBody::from).collect();
    let list = FileList { entries, truncated: found.truncated, next_cursor: None };
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, list)))
}

/// Reads a file, or one range of it (RFC 9110, section 14). A request for several ranges gets the
/// whole file. A stopped sandbox is started as for a list. With `source=synced` it is read from a
/// stored version, in which links are not followed.
#[utoipa::path(
    operation_id = "readFile", tag = "work",
    params(
        params::OneSandbox,
        params::FilePath,
        params::FilesOf,
        ("Range" = Option<String>, Header, description = "Such as `bytes=0-99` or `bytes=-100`"),
        params::StartupWait,
    ),
    responses(
        (status = 200, description = "the whole file",
         body = AnyBytes, content_type = "application/octet-stream"),
        (status = 206, body = AnyBytes, content_type = "application/octet-stream",
         description = "the requested range"),
        answers::WorkspaceErrors, answers::SyncErrors, only::RangeNotSatisfiable,
    )
)]
#[get("/v1/sandboxes/{id}/files/content")]
pub async fn read(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let source = FileSource::read(&mut query)?;
    let (path, at_most) = read_file_query_of(query)?;
    let part = range::asked(request.headers());
    // The sandbox counts as active while its own file is read.
    let (content, at_work) = match source {
        FileSource::Sandbox => {
            let work = work_to_read(&shared, &caller, &id, at_most).await?;
            let content = work.provider.workspace.read_file(work.target, path, part).await?;
            (content, Some(work.at_work))
        }
        FileSource::Synced(version) => {
            let (tree, _) = source::synced(&shared, &caller, &id, version).await?;
            (tree.read(&path, part).await?, None)
        }
    };
    let ending = Ending::new(&shared, &caller);
    let (len, range) = (content.range.end - content.range.start, content.range.clone());
    let mut answer = HttpResponse::Ok();
    if part != FilePart::Whole {
        // A range that exists is not empty.
        let value = format!("bytes {}-{}/{}", range.start, range.end - 1, content.size);
        answer.status(StatusCode::PARTIAL_CONTENT).insert_header((header::CONTENT_RANGE, value));
    }
    Ok(answer
        .insert_header((header::CONTENT_TYPE, "application/octet-stream"))
        .insert_header((header::ACCEPT_RANGES, "bytes"))
        // A browser with a session can open this; pages of the sandbox must not run there.
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"))
        .body(SizedStream::new(len, under(pieces(content), at_work, ending))))
}

/// Writes a file. Missing parent directories are created.
#[utoipa::path(
    operation_id = "writeFile", tag = "work",
    params(params::OneSandbox, params::FilePath, params::StartupWait),
    request_body(content = AnyBytes, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "a file was created"),
        (status = 204, description = "a file was replaced"),
        answers::WorkspaceErrors,
    )
)]
#[put("/v1/sandboxes/{id}/files/content")]
pub async fn write(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_file_query(&request)?;
    let limits = &shared.edge.limits;
    if body::declared_len(&request).is_some_and(|len| len > limits.upload_len_max) {
        return Err(body::too_large(limits.upload_len_max));
    }
    let work = work(&shared, &caller, &id, at_most).await?;
    let (upload, chunks) = Upload::begin();
    let ending = Ending::new(&shared, &caller);
    let feeding = upload.feed(payload, limits.upload_len_max, limits.upload_silence_max, ending);
    let writing = work.provider.workspace.write_file(work.target, path, chunks);
    let (fed, written) = futures_util::future::join(feeding, writing).await;
    // An error of the body is the cause of the provider's error, not the reverse.
    fed?;
    match written? {
        Written::Created => Ok(HttpResponse::Created().finish()),
        Written::Replaced => Ok(HttpResponse::NoContent().finish()),
    }
}

/// Deletes a file, a link, or a directory with its content.
#[utoipa::path(
    operation_id = "deleteFile", tag = "work",
    params(params::OneSandbox, params::FilePath, params::StartupWait),
    responses(
        (status = 204, description = "it is deleted"),
        answers::WorkspaceErrors,
    )
)]
#[delete("/v1/sandboxes/{id}/files/content")]
pub async fn delete(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_file_query(&request)?;
    let work = work(&shared, &caller, &id, at_most).await?;
    work.provider.workspace.delete_file(work.target, path).await?;
    Ok(HttpResponse::NoContent().finish())
}

fn read_query(mut query: Query) -> Result<(WorkspacePath, Duration), ApiError> {
    let at_most = super::wait(&mut query, super::WORK_WAIT_SECS)?;
    let path = read_path(&mut query, "path")?;
    query.finish()?;
    Ok((path, at_most))
}

/// Reads a path of the query; default is the workspace itself.
fn read_path(query: &mut Query, name: &str) -> Result<WorkspacePath, ApiError> {
    let given = query.bytes(name).unwrap_or_default();
    WorkspacePath::parse(&given).map_err(|why| {
        ApiError::new(Code::PathNotAllowed, format!("the path {why}"))
            .about(name)
            .hint("send a path relative to the workspace")
    })
}

/// Reads a path of the query that must not be the workspace itself.
fn read_named(query: &mut Query, name: &str) -> Result<WorkspacePath, ApiError> {
    let path = read_path(query, name)?;
    if path.is_root() {
        return Err(ApiError::field(name, "must name a file or directory in the workspace"));
    }
    Ok(path)
}

/// Reads the query of routes for one file.
fn read_file_query(request: &HttpRequest) -> Result<(WorkspacePath, Duration), ApiError> {
    read_file_query_of(Query::parse(request.query_string()))
}

fn read_file_query_of(mut query: Query) -> Result<(WorkspacePath, Duration), ApiError> {
    let at_most = super::wait(&mut query, super::WORK_WAIT_SECS)?;
    let path = read_named(&mut query, "path")?;
    query.finish()?;
    Ok((path, at_most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Timestamp;

    #[test]
    fn names_that_are_not_utf_8_come_in_base64() {
        let entry = |path: &[u8]| {
            FileBody::from(FileEntry {
                path: path.to_vec(),
                kind: FileKind::File,
                size: 1,
                mode: 0o644,
                modified_at: Timestamp::from_unix_ms(0),
                is_unreadable: false,
            })
        };
        let plain = entry(b"a/b.txt");
        assert_eq!(plain.path.as_deref(), Some("a/b.txt"));
        assert_eq!(plain.name.as_deref(), Some("b.txt"));
        assert_eq!(plain.mode, "0644");
        let odd = entry(b"a/\xff");
        assert_eq!((odd.name, odd.path), (None, None));
        assert_eq!(odd.name_base64.as_deref(), Some("/w=="));
    }
}
