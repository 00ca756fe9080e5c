//! `issuebox events`: what happened to an issue, and what happens from now on.
//!
//! # Guarantees
//! With an issue and `-f` nothing is left out between the two: the stream is joined at a cursor
//! taken before the timeline is read, and what both tell is told once. A connection that breaks is
//! taken up where it was; events that the server no longer has are said to be missing.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::types::inert;

use super::Session;
use super::client::{ApiRequest, EventStream};
use super::failure::CliFailure;
use super::output::{Screen, Shape, Shown};
use super::rejoin::{Rejoins, ended_by_server};
use super::sse::SseEvent;
use super::target::IssueRef;
use super::wire::{self, Changed, TimelineRow};

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Go on with what happens from now on (without an ISSUE that is all there is to show)
    #[arg(short, long)]
    follow: bool,
    /// Which issue; all where it is left out
    #[arg(value_parser = IssueRef::parse)]
    issue: Option<IssueRef>,
    #[command(flatten)]
    shape: Shape,
}

/// How many the API gives at once at most.
const PAGE_LEN: u64 = 200;

pub(super) async fn run(session: &mut Session<'_>, args: EventsArgs) -> anyhow::Result<ExitCode> {
    let mut follower =
        EventFollower { shown: args.shape.shown(), issue_id: None, told: Vec::new() };
    let mut cursor = None;
    if let Some(target) = &args.issue {
        if args.follow {
            cursor = Some(cursor_now(session).await?);
        }
        let issue_id = target.known_issue_id(&session.client).await?;
        follower.told = timeline(session, &issue_id, follower.shown).await?;
        if follower.told.is_empty() && !args.follow {
            return Err(target.unknown().into());
        }
        follower.issue_id = Some(issue_id);
    }
    if args.follow || args.issue.is_none() {
        follower.follow(session, cursor).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The cursor after the last event there is.
async fn cursor_now(session: &Session<'_>) -> Result<String, CliFailure> {
    let answer =
        session.client.call(ApiRequest::get(&["sandboxes"]).query("limit", Some(1))).await?;
    wire::read(&answer.body["eventCursor"])
}

/// Shows the timeline, oldest first, and returns it.
async fn timeline(
    session: &mut Session<'_>,
    issue_id: &str,
    shown: Shown,
) -> anyhow::Result<Vec<TimelineRow>> {
    let mut newest_first: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let call = ApiRequest::get(&["issues", issue_id, "events"])
            .query("limit", Some(PAGE_LEN))
            .query("cursor", cursor.as_deref());
        let answer = session.client.call(call).await?;
        newest_first.extend(answer.data().as_array().into_iter().flatten().cloned());
        cursor = answer.body["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let mut told = Vec::with_capacity(newest_first.len());
    for value in newest_first.iter().rev() {
        let entry: TimelineRow = wire::read(value)?;
        let line = match shown {
            Shown::Data(notation) => {
                session.screen.record(notation, value)?;
                told.push(entry);
                continue;
            }
            Shown::Ids => entry.at.clone(),
            Shown::Table(_) => {
                let moved = moved(&session.screen, entry.from.as_deref(), entry.to.as_deref());
                told_line(&session.screen, &entry.at, &moved, &entry.reason, &entry.cause)
            }
        };
        session.screen.line(&line)?;
        told.push(entry);
    }
    Ok(told)
}

/// Shows events as they come.
struct EventFollower {
    shown: Shown,
    /// Of which issue; `None` for all.
    issue_id: Option<String>,
    /// What the timeline told before.
    told: Vec<TimelineRow>,
}

impl EventFollower {
    async fn follow(
        &mut self,
        session: &mut Session<'_>,
        mut cursor: Option<String>,
    ) -> anyhow::Result<()> {
        let mut rejoins = Rejoins::new();
        loop {
            let call = ApiRequest::get(&["events"]);
            let ended = match session.client.stream(call, cursor.as_deref()).await {
                Ok(mut events) => {
                    rejoins.joined();
                    self.show(&mut session.screen, &mut events, &mut cursor).await?
                }
                Err(failure) => failure,
            };
            rejoins.wait(ended).await?;
        }
    }

    /// Shows events until the stream ends, and says why it did.
    async fn show(
        &mut self,
        screen: &mut Screen,
        events: &mut EventStream,
        cursor: &mut Option<String>,
    ) -> anyhow::Result<CliFailure> {
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(ended_by_server()),
                Err(failure) => return Ok(failure),
            };
            match event.name.as_str() {
                "sandbox.changed" => self.changed(screen, &event)?,
                "gap" => {
                    eprintln!("note: some events are missing here; the server has them no more")
                }
                // What later versions may tell.
                _ => {}
            }
            if event.id.is_some() {
                *cursor = event.id;
            }
        }
    }

    fn changed(&self, screen: &mut Screen, event: &SseEvent) -> anyhow::Result<()> {
        let changed: Changed = wire::read_event(&event.data)?;
        let sandbox = &changed.sandbox;
        let other = self.issue_id.as_ref().is_some_and(|id| *id != sandbox.issue_id);
        if other || self.told.iter().any(|entry| is_same(entry, &changed)) {
            return Ok(());
        }
        let line = match self.shown {
            Shown::Data(notation) => {
                return screen.record(notation, &wire::read_event(&event.data)?);
            }
            Shown::Ids => sandbox.id.clone(),
            Shown::Table(_) => {
                let moved = moved(screen, changed.from.as_deref(), changed.to.as_deref());
                let what = match &self.issue_id {
                    Some(_) => moved,
                    None => format!("{} {moved}", inert(&sandbox.issue())),
                };
                // A change within a phase carries no time of its own: it has just happened.
                let now = SystemClock.now().to_string();
                let at = if changed.from == changed.to { &now } else { at(&changed) };
                told_line(screen, at, &what, &changed.reason, &changed.cause)
            }
        };
        screen.line(&line)?;
        Ok(())
    }
}

/// When a change happened, as near as the event says it.
fn at(changed: &Changed) -> &str {
    changed.sandbox.deleted_at.as_ref().unwrap_or(&changed.sandbox.phase_since)
}

fn is_same(entry: &TimelineRow, changed: &Changed) -> bool {
    entry.at == at(changed)
        && entry.to == changed.to
        && entry.reason == changed.reason
        && entry.cause == changed.cause
}

/// `creating → running`, or the phase alone where it did not change.
fn moved(screen: &Screen, from: Option<&str>, to: Option<&str>) -> String {
    let word = |phase: Option<&str>, none: &'static str| {
        let phase = phase.unwrap_or(none);
        screen.phase(phase, &inert(phase))
    };
    if from == to {
        return word(to, "no sandbox");
    }
    format!("{} → {}", word(from, "nothing"), word(to, "deleted"))
}

fn told_line(screen: &Screen, at: &str, what: &str, reason: &str, cause: &str) -> String {
    let at = screen.faint(&inert(at));
    let cause = screen.faint(&format!("({})", inert(cause)));
    format!("{at} {what}  {} {cause}", inert(reason))
}
