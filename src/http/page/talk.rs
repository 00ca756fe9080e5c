//! The conversation with the agent of a sandbox's issue: what was said, what the agent does, a box for the
//! next message, Stop and Retry.
//!
//! It is read from the journal and rendered here, also what comes while it is open: the script follows the
//! stream of events and loads the page again. So no text of an agent becomes HTML in a browser.

mod entries;
mod render;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::conversation::{PersonAnswer, RunEvent, SaidWords};
use crate::engine::{EngineError, SandboxRef};
use crate::http::Shared;
use crate::http::api::conversations::{MESSAGE_LEN_MAX, RunUsage};
use crate::http::api::sandboxes::load;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::types::{AgentQuestion, HomeId, RunId, Sandbox, Timestamp, dollars};

use super::create;
use super::error::PageError;
use super::form;
use super::sandbox::{PageTab, head, tabs};
use super::shell::{Frame, LiveScope, PageSection};
use super::text::shown;
use super::time::since;
use super::visitor::Visitor;
use entries::TalkEntry;

/// How many of the last events are looked at, and how many bytes of them: two of the longest messages.
const EVENTS_MAX: usize = 4_000;
const EVENTS_LEN_MAX: u64 = 2 * MESSAGE_LEN_MAX as u64;
/// How many entries are made of them.
const ENTRIES_MAX: usize = 200;
/// Longest form with a message, in bytes: a byte takes three in a form.
const FORM_LEN_MAX: usize = 3 * MESSAGE_LEN_MAX + 16 * 1024;

/// What the page shows.
struct TalkView {
    sandbox: Sandbox,
    now: Timestamp,
    entries: Vec<TalkEntry>,
    /// Whether there are events before those.
    is_cut: bool,
    usage: RunUsage,
    done: Option<TalkAction>,
    /// What came of creating the sandbox.
    outcome: Option<&'static str>,
}

/// What a person does on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TalkAction {
    Say,
    Stop,
    Retry,
    Answer,
}

impl TalkAction {
    fn parse(word: &str) -> Option<Self> {
        [Self::Say, Self::Stop, Self::Retry, Self::Answer]
            .into_iter()
            .find(|action| action.as_str() == word)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Say => "say",
            Self::Stop => "stop",
            Self::Retry => "retry",
            Self::Answer => "answer",
        }
    }

    /// What happens next.
    const fn what_next(self) -> &'static str {
        match self {
            Self::Say => "The message is taken in. The agent answers it as soon as it can.",
            Self::Stop => "Stop accepted: the agent is asked to end.",
            Self::Retry => "Retry accepted: the same messages are answered again.",
            Self::Answer => "The answer is taken in. The agent goes on with it.",
        }
    }
}

/// Shows the conversation of a sandbox's issue.
#[get("/sandboxes/{id}/conversation")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let done = query.text("done")?.as_deref().and_then(TalkAction::parse);
    let outcome = query.text("outcome")?.as_deref().and_then(create::outcome);
    query.finish()?;
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let watch =
        LiveScope::One { sandbox: sandbox.id.to_string(), issue: sandbox.issue_id.to_string() };
    let title = format!("Conversation of {}", sandbox.name);
    let frame =
        Frame::begin(&shared, &visitor, PageSection::Sandboxes, title).await.watching(watch);
    // Read again after the frame's cursor was taken, so that no change is missed.
    let sandbox = load(&shared, &visitor.caller.account, &SandboxRef::Id(sandbox.id)).await?;
    let (entries, is_cut) = read(&shared, sandbox.home).await?;
    let view = TalkView {
        now: shared.edge.clock.now(),
        entries,
        is_cut,
        usage: RunUsage::of_home(&shared, sandbox.home).await?,
        done,
        outcome,
        sandbox,
    };
    Ok(super::html(&frame.render(&page(&view, &frame))))
}

