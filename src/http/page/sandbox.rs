//! One sandbox: its facts, its timeline, and the actions on it.

mod actions;
mod facts;
mod timeline;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::engine::SandboxRef;
use crate::http::Shared;
use crate::http::api::checkouts::checkout_of;
use crate::http::api::ports::{self, EndpointState};
use crate::http::api::sandboxes::{bounded, load};
use crate::http::error::{ApiError, Code};
use crate::http::hold_labels::label_at;
use crate::http::limits::SandboxLimits;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::store::checkout::CheckoutRow;
use crate::store::{Page, PageAsk, TimelineListRow};
use crate::types::{
    CheckoutState, FailureCode, Hold, HoldScope, Phase, Sandbox, TemplateVersion, Timestamp,
};

use super::create;
use super::error::PageError;
use super::exec;
use super::form;
use super::list::issue_link;
use super::shell::{Frame, LiveScope, PageSection};
use super::text::shown;
use super::time::since;
use super::visitor::Visitor;

pub use actions::Action;

/// Timeline entries on one page.
const STEPS_MAX: usize = 50;

/// Shows one sandbox, live or deleted.
#[get("/sandboxes/{id}")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let done = query.text("done")?.as_deref().and_then(Action::parse);
    let outcome = query.text("outcome")?.as_deref().and_then(create::outcome);
    let cursor = query.text("cursor")?;
    query.finish()?;
    let account = &visitor.caller.account;
    let sandbox = load(&shared, account, &sandbox_ref(&id)).await?;
    let watch =
        LiveScope::One { sandbox: sandbox.id.to_string(), issue: sandbox.issue_id.to_string() };
    let frame = Frame::begin(&shared, &visitor, PageSection::Sandboxes, sandbox.name.clone())
        .await
        .watching(watch);
    // Read again after the frame's cursor was taken, so that no change is missed.
    let sandbox = load(&shared, account, &SandboxRef::Id(sandbox.id)).await?;
    let store = &shared.edge.store;
    let ask = PageAsk { limit: STEPS_MAX, cursor };
    let timeline = store.timeline(sandbox.home, &ask).await?;
    let newest = store.newest_sandbox(sandbox.home).await?;
    let successor = newest.filter(|newest| newest.id != sandbox.id);
    let view = View {
        now: shared.edge.clock.now(),
        holds: covering(&frame.attention().holds, &sandbox),
        endpoints: ports::states(&shared, &sandbox).await,
        limits: SandboxLimits::of(&shared, &sandbox).await,
        checkout: checkout_of(&shared, &sandbox).await?,
        template_today: shared
            .edge
            .engine
            .version_today(&sandbox.template, sandbox.repository.as_ref()),
        done,
        outcome,
        successor,
        timeline,
        is_first_page: ask.cursor.is_none(),
        sandbox,
    };
    Ok(super::html(&frame.render(&render(&view, &frame))))
}

/// Carries out the action of a form and shows the sandbox again.
#[post("/sandboxes/{id}/{action}")]
pub async fn command(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    path: web::Path<(String, String)>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let (id, word) = path.into_inner();
    let action = Action::parse(&word)
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such action"))?;
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let reason = bounded("reason", form.text("reason")?)?.unwrap_or_default();
    form.finish()?;
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let shown = action.carry_out(&shared, &visitor, &sandbox, reason).await?;
    Ok(super::see(&format!("/sandboxes/{shown}?done={}", action.as_str())))
}

/// The holds that cover a sandbox.
fn covering(holds: &[Hold], sandbox: &Sandbox) -> Vec<Hold> {
    let covers = |hold: &&Hold| match &hold.scope {
        HoldScope::Server => true,
        HoldScope::Account(account) => *account == sandbox.account,
        HoldScope::Repository(held) => {
            sandbox.repository.as_ref().is_some_and(|of| of.folded() == held.folded())
        }
        HoldScope::Issue(account, issue) => {
            *account == sandbox.account && *issue == sandbox.issue_id
        }
    };
    holds.iter().filter(covers).cloned().collect()
}

/// What the page shows.
struct View {
    now: Timestamp,
    sandbox: Sandbox,
    /// The newest sandbox of the same issue, unless it is this one.
    successor: Option<Sandbox>,
    holds: Vec<Hold>,
    endpoints: Vec<EndpointState>,
    limits: SandboxLimits,
    checkout: Option<CheckoutRow>,
    /// The version of its template as it is configured now; `None` if it is not.
    template_today: Option<TemplateVersion>,
    /// The action that the visitor just carried out.
    done: Option<Action>,
    /// What came of creating it.
    outcome: Option<&'static str>,
    timeline: Page<TimelineListRow>,
    is_first_page: bool,
}

fn render(view: &View, frame: &Frame) -> Markup {
    let View { sandbox, now, .. } = view;
    html! {
        p .back { a href="/" { "← Sandboxes" } }
        section #live data-live aria-label="The sandbox" {
            (head(sandbox, *now))
            (tabs(sandbox, PageTab::Overview))
            (notices(view))
            (actions::forms(view, frame))
        }
        div .columns {
            section #facts data-live aria-label="Facts" {
                (facts::card(view))
            }
            div .stack {
                section #history data-live aria-label="History" { (timeline::card(view)) }
                (work(sandbox, frame))
            }
        }
    }
}

/// The pages about one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageTab {
    Overview,
    Conversation,
    Versions,
}

