//! Templates: what a new sandbox can be made from.

use actix_web::{HttpResponse, get, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::templates::unusable;
use crate::types::{Resources, Template, WorkloadSource};

use super::error::PageError;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::visitor::Visitor;

/// The templates in force.
#[get("/templates")]
pub async fn show(shared: web::Data<Shared>, visitor: Visitor) -> Result<HttpResponse, PageError> {
    let frame = Frame::begin(&shared, &visitor, PageSection::Providers, "Templates").await;
    let engine = &shared.edge.engine;
    let default = engine.default_template().name;
    Ok(super::html(&frame.render(&html! {
        p .back { a href="/providers" { "← Providers" } }
        div .head {
            h1 { "Templates" }
            p .soft { "A create names one of these, or gets the default. The server reads them again at SIGHUP; a sandbox keeps what it was made from." }
        }
        div .scroll tabindex="0" role="region" aria-label="Templates" {
            table .table .quotas {
                caption .hidden { "Templates" }
                thead {
                    tr { th { "Template" } th { "Provider" } th { "Agent" } th { "Network" } th { "Resources" } th { "Made from" } }
                }
                tbody {
                    @for template in engine.templates() {
                        (row(&template, template.name == default, unusable(&shared, &template)))
                    }
                }
            }
        }
    })))
}

fn row(template: &Template, is_default: bool, unusable: Option<String>) -> Markup {
    let Template { name, provider, resources, network, ports, workload, .. } = template;
    let Resources { cpu, memory_mb, processes, disk_mb } = resources;
    html! {
        tr {
            td {
                p { bdi { (shown(name.as_str())) } @if is_default { " " span .tag { "default" } } }
                p { code { (template.version()) } }
            }
            td { (shown(provider.as_str())) }
            td {
                @match &workload.agent {
                    None => span .soft { "none" },
                    Some(agent) => bdi { (shown(agent.name.as_str())) },
                }
                @if let Some(why) = unusable { p .soft { bdi { (shown(&why)) } } }
            }
            td {
                (network.kind())
                @if !ports.is_empty() {
                    p .soft { "ports " (ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")) }
                }
            }
            td { (cpu) " CPU, " (memory_mb) " MiB memory, " (disk_mb) " MiB disk, " (processes) " processes" }
            td {
                @match &workload.source {
                    None => span .soft { "the provider's own" },
                    Some(WorkloadSource::Image(image)) => code { (shown(image)) },
                    Some(WorkloadSource::Snapshot(snapshot)) => { "snapshot " code { (shown(snapshot)) } },
                }
            }
        }
    }
}
