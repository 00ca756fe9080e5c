//! The list of sandboxes: counts by phase, filters, rows, and first steps if there are none.
//!
//! Each part that the script may replace alone carries a `data-key`; none lies within another.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::sandboxes::{DELETED, read_filter};
use crate::http::query::Query;
use crate::http::survey::Survey;
use crate::sandbox::Health;
use crate::store::{Page, PageAsk, SandboxFilter, Store};
use crate::types::{Phase, ProviderName, Role, Sandbox, Timestamp};

use super::connect::{self, Progress};
use super::error::PageError;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::since;
use super::visitor::Visitor;

/// Sandboxes on one page.
const ROWS_MAX: usize = 50;

/// Shows the list of sandboxes, or the log-in form without a session.
#[utoipa::path(
    operation_id = "showSandboxes", tag = "page",
    responses(
        (status = 200, description = "the page, or the log-in page",
         body = String, content_type = "text/html"),
        (status = 400, description = "a filter has a wrong form",
         body = String, content_type = "text/html"),
        (status = 503, description = "the store cannot be read",
         body = String, content_type = "text/html"),
    )
)]
#[get("/")]
pub async fn home(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let cursor = query.text("cursor")?;
    let is_first_page = cursor.is_none();
    let filter = read_filter(&mut query)?;
    query.finish()?;
    let frame = Frame::begin(&shared, &visitor, PageSection::Sandboxes, "Sandboxes").await.first();
    let ask = PageAsk { limit: ROWS_MAX, cursor };
    let (account, of) = (visitor.caller.account.clone(), filter.clone());
    let list = async move |store: Arc<dyn Store>| store.sandboxes(&account, &of, &ask).await;
    let found = shared.read_list(list).await?;
    let is_new = found.items.is_empty() && !is_narrowed(&filter) && is_first_page;
    // Connecting the server is for admins, and names what is installed for every account.
    let progress = if is_new && visitor.caller.is_admin() {
        Some(Progress::look(&shared, &request, &visitor.caller).await?)
    } else {
        None
    };
    let progress = progress.filter(|progress| !progress.is_over());
    let frame = if progress.is_some() { frame.polled(connect::POLL_SECS) } else { frame };
    let templates = shared.edge.engine.templates();
    let all = Arc::clone(&frame.attention().survey);
    let everything =
        SandboxFilter { include_deleted: filter.include_deleted, ..Default::default() };
    let counted = match (SandboxFilter { phase: None, only_deleted: false, ..filter.clone() }) {
        of if of == everything => Arc::clone(&all),
        of => {
            let (live, now) = (&shared.edge.feed.live, shared.edge.clock.now());
            let account = &visitor.caller.account;
            Arc::new(Survey::of_matching(live, account, now, |one| of.matches_but_for_phase(one)))
        }
    };
    let view = ListView {
        now: shared.edge.clock.now(),
        filter,
        is_first_page,
        survey: all,
        counted,
        found,
        health: shared.provider_health().await,
        templates: templates.into_iter().map(|template| template.name.to_string()).collect(),
        may_create: visitor.caller.role >= Role::Operator,
        progress,
    };
    Ok(super::html(&frame.render(&render(&view, &frame.token()))))
}

/// What the list shows.
struct ListView {
    /// The time of this view.
    now: Timestamp,
    /// The filters in force.
    filter: SandboxFilter,
    /// Whether this is the first page.
    is_first_page: bool,
    /// All live sandboxes, whatever the filter.
    survey: Arc<Survey>,
    /// The live sandboxes that match the filter, in any phase.
    counted: Arc<Survey>,
    /// The sandboxes of this page.
    found: Page<Sandbox>,
    /// The health of the providers.
    health: Arc<Vec<(ProviderName, Health)>>,
    /// The names of the templates.
    templates: Vec<String>,
    /// Whether the visitor may create one.
    may_create: bool,
    /// The progress of the first steps, as long as there was never a sandbox.
    progress: Option<Progress>,
}

/// The whole list.
fn render(view: &ListView, token: &Markup) -> Markup {
    html! {
        div .head {
            h1 { "Sandboxes" }
            @if view.may_create { a .button .primary href="/create" { "New sandbox" } }
            (filters(view))
        }
        section #live data-live aria-label="Sandboxes" {
            (tabs(view))
            @if view.found.items.is_empty() {
                @if is_narrowed(&view.filter) || !view.is_first_page {
                    div .empty .card data-key="empty" {
                        p { "No sandbox matches." }
                        p { a href="/" { "Show all" } }
                    }
                } @else if let Some(progress) = &view.progress {
                    (connect::checklist(progress, token, None))
                } @else {
                    div .empty .card data-key="empty" {
                        h2 { "No live sandboxes" }
                        p { "List the "
                            a href="/?deleted=true" { "deleted sandboxes" } ", or see "
                            a href="/connect" { "how to get one" } "." }
                    }
                }
            } @else {
                ul .rows role="list" {
                    @for sandbox in &view.found.items { (row(sandbox, view.now)) }
                }
            }
            (foot(view))
        }
    }
}

fn is_narrowed(filter: &SandboxFilter) -> bool {
    *filter != SandboxFilter::default()
}

