//! Files in a sandbox's workspace: list, read, write, delete.
//!
//! Paths come in the query as percent-encoded bytes, since a name need not be UTF-8, and are
//! parsed here only as far as their form goes: that nothing outside of the workspace is reached
//! is the provider's promise.
//!
//! A write replaces a file only once its whole body has come. The channel to the provider ends
//! with the file, so a body that breaks off, is too slow or too large, or whose request is
//! dropped, must end it with an error instead: `Upload` keeps a place in the channel for that.

use std::time::Duration;

use actix_web::body::SizedStream;
use actix_web::error::PayloadError;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::exec::work;
use crate::http::Shared;
use crate::http::auth::Caller;
use crate::http::body;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::http::wire::{Failed, Success};
use crate::sandbox::{ChunkReceiver, FileContent, FileEntry, FileKind, WorkspacePath, Written};

/// Levels of directories that a list goes down at most.
const DEPTH_MAX: u64 = 32;
/// Pieces of a file that wait for the provider at most.
const PIECES_MAX: usize = 8;

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

/// Lists a directory of the workspace, or shows the entry of a file.
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
    let work = work(&shared, &caller, &id, at_most).await?;
    let found = work.provider.list_files(work.target, path, depth).await?;
    let entries = found.entries.into_iter().map(FileBody::from).collect();
    let list = FileList { entries, truncated: found.truncated };
    Ok(HttpResponse::Ok().json(Success::about(&work.sandbox, list)))
}

/// The content of a file.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = String, Query, description = "Relative to the workspace"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
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
    let work = work(&shared, &caller, &id, at_most).await?;
    let content = work.provider.read_file(work.target, path).await?;
    let size = content.size;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/octet-stream"))
        // A session's cookie opens this in a browser, where a page of the sandbox must not run.
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"))
        .body(SizedStream::new(size, pieces(content))))
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
    let feeding = upload.feed(payload, limits.upload_len_max, limits.upload_silence_max);
    let writing = work.provider.write_file(work.target, path, chunks);
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
    work.provider.delete_file(work.target, path).await?;
    Ok(HttpResponse::NoContent().finish())
}

fn read_query(mut query: Query) -> Result<(WorkspacePath, Duration), ApiError> {
    let at_most = super::wait(&mut query, super::WORK_WAIT_SECS)?;
    let given = query.bytes("path").unwrap_or_default();
    query.finish()?;
    let path = WorkspacePath::parse(&given).map_err(|why| {
        ApiError::new(Code::PathNotAllowed, format!("the path {why}"))
            .about("path")
            .hint("paths are relative to the workspace")
    })?;
    Ok((path, at_most))
}

/// The same, for what cannot be the workspace itself.
fn read_file_query(request: &HttpRequest) -> Result<(WorkspacePath, Duration), ApiError> {
    let (path, at_most) = read_query(Query::parse(request.query_string()))?;
    if path.is_root() {
        return Err(ApiError::field("path", "must name something in the workspace"));
    }
    Ok((path, at_most))
}

/// The pieces of a file, as many bytes as it had when it was opened: a file that grows while it
/// is read must not break the answer's framing. One that shrinks ends the connection, so that
/// the client knows.
fn pieces(content: FileContent) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold((content.chunks, content.size), |(mut chunks, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = match chunks.recv().await? {
            Ok(mut bytes) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                Ok(bytes)
            }
            Err(why) => Err(std::io::Error::other(why)),
        };
        let left = piece.as_ref().map_or(0, |bytes| left - bytes.len() as u64);
        Some((piece, (chunks, left)))
    })
}

/// The sending end of a file being written.
struct Upload {
    tx: mpsc::Sender<Result<Bytes, String>>,
    /// A place in the channel that is only used to break the file off.
    last_word: Option<mpsc::OwnedPermit<Result<Bytes, String>>>,
}

impl Upload {
    fn begin() -> (Self, ChunkReceiver) {
        let (tx, rx) = mpsc::channel(PIECES_MAX);
        let last_word = tx.clone().try_reserve_owned().ok();
        (Self { tx, last_word }, rx)
    }

    /// Passes a body on, piece by piece, and ends the file once it has come whole.
    async fn feed(
        mut self,
        mut body: impl Stream<Item = Result<Bytes, PayloadError>> + Unpin,
        len_max: u64,
        silence_max: Duration,
    ) -> Result<(), ApiError> {
        let mut len = 0;
        loop {
            let Ok(piece) = timeout(silence_max, body.next()).await else {
                return Err(body::too_slow());
            };
            let Some(piece) = piece else { break };
            let piece = piece.map_err(body::broken_off)?;
            len += piece.len() as u64;
            if len > len_max {
                return Err(body::too_large(len_max));
            }
            if self.tx.send(Ok(piece)).await.is_err() {
                // The provider gave up; its own error says why.
                return Ok(());
            }
        }
        // Whole: nothing is to be broken off any more.
        self.last_word = None;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(place) = self.last_word.take() {
            place.send(Err("the upload broke off".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    async fn received(mut chunks: ChunkReceiver) -> Vec<Result<Bytes, String>> {
        let mut all = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            all.push(chunk);
        }
        all
    }

    fn body(
        parts: &[&'static str],
    ) -> impl Stream<Item = Result<Bytes, PayloadError>> + Unpin + use<> {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from(*part))).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn a_whole_body_ends_the_file() {
        let (upload, chunks) = Upload::begin();
        let (fed, got) = tokio::join!(upload.feed(body(&["ab", "c"]), 3, SECOND), received(chunks));
        assert!(fed.is_ok());
        assert_eq!(got, [Ok(Bytes::from("ab")), Ok(Bytes::from("c"))]);
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_breaks_the_file_off() {
        let (upload, chunks) = Upload::begin();
        let (fed, got) =
            tokio::join!(upload.feed(body(&["ab", "cd"]), 3, SECOND), received(chunks));
        assert_eq!(fed.err().map(|error| error.code()), Some(Code::BodyTooLarge));
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_breaks_the_file_off() {
        let (upload, chunks) = Upload::begin();
        let silent = body(&["ab"]).chain(stream::pending());
        let (fed, got) = tokio::join!(upload.feed(silent, 3, SECOND), received(chunks));
        assert_eq!(fed.err().map(|error| error.code()), Some(Code::RequestTimeout));
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_breaks_the_file_off_even_when_the_channel_is_full() {
        let (upload, chunks) = Upload::begin();
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(b"x")));
        let feeding = upload.feed(endless, u64::MAX, SECOND);
        assert!(timeout(Duration::from_millis(10), feeding).await.is_err(), "nobody reads");
        let got = received(chunks).await;
        assert_eq!(got.len(), PIECES_MAX);
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test]
    async fn a_file_that_grows_is_cut_where_it_ended_when_opened() {
        let (tx, rx) = mpsc::channel(4);
        for piece in ["abc", "def"] {
            tx.try_send(Ok(Bytes::from(piece))).expect("there is room");
        }
        let all: Vec<_> = pieces(FileContent { size: 4, chunks: rx }).collect().await;
        let bytes: Vec<u8> = all.into_iter().flat_map(|p| p.expect("no error")).collect();
        assert_eq!(bytes, b"abcd");
    }

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
