//! Problems that need a person: failed and stuck sandboxes, providers that cannot work, drift, and
//! holds.

use std::sync::Arc;

use maud::{Markup, html};

use crate::engine::DriftItem;
use crate::http::Shared;
use crate::http::caller::Caller;
use crate::http::hold_access;
use crate::http::hold_labels;
use crate::http::survey::{SandboxGroup, Survey};
use crate::types::{Hold, Phase, ProviderName, Sandbox, tally};

use super::text::shown;
use super::time::ago;

/// Lines of one kind that are shown; the rest is counted.
const LINES_MAX: usize = 3;

/// The problems that need a person.
pub struct Attention {
    /// A survey of the live sandboxes.
    pub survey: Arc<Survey>,
    /// Providers that cannot work, each with the reason.
    pub providers: Vec<(ProviderName, String)>,
    /// Drift that needs a decision.
    pub alarms: Vec<DriftItem>,
    /// The number of drift items.
    pub drift_count: u64,
    /// The holds in force.
    pub holds: Vec<Hold>,
    /// What the first of them cover, for people.
    labels: Vec<String>,
    /// The time of this view.
    now: crate::types::Timestamp,
}

impl Attention {
    /// Collects the problems.
    pub async fn look(shared: &Shared, caller: &Caller) -> Self {
        let engine = &shared.edge.engine;
        let (mut holds, mut labels) = (engine.holds(), Vec::new());
        holds.retain(|hold| hold_access::may_see(shared, caller, &hold.scope));
        for hold in holds.iter().take(LINES_MAX) {
            labels.push(hold_labels::label(shared, &hold.scope).await);
        }
        let drift_count = || {
            let sweeps = engine.figures().sweeps;
            sweeps.iter().flat_map(|s| s.counts.iter()).map(|(_, n)| *n as u64).sum()
        };
        Self {
            survey: shared.survey(&caller.account),
            providers: shared.troubled_providers().await,
            // Drift is of the server, not of an account.
            alarms: if caller.is_admin() { engine.drift_alarms() } else { Vec::new() },
            drift_count: if caller.is_admin() { drift_count() } else { 0 },
            holds,
            labels,
            now: shared.edge.clock.now(),
        }
    }
}

/// One line for pages other than the list; empty if there are no problems.
pub fn hint(attention: &Attention) -> Markup {
    let Attention { survey, providers, alarms, .. } = attention;
    let bad = providers.len() as u64 + alarms.len() as u64 + survey.failed.count;
    html! {
        section #attention .attention data-live aria-label="Needs attention" {
            @if bad > 0 {
                (line("all", "", "bad", "/", html! {
                    (bad) @if bad == 1 { " problem needs" } @else { " problems need" } " attention"
                }))
            }
        }
    }
}

/// The strip at the top of the list; empty if there are no problems.
pub fn strip(attention: &Attention) -> Markup {
    let Attention { survey, providers, alarms, drift_count, holds, labels, now } = attention;
    let kinds = tally(alarms.iter().map(|alarm| (&alarm.provider, &alarm.reason)));
    html! {
        section #attention .attention data-live aria-label="Needs attention" {
            @for (name, sentence) in providers.iter().take(LINES_MAX) {
                (line("provider-", name.as_str(), "bad", "/providers", html! {
                    bdi { (shown(sentence)) }
                }))
            }
            @for ((provider, reason), count) in kinds.iter().take(LINES_MAX) {
                (line("drift-", &format!("{provider} {reason}"), "bad", "/drift", html! {
                    (shown(provider.as_str())) ": " bdi { (shown(reason)) }
                    @if *count > 1 { " (" (count) " times)" }
                }))
            }
            @if let Some(more) = kinds.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
                (line("drift-more", "", "bad", "/drift", html! { (more) " more kinds of drift" }))
            }
            @if alarms.is_empty() && *drift_count > 0 {
                (line("drift", "", "mild", "/drift", html! {
                    (drift_count) @if *drift_count == 1 { " drift item" } @else { " drift items" }
                    " between records and providers"
                }))
            }
            (group("failed", &survey.failed, "bad", "/?phase=failed", |sandbox| html! {
                @match &sandbox.failure {
                    Some(failure) => { "failed at " (failure.step) ": " bdi { (shown(&failure.message)) } }
                    None => "failed"
                }
            }))
            (group("stuck", &survey.stuck, "mild", "/", |sandbox| html! {
                "has been " (sandbox.phase.map_or("deleted", Phase::as_str)) " for "
                (ago(now.since(sandbox.phase_since)))
                @if let Some(failure) = &sandbox.failure { ": " bdi { (shown(&failure.message)) } }
            }))
            @for (hold, label) in holds.iter().zip(labels) {
                (line("hold-", &format!("{} {}", hold.scope.kind(), hold.scope.folded()), "mild", "/holds", html! {
                    bdi { (shown(&upper(label))) } " is held"
                    @if !hold.reason.is_empty() { ": " bdi { (shown(&hold.reason)) } }
                }))
            }
            @if let Some(more) = holds.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
                (line("hold-more", "", "mild", "/holds", html! { (more) " more holds" }))
            }
        }
    }
}

/// The first sandboxes of a group by name, and the number of the others.
fn group(
    kind: &str,
    group: &SandboxGroup,
    tone: &str,
    all: &str,
    say: impl Fn(&Sandbox) -> Markup,
) -> Markup {
    html! {
        @for sandbox in group.named.iter().take(LINES_MAX) {
            (line(kind, sandbox.id.as_str(), tone, &format!("/sandboxes/{}", sandbox.id), html! {
                span .name { (shown(&sandbox.name)) } " " (say(sandbox))
            }))
        }
        @let named = group.named.len().min(LINES_MAX) as u64;
        @if group.count > named {
            (line(kind, "-more", tone, all, html! { (group.count - named) " more " (kind) }))
        }
    }
}

fn line(kind: &str, id: &str, tone: &str, href: &str, text: Markup) -> Markup {
    html! {
        a .line .(tone) href=(href) data-key={ "at-" (kind) (shown(id)) } {
            span .sign aria-hidden="true" {}
            span .text { (text) }
            span .go aria-hidden="true" { "→" }
        }
    }
}

fn upper(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
