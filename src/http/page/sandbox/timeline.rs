//! The timeline of a sandbox's issue: each transition with its reason and cause.

use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::http::page::asked::asked;
use crate::http::page::text::shown;
use crate::http::page::time::since;
use crate::store::TimelineListRow;
use crate::types::{Cause, IssueId, Phase, Timestamp};

use super::View;

/// The timeline in a card.
pub(super) fn card(view: &View) -> Markup {
    let older = view.timeline.next.as_deref();
    let base = format!("/sandboxes/{}", view.sandbox.id);
    html! {
        div .card .history {
            h2 { "Timeline" }
            @if view.timeline.items.is_empty() {
                p .soft { "The timeline was pruned." }
            }
            ol .timeline role="list" {
                @for row in &view.timeline.items {
                    (step(row, &view.sandbox.issue_id, view.now))
                }
            }
            @if older.is_some() || !view.is_first_page {
                nav .pages aria-label="Pages of the timeline" {
                    @if !view.is_first_page { a href=(base) { "Newest" } }
                    @if let Some(older) = older {
                        a href={ (base) "?cursor=" (utf8_percent_encode(older, NON_ALPHANUMERIC)) } { "Older" }
                    }
                }
            }
        }
    }
}

fn step(row: &TimelineListRow, issue: &IssueId, now: Timestamp) -> Markup {
    let TimelineListRow { entry, instruction } = row;
    let phase = entry.to.map_or("deleted", Phase::as_str);
    let moved = entry.from != entry.to;
    // The colour of a phase means that it was entered.
    let tone = match entry.cause == Cause::PROVIDER_EVENT.to_string() {
        _ if moved => phase,
        true => "noticed",
        false => "noted",
    };
    html! {
        li .step .(tone) data-key={ "step-" (entry.at) "-" (phase) "-" (shown(&entry.reason)) } {
            span .mark aria-hidden="true" {}
            div {
                p {
                    @if moved { strong .phase { (phase) } " " }
                    bdi { (shown(&entry.reason)) }
                }
                @if let Some(excerpt) = instruction { (asked(&excerpt.clone().into())) }
                p .by {
                    (cause(&entry.cause, issue))
                    @if entry.generation.0 > 1 { span { "generation " (entry.generation) } }
                }
            }
            (since(entry.at, now))
        }
    }
}

/// The cause of an entry; a delivery is a link.
fn cause(cause: &str, issue: &IssueId) -> Markup {
    let delivery = cause.strip_prefix("delivery ");
    html! {
        @match delivery {
            Some(id) => {
                a href={ "/deliveries?issueId=" (issue) "#d-" (shown(id)) } title=(shown(id)) {
                    "delivery " (shown(id.get(..8).unwrap_or(id)))
                }
            }
            None => span { (shown(cause)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Generation, TimelineEntry};

    #[test]
    fn only_a_phase_that_was_entered_has_its_colour() {
        let at = Timestamp::from_unix_ms(0);
        let shown = |from: Phase, to: Phase, cause: &Cause| {
            let (from, to) = (Some(from), Some(to));
            let (reason, cause) = ("memory limit 512 MB reached".to_owned(), cause.to_string());
            let entry = TimelineEntry { at, generation: Generation(1), from, to, reason, cause };
            let row = TimelineListRow { entry, instruction: None };
            step(&row, &IssueId::parse("5").expect("an id"), at).0
        };
        let event = Cause::PROVIDER_EVENT;
        assert!(shown(Phase::Running, Phase::Running, &event).contains("class=\"step noticed\""));
        let service = Cause::Service("scheduler");
        assert!(shown(Phase::Running, Phase::Running, &service).contains("class=\"step noted\""));
        assert!(shown(Phase::Running, Phase::Stopping, &event).contains("class=\"step stopping\""));
    }
}
