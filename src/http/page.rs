//! The dashboard: rendered by the server, usable without a script, kept current by a small one of
//! our own.
//!
//! Titles, names, reasons and output of sandboxes are untrusted: they are escaped, and control
//! characters in them are written out. The Content-Security-Policy allows only our own files. Every
//! change is a form with the session's form token, from our own origin. Pages read the same engine
//! and store as the API.

mod access;
mod ansi;
mod asked;
mod assets;
mod attention;
mod chart;
mod connect;
mod console;
mod create;
mod deliveries;
pub mod docs;
mod drift;
mod error;
mod exec;
mod files;
mod form;
mod github;
mod github_login;
mod holds;
mod list;
mod logs;
mod overview;
mod providers;
mod sandbox;
mod session;
mod shell;
mod talk;
mod templates;
mod text;
mod time;
mod versions;
mod visitor;

use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError, get, web};
use maud::Markup;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::{ApiError, Code, only};
use super::sessions::new_secret;
use crate::clock::SystemIds;

pub use list::home;
pub use session::{login, login_page, logout};

/// Only our own files, no frames but our own, forms to one target alone. Of scripts only the one with
/// the answer's nonce: what a sandbox serves is at our address, too.
fn policy(nonce: &str, forms_to: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; frame-src 'self'; form-action {forms_to}; base-uri 'none'; \
         frame-ancestors 'none'"
    )
}

/// Stands in a page for the nonce of its answer. Nothing from outside can contain it.
static NONCE_MARK: LazyLock<String> = LazyLock::new(|| new_secret(&SystemIds));

/// The characters that are percent-encoded in a query.
const IN_A_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The pages for people. They are no API, so the served description leaves them out; logging in and
/// out is in the table of routes.
pub fn pages(app: &mut web::ServiceConfig) {
    app.service(sandbox::show)
        .service(files::show)
        .service(files::picture)
        .service(logs::show)
        .service(logs::stream_output)
        .service(exec::run)
        .service(talk::show)
        .service(talk::change)
        .service(versions::show)
        .service(versions::sync)
        .service(sandbox::command)
        .service(deliveries::show)
        .service(providers::show)
        .service(templates::show)
        .service(drift::show)
        .service(drift::carry_out)
        .service(github::show)
        .service(github::retry)
        .service(holds::show)
        .service(holds::put_on)
        .service(holds::take_off)
        .service(access::tokens::show)
        .service(access::tokens::create)
        .service(access::tokens::delete)
        .service(access::accounts::show)
        .service(access::accounts::put)
        .service(session::choose_account)
        .service(github_login::begin)
        .service(github_login::come_back)
        .service(create::show)
        .service(create::create)
        .service(overview::show)
        .service(connect::show)
        .service(connect::reveal)
        .service(connect::send_sample)
        .service(connect::app::ask)
        .service(connect::app::come_back)
        .service(connect::app::adopt)
        .service(connect::app::prove)
        .service(connect::app::upload);
}

/// The page's script, style and icon, under names that change with their content.
#[utoipa::path(
    operation_id = "getAsset", tag = "page",
    params(("name" = String, Path, description = "The file's name with its hash")),
    responses(
        (status = 200, description = "the file", content(
            (String = "text/css"),
            (String = "text/javascript"),
            (String = "image/svg+xml"),
        )),
        only::RouteNotFound,
    )
)]
#[get("/assets/{name}")]
pub async fn asset(name: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let asset = assets::find(&name)
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such asset"))?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, asset.content_type))
        .insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
        .body(asset.content))
}

/// A path with the query parameters that have a value.
fn address(path: &str, parts: &[(&str, Option<&str>)]) -> String {
    let query: Vec<String> = parts
        .iter()
        .filter_map(|(name, value)| {
            Some(format!("{name}={}", utf8_percent_encode((*value)?, IN_A_QUERY)))
        })
        .collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// Answers with a page and its security headers.
fn respond(answer: HttpResponseBuilder, page: &Markup) -> HttpResponse {
    respond_with_forms_to("'self'", answer, page)
}

/// The same, for a page whose forms go to another target than this server.
fn respond_with_forms_to(
    target: &str,
    mut answer: HttpResponseBuilder,
    page: &Markup,
) -> HttpResponse {
    let nonce = new_secret(&SystemIds);
    answer
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy(&nonce, target)))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        // With `no-referrer` browsers would send `Origin: null` with our own forms.
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        .body(page.0.replace(&*NONCE_MARK, &nonce))
}

/// Answers 200 with a page.
fn html(page: &Markup) -> HttpResponse {
    respond(HttpResponse::Ok(), page)
}

/// The page of an error that a route for programs gave to a browser.
pub fn of_error(error: &ApiError) -> HttpResponse {
    error::PageError::Failed(error.clone()).error_response()
}

/// Redirects after a form: loading the target again does not repeat the change.
fn see(place: &str) -> HttpResponse {
    HttpResponse::build(StatusCode::SEE_OTHER).insert_header((header::LOCATION, place)).finish()
}
