//! The list of sandboxes: counts by phase, rows, and what to do where there is none.
//!
//! Each part that the script may replace alone carries a `data-key`; none lies within another.

use std::sync::Arc;

use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::engine::DriftItem;
use crate::sandbox::Health;
use crate::store::Page;
use crate::types::{Phase, ProviderName, Sandbox, Timestamp, inert};

use super::time::ago;

/// What the list shows.
pub struct ListView {
    /// As of when.
    pub now: Timestamp,
    /// How the server is reached.
    pub base_url: String,
    /// Only this phase.
    pub phase: Option<Phase>,
    /// Only what contains this.
    pub search: Option<String>,
    /// Whether the newest are shown.
    pub is_first_page: bool,
    /// How many are in each phase, of all.
    pub counts: Vec<(Phase, u64)>,
    /// What is on this page.
    pub found: Page<Sandbox>,
    /// Where the event stream goes on from this list.
    pub event_cursor: String,
    /// How the providers are.
    pub health: Arc<Vec<(ProviderName, Health)>>,
    /// The providers that nothing is asked of because they cannot be reached, with that in words.
    pub unreachable: Vec<(ProviderName, String)>,
    /// What records and providers disagree on and a person must see to.
    pub alarms: Vec<DriftItem>,
    /// The label that starts a sandbox; empty where none does.
    pub trigger_label: String,
}

/// How many alarms are shown each with its words; more are counted.
const ALARMS_MAX: usize = 5;