/// The newest events as entries, and whether there are others before them.
async fn read(shared: &Shared, home: HomeId) -> Result<(Vec<TalkEntry>, bool), ApiError> {
    let journals = &shared.edge.runs.journals;
    let from = journals.before_last(home, EVENTS_MAX, EVENTS_LEN_MAX).await?;
    let len_max = usize::try_from(EVENTS_LEN_MAX).expect("it fits");
    let events = journals.read(home, from, len_max).await?;
    let mut entries = entries::of(&events);
    let older = entries.len().saturating_sub(ENTRIES_MAX);
    entries.drain(..older);
    Ok((entries, from > 0 || older > 0))
}

/// Carries out what a form asks for and shows the conversation again.
#[post("/sandboxes/{id}/conversation/{action}")]
pub async fn change(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    path: web::Path<(String, String)>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let (id, word) = path.into_inner();
    let action = TalkAction::parse(&word)
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such action"))?;
    let mut form =
        form::read_long_change(&shared, &request, &visitor, payload, FORM_LEN_MAX).await?;
    let (text, interrupts) = (form.text("text")?, form.flag("interrupt")?);
    let run = form.text("run")?;
    let (question, option) = (form.text("question")?, form.text("option")?);
    form.finish()?;
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let run = || {
        let run = run.as_deref().and_then(RunId::parse);
        run.ok_or_else(|| ApiError::field("run", "is no id of a run"))
    };
    let engine = &shared.edge.engine;
    match action {
        TalkAction::Say => {
            // Forms end lines with CR LF.
            let text = text.unwrap_or_default().replace("\r\n", "\n");
            if text.trim().is_empty() || text.len() > MESSAGE_LEN_MAX {
                return Err(ApiError::field("text", "enter a message of at most 4 MiB").into());
            }
            let author = visitor.caller.name.to_string();
            let words = SaidWords { interrupts, ..SaidWords::of_caller(author, text) };
            let of = SandboxRef::Id(sandbox.id.clone());
            engine.say_in(&visitor.caller.account, &of, words, visitor.caller.cause()).await?;
        }
        TalkAction::Stop => {
            let reason = format!("{} ended it", visitor.caller.name);
            let cancelled = RunEvent::Cancel(Some(run()?), reason);
            match engine.run_event(sandbox.home, cancelled).await {
                // It ended meanwhile, which the page shows.
                Ok(_) | Err(EngineError::RunRefused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        TalkAction::Answer => {
            let (run, by) = (run()?, visitor.caller.name.to_string());
            let question = question.ok_or_else(|| ApiError::field("question", "is missing"))?;
            let option = option.ok_or_else(|| ApiError::field("option", "is missing"))?;
            let answer = PersonAnswer { question, option, by };
            engine.run_event(sandbox.home, RunEvent::Answer(run, answer)).await?;
        }
        TalkAction::Retry => {
            engine.run_event(sandbox.home, RunEvent::Retry(Some(run()?))).await?;
        }
    }
    let place = format!("/sandboxes/{}/conversation?done={}", sandbox.id, action.as_str());
    Ok(super::see(&place))
}

fn page(view: &TalkView, frame: &Frame) -> Markup {
    let TalkView { sandbox, .. } = view;
    let base = format!("/sandboxes/{}/conversation", sandbox.id);
    let events = format!("/v1/sandboxes/{}/conversation/events?tail=0", sandbox.id);
    html! {
        p .back { a href="/" { "← Sandboxes" } }
        section #live data-live aria-label="The sandbox" {
            (head(sandbox, view.now))
            (tabs(sandbox, PageTab::Conversation))
            @if let Some(failure) = &sandbox.failure {
                p .notice .bad role="alert" data-key="failure" { bdi { (shown(&failure.message)) } }
            }
        }
        @if let Some(outcome) = view.outcome { p .notice .good role="status" { (outcome) } }
        @if let Some(done) = view.done { p .notice .good role="status" { (done.what_next()) } }
        section #doing .doing data-live aria-label="What the agent does" { (doing(view, frame, &base)) }
        // Its end is in view, also without a script.
        div .talk data-scroll tabindex="0" role="region" aria-label="The conversation" {
            section #talk data-live data-events=(events) { (transcript(view)) }
        }
        @if sandbox.phase.is_some() { (message_box(frame, &base)) }
        @else { p .note { "The sandbox is deleted. What was said is kept." } }
    }
}

/// What the agent does, what it cost, and the ways to end it or to try again.
fn doing(view: &TalkView, frame: &Frame, base: &str) -> Markup {
    let all = view.usage.all();
    let run = view.sandbox.agent.as_deref();
    let (state, is_over) = match run {
        None => ("idle", true),
        Some(run) => (run.state.of_agent(), !run.state.is_in_progress()),
    };
    let has_failed = run.is_some_and(|run| run.state.can_be_retried());
    let button = |action: TalkAction, label: &str, run: RunId| {
        html! {
            form method="post" action={ (base) "/" (action.as_str()) } {
                (frame.token())
                input type="hidden" name="run" value=(run);
                button type="submit" .primary[action == TalkAction::Retry] { (label) }
            }
        }
    };
    html! {
        div .row-of data-key="doing" {
            p .agent .(state) {
                span .mark aria-hidden="true" {}
                strong .phase { "Agent " (state.replace('_', " ")) }
                @if let Some(run) = run {
                    " " (since(run.since, view.now))
                    @if has_failed { " " span .why { "last run " (run.state.as_str().replace('_', " ")) } }
                    @if !run.reason.is_empty() && run.question.is_none() { " " span .why { bdi { (shown(&run.reason)) } } }
                }
            }
            p .soft .spent {
                (dollars(all.cost_usd)) " · " (all.input_tokens) " tokens in · "
                (all.output_tokens) " out"
            }
            @if let Some(run) = run {
                @if !is_over { (button(TalkAction::Stop, "Stop", run.run)) }
                @else if has_failed && view.sandbox.phase.is_some() { (button(TalkAction::Retry, "Retry", run.run)) }
            }
        }
        @if let Some((run, question)) = run.and_then(|run| Some((run.run, run.question.as_ref()?))) {
            (asked(frame, base, run, question))
        }
    }
}

/// What the agent asks a person, with a button for each answer.
fn asked(frame: &Frame, base: &str, run: RunId, question: &AgentQuestion) -> Markup {
    html! {
        form .card .asked method="post" action={ (base) "/answer" } data-key=(question.id) {
            (frame.token())
            input type="hidden" name="run" value=(run);
            input type="hidden" name="question" value=(question.id);
            p { strong { "The agent waits for a person. " } "It asks whether it may do this:" }
            pre .out { (shown(&question.text)) }
            div .row-of {
                @for option in &question.options {
                    button type="submit" name="option" value=(option.id) .primary[option.allows()] {
                        (shown(&option.name))
                    }
                }
            }
        }
    }
}

fn transcript(view: &TalkView) -> Markup {
    html! {
        @if view.is_cut {
            p .cut data-key="cut" {
                "Only the newest part is shown. "
                a href={ "/v1/sandboxes/" (view.sandbox.id) "/conversation" } { "All messages and runs" }
                " as JSON."
            }
        }
        @if view.entries.is_empty() {
            p .soft data-key="none" { "Nothing was said yet." }
        }
        @for entry in &view.entries { (render::entry(entry, view)) }
    }
}

fn message_box(frame: &Frame, base: &str) -> Markup {
    html! {
        form .say method="post" action={ (base) "/say" } {
            (frame.token())
            label { "Message to the agent"
                textarea name="text" rows="3" required data-send placeholder="What is to be done?" {}
            }
            div .between {
                label .inline { input type="checkbox" name="interrupt" value="true"; " Stop the run in progress for it" }
                button .primary type="submit" { "Send" }
            }
        }
    }
}
