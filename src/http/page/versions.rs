//! The versions of a sandbox's workspace in the object storage, and its last sync.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::WORK_WAIT_SECS;
use crate::http::api::sandboxes::load;
use crate::http::api::syncs::{carry_out, last_sync, parse_version, synced_versions};
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::store::sync::SyncRow;
use crate::sync::{SyncOrder, SyncedVersion, SyncedVersions};
use crate::types::{Role, Sandbox, SyncDirection, SyncVersion, Timestamp};

use super::error::PageError;
use super::files::size;
use super::form;
use super::sandbox::{PageTab, tabs};
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::time::since;
use super::visitor::Visitor;

/// Versions on one page.
const VERSIONS_MAX: usize = 50;

/// Shows the versions of a sandbox, live or deleted.
#[get("/sandboxes/{id}/versions")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let cursor = query.text("cursor")?.as_deref().map(parse_version).transpose()?;
    query.finish()?;
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let frame =
        Frame::begin(&shared, &visitor, PageSection::Sandboxes, sandbox.name.clone()).await.still();
    let found = match synced_versions(&shared, &sandbox, cursor, VERSIONS_MAX).await {
        Ok(found) => Some(found),
        Err(error) if error.code() == Code::SyncNotConfigured => None,
        Err(error) => return Err(error.into()),
    };
    let view = View {
        last: last_sync(&shared, &sandbox.id).await?,
        may_sync: visitor.caller.role >= Role::Operator && sandbox.phase.is_some(),
        now: shared.edge.clock.now(),
        found,
        sandbox,
    };
    Ok(super::html(&frame.render(&render(&view, &frame))))
}

/// Pushes or pulls as a form says, and shows the versions again.
#[post("/sandboxes/{id}/sync")]
pub async fn sync(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let direction = form.text("direction")?.as_deref().and_then(SyncDirection::parse);
    let version = form.text("version")?.as_deref().map(parse_version).transpose()?;
    form.finish()?;
    let order = match direction {
        Some(SyncDirection::Push) => SyncOrder::Push,
        Some(SyncDirection::Pull) => SyncOrder::Pull(version),
        None => return Err(ApiError::field("direction", "must be push or pull").into()),
    };
    let at_most = std::time::Duration::from_secs(WORK_WAIT_SECS);
    let (sandbox, _) = carry_out(&shared, &visitor.caller, &id, order, at_most).await?;
    Ok(super::see(&format!("/sandboxes/{}/versions", sandbox.id)))
}

/// What the page shows.
struct View {
    sandbox: Sandbox,
    last: Option<SyncRow>,
    /// The versions; `None` if nothing is synced here.
    found: Option<SyncedVersions>,
    /// Whether the visitor can push and pull.
    may_sync: bool,
    now: Timestamp,
}

fn render(view: &View, frame: &Frame) -> Markup {
    let View { sandbox, last, found, may_sync, now } = view;
    let base = format!("/sandboxes/{}", sandbox.id);
    html! {
        p .back { a href=(base) { "← " (shown(&sandbox.name)) } }
        (tabs(sandbox, PageTab::Versions))
        div .head {
            h1 { "Versions of the workspace" }
            (last_sentence(last.as_ref(), *now))
        }
        @match found {
            None => p .note {
                "No object storage is configured, so workspaces are not synced. Set url in [sync] of the \
                 configuration and restart the server."
            },
            Some(found) => {
                @if *may_sync {
                    div .actions role="group" aria-label="Actions" {
                        (sync_form(&base, frame, SyncDirection::Push, None))
                    }
                }
                @if found.versions.is_empty() {
                    p .note { "Nothing was pushed yet." }
                } @else {
                    (table(view, &found.versions, &base, frame))
                }
                @if let Some(next) = found.next {
                    p { a href={ (base) "/versions?cursor=" (next) } { "Older versions" } }
                }
            }
        }
    }
}

fn last_sentence(last: Option<&SyncRow>, now: Timestamp) -> Markup {
    let Some(row) = last else { return html! { p .soft { "It was never synced." } } };
    let stats = &row.stats;
    html! {
        p .soft {
            "Last sync: "
            @match row.direction {
                SyncDirection::Push => "a push of ",
                SyncDirection::Pull => "a pull of ",
            }
            code { (row.version) } ", " (since(row.synced_at, now)) " ago. "
            (stats.files_processed) " files, of which "
            @match row.direction {
                SyncDirection::Push => { (stats.files_uploaded) " were stored" },
                SyncDirection::Pull => { (stats.files_downloaded) " were written" },
            }
            " (" (size(stats.bytes_transferred)) ") and " (stats.files_skipped)
            " were there already; " (stats.files_deleted) " are gone. It took "
            (stats.duration_ms) " ms."
        }
    }
}

fn table(view: &View, versions: &[SyncedVersion], base: &str, frame: &Frame) -> Markup {
    html! {
        div .scroll tabindex="0" role="region" aria-label="Versions" {
            table .table {
                caption .hidden { "Versions" }
                thead {
                    tr {
                        th { "Version" } th { "Made" } th .num { "Files" } th .num { "Size" }
                        th .num { "Stored with it" }
                        @if view.may_sync { th { "Action" } }
                    }
                }
                tbody {
                    @for one in versions {
                        tr {
                            td { code { (one.version) } }
                            td { (since(one.walked_at, view.now)) " ago" }
                            td .num { (one.stats.files_processed) }
                            td .num { (size(one.size)) }
                            td .num { (size(one.stats.bytes_transferred)) }
                            @if view.may_sync {
                                td { (sync_form(base, frame, SyncDirection::Pull, Some(one.version))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A form that asks for confirmation.
fn sync_form(
    base: &str,
    frame: &Frame,
    direction: SyncDirection,
    version: Option<SyncVersion>,
) -> Markup {
    let (label, consequence) = match direction {
        SyncDirection::Push => ("Push", "Its workspace is stored as a new version."),
        SyncDirection::Pull => (
            "Pull",
            "Its workspace is brought to this version: what differs is overwritten, and what the version \
             does not have is deleted.",
        ),
    };
    let name = version.map(|version| version.to_string()).unwrap_or_default();
    html! {
        details .action name="action" data-key={ "do-" (direction.as_str()) (name) } {
            summary .button { (label) "…" }
            form .card method="post" action={ (base) "/sync" } {
                (frame.token())
                input type="hidden" name="direction" value=(direction.as_str());
                @if let Some(version) = version {
                    input type="hidden" name="version" value=(version);
                }
                p .lead { (consequence) " A stopped sandbox is started." }
                button .primary type="submit" { (label) }
            }
        }
    }
}
