//! Changes of a workspace other than content: create directories, move files, set permissions.
//! Paths are in the query, as for all files.

use actix_web::{HttpRequest, HttpResponse, post, put, web};

use super::{read_file_query, read_named};
use crate::http::Shared;
use crate::http::answers;
use crate::http::api;
use crate::http::api::exec::work;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::error::{ApiError, only};
use crate::http::query::Query;
use crate::sandbox::Written;

/// Creates a directory. Missing parent directories are created.
#[utoipa::path(
    operation_id = "makeDirectory", tag = "work",
    params(params::OneSandbox, params::FilePath, params::StartupWait),
    responses(
        (status = 201, description = "it was created"),
        (status = 204, description = "it existed"),
        answers::WorkspaceErrors, only::FileExists,
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

/// Moves a file, a link or a directory atomically. Missing parent directories are created.
#[utoipa::path(
    operation_id = "moveFile", tag = "work",
    params(
        params::OneSandbox,
        ("from" = String, Query, description = "Relative to the workspace"),
        ("to" = String, Query, description = "Relative to the workspace"),
        ("overwrite" = Option<bool>, Query,
         description = "Whether to replace a file, link or empty directory; default false"),
        params::StartupWait,
    ),
    responses(
        (status = 201, description = "moved to a new path"),
        (status = 204, description = "moved; an existing entry was replaced"),
        answers::WorkspaceErrors, only::FileExists,
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
    operation_id = "setFileMode", tag = "work",
    params(
        params::OneSandbox,
        params::FilePath,
        ("mode" = String, Query, description = "Permission bits in octal, such as `0755`"),
        params::StartupWait,
    ),
    responses(
        (status = 204, description = "the permission bits are set"),
        answers::WorkspaceErrors,
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

/// Parses permission bits: three octal digits, or four with a leading zero.
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
