//! The button *Create GitHub App*: GitHub's manifest flow in three steps, and the form for a key that was
//! made by hand.
//!
//! 1. A form of ours answers with a page whose one form posts the manifest to GitHub ([`ask`]).
//! 2. GitHub leads the browser back. Browsers do not send our cookie then, because it is `SameSite=Strict`.
//!    So that address does nothing but show *Continue*, a form of ours ([`come_back`]).
//! 3. That form exchanges the code, stores the credentials, proves the key and has the server restart
//!    ([`adopt`]).

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, get, post, web};
use maud::{Markup, html};

use crate::config::StoredApp;
use crate::github::api::GitHubError;
use crate::github::registration::AppRequest;
use crate::http::Shared;
use crate::http::app_setup::{AdoptError, AppSetup, SetupStage};
use crate::http::auth::{check_origin_if_sent, is_at_own_url, own_url};
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::types::Secret;

use super::super::error::PageError;
use super::super::shell::{self, Frame, PageSection};
use super::super::text::shown;
use super::super::visitor::{AdminVisitor, Visitor};
use super::super::{form, html as answer, respond, respond_with_forms_to, see};
use super::app_card::{hook_url, upload_form, without_hook};

/// The path that GitHub leads the browser back to.
const BACK: &str = "/connect/github/created";
/// Longest code and state that are carried on, in bytes.
const CARRIED_LEN_MAX: usize = 256;

/// Answers the form with the page that leads to GitHub.
#[post("/connect/github")]
pub async fn ask(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let name = form.text("name")?.unwrap_or_default();
    let organisation = form.text("organisation")?.unwrap_or_default();
    let (statuses, workflows) = (form.flag("statuses")?, form.flag("workflows")?);
    let checks = form.flag("checks")?;
    form.finish()?;
    let setup = setup(&shared)?;
    let home = own_url(&shared);
    if !is_at_own_url(&shared, &request) {
        return Ok(respond(
            HttpResponse::build(StatusCode::CONFLICT),
            &shell::bare("Create GitHub App", &elsewhere(&home)),
        ));
    }
    let asked = AppRequest::new(&name, &organisation);
    let mut asked = asked.map_err(|(field, needed)| ApiError::field(field, needed))?;
    (asked.statuses, asked.workflows, asked.checks) = (statuses, workflows, checks);
    let hook = hook_url(&shared);
    let manifest = asked.manifest(&home, &format!("{home}{BACK}"), hook.as_deref());
    let (session, edge) = (visitor.session.hash(), &shared.edge);
    let state = shared.registrations.begin(session, asked.clone(), &*edge.ids, edge.clock.now());
    let target = asked.new_app_url(&setup.web_url, &state);
    let page = html! {
        form .login .card method="post" action=(target) {
            h1 { "Create GitHub App" }
            p .lead { "GitHub shows the App's name and asks you to confirm. Then it leads you back here." }
            @if hook.is_none() { (without_hook()) }
            input type="hidden" name="manifest" value=(manifest.to_string());
            button .primary type="submit" autofocus { "Continue to GitHub" }
        }
    };
    let page = shell::bare("Create GitHub App", &page);
    let mut page = respond_with_forms_to(origin_of(&setup.web_url), HttpResponse::Ok(), &page);
    // With `same-origin` browsers would send `Origin: null` to GitHub.
    set_referrer_policy(&mut page, "strict-origin");
    Ok(page)
}

/// Shows *Continue* to a browser that GitHub led back. It changes nothing.
#[get("/connect/github/created")]
pub async fn come_back(request: HttpRequest) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let (code, state) = (carried(&mut query, "code")?, carried(&mut query, "state")?);
    query.finish()?;
    let page = html! {
        form .login .card method="post" action=(BACK) {
            h1 { "Create GitHub App" }
            p .lead { "You come from GitHub. Continue if you have just created a GitHub App for this server." }
            input type="hidden" name="code" value=(code);
            input type="hidden" name="state" value=(state);
            button .primary type="submit" autofocus { "Continue" }
        }
    };
    let mut page = answer(&shell::bare("Create GitHub App", &page));
    // The address holds the code.
    set_referrer_policy(&mut page, "no-referrer");
    Ok(page)
}

