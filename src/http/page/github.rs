//! GitHub: who the server is there, what is left of its limits, and what is still to be done there.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::github::{EFFECTS_MAX, GithubBody, GithubEffectBody, look, needs_person};
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::github::GithubState;
use crate::types::{Timestamp, inert};

use super::error::PageError;
use super::form;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::ago;
use super::visitor::AdminVisitor;

/// Seconds between updates of the page: calls to GitHub cause no event.
const POLL_SECS: u32 = 5;

/// Shows identity, limits, and what is not done.
#[get("/github")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let done = query.text("done")?;
    query.finish()?;
    let frame = Frame::begin(&shared, &visitor, PageSection::Github, "GitHub").await;
    let frame = frame.polled(POLL_SECS);
    let body = look(&shared).await?;
    let now = shared.edge.clock.now();
    Ok(super::html(&frame.render(&html! {
        div .head { h1 { "GitHub" } }
        section #live .stack data-live aria-label="GitHub" {
            @if done.as_deref() == Some("retry") {
                p .notice .good role="status" data-key="done" { "It is tried now." }
            }
            @if body.connected {
                (identity(&body))
                (outbox(&body, &frame.token(), now))
            } @else {
                (not_connected(shared.edge.app_setup.is_some()))
            }
        }
    })))
}

/// Retries an effect.
#[post("/github/retry")]
pub async fn retry(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let id = form.text("id")?.unwrap_or_default();
    form.finish()?;
    let number = id.parse().map_err(|_| ApiError::field("id", "must be a whole number"))?;
    shared.edge.engine.retry_github_effect(number).await?;
    Ok(super::see("/github?done=retry"))
}

fn not_connected(has_button: bool) -> Markup {
    html! {
        div .card .empty data-key="none" {
            h2 { "No credentials" }
            p {
                "The server takes GitHub's deliveries in. Without an App or a token it asks GitHub nothing, checks \
                 no repository out and answers on no issue."
            }
            p {
                @if has_button { a href="/connect" { "Create a GitHub App" } " on the page. Or set " } @else { "Set " }
                code { "app_id" } " and " code { "app_key_file" } ", or " code { "token_file" }
                ", in " code { "[github]" } " of the configuration, and restart the server. "
                code { "issuebox doctor" } " checks them."
            }
        }
    }
}

fn identity(body: &GithubBody) -> Markup {
    html! {
        div .card .facts data-key="identity" {
            h2 { "Identity" }
            @for check in &body.checks {
                @if check.ok {
                    p { (shown(&check.found)) }
                } @else {
                    div .notice .bad {
                        p { bdi { (shown(&check.found)) } }
                        @if let Some(remedy) = &check.remedy { p { bdi { (shown(remedy)) } } }
                    }
                }
            }
            dl {
                div { dt { "Calls left this hour" } dd {
                    @match body.remaining {
                        Some(remaining) => (remaining),
                        None => span .soft { "unknown before the first answer" },
                    }
                } }
                div { dt { "Writes that wait for their turn" } dd { (body.queue) } }
            }
        }
    }
}

fn outbox(body: &GithubBody, token: &Markup, now: Timestamp) -> Markup {
    html! {
        div data-key="outbox" {
            h2 { "Not done yet" }
            @if body.effects.is_empty() {
                p .soft { "Everything that was to be said at GitHub is said." }
            } @else {
                div .scroll {
                    table .table {
                        thead { tr {
                            th scope="col" { "Issue" } th scope="col" { "What" } th scope="col" { "State" }
                            th scope="col" { "Why" } th scope="col" { "Next try" }
                            th scope="col" { span .hidden { "Action" } }
                        } }
                        tbody { @for effect in &body.effects { (row(effect, token, now)) } }
                    }
                }
                @if body.effects.len() == EFFECTS_MAX {
                    p .soft { "Only the oldest " (EFFECTS_MAX) " are listed." }
                }
            }
        }
    }
}

fn row(effect: &GithubEffectBody, token: &Markup, now: Timestamp) -> Markup {
    let state = GithubState::parse(effect.state);
    let bad = state.is_some_and(needs_person);
    let due = effect.due_at.as_deref().and_then(Timestamp::parse);
    html! {
        tr data-key={ "effect-" (effect.id) } {
            td { (inert(&effect.issue)) }
            td { (words(effect.kind)) }
            td { span .tag .bad[bad] { (effect.state.replace('_', " ")) } }
            td { bdi { (shown(effect.reason.as_deref().unwrap_or("not tried yet"))) } }
            td {
                @match due {
                    Some(at) if at <= now => "now",
                    Some(at) => time datetime=(at) title=(at) { "in " (ago(at.since(now))) },
                    None => span .soft { "when that changes" },
                }
            }
            td {
                @if state != Some(GithubState::Asked) {
                    form method="post" action="/github/retry" {
                        (token)
                        input type="hidden" name="id" value=(effect.id);
                        button type="submit" aria-label={ "Retry " (words(effect.kind)) " of " (inert(&effect.issue)) } { "Retry now" }
                    }
                }
            }
        }
    }
}

/// What an effect does, for people.
fn words(kind: &str) -> &str {
    match kind {
        "react" => "reaction",
        "reply" => "reply",
        "show_status" => "status comment",
        other => other,
    }
}
