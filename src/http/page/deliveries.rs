//! Deliveries: each with its status, reason and issue. Rejected ones are listed too, to explain a
//! webhook that has no effect.

use actix_web::{HttpRequest, HttpResponse, get, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::deliveries::{DeliveryAsk, DeliveryBody, Status, find};
use crate::http::query::Query;
use crate::http::wire::ListAnswer;
use crate::store::PageAsk;
use crate::types::Timestamp;

use super::asked::asked;
use super::error::PageError;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::since;
use super::visitor::Visitor;

/// Deliveries on one page.
const ROWS_MAX: usize = 50;
/// Seconds between updates of the page: refused deliveries cause no event.
const POLL_SECS: u32 = 5;

/// Shows the deliveries, newest first.
#[get("/deliveries")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let page = PageAsk { limit: ROWS_MAX, cursor: query.text("cursor")? };
    let ask = DeliveryAsk::read(&mut query, page)?;
    query.finish()?;
    let frame = Frame::begin(&shared, &visitor, PageSection::Deliveries, "Deliveries").await;
    let frame = frame.polled(POLL_SECS);
    let found = find(&shared, &visitor.caller, ask.clone()).await?;
    let now = shared.edge.clock.now();
    Ok(super::html(&frame.render(&render(&ask, &found, now))))
}

fn render(ask: &DeliveryAsk, found: &ListAnswer<DeliveryBody>, now: Timestamp) -> Markup {
    html! {
        div .head {
            h1 { "Deliveries" }
            p .soft { a href="/connect" { "Connect a repository" } }
            (filters(ask))
        }
        section #live data-live aria-label="Deliveries" {
            (tabs(ask))
            @if found.data.is_empty() {
                div .empty .card data-key="empty" {
                    @if ask.status.is_some() || ask.event.is_some() || ask.issue.is_some() {
                        p { "No delivery matches." }
                        p { a href="/deliveries" { "Show all" } }
                    } @else {
                        p { "GitHub has sent no delivery yet. "
                            a href="/connect" { "Connect a repository" } "." }
                    }
                }
            } @else {
                ul .rows role="list" { @for one in &found.data { (row(one, now)) } }
            }
            (foot(ask, found))
        }
    }
}

fn filters(ask: &DeliveryAsk) -> Markup {
    html! {
        form .filters role="search" method="get" action="/deliveries" {
            @if let Some(status) = ask.status {
                input type="hidden" name="status" value=(status.as_str());
            }
            input #search type="search" name="issueId" value=[ask.issue.as_ref().map(ToString::to_string)]
                maxlength="64" placeholder="Issue id" aria-label="Filter by issue" aria-keyshortcuts="/";
            input type="search" name="event" value=[ask.event.as_deref()] maxlength="64" list="events"
                placeholder="Event" aria-label="Filter by event";
            datalist #events {
                @for event in ["issues", "issue_comment", "ping", "repository", "installation"] {
                    option value=(event) {}
                }
            }
            button type="submit" { "Filter" }
        }
    }
}

fn tabs(ask: &DeliveryAsk) -> Markup {
    let link = |status: Option<Status>, word: &str| {
        let href = address(&DeliveryAsk { status, ..ask.clone() }, None);
        let current = (status == ask.status).then_some("page");
        html! { a href=(href) aria-current=[current] data-key={ "tab-" (word) } { (word) } }
    };
    html! {
        nav .tabs aria-label="By status" {
            (link(None, "all"))
            @for status in Status::ALL { (link(Some(status), &words(status.as_str()))) }
        }
    }
}

/// A stable word for people.
fn words(word: &str) -> String {
    word.replace('_', " ")
}

/// The colour of a status.
fn tone(status: &str) -> &'static str {
    match Status::ALL.into_iter().find(|one| one.as_str() == status) {
        Some(Status::Accepted) => "good",
        Some(Status::Pending) => "mild",
        Some(Status::SetAside | Status::BadlySigned | Status::Refused) => "bad",
        Some(Status::Ignored) | None => "",
    }
}

