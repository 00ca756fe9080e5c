//! The dashboard, for people: rendered here, usable without a script, kept current by a small one
//! of our own.
//!
//! Titles, names, reasons and what sandboxes write are data of others: they are escaped, and what
//! could act in them is written out. The policy sent along allows nothing but our own files. Every
//! change is a form that carries the session's form token and comes from our own origin. A page
//! reads what the API reads, by the same engine and store.

mod ansi;
mod assets;
mod attention;
mod chart;
mod connect;
mod console;
mod deliveries;
pub mod docs;
mod drift;
mod error;
mod exec;
mod files;
mod form;
mod holds;
mod list;
mod logs;
mod overview;
mod providers;
mod sandbox;
mod session;
mod shell;
mod text;
mod time;
mod visitor;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpResponse, HttpResponseBuilder, get, web};
use maud::Markup;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::{ApiError, Code, only};

pub use list::home;
pub use session::{login, login_page, logout};

/// Only our own files, no frames but our own, no other targets for forms.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// What has to be encoded within a query.
const IN_A_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The pages that are for people alone. They are no interface, so the served description does not
/// name them; what a session begins and ends with stands in the table of routes.
pub fn pages(app: &mut web::ServiceConfig) {
    app.service(sandbox::show)
        .service(files::show)
        .service(files::picture)
        .service(logs::show)
        .service(logs::stream_output)
        .service(exec::run)
        .service(sandbox::command)
        .service(deliveries::show)
        .service(providers::show)
        .service(drift::show)
        .service(drift::carry_out)
        .service(holds::show)
        .service(holds::put_on)
        .service(holds::take_off)
        .service(overview::show)
        .service(connect::show)
        .service(connect::reveal)
        .service(connect::send_sample);
}

/// The page's script, style and icon, under names that change with their content.
#[utoipa::path(
    operation_id = "getAsset", tag = "page",
    params(("name" = String, Path, description = "As the page names it")),
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
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such file"))?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, asset.content_type))
        .insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
        .body(asset.content))
}

/// A place with the parts of its query that are there.
fn address(path: &str, parts: &[(&str, Option<&str>)]) -> String {
    let query: Vec<String> = parts
        .iter()
        .filter_map(|(name, value)| {
            Some(format!("{name}={}", utf8_percent_encode((*value)?, IN_A_QUERY)))
        })
        .collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// A page, with what keeps it from doing anything but showing itself.
fn respond(mut answer: HttpResponseBuilder, page: &Markup) -> HttpResponse {
    answer
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        // With `no-referrer` browsers would send `Origin: null` with our own forms.
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        .body(page.0.clone())
}

/// A page that is there.
fn html(page: &Markup) -> HttpResponse {
    respond(HttpResponse::Ok(), page)
}

/// Where a form leads once it is done: loading that again does not repeat it.
fn see(place: &str) -> HttpResponse {
    HttpResponse::build(StatusCode::SEE_OTHER).insert_header((header::LOCATION, place)).finish()
}
