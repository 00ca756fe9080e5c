//! Changes to a workspace that are not a file's content: directories, places, permissions. Paths
//! come in the query here too, and for the same reason.

use actix_web::{HttpRequest, HttpResponse, post, put, web};

use super::{read_file_query, read_named};
use crate::http::Shared;
use crate::http::api;
use crate::http::api::exec::work;
use crate::http::auth::Caller;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::Failed;
use crate::sandbox::Written;

/// Makes a directory; directories above it are made.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = String, Query, description = "Relative to the workspace"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 201, description = "it was made"),
        (status = 204, description = "it was there"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown, file_exists"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
    )
)]
#[put("/v1/sandboxes/{id}/files/directory")]
pub async fn make_directory(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (path, at_most) = read_file_query(&request)?;
    let work = work(&shared, &caller, &id, at_most).await?;
    Ok(written(work.provider.workspace.make_directory(work.target, path).await?))
}

/// Moves a file, a link or a directory, in one step; directories above its new place are made.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("from" = String, Query, description = "Relative to the workspace"),
        ("to" = String, Query, description = "Relative to the workspace"),
        ("overwrite" = Option<bool>, Query,
         description = "Whether a file, link or empty directory there gives way; false where left out"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 201, description = "it is there, and nothing was before"),
        (status = 204, description = "it is there; what was there gave way"),
        (status = 400, body = Failed, description = "invalid_request, path_not_allowed"),
        (status = 404, body = Failed, description = "sandbox_not_found, file_not_found"),
        (status = 409, body = Failed,
         description = "not_running, stopped, sandbox_deleted, provider_unknown, file_exists"),
        (status = 422, body = Failed, description = "wrong_kind, refused_inside"),
        (status = 423, body = Failed, description = "held"),
        (status = 507, body = Failed, description = "no_room"),
        (status = 501, body = Failed, description = "not_supported"),
        (status = 502, body = Failed, description = "provider_failed"),
        (status = 503, body = Failed, description = "overloaded, store_failed, shutting_down"),
    )
)]
#[post("/v1/sandboxes/{id}/files/move")]
pub async fn relocate(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = api::wait(&mut query, api::WORK_WAIT_SECS)?;
    let (from, to) = (read_named(&mut query, "from")?, read_named(&mut query, "to")?);
    let overwrite = query.flag("overwrite")?;
    query.finish()?;
    let work = work(&shared, &caller, &id, at_most).await?;
    Ok(written(work.provider.workspace.move_file(work.target, from, to, overwrite).await?))
}

/// Sets the permission bits of a file or directory.
#[utoipa::path(
    tag = "work",
    params(
        ("id" = String, Path, description = "The sandbox's id or name"),
        ("path" = String, Query, description = "Relative to the workspace"),
        ("mode" = String, Query, description = "Permission bits in octal, such as `0755`; no others"),
        ("wait" = Option<u64>, Query,
         description = "Seconds to wait until it runs, up to 300; 30 where left out"),
    ),
    responses(
        (status = 204, description = "they are set"),
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
#[put("/v1/sandboxes/{id}/files/mode")]
pub async fn set_mode(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let at_most = api::wait(&mut query, api::WORK_WAIT_SECS)?;
    let path = read_named(&mut query, "path")?;
    let mode = query.text("mode")?.as_deref().and_then(permissions);
    let wrong = || ApiError::field("mode", "must be permission bits in octal, 0000 to 0777");
    let mode = mode.ok_or_else(wrong)?;
    query.finish()?;
    let work = work(&shared, &caller, &id, at_most).await?;
    work.provider.workspace.set_file_mode(work.target, path, mode).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Permission bits as they are written: three octal digits, or four of which the first is zero.
fn permissions(text: &str) -> Option<u32> {
    let digits = if text.len() == 4 { text.strip_prefix('0')? } else { text };
    let is_octal = digits.len() == 3 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    is_octal.then(|| u32::from_str_radix(digits, 8).ok())?
}

fn written(written: Written) -> HttpResponse {
    match written {
        Written::Created => HttpResponse::Created().finish(),
        Written::Replaced => HttpResponse::NoContent().finish(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_three_octal_digits() {
        assert_eq!(permissions("0755"), Some(0o755));
        assert_eq!(permissions("600"), Some(0o600));
        for wrong in ["4755", "1777", "07555", "+75", "778", "u+x", "", "0o755", "55"] {
            assert_eq!(permissions(wrong), None, "{wrong:?}");
        }
    }
}
