//! Reads forms of the dashboard: bounded in size and time, and only from our own pages.

use actix_web::{HttpRequest, web};

use crate::http::Shared;
use crate::http::auth::check_change;
use crate::http::body;
use crate::http::error::ApiError;
use crate::http::query::Query;

use super::visitor::Visitor;

/// Longest form, in bytes: a token, a reason, a command line.
const FORM_LEN_MAX: usize = 16 * 1024;
/// The field with the session's form token.
pub const FORM_TOKEN: &str = "formToken";

/// Reads a form.
///
/// # Errors
/// As for [`body::read`]; 400 if it is not UTF-8.
pub async fn read(
    shared: &Shared,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<Query, ApiError> {
    read_up_to(shared, request, payload, FORM_LEN_MAX).await
}

async fn read_up_to(
    shared: &Shared,
    request: &HttpRequest,
    payload: web::Payload,
    len_max: usize,
) -> Result<Query, ApiError> {
    let body = body::read(shared, request, payload, len_max).await?;
    let form = std::str::from_utf8(&body).map_err(|_| ApiError::field("form", "is not UTF-8"))?;
    Ok(Query::parse(form))
}

/// Reads a form that changes something. It must come from a page of this session.
///
/// # Errors
/// As for [`read`]; 403 if it comes from elsewhere or without the session's form token.
pub async fn read_change(
    shared: &Shared,
    request: &HttpRequest,
    visitor: &Visitor,
    payload: web::Payload,
) -> Result<Query, ApiError> {
    read_long_change(shared, request, visitor, payload, FORM_LEN_MAX).await
}

/// The same with a form of another length.
///
/// # Errors
/// As for [`read_change`].
pub async fn read_long_change(
    shared: &Shared,
    request: &HttpRequest,
    visitor: &Visitor,
    payload: web::Payload,
    len_max: usize,
) -> Result<Query, ApiError> {
    let mut form = read_up_to(shared, request, payload, len_max).await?;
    let token = form.text(FORM_TOKEN)?.unwrap_or_default();
    check_change(shared, request, &visitor.session, &token)?;
    Ok(form)
}

/// Whether a redirect target is a path on this server, not another host in disguise.
pub fn is_local_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

/// The path and query of a request, for a redirect back to it.
pub fn place_of(request: &HttpRequest) -> String {
    request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_on_this_server_are_gone_to() {
        for path in ["/", "/?q=a%20b", "/sandboxes/1?x=//y"] {
            assert!(is_local_path(path), "{path}");
        }
        for path in ["", "//elsewhere.example", "/\\elsewhere.example", "https://x", "/a\nb", "x"] {
            assert!(!is_local_path(path), "{path:?}");
        }
    }
}
