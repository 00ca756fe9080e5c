//! The list, rendered.

use super::*;
use crate::http::wire::tests::sample;

fn view(items: Vec<Sandbox>) -> ListView {
    let total = items.len() as u64;
    let survey = Arc::new(Survey {
        total,
        phases: vec![(Phase::Running, total)],
        repositories: vec![("Octo/hello".into(), 2), ("octo/other".into(), 1)],
        ..Survey::default()
    });
    ListView {
        now: Timestamp::from_unix_ms(1_769_860_800_000 + 125_000),
        filter: SandboxFilter::default(),
        is_first_page: true,
        survey: Arc::clone(&survey),
        counted: survey,
        found: Page { total, items, next: None },
        health: Arc::default(),
        templates: vec!["default".into()],
        may_create: true,
        progress: None,
    }
}

#[test]
fn a_row_shows_phase_reason_issue_repository_and_since() {
    let page = render(&view(vec![sample("5")]), &html! {}).0;
    for part in ["running", "it is up", "A &quot;title&quot;", "Octo/hello#7", ">2 min</time>"] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert!(page.contains(r#"datetime="2026-01-31T12:00:00.000Z""#));
    assert!(page.contains(r#"href="/sandboxes/sb-5""#));
}

#[test]
fn hostile_text_is_shown_and_does_nothing() {
    let hostile = Sandbox {
        issue_title: Some("<script>alert(1)</script>\u{202e}\u{1b}[31m\"'".into()),
        issue_url: Some("javascript:alert(1)".into()),
        reason: "<img src=x onerror=alert(1)>".into(),
        ..sample("5")
    };
    let page = render(&view(vec![hostile]), &html! {}).0;
    for bad in ["<script", "<img", "\u{202e}", "\u{1b}", "javascript:"] {
        assert!(!page.contains(bad), "{bad:?} is live in {page}");
    }
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn no_part_that_is_exchanged_lies_within_another() {
    let page = render(&view(vec![sample("5"), sample("6")]), &html! {}).0;
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
    let page = render(&view(Vec::new()), &html! {}).0;
    assert!(page.contains("No live sandboxes") && page.contains("href=\"/connect\""));
    let filter = SandboxFilter { text: Some("x".into()), ..SandboxFilter::default() };
    let filtered = ListView { filter, ..view(Vec::new()) };
    assert!(render(&filtered, &html! {}).0.contains("No sandbox matches."));
}

#[test]
fn links_keep_the_filters() {
    let filter = SandboxFilter {
        phase: Some(Phase::Failed),
        text: Some("a&b".into()),
        provider: Some(ProviderName::trusted("local")),
        ..SandboxFilter::default()
    };
    assert_eq!(address(&filter, Some("c=1")), "/?phase=failed&q=a%26b&provider=local&cursor=c%3D1");
    assert_eq!(address(&SandboxFilter::default(), None), "/");
    let deleted = SandboxFilter { only_deleted: true, ..SandboxFilter::default() };
    assert_eq!(address(&deleted, None), "/?phase=deleted");
    let page = render(&ListView { filter, ..view(vec![sample("5")]) }, &html! {}).0;
    assert!(page.contains("href=\"/?phase=running&amp;q=a%26b&amp;provider=local\""), "{page}");
}

#[test]
fn what_can_be_chosen_is_offered_and_what_is_chosen_is_selected() {
    let filter = SandboxFilter {
        repository: crate::types::Repository::parse("OCTO/other").ok(),
        ..SandboxFilter::default()
    };
    let page = render(&ListView { filter, ..view(vec![sample("5")]) }, &html! {}).0;
    assert!(page.contains("<option value=\"octo/other\" selected>"), "{page}");
    assert!(!page.contains("name=\"template\""), "there is one template, nothing to choose");
}
