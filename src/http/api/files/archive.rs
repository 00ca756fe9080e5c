//! Whole directories as tar archives. They pass through: nothing here looks into them.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, put, web};
use futures_util::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::read_query;
use super::transfer::{Upload, under};
use crate::http::Shared;
use crate::http::api::exec::work_with;
use crate::http::auth::Caller;
use crate::http::body;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::Failed;
use crate::http::work::OpenSandbox;
use crate::sandbox::Capability;

/// A directory of the workspace as a tar archive. Links are in it as links; sockets, FIFOs and
/// devices are not. Where it can't be read to its end the answer breaks off.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = Option<String>, Query,
         description = "Relative to the workspace; the workspace itself where left out"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/x-tar"),
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
#[get("/v1/sandboxes/{id}/files/archive")]
pub async fn pack(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_query(Query::parse(request.query_string()))?;
    let (start, needs) = (caller.session.is_none(), Some(Capability::Archives));
    let work = OpenSandbox::open(&shared, &caller, &id, start, at_most, needs).await?;
    let OpenSandbox { provider, target, at_work, .. } = work;
    let chunks = provider.workspace.pack_directory(target, path).await?;
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
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = Option<String>, Query,
         description = "Relative to the workspace; the workspace itself where left out"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 204, description = "all of it is in the workspace"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown, file_exists"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside, bad_archive"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
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
    // What went wrong with the body is the reason why the archive is cut off, not the other way.
    fed?;
    unpacked?;
    Ok(HttpResponse::NoContent().finish())
}
