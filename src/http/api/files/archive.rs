//! Whole directories as tar archives. They pass through: nothing here looks into them.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, put, web};
use futures_util::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::read_query;
use super::transfer::{Upload, under};
use crate::engine::Work;
use crate::http::Shared;
use crate::http::answers;
use crate::http::api::exec::{work, work_to_read};
use crate::http::auth::Caller;
use crate::http::body;
use crate::http::doc::params;
use crate::http::doc::words::AnyBytes;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;

/// A directory of the workspace as a tar archive. Links are in it as links; sockets, FIFOs and
/// devices are not. Where it can't be read to its end the answer breaks off.
#[utoipa::path(
    operation_id = "packDirectory", tag = "work",
    params(params::OneSandbox, params::DirectoryPath, params::StartupWait),
    responses(
        (status = 200, description = "a tar archive", body = AnyBytes, content_type = "application/x-tar"),
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
    let work = work_to_read(&shared, &caller, &id, at_most).await?;
    let Work { provider, target, at_work, .. } = work;
    let chunks = provider.pack_directory(target, path).await?;
    let chunks = ReceiverStream::new(chunks).map(|chunk| {
        chunk.map_err(|why| {
            tracing::warn!(error = %why, "an archive of a workspace broke off");
            std::io::Error::other(why)
        })
    });
    let chunks = under(chunks, at_work, Ending::new(&shared, &caller));
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/x-tar"))
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .streaming(chunks))
}

/// Takes a tar archive, not compressed, into a directory of the workspace, which is made where it
/// is missing. Files and links that are there give way. It holds files, directories and links with
/// permission bits; other kinds, absolute names, names with `..` and names that lead through a link
/// are refused. A refusal names the entry; what came before it stays.
#[utoipa::path(
    operation_id = "unpackArchive", tag = "work",
    params(params::OneSandbox, params::DirectoryPath, params::StartupWait),
    request_body(content = AnyBytes, content_type = "application/x-tar"),
    responses(
        (status = 204, description = "all of it is in the workspace"),
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
    let work = work(&shared, &caller, &id, at_most).await?;
    let (upload, chunks) = Upload::begin();
    let ending = Ending::new(&shared, &caller);
    let feeding = upload.feed(payload, limits.upload_len_max, limits.upload_silence_max, ending);
    let unpacking = work.provider.unpack_directory(work.target, path, chunks);
    let (fed, unpacked) = futures_util::future::join(feeding, unpacking).await;
    // What went wrong with the body is the reason why the archive is cut off, not the other way.
    fed?;
    unpacked?;
    Ok(HttpResponse::NoContent().finish())
}
