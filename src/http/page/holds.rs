//! Holds and quotas: the holds in force, the quotas, and the issues that wait for a sandbox.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::engine::Quotas;
use crate::http::Shared;
use crate::http::api::holds::parse_scope;
use crate::http::api::sandboxes::bounded;
use crate::http::caller::Caller;
use crate::http::error::ApiError;
use crate::http::hold_access;
use crate::http::hold_labels;
use crate::http::query::Query;
use crate::http::survey::Survey;
use crate::types::{AccountName, Hold, HoldScope, Timestamp};

use super::error::PageError;
use super::form;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::since;
use super::visitor::Visitor;

/// Pending starts that are shown; more are counted up to [`PENDING_COUNTED_MAX`].
const PENDING_MAX: usize = 20;
/// Pending starts that are counted.
const PENDING_COUNTED_MAX: usize = 1_000;
/// Seconds between updates of the page: pending starts cause no event.
const POLL_SECS: u32 = 5;

/// Shows holds, quotas and pending starts.
#[get("/holds")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let done = query.text("done")?;
    query.finish()?;
    let frame = Frame::begin(&shared, &visitor, PageSection::Holds, "Holds and quotas").await;
    let frame = frame.polled(POLL_SECS);
    let now = shared.edge.clock.now();
    let waiting = waiting(&shared, &visitor.caller.account).await?;
    let attention = frame.attention();
    let quotas = shared.edge.engine.quotas();
    let of_server = visitor.caller.is_admin().then(|| shared.edge.feed.live.len() as u64);
    let mut holds = Vec::with_capacity(attention.holds.len());
    for hold in &attention.holds {
        let label = hold_labels::label(&shared, &hold.scope).await;
        holds.push((label, hold));
    }
    let main = html! {
        div .head { h1 { "Holds and quotas" } }
        div .stack {
            section #live data-live aria-label="Holds" {
                @match done.as_deref() {
                    Some("hold") => p .notice .good role="status" data-key="done" { "The hold is in force." },
                    Some("release") => {
                        p .notice .good role="status" data-key="done" { "The hold is released. Pending starts continue now." }
                    }
                    Some(_) | None => {}
                }
                (list(&holds, &frame.token(), now))
            }
            (hold_form(&frame.token()))
            section #quotas .stack data-live aria-label="Quotas" {
                (usage(quotas, &attention.survey, of_server))
                (pending_starts(&waiting, now))
            }
        }
    };
    Ok(super::html(&frame.render(&main)))
}

/// Creates a hold.
#[post("/holds")]
pub async fn put_on(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let scope = scope(&visitor.caller, &mut form)?;
    let reason = bounded("reason", form.text("reason")?)?.unwrap_or_default();
    form.finish()?;
    let caller = &visitor.caller;
    hold_access::check(&shared, caller, &scope)?;
    shared.edge.engine.hold(scope, reason, caller.name.to_string()).await?;
    Ok(super::see("/holds?done=hold"))
}

/// Releases a hold.
#[post("/holds/release")]
pub async fn take_off(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let scope = scope(&visitor.caller, &mut form)?;
    form.finish()?;
    hold_access::check(&shared, &visitor.caller, &scope)?;
    shared.edge.engine.release(&scope).await?;
    Ok(super::see("/holds?done=release"))
}

fn scope(caller: &Caller, form: &mut Query) -> Result<HoldScope, ApiError> {
    let kind = form.text("kind")?.unwrap_or_default();
    let name = form.text("name")?.unwrap_or_default();
    parse_scope(caller, &kind, name.trim())
}

/// An issue whose start is pending.
struct PendingIssue {
    issue: String,
    place: String,
    title: String,
    since: Timestamp,
}

/// The first pending starts of an account, and the number of all.
async fn waiting(
    shared: &Shared,
    account: &AccountName,
) -> Result<(Vec<PendingIssue>, usize), ApiError> {
    let store = &shared.edge.store;
    let mut rows = store.pending_starts(0, PENDING_COUNTED_MAX).await?;
    rows.retain(|row| row.account == *account);
    let mut named = Vec::new();
    for row in rows.iter().take(PENDING_MAX) {
        let Some(issue) = store.load(row.home).await? else { continue };
        let facts = issue.facts;
        let repository = facts.repository.map(|one| one.to_string()).unwrap_or_default();
        let number = facts.number.map(|number| format!("#{number}")).unwrap_or_default();
        named.push(PendingIssue {
            issue: facts.issue_id.to_string(),
            place: format!("{repository}{number}"),
            title: facts.title.map(|title| title.value).unwrap_or_default(),
            since: row.since,
        });
    }
    Ok((named, rows.len()))
}

