//! The page for people, at `/`: a live list of sandboxes, behind the token.
//!
//! It is rendered here, works without a script, and is kept current by a small one of our own,
//! which asks for the same list again when the event stream tells of a change. Titles, names and
//! reasons are data of others: they are escaped, and what could act in them is written out. The
//! policy sent along allows nothing but our own two files.

mod assets;
mod list;
mod shell;
mod time;

use actix_web::cookie::{Cookie, SameSite, time::Duration as CookieAge};
use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, ResponseError, get, post, web};
use maud::Markup;

use crate::store::PageAsk;
use crate::types::AccountName;

use super::Shared;
use super::api::sandboxes::read_filter;
use super::auth::{check_change, check_origin, check_token, client_address, session};
use super::body;
use super::error::{ApiError, Code};
use super::query::Query;
use super::sessions::{SESSION_COOKIE, SESSION_LIFETIME};
use super::wire::Failed;

use list::ListView;

/// Sandboxes on one page.
const ROWS_MAX: usize = 50;
/// Longest form, in bytes: a token and little more.
const FORM_LEN_MAX: usize = 16 * 1024;

/// Only our own files, no frames, no other targets for forms.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The list of sandboxes, or the log-in where there is no session.
#[utoipa::path(
    tag = "page",
    responses(
        (status = 200, body = String, content_type = "text/html"),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 503, body = Failed, description = "store_failed"),
    )
)]
#[get("/")]
pub async fn home(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let Some(session) = session(&shared, &request) else {
        return Ok(html(HttpResponse::Ok(), &shell::login(None)));
    };
    let view = view(&shared, &request).await?;
    Ok(html(HttpResponse::Ok(), &shell::home(&view, session.form_token())))
}

/// The list alone, for the page's script.
#[utoipa::path(
    tag = "page",
    responses(
        (status = 200, body = String, content_type = "text/html"),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 401, body = Failed, description = "unauthorized"),
        (status = 503, body = Failed, description = "store_failed"),
    )
)]
#[get("/list")]
pub async fn fragment(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    if session(&shared, &request).is_none() {
        return Err(ApiError::new(Code::Unauthorized, "the session has ended"));
    }
    let view = view(&shared, &request).await?;
    Ok(html(HttpResponse::Ok(), &list::render(&view)))
}

/// Begins a session with the token.
#[utoipa::path(
    tag = "page",
    request_body(content = String, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "to the page, with the session's cookie"),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 401, body = String, content_type = "text/html"),
        (status = 403, body = String, content_type = "text/html"),
        (status = 429, body = String, content_type = "text/html"),
    )
)]
#[post("/login")]
pub async fn login(
    shared: web::Data<Shared>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let token = form_field(&shared, &request, payload, "token").await?;
    let address = client_address(&shared, &request);
    let checked = check_origin(&shared, &request)
        .and_then(|()| check_token(&shared, address, token.as_deref()));
    if let Err(refused) = checked {
        let mut answer = HttpResponse::build(refused.status_code());
        if let Some(wait) = refused.error_response().headers().get(header::RETRY_AFTER) {
            answer.insert_header((header::RETRY_AFTER, wait.clone()));
        }
        let why = match refused.code() {
            Code::Unauthorized => "That is not the admin token.",
            _ => refused.message(),
        };
        return Ok(html(answer, &shell::login(Some(why))));
    }
    let secret = shared.sessions.begin(&*shared.edge.ids, shared.edge.clock.now());
    let age = i64::try_from(SESSION_LIFETIME.as_secs()).expect("some hours");
    let cookie = session_cookie(&shared, secret, CookieAge::seconds(age));
    Ok(to_home(cookie))
}

/// Ends the session.
#[utoipa::path(
    tag = "page",
    request_body(content = String, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "to the page"),
        (status = 400, body = Failed, description = "invalid_request"),
        (status = 403, body = Failed, description = "forbidden"),
    )
)]
#[post("/logout")]
pub async fn logout(
    shared: web::Data<Shared>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let form_token = form_field(&shared, &request, payload, "formToken").await?;
    if let Some(session) = session(&shared, &request) {
        check_change(&shared, &request, &session, form_token.as_deref().unwrap_or_default())?;
        shared.sessions.end(&session);
    }
    Ok(to_home(session_cookie(&shared, String::new(), CookieAge::ZERO)))
}

/// The page's script, style and icon, under names that change with their content.
#[utoipa::path(
    tag = "page",
    params(("name" = String, Path, description = "As the page names it")),
    responses(
        (status = 200, content(
            (String = "text/css"),
            (String = "text/javascript"),
            (String = "image/svg+xml"),
        )),
        (status = 404, body = Failed, description = "route_not_found"),
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

async fn view(shared: &Shared, request: &HttpRequest) -> Result<ListView, ApiError> {
    let mut query = Query::parse(request.query_string());
    let cursor = query.text("cursor")?;
    let is_first_page = cursor.is_none();
    let filter = read_filter(&mut query)?;
    query.finish()?;
    let account = AccountName::default_account();
    // Before the list is read, as for the API's list.
    let events = &shared.edge.feed.events;
    let event_cursor = events.cursor(events.now());
    let store = &shared.edge.store;
    let counts = store.counts(&account).await?;
    let found = store.sandboxes(&account, &filter, &PageAsk { limit: ROWS_MAX, cursor }).await?;
    let health = shared.provider_health().await;
    Ok(ListView {
        now: shared.edge.clock.now(),
        base_url: base_url(shared, request),
        phase: filter.phase,
        search: filter.text,
        is_first_page,
        counts,
        found,
        event_cursor,
        health,
        unreachable: shared.unreachable(),
        alarms: shared.edge.engine.drift_alarms(),
        trigger_label: shared.edge.triggers.label.clone(),
    })
}

/// How the server is reached: as configured, or as this request did.
fn base_url(shared: &Shared, request: &HttpRequest) -> String {
    match &shared.edge.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
            format!("http://{}", host.unwrap_or("127.0.0.1:8787"))
        }
    }
}

async fn form_field(
    shared: &Shared,
    request: &HttpRequest,
    payload: web::Payload,
    name: &str,
) -> Result<Option<String>, ApiError> {
    let declared = body::declared_len(request);
    let time_max = shared.edge.limits.body_time_max;
    let body = body::read(declared, payload, FORM_LEN_MAX, time_max, &shared.budget).await?;
    let form = std::str::from_utf8(&body).map_err(|_| ApiError::field(name, "is not UTF-8"))?;
    Query::parse(form).text(name)
}

fn session_cookie(shared: &Shared, value: String, age: CookieAge) -> Cookie<'static> {
    let is_https = shared.edge.public_url.as_deref().is_some_and(|url| url.starts_with("https:"));
    Cookie::build(SESSION_COOKIE, value)
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(is_https)
        .max_age(age)
        .finish()
}

fn to_home(cookie: Cookie<'static>) -> HttpResponse {
    HttpResponse::build(StatusCode::SEE_OTHER)
        .insert_header((header::LOCATION, "/"))
        .cookie(cookie)
        .finish()
}

fn html(mut answer: HttpResponseBuilder, page: &Markup) -> HttpResponse {
    answer
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        // With `no-referrer` browsers would send `Origin: null` with our own forms.
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        .body(page.0.clone())
}
