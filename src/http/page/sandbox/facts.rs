//! The facts of a sandbox: origin, desired state, limits.

use maud::{Markup, html};

use crate::http::api::configuration::TemplateToday;
use crate::http::api::ports::EndpointState;
use crate::http::limits::{Allowed, SandboxLimits};
use crate::http::page::providers::how_it_holds;
use crate::http::page::text::shown;
use crate::http::page::time::since;
use crate::store::checkout::CheckoutRow;
use crate::types::{NetworkKind, Timestamp, inert};

use super::View;

/// The facts in a card.
pub(super) fn card(view: &View) -> Markup {
    let View { sandbox, endpoints, limits, checkout, now, .. } = view;
    let now = *now;
    html! {
        div .card .facts data-key="facts" {
            h2 { "Facts" }
            dl {
                (fact("Desired state", html! { (sandbox.wanted) }))
                (fact("Attempts", html! { (sandbox.attempt) @if sandbox.attempt.0 == 1 { " provider call" } @else { " provider calls" } }))
                (fact("Created", since(sandbox.created_at, now)))
                (fact("Last activity", since(sandbox.last_activity_at, now)))
                @if let Some(at) = sandbox.deleted_at { (fact("Deleted", since(at, now))) }
                (fact("Provider", html! { a href="/providers" { (inert(sandbox.provider.as_str())) } }))
                (fact("Template", template_words(view)))
                @if let Some(id) = &sandbox.agent_id { (fact("Agent id", html! { bdi { (shown(id)) } })) }
                @for (name, value) in sandbox.meta.entries() { (fact(name, html! { bdi { (shown(value)) } })) }
                (fact("Create mode", html! { (sandbox.mode) }))
                (fact("Generation", html! { (sandbox.generation) }))
                (fact("Issue id", code(sandbox.issue_id.as_str())))
                (fact("Sandbox id", code(sandbox.id.as_str())))
                (fact("External id", match &sandbox.external_id {
                    Some(id) => code(id.as_str()),
                    None => html! { span .soft { "unknown yet" } },
                }))
                (fact("Endpoints", endpoint_list(endpoints)))
                @if let Some(checkout) = checkout { (checkout_facts(checkout, now)) }
            }
            h2 { "Limits in force" }
            (limits_list(limits, sandbox.network))
        }
    }
}

/// The template with the version that the sandbox was made from, and how it is today.
fn template_words(view: &View) -> Markup {
    let sandbox = &view.sandbox;
    let today = sandbox.template_version.map(|made| TemplateToday::of(made, view.template_today));
    let today = today.and_then(|today| match today {
        TemplateToday::Same => None,
        TemplateToday::Changed => Some("changed since; a new sandbox would differ"),
        TemplateToday::Removed => Some("no longer configured"),
    });
    html! {
        a href="/templates" { (inert(sandbox.template.as_str())) }
        @if let Some(version) = sandbox.template_version { " " code { (version) } }
        @if let Some(today) = today { " " span .soft { (today) } }
    }
}

/// The checkout: its state, and the branch that the sandbox works on.
fn checkout_facts(checkout: &CheckoutRow, now: Timestamp) -> Markup {
    html! {
        (fact("Checkout", html! {
            (checkout.state.as_str()) ", " (since(checkout.changed_at, now))
            @if !checkout.reason.is_empty() { ": " bdi { (shown(&checkout.reason)) } }
        }))
        @if let Some(branch) = &checkout.branch { (fact("Branch", code(branch))) }
        @if let Some(tip) = &checkout.tip { (fact("Pushed", code(tip))) }
    }
}

/// The listed ports. A server that listens is a link; its pages have no session here.
fn endpoint_list(endpoints: &[EndpointState]) -> Markup {
    html! {
        @if endpoints.is_empty() { span .soft { "none: the template lists no ports" } }
        @for EndpointState { endpoint, state } in endpoints {
            div {
                @match state {
                    Some("listening") => {
                        a href=(endpoint.url) target="_blank" rel="noreferrer" { (endpoint.port) }
                        " listening"
                    }
                    Some(state) => { (endpoint.port) " " span .soft { (state) } }
                    None => { (endpoint.port) " " span .soft { "unknown" } }
                }
            }
        }
    }
}

fn limits_list(limits: &SandboxLimits, network: NetworkKind) -> Markup {
    let Some(isolation) = &limits.isolation else {
        return html! { p .soft { "Its provider is no longer configured." } };
    };
    html! {
        dl {
            (fact("Isolation", html! { (isolation.kind) }))
            @for (limit, allowed, holds) in limits.each() {
                (fact(limit.label(), html! {
                    @if let Some(Allowed { value, unit }) = allowed {
                        (value) @if !unit.is_empty() { " " (unit) } ", "
                    }
                    (how_it_holds(holds))
                }))
            }
            (fact("System calls", html! { (how_it_holds(isolation.seccomp)) }))
            (fact("Network", html! { (network_words(network)) }))
        }
    }
}

/// What a sandbox can reach.
fn network_words(network: NetworkKind) -> &'static str {
    match network {
        NetworkKind::None => "none",
        NetworkKind::Allow => "allow: the hosts that its template lists",
        NetworkKind::Full => "full: every public address",
        NetworkKind::Host => "host: everything that the server's machine reaches",
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn code(text: &str) -> Markup {
    html! { code { (inert(text)) } }
}