fn filters(view: &ListView) -> Markup {
    let SandboxFilter { provider, repository, template, text, include_deleted, .. } = &view.filter;
    let providers = view.health.iter().map(|(name, _)| name.to_string());
    let chosen = |of: Option<String>| of.unwrap_or_default();
    html! {
        form .filters role="search" method="get" action="/" data-search {
            @if let Some(phase) = phase_word(&view.filter) { input type="hidden" name="phase" value=(phase); }
            @if *include_deleted { input type="hidden" name="deleted" value="true"; }
            input #search type="search" name="q" value=[text.as_deref()] maxlength="200"
                placeholder="Search" aria-label="Search by title, repository, name or id" aria-keyshortcuts="/";
            (choice("repository", "All repositories", view.survey.repositories.iter().map(|(name, _)| name.clone()),
                &chosen(repository.as_ref().map(ToString::to_string))))
            (choice("provider", "All providers", providers,
                &chosen(provider.as_ref().map(ToString::to_string))))
            (choice("template", "All templates", view.templates.iter().cloned(),
                &chosen(template.as_ref().map(ToString::to_string))))
            noscript { button type="submit" { "Filter" } }
        }
    }
}

/// A select box; the script submits it when it changes.
fn choice(name: &str, all: &str, offered: impl Iterator<Item = String>, chosen: &str) -> Markup {
    let mut offered: Vec<String> = offered.collect();
    if !chosen.is_empty() && !offered.iter().any(|one| one.eq_ignore_ascii_case(chosen)) {
        offered.push(chosen.to_owned());
    }
    // One option is no choice.
    let is_needed = offered.len() > 1 || !chosen.is_empty();
    html! {
        @if is_needed {
            select name=(name) aria-label=(name) data-submit {
                option value="" { (all) }
                @for one in &offered {
                    option value=(one) selected[one.eq_ignore_ascii_case(chosen)] { (shown(one)) }
                }
            }
        }
    }
}

fn tabs(view: &ListView) -> Markup {
    let now = &view.filter;
    let link = |phase: Option<Phase>, word: &str, count: u64| {
        let of =
            SandboxFilter { phase, include_deleted: false, only_deleted: false, ..now.clone() };
        let href = address(&of, None);
        let is_current = phase == now.phase && !now.include_deleted && !now.only_deleted;
        html! {
            a href=(href) aria-current=[is_current.then_some("page")] data-key={ "tab-" (word) } {
                (word) " " span .count { (count) }
            }
        }
    };
    html! {
        nav .tabs aria-label="By phase" {
            (link(None, "all", view.counted.total))
            @for phase in Phase::ALL {
                @let count = view.counted.in_phase(*phase);
                @if count > 0 || now.phase == Some(*phase) {
                    (link(Some(*phase), phase.as_str(), count))
                }
            }
            @let past = SandboxFilter { phase: None, include_deleted: true, only_deleted: false, ..now.clone() };
            a href=(address(&past, None)) aria-current=[now.include_deleted.then_some("page")]
                data-key="tab-past" { "with deleted" }
        }
    }
}

fn row(sandbox: &Sandbox, now: Timestamp) -> Markup {
    let phase = sandbox.phase.map_or("deleted", Phase::as_str);
    let title = sandbox.issue_title.as_deref().unwrap_or(&sandbox.name);
    let at = sandbox.deleted_at.unwrap_or(sandbox.phase_since);
    html! {
        li .row .(phase) data-key=(sandbox.id) {
            span .mark aria-hidden="true" {}
            div .what {
                p .title { a href={ "/sandboxes/" (sandbox.id) } data-row { bdi { (shown(title)) } } }
                p .of {
                    (issue_link(sandbox))
                    @if sandbox.issue_title.is_some() || sandbox.repository.is_some() {
                        span .name { (shown(&sandbox.name)) }
                    }
                    span { (shown(sandbox.provider.as_str())) }
                    @if sandbox.generation.0 > 1 { span { "generation " (sandbox.generation) } }
                }
                @match &sandbox.failure {
                    Some(failure) => p .why .failure { bdi { (shown(&failure.message)) } },
                    None => p .why { bdi { (shown(&sandbox.reason)) } },
                }
            }
            p .phase { (phase) }
            (since(at, now))
        }
    }
}

/// The issue's repository and number, as a link to GitHub if its address is known.
pub fn issue_link(sandbox: &Sandbox) -> Markup {
    // Only https is linked: other schemes, such as javascript, could run code.
    let url = sandbox.issue_url.as_deref().filter(|url| url.starts_with("https://"));
    let Some(repository) = &sandbox.repository else { return html! {} };
    let place = html! {
        (shown(repository.as_str()))
        @if let Some(number) = sandbox.issue_number { "#" (number) }
    };
    html! {
        span {
            @match url {
                Some(url) => a .out href=(url) rel="noopener noreferrer" { (place) },
                None => (place),
            }
        }
    }
}

fn foot(view: &ListView) -> Markup {
    let older = view.found.next.as_deref();
    let shown = view.found.items.len();
    html! {
        footer .foot data-key="foot" {
            p { @if shown > 0 { (shown) " of " (view.found.total) } }
            @if older.is_some() || !view.is_first_page {
                nav .pages aria-label="Pages" {
                    @if !view.is_first_page { a href=(address(&view.filter, None)) { "Newest" } }
                    @if older.is_some() { a href=(address(&view.filter, older)) rel="next" { "Older" } }
                }
            }
        }
    }
}

/// The phase in the address of a filter.
fn phase_word(filter: &SandboxFilter) -> Option<&'static str> {
    filter.phase.map(Phase::as_str).or(filter.only_deleted.then_some(DELETED))
}

/// The page with these filters.
fn address(filter: &SandboxFilter, cursor: Option<&str>) -> String {
    let SandboxFilter { provider, repository, template, text, include_deleted, .. } = filter;
    let parts = [
        ("phase", phase_word(filter)),
        ("q", text.as_deref()),
        ("repository", repository.as_ref().map(|one| one.as_str())),
        ("provider", provider.as_ref().map(|one| one.as_str())),
        ("template", template.as_ref().map(|one| one.as_str())),
        ("deleted", include_deleted.then_some("true")),
        ("cursor", cursor),
    ];
    super::address("/", &parts)
}

#[cfg(test)]
mod tests;