/// Exchanges the code for the App's credentials, and has the server restart with them.
#[post("/connect/github/created")]
pub async fn adopt(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read(&shared, &request, payload).await?;
    // The state stands for the form token: it is a secret of this login, too.
    check_origin_if_sent(&shared, &request)?;
    let (code, state) = (carried(&mut form, "code")?, carried(&mut form, "state")?);
    form.finish()?;
    let setup = setup(&shared)?.clone();
    let (session, now) = (visitor.session.hash(), shared.edge.clock.now());
    let Some(asked) = shared.registrations.take(&state, session, now) else {
        return Err(ApiError::new(
            Code::Forbidden,
            "your log-in did not ask for this App, or more than an hour ago, or it was adopted already",
        )
        .into());
    };
    let (settings, web_url) = (asked.settings_url(&setup.web_url), setup.web_url.clone());
    // On a task of its own, which goes on if the browser does not wait: the code is good once.
    let of_task = shared.clone();
    let task = actix_web::rt::spawn(async move {
        let _one = of_task.registrations.adopting.lock().await;
        let adopted = setup.adopt(&code).await;
        match &adopted {
            Ok(app) => use_stored(&of_task, &setup, app.clone()).await,
            Err(error) => tracing::error!(%error, "a GitHub App was not adopted"),
        }
        adopted
    });
    let adopted = task.await.map_err(|_| ApiError::new(Code::ShuttingDown, "the server ends"))?;
    match adopted {
        Ok(_) => Ok(see("/connect")),
        Err(AdoptError::Asked(
            error @ (GitHubError::Unreachable(_) | GitHubError::Limited { .. }),
        )) => {
            shared.registrations.remember(&state, session, asked, now);
            let message = format!("{error}; go back and press Continue again");
            Err(ApiError::new(Code::GithubUnavailable, message).into())
        }
        Err(error) => {
            let lost = lost(&error.to_string(), &settings, &web_url);
            Ok(upload_page(&shared, &visitor, HttpResponse::BadGateway(), &lost).await)
        }
    }
}

/// Asks GitHub once more to confirm the stored key.
#[post("/connect/github/prove")]
pub async fn prove(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    form::read_change(&shared, &request, &visitor, payload).await?.finish()?;
    let setup = setup(&shared)?;
    let _one = shared.registrations.adopting.lock().await;
    if let SetupStage::Unproved { app, .. } = shared.registrations.stage() {
        use_stored(&shared, setup, app).await;
    }
    Ok(see("/connect"))
}

/// Takes the id and key of an App that was made by hand, or a new key of the stored one.
#[post("/connect/github/key")]
pub async fn upload(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let id = form.number("app_id", 1..=u64::MAX)?;
    let id = id.ok_or_else(|| ApiError::field("app_id", "is missing"))?;
    // Browsers end the lines of a text field with both characters.
    let key = form.text("key")?.unwrap_or_default().replace('\r', "");
    let secret = form.text("secret")?.map(|text| text.trim().to_owned());
    form.finish()?;
    let setup = setup(&shared)?;
    let _one = shared.registrations.adopting.lock().await;
    // Proved first: it must not take the place of a key that works.
    let key = Secret::new(key.trim());
    let proved = match setup.registration.prove(id, &key).await {
        Ok(proved) => proved,
        Err(error) => {
            let status = match error {
                GitHubError::Unauthorized(_) => HttpResponse::BadRequest(),
                _ => HttpResponse::BadGateway(),
            };
            let refused =
                html! { p .notice .bad role="alert" { bdi { (shown(&error.to_string())) } } };
            return Ok(upload_page(&shared, &visitor, status, &refused).await);
        }
    };
    let secret = secret.filter(|secret| !secret.is_empty()).map(Secret::new);
    let stored = setup.store(proved, key, secret).await.map_err(|error| {
        tracing::error!(%error, "a GitHub App was not stored");
        ApiError::new(Code::StoreFailed, error.to_string())
    })?;
    restart_with(&shared, setup, &stored);
    Ok(see("/connect"))
}