/// The whole list.
pub fn render(view: &ListView) -> Markup {
    let live: u64 = view.counts.iter().map(|(_, count)| count).sum();
    let is_filtered = view.phase.is_some() || view.search.is_some();
    html! {
        section #live data-cursor=(view.event_cursor) aria-label="Sandboxes" {
            div .head {
                h1 { "Sandboxes" }
                (search(view))
            }
            (tabs(view, live))
            (troubles(view))
            @if view.found.items.is_empty() {
                div .empty data-key="empty" {
                    @if is_filtered || !view.is_first_page {
                        p { "No sandbox matches." }
                        p { a href="/" { "Show all" } }
                    } @else {
                        (beginning(view))
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

fn search(view: &ListView) -> Markup {
    html! {
        form .search role="search" method="get" action="/" data-key="search" {
            @if let Some(phase) = view.phase {
                input type="hidden" name="phase" value=(phase);
            }
            input type="search" name="q" value=[view.search.as_deref()] maxlength="200"
                placeholder="Search" aria-label="Search by title, repository, name or id";
        }
    }
}

fn tabs(view: &ListView, live: u64) -> Markup {
    let link = |phase: Option<Phase>, word: &str, count: u64| {
        let href = address(phase, view.search.as_deref(), None);
        let current = (phase == view.phase).then_some("page");
        html! {
            a href=(href) aria-current=[current] data-key={ "tab-" (word) } {
                (word) " " span .count { (count) }
            }
        }
    };
    html! {
        nav .tabs aria-label="By phase" {
            (link(None, "all", live))
            @for phase in Phase::ALL {
                @let count = view.counts.iter().find(|(p, _)| p == phase).map_or(0, |(_, n)| *n);
                @if count > 0 || view.phase == Some(*phase) {
                    (link(Some(*phase), phase.as_str(), count))
                }
            }
        }
    }
}

fn row(sandbox: &Sandbox, now: Timestamp) -> Markup {
    let phase = sandbox.phase.map_or("deleted", Phase::as_str);
    let title = sandbox.issue_title.as_deref().unwrap_or(&sandbox.name);
    let title = inert(title);
    // What is not https is not linked: an address may be of a scheme that runs something.
    let url = sandbox.issue_url.as_deref().filter(|url| url.starts_with("https://"));
    html! {
        li .row .(phase) data-key=(sandbox.id) {
            span .mark aria-hidden="true" {}
            div .what {
                p .title {
                    @match url {
                        Some(url) => a href=(url) rel="noopener noreferrer" { bdi { (title) } },
                        None => bdi { (title) },
                    }
                }
                p .of {
                    @if let Some(repository) = &sandbox.repository {
                        span { (inert(repository.as_str()))
                            @if let Some(number) = sandbox.issue_number { "#" (number) } }
                    }
                    @if sandbox.issue_title.is_some() || sandbox.repository.is_some() {
                        span .name { (inert(&sandbox.name)) }
                    }
                    span { (inert(sandbox.provider.as_str())) }
                    @if sandbox.generation.0 > 1 { span { "generation " (sandbox.generation) } }
                }
                @match &sandbox.failure {
                    Some(failure) => p .why .failure { bdi { (inert(&failure.message)) } },
                    None => p .why { bdi { (inert(&sandbox.reason)) } },
                }
            }
            p .phase { (phase) }
            (since(sandbox.phase_since, now))
        }
    }
}

fn since(at: Timestamp, now: Timestamp) -> Markup {
    html! {
        time datetime=(at) title=(at) { (ago(now.since(at))) }
    }
}

/// What stands in the way, before anybody asks why nothing happens.
fn troubles(view: &ListView) -> Markup {
    html! {
        @for (name, health) in view.health.iter() {
            @if let Some((_, sentence)) = view.unreachable.iter().find(|(of, _)| of == name) {
                p .trouble role="alert" data-key={ "trouble-" (name) } {
                    strong { bdi { (inert(sentence)) } }
                }
            } @else if let Some(trouble) = &health.trouble {
                p .trouble role="alert" data-key={ "trouble-" (name) } {
                    strong { (inert(name.as_str())) " cannot work now. " } bdi { (inert(trouble)) }
                }
            }
        }
        @for alarm in view.alarms.iter().take(ALARMS_MAX) {
            p .trouble role="alert" data-key={ "drift-" (inert(&alarm.id)) } {
                strong { (inert(&alarm.id)) ": " } bdi { (inert(&alarm.reason)) }
                " See " code { "issuebox drift" } "."
            }
        }
        @if let Some(more) = view.alarms.len().checked_sub(ALARMS_MAX + 1) {
            p .trouble role="alert" data-key="drift-more" { (more + 1) " more of the kind." }
        }
    }
}

/// How to begin, where nothing is there yet.
fn beginning(view: &ListView) -> Markup {
    let base = inert(&view.base_url);
    html! {
        h2 { "No sandboxes yet" }
        p { "Each GitHub issue gets exactly one, once somebody asks for it." }
        ol .steps {
            li {
                h3 { "Let GitHub ask" }
                p { "Add a webhook to a repository: content type " code { "application/json" }
                    ", events " em { "Issues" } " and " em { "Issue comments" }
                    ", the secret from the server's data directory, and this address:" }
                pre tabindex="0" { code { (base) "/webhooks/github" } }
                @if !view.trigger_label.is_empty() {
                    p { "Then put the label " code { (inert(&view.trigger_label)) } " on an issue." }
                }
            }
            li {
                h3 { "Or ask yourself" }
                pre tabindex="0" { code {
                    "curl -X PUT \\\n"
                    "  -H \"Authorization: Bearer $ISSUEBOX_TOKEN\" \\\n"
                    "  " (base) "/v1/issues/test-123/sandbox"
                } }
                p { "This page shows it as soon as it is recorded." }
            }
        }
    }
}

fn foot(view: &ListView) -> Markup {
    let older = view.found.next.as_deref();
    html! {
        footer .foot data-key="foot" {
            p .providers {
                @for (name, health) in view.health.iter() {
                    @let is_out = view.unreachable.iter().any(|(of, _)| of == name);
                    span .(if is_out || health.trouble.is_some() { "down" } else { "up" }) {
                        (inert(name.as_str())) " · isolation " (health.isolation.kind)
                    }
                }
            }
            @if older.is_some() || !view.is_first_page {
                nav .pages aria-label="Pages" {
                    @if !view.is_first_page {
                        a href=(address(view.phase, view.search.as_deref(), None)) { "Newest" }
                    }
                    @if older.is_some() {
                        a href=(address(view.phase, view.search.as_deref(), older)) { "Older" }
                    }
                }
            }
        }
    }
}

/// The page with these filters.
fn address(phase: Option<Phase>, search: Option<&str>, cursor: Option<&str>) -> String {
    let parts = [("phase", phase.map(Phase::as_str)), ("q", search), ("cursor", cursor)];
    let query: Vec<String> = parts
        .into_iter()
        .filter_map(|(name, value)| {
            Some(format!("{name}={}", utf8_percent_encode(value?, NON_ALPHANUMERIC)))
        })
        .collect();
    if query.is_empty() { "/".into() } else { format!("/?{}", query.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire::tests::sample;

    fn view(items: Vec<Sandbox>) -> ListView {
        ListView {
            now: Timestamp::from_unix_ms(1_769_860_800_000 + 125_000),
            base_url: "http://127.0.0.1:8787".into(),
            phase: None,
            search: None,
            is_first_page: true,
            counts: vec![(Phase::Running, items.len() as u64)],
            found: Page { total: items.len() as u64, items, next: None },
            event_cursor: "run-1".into(),
            health: Arc::default(),
            unreachable: Vec::new(),
            alarms: Vec::new(),
            trigger_label: "agent".into(),
        }
    }

    #[test]
    fn a_row_shows_phase_reason_issue_repository_and_since() {
        let page = render(&view(vec![sample("5")])).0;
        for part in ["running", "it is up", "A &quot;title&quot;", "Octo/hello#7", ">2 min</time>"]
        {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(page.contains(r#"datetime="2026-01-31T12:00:00.000Z""#));
    }

    #[test]
    fn hostile_text_is_shown_and_does_nothing() {
        let hostile = Sandbox {
            issue_title: Some("<script>alert(1)</script>\u{202e}\u{1b}[31m\"'".into()),
            issue_url: Some("javascript:alert(1)".into()),
            reason: "<img src=x onerror=alert(1)>".into(),
            ..sample("5")
        };
        let page = render(&view(vec![hostile])).0;
        for bad in ["<script", "<img", "\u{202e}", "\u{1b}", "javascript:"] {
            assert!(!page.contains(bad), "{bad:?} is live in {page}");
        }
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn no_part_that_is_exchanged_lies_within_another() {
        let page = render(&view(vec![sample("5"), sample("6")])).0;
        let (mut open, mut within) = (Vec::new(), 0);
        for tag in page.split('<').skip(1).map(|tag| tag.split('>').next().unwrap_or_default()) {
            let name = tag.split(' ').next().unwrap_or_default();
            if name.starts_with('/') {
                within -= usize::from(open.pop() == Some(true));
            } else if name != "input" {
                let is_part = tag.contains("data-key");
                assert!(!is_part || within == 0, "{tag} lies within another part");
                within += usize::from(is_part);
                open.push(is_part);
            }
        }
        assert!(open.is_empty(), "the tags are balanced");
    }

    #[test]
    fn an_empty_list_says_how_to_begin() {
        let page = render(&view(Vec::new())).0;
        assert!(page.contains("http://127.0.0.1:8787/webhooks/github"));
        assert!(page.contains("/v1/issues/test-123/sandbox"));
        let filtered = ListView { search: Some("x".into()), ..view(Vec::new()) };
        assert!(render(&filtered).0.contains("No sandbox matches."));
    }

    #[test]
    fn links_keep_the_filters() {
        let link = address(Some(Phase::Failed), Some("a&b"), Some("c=1"));
        assert_eq!(link, "/?phase=failed&q=a%26b&cursor=c%3D1");
        assert_eq!(address(None, None, None), "/");
    }
}
