//! Directories as tar archives. They are passed through without parsing.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, put, web};
use futures_util::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::read_query;
use super::transfer::{Upload, under};
use crate::http::Shared;
use crate::http::answers;
use crate::http::api::exec::work_with;
use crate::http::body;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::AnyBytes;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::http::work::OpenSandbox;
use crate::sandbox::Capability;

/// Packs a directory of the workspace into a tar archive. Links are packed as links; sockets, FIFOs
/// and devices are left out. What cannot be read, or has a path of more than 4094 bytes, is left out
/// too: the archive's last file, `issuebox-left-out.txt`, then names each path and the reason. The
/// answer ends early if the sandbox stops meanwhile.
#[utoipa::path(
    operation_id = "packDirectory", tag = "work",
    params(params::OneSandbox, params::DirectoryPath, params::StartupWait),
    responses(
        (status = 200, description = "a tar archive",
         body = AnyBytes, content_type = "application/x-tar"),
        answers::WorkspaceErrors,
    )
)]
#[get("/v1/sandboxes/{id}/files/archive")]
pub async fn pack(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_query(Query::parse(request.query_string()))?;
    let (start, needs) = (caller.starts_to_read(), Some(Capability::Archives));
    let work = OpenSandbox::open(&shared, &caller, &id, start, at_most, needs).await?;
    let OpenSandbox { provider, target, at_work, .. } = work;
    let chunks = provider.workspace.pack_directory(target, path).await?;
    let chunks = ReceiverStream::new(chunks).map(|chunk| {
        chunk.map_err(|why| {
            tracing::warn!(error = %why, "failed to pack a directory of a workspace");
            std::io::Error::other(why)
        })
    });
    let chunks = under(chunks, at_work, Ending::new(&shared, &caller));
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/x-tar"))
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .streaming(chunks))
}

/// Unpacks an uncompressed tar archive into a directory of the workspace, which is created if it is
/// missing. Existing files and links are replaced. The archive can contain files, directories and
/// links with permission bits. Other kinds, absolute names, names with `..` and names that lead
/// through a link are refused. The error names the entry; earlier entries stay unpacked.
#[utoipa::path(
    operation_id = "unpackArchive", tag = "work",
    params(params::OneSandbox, params::DirectoryPath, params::StartupWait),
    request_body(content = AnyBytes, content_type = "application/x-tar"),
    responses(
        (status = 204, description = "the archive is unpacked"),
        answers::WorkspaceErrors, only::BadArchive, only::FileExists,
    )
)]
#[put("/v1/sandboxes/{id}/files/archive")]
pub async fn unpack(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_query(Query::parse(request.query_string()))?;
    let limits = &shared.edge.limits;
    if body::declared_len(&request).is_some_and(|len| len > limits.upload_len_max) {
        return Err(body::too_large(limits.upload_len_max));
    }
    let work = work_with(&shared, &caller, &id, at_most, Capability::Archives).await?;
    let (upload, chunks) = Upload::begin();
    let ending = Ending::new(&shared, &caller);
    let feeding = upload.feed(payload, limits.upload_len_max, limits.upload_silence_max, ending);
    let unpacking = work.provider.workspace.unpack_directory(work.target, path, chunks);
    let (fed, unpacked) = futures_util::future::join(feeding, unpacking).await;
    // An error of the body is the cause of the truncated archive, not the reverse.
    fed?;
    unpacked?;
    Ok(HttpResponse::NoContent().finish())
}
