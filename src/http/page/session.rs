//! Logging in and out.

use actix_web::cookie::{Cookie, SameSite, time::Duration as CookieAge};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::accounts::parse_account;
use crate::http::auth::{
    Bearer, account_not_found, check_change, check_origin, check_token, session, take_link,
};
use crate::http::error::{ApiError, Code, only};
use crate::http::query::Query;
use crate::http::sessions::{SESSION_COOKIE_HTTPS, SESSION_LIFETIME, SessionHolder};
use crate::types::inert;

use super::error::PageError;
use super::form::{self, FORM_TOKEN, is_local_path};
use super::github_login::begin_url;
use super::visitor::AdminVisitor;
use super::{error, respond, see, shell};

/// The log-in form; `failed` says why the last attempt failed, `next` is shown after the log-in,
/// `with_github` begins a log-in with GitHub. That is a link: browsers apply `form-action` to where a form
/// is redirected, too.
pub fn log_in_page(failed: Option<&str>, next: &str, with_github: Option<&str>) -> Markup {
    let main = html! {
        form .login .card method="post" action="/login" {
            h1 { "Log in" }
            @if let Some(address) = with_github {
                a .button .primary href=(address) { "Log in with GitHub" }
            }
            p .lead { "Use a token of this server, or a link from " code { "issuebox login" } ". The admin token is in the file "
                code { "admin-token" } " in the data directory, unless the configuration sets another one." }
            @if let Some(why) = failed {
                p #why .wrong role="alert" { (why) }
            }
            input type="hidden" name="next" value=(next);
            // For password managers, which keep a password by its user.
            input type="text" name="username" value="admin" autocomplete="username" hidden;
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password"
                spellcheck="false" aria-describedby=[failed.map(|_| "why")];
            button .primary[with_github.is_none()] type="submit" { "Log in" }
        }
    };
    shell::bare("Log in", &main)
}

/// Asks to confirm a log-in link. Opening the page must not use the link up, because chats and mail
/// programs open links for a preview.
fn link_page(key: &str, next: &str) -> Markup {
    let main = html! {
        form .login .card method="post" action="/login" {
            h1 { "Log in" }
            p .lead { "This link logs you in once." }
            input type="hidden" name="key" value=(key);
            input type="hidden" name="next" value=(next);
            button .primary type="submit" autofocus { "Log in" }
        }
    };
    shell::bare("Log in", &main)
}

/// Shows the log-in form, or the confirmation of a log-in link.
#[utoipa::path(
    operation_id = "showLogin", tag = "page",
    params(
        ("key" = Option<String>, Query, description = "Of a log-in link"),
        ("next" = Option<String>, Query,
         description = "With a key: the path to show after the log-in; default `/`"),
    ),
    responses(
        (status = 200, description = "the log-in page", body = String, content_type = "text/html"),
        only::InvalidRequest,
    )
)]
#[get("/login")]
pub async fn login_page(
    shared: web::Data<Shared>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let key = query.text("key")?;
    let next = query.text("next")?.filter(|next| is_local_path(next)).unwrap_or_else(|| "/".into());
    query.finish()?;
    let with_github = begin_url(&shared, &next);
    let form = || log_in_page(None, &next, with_github.as_deref());
    let shown = key.map_or_else(form, |key| link_page(&key, &next));
    let mut page = super::html(&shown);
    // Otherwise requests for assets would send the key to a proxy's log as their referrer.
    let policy = HeaderValue::from_static("strict-origin");
    page.headers_mut().insert(header::REFERRER_POLICY, policy);
    Ok(page)
}

/// Begins a session with the token, or with the key of a log-in link.
#[utoipa::path(
    operation_id = "logIn", tag = "page",
    request_body(content = String, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "to the page, with the session's cookie"),
        (status = 401, description = "the token or link is wrong",
         body = String, content_type = "text/html"),
        (status = 403, description = "the form was sent from another origin",
         body = String, content_type = "text/html"),
        (status = 429, description = "too many wrong tokens from this address",
         body = String, content_type = "text/html"),
        (status = 503, description = "the session cannot be stored",
         body = String, content_type = "text/html"),
        only::InvalidRequest,
    )
)]
#[post("/login")]
pub async fn login(
    shared: web::Data<Shared>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let mut form = form::read(&shared, &request, payload).await?;
    let (token, key) = (form.text("token")?, form.text("key")?);
    let next = form.text("next")?.filter(|next| is_local_path(next)).unwrap_or_else(|| "/".into());
    let with_github = begin_url(&shared, &next);
    let checked = check_origin(&shared, &request).and_then(|()| match &key {
        Some(key) => take_link(&shared, &request, key),
        None => Ok(match check_token(&shared, &request, token.as_deref())? {
            Bearer::Admin(token) => SessionHolder::Admin(token.borrow().clone()),
            Bearer::Token(token) => SessionHolder::Token(token),
        }),
    });
    let holder = match checked {
        Ok(holder) => holder,
        Err(refused) => {
            let why = match refused.code() {
                Code::Unauthorized if key.is_some() => {
                    "The link was already used or has expired. Create another one with: issuebox login"
                }
                Code::Unauthorized => "This is no token of this server.",
                _ => refused.message(),
            };
            let page = log_in_page(Some(why), &next, with_github.as_deref());
            return Ok(respond(error::begin(&refused), &page));
        }
    };
    let begun = shared.sessions.begin(holder, &*shared.edge.ids, shared.edge.clock.now()).await;
    let secret = match begun {
        Ok(secret) => secret,
        Err(error) => {
            let page = log_in_page(Some(error.message()), &next, with_github.as_deref());
            return Ok(respond(error::begin(&error), &page));
        }
    };
    let age = i64::try_from(SESSION_LIFETIME.as_secs()).expect("some hours");
    let cookie = session_cookie(&shared, secret, CookieAge::seconds(age));
    Ok(go_with(&next, cookie))
}

/// Ends the session.
#[utoipa::path(
    operation_id = "logOut", tag = "page",
    request_body(content = String, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "to the page"),
        only::Forbidden, only::InvalidRequest,
    )
)]
#[post("/logout")]
pub async fn logout(
    shared: web::Data<Shared>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let token = form::read(&shared, &request, payload).await?.text(FORM_TOKEN)?;
    if let Some(session) = session(&shared, &request).await? {
        check_change(&shared, &request, &session, token.as_deref().unwrap_or_default())?;
        shared.sessions.end(&session).await?;
    }
    Ok(go_with("/", session_cookie(&shared, String::new(), CookieAge::ZERO)))
}

/// Lets the session of an admin work in another account.
#[post("/account")]
pub async fn choose_account(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let account = parse_account(&form.text("account")?.unwrap_or_default())?;
    let next = form.text("next")?.filter(|next| is_local_path(next)).unwrap_or_else(|| "/".into());
    form.finish()?;
    if !shared.edge.access.has_account(&account) {
        return Err(account_not_found(&account).into());
    }
    tracing::info!(%account, by = %inert(&visitor.caller.name), "the account of a session was chosen");
    shared.sessions.choose(&visitor.session, account).await?;
    Ok(see(&next))
}

/// The cookie of a session.
pub fn session_cookie(shared: &Shared, value: String, age: CookieAge) -> Cookie<'static> {
    let name = shared.session_cookie();
    Cookie::build(name, value)
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(name == SESSION_COOKIE_HTTPS)
        .max_age(age)
        .finish()
}

fn go_with(place: &str, cookie: Cookie<'static>) -> HttpResponse {
    HttpResponse::build(StatusCode::SEE_OTHER)
        .insert_header((header::LOCATION, place))
        .cookie(cookie)
        .finish()
}
