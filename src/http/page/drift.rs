//! Drift between records and providers: each item with both sides and its remedies.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::engine::{DriftItem, DriftView, ObjectSide, RecordSide, Remedy};
use crate::http::Shared;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::types::Timestamp;

use super::error::PageError;
use super::form;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::{ago, since};
use super::visitor::AdminVisitor;

/// Items on the page; more are counted.
const ITEMS_MAX: usize = 100;
/// Seconds between updates of the page: sweeps cause no event.
const POLL_SECS: u32 = 5;

/// Shows the drift that each provider's last sweep found.
#[get("/drift")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let done = query.text("done")?.as_deref().and_then(parse);
    query.finish()?;
    let frame =
        Frame::begin(&shared, &visitor, PageSection::Drift, "Drift").await.polled(POLL_SECS);
    let view = shared.edge.engine.drift();
    let now = shared.edge.clock.now();
    Ok(super::html(&frame.render(&render(&view, done, &frame.token(), now))))
}

/// Carries out a remedy and shows the list again.
#[post("/drift/{id}/{remedy}")]
pub async fn carry_out(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    path: web::Path<(String, String)>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let (id, word) = path.into_inner();
    let remedy = parse(&word)
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such remedy"))?;
    form::read_change(&shared, &request, &visitor, payload).await?.finish()?;
    shared.edge.engine.remedy(&id, remedy, visitor.caller.cause()).await?;
    Ok(super::see(&format!("/drift?done={}", remedy.as_str())))
}

fn parse(word: &str) -> Option<Remedy> {
    [Remedy::Adopt, Remedy::Remove].into_iter().find(|remedy| remedy.as_str() == word)
}

fn render(view: &DriftView, done: Option<Remedy>, token: &Markup, now: Timestamp) -> Markup {
    html! {
        div .head { h1 { "Drift" } p .soft { "Differences between records and providers." } }
        section #live data-live aria-label="Drift" {
            @if let Some(done) = done {
                p .notice .good role="status" data-key="done" {
                    @match done {
                        Remedy::Adopt => "Adopted. The sandbox's timeline records the result; the next sweep checks it.",
                        Remedy::Remove => "Removal requested; the next sweep checks it.",
                    }
                }
            }
            div .stack {
                @if view.items.is_empty() {
                    div .empty .card data-key="none" {
                        h2 { "No drift" }
                        p { "Every record has its object, and every object its record." }
                    }
                }
                @for item in view.items.iter().take(ITEMS_MAX) { (card(item, token, now)) }
                @if let Some(more) = view.total.checked_sub(ITEMS_MAX).filter(|more| *more > 0) {
                    p .note { (more) " more are not shown." }
                }
                (sweeps(view, now))
            }
        }
    }
}

fn card(item: &DriftItem, token: &Markup, now: Timestamp) -> Markup {
    html! {
        article .card .item data-key={ "drift-" (shown(&item.id)) } {
            div .between {
                h2 .first-up { (item.kind.as_str().replace('_', " ")) " at " (shown(item.provider.as_str())) }
                span .tag .bad[item.kind.is_alarm()] .mild[!item.kind.is_alarm()] { (item.attention().words()) }
            }
            p { bdi { (shown(&item.reason)) }
                @if let Some(account) = &item.account { " " span .tag { (account) } }
            }
            div .sides {
                (record(item.record.as_ref()))
                (object(item.object.as_ref()))
            }
            p .soft {
                "Since " (since(item.since, now)) ". Next: " bdi { (shown(&item.next)) }
                @if let Some(at) = item.next_at { ", in " (ago(at.since(now))) }
                "."
            }
            @if !item.remedies.is_empty() {
                div .actions role="group" aria-label="Remedies" {
                    @for remedy in &item.remedies { (form(item, *remedy, token)) }
                }
            }
        }
    }
}

fn form(item: &DriftItem, remedy: Remedy, token: &Markup) -> Markup {
    let id = utf8_percent_encode(&item.id, NON_ALPHANUMERIC);
    let (label, consequence) = match remedy {
        Remedy::Adopt => ("Adopt", "Accepts the provider's state."),
        Remedy::Remove => (
            "Remove",
            "Deletes the object permanently. If there is none, the record becomes failed (object lost).",
        ),
    };
    let is_dangerous = remedy == Remedy::Remove;
    html! {
        details .action .danger[is_dangerous] {
            summary .button { (label) "…" }
            form .card method="post" action={ "/drift/" (id) "/" (remedy.as_str()) } {
                (token)
                p { strong { (label) " " span .name { (shown(&item.id)) } "?" } }
                p .lead { (consequence) }
                button .primary .danger[is_dangerous] type="submit" { (label) " " (shown(&item.id)) }
            }
        }
    }
}

fn record(side: Option<&RecordSide>) -> Markup {
    html! {
        div {
            h3 { "Record" }
            @match side {
                None => p .soft { "No record." },
                Some(side) => {
                    p { (side.phase) ", generation " (side.generation) }
                    p { a .name href={ "/sandboxes/" (side.sandbox) } { (shown(side.sandbox.as_str())) } }
                    @if let Some(id) = &side.external_id { p .name { (shown(id.as_str())) } }
                }
            }
        }
    }
}

fn object(side: Option<&ObjectSide>) -> Markup {
    html! {
        div {
            h3 { "Provider" }
            @match side {
                None => p .soft { "No object." },
                Some(side) => {
                    p { (side.state) ", generation " (side.generation) ", " (side.mode) }
                    p .name { (shown(side.name.as_str())) }
                    p .name { (shown(side.external_id.as_str())) }
                }
            }
        }
    }
}

fn sweeps(view: &DriftView, now: Timestamp) -> Markup {
    html! {
        div .scroll data-key="sweeps" tabindex="0" role="region" aria-label="Sweeps" {
            table .table {
                caption .hidden { "Sweeps of each provider" }
                thead { tr {
                    th { "Provider" } th { "Last" } th { "Compared" } th { "Sweeps" }
                } }
                tbody {
                    @for one in &view.sweeps {
                        tr {
                            td { (shown(one.provider.as_str())) }
                            td { @match one.last_at { Some(at) => (since(at, now)), None => "not yet" } }
                            td { (one.records) " records, " (one.objects) " objects" }
                            td {
                                (one.done) " done, " (one.held_back) " held back, "
                                (one.not_made) " failed"
                            }
                        }
                    }
                }
            }
        }
    }
}
