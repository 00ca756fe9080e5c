//! Providers: the health, breaker, identity and isolation of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use actix_web::{HttpResponse, get, web};
use maud::{Markup, html};

use crate::engine::{BreakerState, BreakerView, ProviderSweeps};
use crate::http::Shared;
use crate::sandbox::{Capability, Capacity, Descriptor, Enforcement, Health, Uniqueness};
use crate::types::{ProviderName, Template, Timestamp};

use super::error::PageError;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::{ago, since};
use super::visitor::Visitor;

/// Seconds between updates of the page: changes of health cause no event.
const POLL_SECS: u32 = 5;

/// The providers.
#[get("/providers")]
pub async fn show(shared: web::Data<Shared>, visitor: Visitor) -> Result<HttpResponse, PageError> {
    let frame = Frame::begin(&shared, &visitor, PageSection::Providers, "Providers").await;
    let frame = frame.polled(POLL_SECS);
    let engine = &shared.edge.engine;
    let health = shared.provider_health().await;
    let figures = engine.figures();
    let templates = engine.templates();
    let survey = &frame.attention().survey;
    let all: Vec<ProviderView> = (shared.edge.providers.iter())
        .filter_map(|(name, provider)| {
            let name = name.clone();
            let breaker = figures.breakers.iter().find(|(of, _)| *of == name)?.1.clone();
            let health = health.iter().find(|(of, _)| *of == name)?.1.clone();
            let descriptor = Arc::clone(&provider.descriptor);
            let of_it = templates.iter().filter(|template| template.provider == name);
            Some(ProviderView {
                network: network(&descriptor, of_it),
                health,
                breaker,
                descriptor,
                capacity: provider.lifecycle.capacity(),
                sweeps: figures.sweeps.iter().find(|sweeps| sweeps.provider == name).cloned(),
                live: survey.providers.get(&name).copied().unwrap_or(0),
                templates: templates
                    .iter()
                    .filter(|template| template.provider == name)
                    .map(|template| template.name.to_string())
                    .collect(),
                name,
            })
        })
        .collect();
    let now = shared.edge.clock.now();
    Ok(super::html(&frame.render(&html! {
        div .head { h1 { "Providers" } }
        section #live data-live aria-label="Providers" {
            div .tiles { @for one in &all { (card(one, now)) } }
        }
    })))
}

/// What the page shows of one provider.
struct ProviderView {
    name: ProviderName,
    health: Health,
    breaker: BreakerView,
    descriptor: Arc<Descriptor>,
    capacity: Capacity,
    sweeps: Option<ProviderSweeps>,
    live: u64,
    templates: Vec<String>,
    /// What its sandboxes can reach.
    network: String,
}

/// What a provider's sandboxes can reach: one word, or one for each template.
fn network<'a>(descriptor: &Descriptor, templates: impl Iterator<Item = &'a Template>) -> String {
    if let [only] = descriptor.networks.as_slice() {
        return only.to_string();
    }
    let of = |template: &Template| format!("{} {}", template.name, template.network.kind());
    let all: Vec<String> = templates.map(of).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn card(view: &ProviderView, now: Timestamp) -> Markup {
    let ProviderView { name, health, breaker, capacity, sweeps, live, templates, network, .. } =
        view;
    let Descriptor {
        uniqueness,
        late_effect_window,
        dies_with_server,
        isolation,
        capabilities,
        ..
    } = &*view.descriptor;
    let trouble = breaker.trouble(name, now).or_else(|| health.trouble.clone());
    html! {
        article .card .facts data-key={ "provider-" (shown(name.as_str())) } {
            div .between {
                h2 { (shown(name.as_str())) }
                @if trouble.is_none() { span .tag .good { "healthy" } } @else { span .tag .bad { "cannot work" } }
            }
            @if let Some(trouble) = &trouble { p .notice .bad { bdi { (shown(trouble)) } } }
            @if let Some(shortage) = &capacity.shortage { p .notice .bad { bdi { (shown(shortage)) } } }
            dl {
                (fact("Breaker", breaker_words(breaker, now)))
                (fact("Identity", match &health.identity {
                    Some(identity) => html! { code { (shown(identity)) } },
                    None => html! { span .soft { "unknown" } },
                }))
                (fact("Uniqueness", uniqueness_words(*uniqueness)))
                (fact("Late effects", html! { "end within " (late_effect_window.as_secs()) " s of a deadline" }))
                (fact("Capacity", html! { (live) @if *live == 1 { " live sandbox" } @else { " live sandboxes" } }))
                @if let Some(disk) = capacity.disk {
                    (fact("Disk", html! {
                        (disk.free >> 20) " MB free; no sandbox is created or started below " (disk.kept_free >> 20)
                    }))
                }
                (fact("Offers", html! { (capability_words(capabilities)) }))
                (fact("Templates", html! { a href="/templates" {
                    @if templates.is_empty() { span .soft { "none" } }
                    @else { (shown(&templates.join(", "))) }
                } }))
                @if let Some(sweeps) = sweeps { (fact("Last sweep", sweep_words(sweeps, now))) }
                @if *dies_with_server {
                    (fact("At a restart", html! { "its sandboxes stop and keep their workspace" }))
                }
            }
            h3 { "Isolation" }
            dl {
                (fact("Kind", html! { (isolation.kind) }))
                @for (limit, how) in &health.limits {
                    (fact(limit.label(), html! { (how_it_holds(*how)) }))
                }
                @if let Some(counts) = isolation.memory_counts {
                    (fact("Memory counts", html! { (counts) }))
                }
                (fact("System calls", html! {
                    (if isolation.seccomp == Enforcement::None { "not filtered" } else { "filtered" })
                }))
                (fact("Network", html! { (shown(network)) }))
            }
        }
    }
}

/// What a provider declares beside commands and files, for people.
fn capability_words(capabilities: &BTreeSet<Capability>) -> String {
    let all: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
    if all.is_empty() { "commands and files".to_owned() } else { all.join(", ") }
}

/// How a limit holds, for people.
pub(super) const fn how_it_holds(how: Enforcement) -> &'static str {
    match how {
        Enforcement::None => "not enforced",
        Enforcement::Enforced | Enforcement::PerProcess | Enforcement::Watched => how.as_str(),
    }
}

fn breaker_words(breaker: &BreakerView, now: Timestamp) -> Markup {
    html! {
        @match breaker.state {
            BreakerState::Closed => "closed: the provider is called",
            BreakerState::Open => {
                "open: the provider is not called"
                @if let Some(at) = breaker.since { ", since " (ago(now.since(at))) }
                @if let Some(at) = breaker.next_try_at { ", next try in " (at.since(now).as_secs()) " s" }
            }
            BreakerState::HalfOpen => "half open: one call tests the provider",
        }
    }
}

fn uniqueness_words(uniqueness: Uniqueness) -> Markup {
    html! {
        @match uniqueness {
            Uniqueness::EnforcedNames => "the provider refuses a second object with the same name",
            Uniqueness::None => "names are not unique: an unanswered create is looked up, not repeated",
        }
    }
}

fn sweep_words(sweeps: &ProviderSweeps, now: Timestamp) -> Markup {
    html! {
        @match sweeps.last_at {
            Some(at) => { (since(at, now)) ": " (sweeps.records) " records, " (sweeps.objects) " objects" }
            None => span .soft { "not yet" },
        }
        @if sweeps.held_back > 0 { ", " (sweeps.held_back) " held back" }
        @if sweeps.not_made > 0 { ", " (sweeps.not_made) " failed" }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}