fn list(holds: &[(String, &Hold)], token: &Markup, now: Timestamp) -> Markup {
    html! {
        @if holds.is_empty() {
            div .empty .card data-key="none" { h2 { "No holds" } p { "Sandboxes are created and started as usual." } }
        } @else {
            ul .rows role="list" {
                @for (name, hold) in holds {
                    li .row .held .with-action data-key={ "hold-" (hold.scope.kind()) "-" (shown(&hold.scope.folded())) } {
                        span .mark aria-hidden="true" {}
                        div .what {
                            p .title { bdi { (shown(name)) } }
                            p .why { @if hold.reason.is_empty() { "no reason given" } @else { bdi { (shown(&hold.reason)) } } }
                            p .of { span { "by " (shown(&hold.by)) } }
                        }
                        details .action {
                            summary .button { "Release…" }
                            form .card method="post" action="/holds/release" {
                                (token)
                                input type="hidden" name="kind" value=(hold.scope.kind());
                                input type="hidden" name="name" value=(hold.scope.name());
                                p { strong { "Release " (shown(name)) "?" } }
                                p .lead { "Pending starts that it covers continue." }
                                button .primary type="submit" { "Release " (shown(name)) }
                            }
                        }
                        (since(hold.since, now))
                    }
                }
            }
        }
    }
}

fn hold_form(token: &Markup) -> Markup {
    html! {
        form .card method="post" action="/holds" {
            (token)
            h2 { "Create a hold" }
            p .lead { "Until it is released, no sandbox that it covers is created, started or resumed. Steps under way continue, and deliveries are accepted." }
            div .fields {
                label { "Scope"
                    select name="kind" {
                        option value="repository" { "a repository" }
                        option value="issue" { "an issue" }
                        option value="account" { "an account" }
                        option value="server" { "the whole server" }
                    }
                }
                label .wide { "Name"
                    input type="text" name="name" maxlength="200" placeholder="owner/name, or an issue's id";
                }
                label .wide { "Reason" input type="text" name="reason" maxlength="500"; }
                button .primary type="submit" { "Hold" }
            }
        }
    }
}

/// `of_server`: the live sandboxes of all accounts, if the visitor may know them.
fn usage(quotas: Quotas, survey: &Survey, of_server: Option<u64>) -> Markup {
    let busiest = survey.repositories.iter().max_by_key(|(_, count)| *count);
    // The key stands below its words, so that the table fits a narrow screen.
    let row = |what: Markup, key: &str, taken: Option<u64>, allowed: u64| {
        html! {
            tr {
                td { p { (what) } p { code { (key) } } }
                td .num { @match taken { Some(taken) => (taken), None => span .soft title="Only admins see what other accounts use" { "–" } } }
                td .num { @if allowed == 0 { "no limit" } @else { (allowed) } }
            }
        }
    };
    let of_busiest = html! {
        "of the account's busiest repository" @if let Some((name, _)) = busiest { ", " bdi { (shown(name)) } }
    };
    let busiest = busiest.map_or(0, |(_, count)| *count);
    html! {
        div .scroll data-key="usage" tabindex="0" role="region" aria-label="Quotas" {
            table .table .quotas {
                caption .hidden { "Quotas of live sandboxes" }
                thead { tr { th { "Live sandboxes" } th .num { "Used" } th .num { "Limit" } } }
                tbody {
                    (row(html! { "of the account" }, "quota.live", Some(survey.total), quotas.account))
                    (row(of_busiest, "quota.live_per_repository", Some(busiest), quotas.repository))
                    (row(html! { "of all accounts" }, "quota.live_server", of_server, quotas.server))
                }
            }
        }
    }
}

fn pending_starts((named, count): &(Vec<PendingIssue>, usize), now: Timestamp) -> Markup {
    html! {
        @if *count > 0 {
            div .card data-key="wishes" {
                h2 { (count) @if *count >= PENDING_COUNTED_MAX { " or more" }
                    @if *count == 1 { " pending start" } @else { " pending starts" } }
                p .lead { "These issues get their sandbox when a quota has room and no hold covers them." }
                ul .timeline role="list" {
                    @for one in named {
                        li .step {
                            span .mark aria-hidden="true" {}
                            div {
                                p { bdi { (shown(if one.title.is_empty() { &one.issue } else { &one.title })) } }
                                p .by { span { (shown(&one.place)) } span .name { (shown(&one.issue)) } }
                            }
                            (since(one.since, now))
                        }
                    }
                }
            }
        }
    }
}