/// One delivery as a row.
pub fn row(one: &DeliveryBody, now: Timestamp) -> Markup {
    let id = one.delivery.as_deref().unwrap_or("without an id");
    let event = one.event.as_deref().unwrap_or("unknown event");
    let at = Timestamp::parse(&one.received_at).unwrap_or(now);
    html! {
        li .row .delivery id={ "d-" (shown(id)) } data-key={ "d-" (shown(id)) (one.received_at) } {
            span .tag .(tone(one.status)) { (words(one.status)) }
            div .what {
                p .title {
                    (shown(event)) @if let Some(action) = &one.action { "." (shown(action)) }
                }
                p .why { bdi { (shown(&one.reason)) } }
                @if let Some(instruction) = &one.instruction { (asked(instruction)) }
                p .of {
                    @if let Some(issue) = &one.issue_id {
                        span {
                            @match &one.sandbox_name {
                                Some(name) => a href={ "/sandboxes/" (name) } data-row { (shown(name)) },
                                None => { "issue " (shown(issue)) }
                            }
                        }
                    }
                    span .name { (shown(id)) }
                    @if one.recovered {
                        span title="It did not arrive; the server read it from GitHub" { "recovered" }
                    }
                }
            }
            (since(at, now))
        }
    }
}

fn foot(ask: &DeliveryAsk, found: &ListAnswer<DeliveryBody>) -> Markup {
    let older = found.next_cursor.as_deref();
    let is_first_page = ask.page.cursor.is_none();
    html! {
        footer .foot data-key="foot" {
            p { (found.data.len()) " of " (found.total)
                ". Duplicates are not listed; a restart forgets refused deliveries." }
            @if older.is_some() || !is_first_page {
                nav .pages aria-label="Pages" {
                    @if !is_first_page { a href=(address(ask, None)) { "Newest" } }
                    @if older.is_some() { a href=(address(ask, older)) rel="next" { "Older" } }
                }
            }
        }
    }
}

/// The page with these filters.
fn address(ask: &DeliveryAsk, cursor: Option<&str>) -> String {
    let parts = [
        ("status", ask.status.map(Status::as_str)),
        ("event", ask.event.as_deref()),
        ("issueId", ask.issue.as_ref().map(|issue| issue.as_str())),
        ("cursor", cursor),
    ];
    super::address("/deliveries", &parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(status: &'static str, reason: &str) -> DeliveryBody {
        DeliveryBody {
            delivery: Some("0190".into()),
            event: Some("issues".into()),
            action: Some("labeled".into()),
            status,
            reason: reason.into(),
            issue_id: Some("5".into()),
            sandbox_name: Some("claude-issue-5".into()),
            received_at: "2026-01-31T12:00:00.000Z".into(),
            recovered: false,
            instruction: None,
        }
    }

    fn page(data: Vec<DeliveryBody>) -> String {
        let ask = DeliveryAsk {
            event: None,
            status: Some(Status::BadlySigned),
            issue: None,
            page: PageAsk { limit: 50, cursor: None },
        };
        let total = data.len() as u64;
        let found = ListAnswer {
            success: true,
            data,
            next_cursor: Some("n".into()),
            total,
            event_cursor: None,
        };
        render(&ask, &found, Timestamp::from_unix_ms(1_769_860_800_000 + 65_000)).0
    }

    /// Two text fields are sent by Enter only if the form has a button that submits it.
    #[test]
    fn the_filter_has_a_button_that_sends_it_with_scripts_too() {
        let page = page(Vec::new());
        let form =
            &page[page.find("<form").expect("a form")..page.find("</form>").expect("its end")];
        assert!(form.contains("<button type=\"submit\">Filter</button>"), "{form}");
        assert!(!form.contains("noscript"), "{form}");
    }

    #[test]
    fn a_row_says_what_came_what_became_of_it_why_and_where_it_led() {
        let page = page(vec![body("accepted", "the label was put on")]);
        let parts = [
            "issues.labeled",
            "accepted",
            "the label was put on",
            "href=\"/sandboxes/claude-issue-5\"",
            "id=\"d-0190\"",
            ">1 min</time>",
        ];
        for part in parts {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(page.contains("/deliveries?status=badly_signed&amp;cursor=n"), "{page}");
    }

    #[test]
    fn a_row_marks_a_delivery_that_was_read_from_github() {
        let arrived = page(vec![body("accepted", "")]);
        let read = page(vec![DeliveryBody { recovered: true, ..body("accepted", "") }]);
        assert!(!arrived.contains(">recovered<") && read.contains(">recovered<"), "{read}");
    }

    #[test]
    fn what_a_stranger_wrote_into_headers_does_nothing() {
        let hostile = DeliveryBody {
            delivery: Some("\"><script>".into()),
            event: Some("<img src=x>\u{1b}[2J".into()),
            action: None,
            issue_id: None,
            sandbox_name: None,
            ..body("badly_signed", "the signature does not match")
        };
        let page = page(vec![hostile]);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{1b}'));
    }
}