/// The links to those pages. The conversation's says what the agent does, unless it is idle.
pub fn tabs(sandbox: &Sandbox, current: PageTab) -> Markup {
    let agent = sandbox.agent.as_deref().map_or("idle", |agent| agent.state.of_agent());
    let is = |tab: PageTab| (tab == current).then_some("page");
    let base = format!("/sandboxes/{}", sandbox.id);
    html! {
        nav .tabs .of-one aria-label="Pages of the sandbox" data-key="tabs" {
            a href=(base) aria-current=[is(PageTab::Overview)] { "Overview" }
            a href={ (base) "/conversation" } aria-current=[is(PageTab::Conversation)] {
                "Conversation"
                @if agent != "idle" { " " span .badge { (agent) } }
            }
            @if sandbox.phase.is_some() { a href={ (base) "/files" } { "Files" } }
            a href={ (base) "/versions" } aria-current=[is(PageTab::Versions)] { "Versions" }
            a href={ (base) "/logs" } { "Logs" }
        }
    }
}

/// What a sandbox is about, and its phase with the reason.
pub fn head(sandbox: &Sandbox, now: Timestamp) -> Markup {
    let phase = sandbox.phase.map_or("deleted", Phase::as_str);
    let at = sandbox.deleted_at.unwrap_or(sandbox.phase_since);
    let title = sandbox.issue_title.as_deref().unwrap_or(&sandbox.name);
    html! {
        header .one .(phase) data-key="head" {
            h1 { bdi { (shown(title)) } }
            p .of {
                (issue_link(sandbox))
                @if sandbox.issue_title.is_some() { span .name { (shown(&sandbox.name)) } }
                @if sandbox.generation.0 > 1 { span { "generation " (sandbox.generation) } }
            }
            p .now {
                span .mark aria-hidden="true" {}
                strong .phase { (phase) }
                // A failure is shown below, with what to do.
                @if sandbox.failure.is_none() { span .why { bdi { (shown(&sandbox.reason)) } } }
                (since(at, now))
            }
        }
    }
}

/// Notices: the last action, the failure, holds, a successor.
fn notices(view: &View) -> Markup {
    let View { sandbox, successor, holds, checkout, done, outcome, .. } = view;
    html! {
        @if let Some(outcome) = outcome {
            p .notice .good role="status" data-key="outcome" { (outcome) }
        }
        @if let Some(done) = done {
            p .notice .good role="status" data-key="done" { (done.what_next(sandbox)) }
        }
        @if let Some(failure) = &sandbox.failure {
            div .notice .bad role="alert" data-key="failure" {
                p { strong { (upper_step(failure.step.as_str())) " failed: " }
                    bdi { (shown(&failure.message)) } }
                p { (what_to_do(failure.code, sandbox.phase)) }
            }
        }
        @if let Some(checkout) = checkout.as_ref().filter(|checkout| checkout.state == CheckoutState::Failed) {
            div .notice .bad role="alert" data-key="checkout" {
                p { strong { "Checkout failed: " } bdi { (shown(&checkout.reason)) } }
                p { "The sandbox runs without its repository. Retry fetches it again." }
            }
        }
        @for hold in holds {
            p .notice .mild data-key={ "hold-" (hold.scope.kind()) } {
                (shown(&label_at(sandbox, &hold.scope))) " is held by " (shown(&hold.by))
                @if !hold.reason.is_empty() { ": " bdi { (shown(&hold.reason)) } }
                ". No sandbox is created, started or resumed until it is "
                a href="/holds" { "released" } "."
            }
        }
        @if let Some(successor) = successor {
            p .notice data-key="successor" {
                "This is generation " (sandbox.generation) ". The issue's newest is "
                a href={ "/sandboxes/" (successor.id) } { "generation " (successor.generation) } "."
            }
        }
    }
}

fn upper_step(step: &str) -> String {
    let mut chars = step.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// What to do about a failure.
const fn what_to_do(code: FailureCode, phase: Option<Phase>) -> &'static str {
    if matches!(phase, Some(Phase::Deleting)) {
        return "The delete is retried until the provider confirms it. Force it only if the provider \
                will never answer: sweeps then remove the orphaned object.";
    }
    match code {
        FailureCode::ProviderUnavailable => {
            "See the page “Providers”; retry when the provider can be reached."
        }
        FailureCode::ProviderRefused => {
            "The provider refused the call. Change the template or the provider's limits, then \
             retry."
        }
        FailureCode::ProviderExhausted => {
            "Make room at the provider, or raise its quota, then retry."
        }
        FailureCode::ProviderBroken => "Retry it. If it fails again, check the provider's log.",
        FailureCode::NameTaken => {
            "A foreign object has this name at the provider. Rename or remove that object, then \
             retry."
        }
        FailureCode::ObjectLost => {
            "The provider lost the object and its workspace. Retry creates a new one; delete \
             removes the sandbox."
        }
        FailureCode::ProviderUnknown => {
            "The provider is no longer configured. Configure it again and restart the server, or \
             delete the sandbox."
        }
        FailureCode::KilledOutside => {
            "Something outside of issuebox stopped it. Retry starts it again with its workspace."
        }
        FailureCode::DuplicateObject => {
            "The provider has two objects for this issue. Remove one on the page “Drift”."
        }
        FailureCode::HookFailed => {
            "A step of the template's cold start failed. What a create made is deleted; a sandbox that \
             was there before keeps its workspace. See the sandbox's log, then retry."
        }
        FailureCode::DeadlineExceeded => {
            "The step timed out. Retry it, or raise its timeout in the configuration."
        }
    }
}

/// Commands and files.
fn work(sandbox: &Sandbox, frame: &Frame) -> Markup {
    html! {
        @if sandbox.phase.is_some() {
            (exec::card(sandbox, frame))
        } @else {
            p .note {
                "Its workspace is deleted. Its timeline is kept, and for some time "
                a href={ "/sandboxes/" (sandbox.id) "/logs" } { "the output of its commands" } "."
            }
        }
    }
}
