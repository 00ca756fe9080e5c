//! What a sandbox is: where it comes from, what it should come to, what it may use.

use maud::{Markup, html};

use crate::http::api::ports::EndpointState;
use crate::http::limits::{Allowed, SandboxLimits};
use crate::http::page::providers::limit_name;
use crate::http::page::time::since;
use crate::types::{NetworkKind, Sandbox, Timestamp, inert};

/// The facts in a card.
pub(super) fn card(
    sandbox: &Sandbox,
    endpoints: &[EndpointState],
    limits: &SandboxLimits,
    now: Timestamp,
) -> Markup {
    html! {
        div .card .facts data-key="facts" {
            h2 { "What it is" }
            dl {
                (fact("Wanted", html! { (sandbox.wanted) }))
                (fact("Attempts", html! { (sandbox.attempt) @if sandbox.attempt.0 == 1 { " provider call" } @else { " provider calls" } }))
                (fact("Created", since(sandbox.created_at, now)))
                (fact("Last activity", since(sandbox.last_activity_at, now)))
                @if let Some(at) = sandbox.deleted_at { (fact("Gone", since(at, now))) }
                (fact("Provider", html! { a href="/providers" { (inert(sandbox.provider.as_str())) } }))
                (fact("Template", html! { (inert(sandbox.template.as_str())) }))
                (fact("Record", html! { (sandbox.mode) }))
                (fact("Generation", html! { (sandbox.generation) }))
                (fact("Issue id", code(sandbox.issue_id.as_str())))
                (fact("Sandbox id", code(sandbox.id.as_str())))
                (fact("At the provider", match &sandbox.external_id {
                    Some(id) => code(id.as_str()),
                    None => html! { span .soft { "not known yet" } },
                }))
                (fact("Endpoints", endpoint_list(endpoints)))
            }
            h2 { "Limits in force" }
            (limits_list(limits, sandbox.network))
        }
    }
}

/// The servers in it. One that listens is a link: what it shows has no session here.
fn endpoint_list(endpoints: &[EndpointState]) -> Markup {
    html! {
        @if endpoints.is_empty() { span .soft { "none: the template lists no port" } }
        @for EndpointState { endpoint, state } in endpoints {
            div {
                @match state {
                    Some("listening") => {
                        a href=(endpoint.url) target="_blank" rel="noreferrer" { (endpoint.port) }
                        " listening"
                    }
                    Some(state) => { (endpoint.port) " " span .soft { (state) } }
                    None => { (endpoint.port) " " span .soft { "not known" } }
                }
            }
        }
    }
}

fn limits_list(limits: &SandboxLimits, network: NetworkKind) -> Markup {
    let Some(isolation) = &limits.isolation else {
        return html! { p .soft { "Its provider is not configured any more." } };
    };
    html! {
        dl {
            (fact("Isolation", html! { (isolation.kind) }))
            @for (limit, allowed, holds) in limits.each() {
                (fact(limit_name(limit), html! {
                    @if let Some(Allowed { value, unit }) = allowed {
                        (value) @if !unit.is_empty() { " " (unit) } ", "
                    }
                    (how(holds))
                }))
            }
            (fact("System calls", html! { (how(isolation.seccomp)) }))
            (fact("Network", html! { (network_words(network)) }))
        }
    }
}

/// How a limit holds, in words that can be read on their own.
fn how(holds: &'static str) -> &'static str {
    if holds == "none" { "not enforced" } else { holds }
}

/// What a sandbox can reach, in words that can be read on their own.
fn network_words(network: NetworkKind) -> &'static str {
    match network {
        NetworkKind::None => "none",
        NetworkKind::Allow => "allow: what its template lists",
        NetworkKind::Full => "full: every public address",
        NetworkKind::Host => "host: all that the server's machine reaches",
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn code(text: &str) -> Markup {
    html! { code { (inert(text)) } }
}