/// Has GitHub confirm the key of the stored App; then the server restarts with it.
async fn use_stored(shared: &Shared, setup: &AppSetup, app: StoredApp) {
    match setup.registration.prove(app.about.id, &app.key).await {
        Ok(_) => restart_with(shared, setup, &app),
        Err(error) => {
            let why = error.to_string();
            tracing::error!(app = app.about.slug, %error, "GitHub did not confirm the App's key");
            shared.registrations.set_stage(SetupStage::Unproved { app, why });
        }
    }
}

fn restart_with(shared: &Shared, setup: &AppSetup, app: &StoredApp) {
    tracing::info!(app = app.about.slug, id = app.about.id, "stored the GitHub App's credentials");
    shared.registrations.set_stage(SetupStage::Restarting(app.about.slug.clone()));
    setup.restart.notify_one();
}

fn setup(shared: &Shared) -> Result<&AppSetup, ApiError> {
    shared.edge.app_setup.as_ref().ok_or_else(|| {
        ApiError::new(Code::RouteNotFound, "this server takes no GitHub App from its page")
            .hint("its credentials are in [github] of the configuration")
    })
}

/// A value that goes through GitHub and our page unchanged.
fn carried(pairs: &mut Query, name: &str) -> Result<String, ApiError> {
    let value = pairs.text(name)?.unwrap_or_default();
    match value.len() {
        1..=CARRIED_LEN_MAX => Ok(value),
        _ => Err(ApiError::field(name, "is missing or too long")),
    }
}

fn set_referrer_policy(page: &mut HttpResponse, policy: &'static str) {
    page.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static(policy));
}

/// The scheme and host of an address.
fn origin_of(url: &str) -> &str {
    let path = url
        .split_once("://")
        .and_then(|(scheme, rest)| rest.find('/').map(|at| scheme.len() + "://".len() + at));
    &url[..path.unwrap_or(url.len())]
}

/// GitHub leads back to another address than that of this page, where the browser has no session.
fn elsewhere(home: &str) -> Markup {
    html! {
        div .login .card {
            h1 { "Open the page at its own address" }
            p .lead { "GitHub will lead you back to " code { (home) } ". Log in there, and press the button there." }
            p { a .button .primary href={ (home) "/connect" } { "Open " (home) "/connect" } }
            p .soft { "If that is not this server's address, set " code { "public_url" } " in the configuration." }
        }
    }
}

/// The code may be spent, and the key is not here.
fn lost(why: &str, settings: &str, web_url: &str) -> Markup {
    html! {
        div .notice .bad role="alert" {
            p { "The App's credentials are not here: " bdi { (shown(why)) } "." }
            p { "GitHub gives them once. If the App is listed there, make a new private key in its settings and "
                "enter it below; if not, begin again." }
        }
        p {
            "Its settings are probably at " a href=(settings) rel="noreferrer" { (settings) }
            "; all Apps are at " a href={ (web_url) "/settings/apps" } rel="noreferrer" { (web_url) "/settings/apps" }
            ". As its webhook secret enter that of this server there, or make one and enter it here, too."
        }
    }
}

/// The page with the form for a key.
async fn upload_page(
    shared: &Shared,
    visitor: &Visitor,
    status: HttpResponseBuilder,
    above: &Markup,
) -> HttpResponse {
    let frame = Frame::begin(shared, visitor, PageSection::Deliveries, "Connect GitHub").await;
    let frame = frame.still();
    let main = html! {
        div .head { h1 { "Connect GitHub" } }
        section .stack {
            div .card { (above) (upload_form(&frame.token())) }
            p { a .button href="/connect" { "Begin again" } }
        }
    };
    respond(status, &frame.render(&main))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_the_scheme_and_host_alone() {
        assert_eq!(origin_of("https://github.com"), "https://github.com");
        assert_eq!(origin_of("http://127.0.0.1:8080/x/y"), "http://127.0.0.1:8080");
    }
}
