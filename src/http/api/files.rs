//! Files in a sandbox's workspace: list, read, write, delete; [changes] and [archives](archive)
//! beside them.
//!
//! Paths come in the query as percent-encoded bytes, since a name need not be UTF-8, and are
//! parsed here only as far as their form goes: that nothing outside of the workspace is reached
//! is the provider's promise.

pub mod archive;
pub mod changes;
mod range;
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
use crate::http::auth::Caller;
use crate::http::body;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::http::wire::{Failed, Success};
use crate::sandbox::{FileEntry, FileKind, FilePart, WorkspacePath, Written};

use transfer::{Upload, pieces, under};

/// Levels of directories that a list goes down at most.
const DEPTH_MAX: u64 = 32;

/// What a list found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileList {
    /// The entries, parents before children.
    pub entries: Vec<FileBody>,
    /// Whether there were more than are listed.
    pub truncated: bool,
}

/// One file, directory or link.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = File)]
pub struct FileBody {
    /// Its path relative to the workspace; null where it is not UTF-8.
    pub path: Option<String>,
    /// Its name; null where it is not UTF-8.
    pub name: Option<String>,
    /// Its path's bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// Its name's bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    /// Its size, in bytes.
    pub size: u64,
    /// Its permission bits in octal, such as `0644`.
    pub mode: String,
    /// When it was last changed.
    pub modified_at: String,
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
        }
    }
}

fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64.encode(error.as_bytes()))),
    }
}

/// Lists a directory of the workspace, or shows the entry of a file. With the token a stopped
/// sandbox is started for it; with a session of the page it is `not_running`.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = Option<String>, Query,
         description = "Relative to the workspace; the workspace itself where left out"),
        ("depth" = Option<u64>, Query, description = "Levels of directories, 1 to 32; 1 where left out"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 200, body = Success<FileList>),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
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
    let depth = query.number("depth", 1..=DEPTH_MAX)?.unwrap_or(1);
    let depth = u32::try_from(depth).expect("at most 32");
    let (path, at_most) = read_query(query)?;
    let work = work_to_read(&shared, &caller, &id, at_most).await?;
    let found = work.provider.workspace.list_files(work.target, path, depth).await?;
    let entries = found.entries.into_iter().map(FileBody::from).collect();
    let list = FileList { entries, truncated: found.truncated };
    Ok(HttpResponse::Ok().json(Success::about(&work.sandbox, list)))
}

/// The content of a file, or one range of it (RFC 9110, section 14); where several ranges are asked
/// for, all of it. A stopped sandbox is started as for a list.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = String, Query, description = "Relative to the workspace"),
        ("Range" = Option<String>, Header, description = "Such as `bytes=0-99` or `bytes=-100`"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream",
         description = "the range that was asked for"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown"),
        (status = 416, body = Failed, description = "range_not_satisfiable"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
    )
)]
#[get("/v1/sandboxes/{id}/files/content")]
pub async fn read(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_file_query(&request)?;
    let work = work_to_read(&shared, &caller, &id, at_most).await?;
    let part = range::asked(request.headers());
    let content = work.provider.workspace.read_file(work.target, path, part).await?;
    let ending = Ending::new(&shared, &caller);
    let (len, range) = (content.range.end - content.range.start, content.range.clone());
    let mut answer = HttpResponse::Ok();
    if part != FilePart::Whole {
        // A range that is there is not empty.
        let value = format!("bytes {}-{}/{}", range.start, range.end - 1, content.size);
        answer.status(StatusCode::PARTIAL_CONTENT).insert_header((header::CONTENT_RANGE, value));
    }
    Ok(answer
        .insert_header((header::CONTENT_TYPE, "application/octet-stream"))
        .insert_header((header::ACCEPT_RANGES, "bytes"))
        // A session's cookie opens this in a browser, where a page of the sandbox must not run.
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"))
        .body(SizedStream::new(len, under(pieces(content), work.at_work, ending))))
}

/// Writes a file whole; directories above it are made.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = String, Query, description = "Relative to the workspace"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "there was no such file before"),
        (status = 204, description = "a file was replaced"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
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
    // What went wrong with the body is the reason why the provider broke off, not the other way.
    fed?;
    match written? {
        Written::Created => Ok(HttpResponse::Created().finish()),
        Written::Replaced => Ok(HttpResponse::NoContent().finish()),
    }
}

/// Deletes a file, a link, or a directory with all that is in it.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = String, Query, description = "Relative to the workspace"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 204, description = "it is gone"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
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

/// A path in a query; the workspace itself where it is left out.
fn read_path(query: &mut Query, name: &str) -> Result<WorkspacePath, ApiError> {
    let given = query.bytes(name).unwrap_or_default();
    WorkspacePath::parse(&given).map_err(|why| {
        ApiError::new(Code::PathNotAllowed, format!("the path {why}"))
            .about(name)
            .hint("paths are relative to the workspace")
    })
}

/// The same, for what cannot be the workspace itself.
fn read_named(query: &mut Query, name: &str) -> Result<WorkspacePath, ApiError> {
    let path = read_path(query, name)?;
    if path.is_root() {
        return Err(ApiError::field(name, "must name something in the workspace"));
    }
    Ok(path)
}

/// The same, for what cannot be the workspace itself.
fn read_file_query(request: &HttpRequest) -> Result<(WorkspacePath, Duration), ApiError> {
    let mut query = Query::parse(request.query_string());
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
