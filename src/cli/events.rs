//! `issuebox events`: the history of an issue, and its events as they happen.
//!
//! # Guarantees
//! With an issue and `-f` no event is missing or printed twice: the stream starts at a cursor taken
//! before the timeline is read. A broken connection resumes at its cursor. If the server no longer
//! has some events, a note says so.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::types::inert;

use super::CliSession;
use super::client::{ApiRequest, EventStream};
use super::failure::CliFailure;
use super::output::{OutputMode, Screen, Shape};
use super::rejoin::{Rejoins, ended_by_server};
use super::sse::SseEvent;
use super::target::IssueArg;
use super::wire::{self, AskedWords, Changed, TimelineRow};

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Follow events as they happen (the only output without an ISSUE)
    #[arg(short, long)]
    follow: bool,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name [default: all]
    #[arg(value_parser = IssueArg::parse)]
    issue: Option<IssueArg>,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: EventsArgs,
) -> anyhow::Result<ExitCode> {
    let mut follower =
        EventFollower { mode: args.shape.mode(), issue_id: None, printed: Vec::new() };
    let mut cursor = None;
    if let Some(target) = &args.issue {
        if args.follow {
            cursor = Some(cursor_now(session).await?);
        }
        let issue_id = target.known_issue_id(&session.client).await?;
        follower.printed = timeline(session, &issue_id, follower.mode).await?;
        if follower.printed.is_empty() && !args.follow {
            return Err(target.unknown().into());
        }
        follower.issue_id = Some(issue_id);
    }
    if args.follow || args.issue.is_none() {
        follower.follow(session, cursor).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The cursor after the latest event.
async fn cursor_now(session: &CliSession<'_>) -> Result<String, CliFailure> {
    let answer =
        session.client.call(ApiRequest::get(&["sandboxes"]).query("limit", Some(1))).await?;
    wire::read(&answer.body["eventCursor"])
}

/// Prints the timeline, oldest first, and returns it.
async fn timeline(
    session: &mut CliSession<'_>,
    issue_id: &str,
    mode: OutputMode,
) -> anyhow::Result<Vec<TimelineRow>> {
    let newest_first = session.client.every(&["issues", issue_id, "events"]).await?;
    let mut printed = Vec::with_capacity(newest_first.len());
    for value in newest_first.iter().rev() {
        let mut entry: TimelineRow = wire::read(value)?;
        // Its line breaks become spaces, and it is inert after that.
        entry.instruction = wire::read_exact(&value["instruction"])?;
        let line = match mode {
            OutputMode::Data(notation) => {
                let mut value = value.clone();
                value["issueId"] = issue_id.into();
                session.screen.record(notation, &value)?;
                printed.push(entry);
                continue;
            }
            OutputMode::Ids => entry.at.clone(),
            OutputMode::Table(_) => {
                let transition =
                    transition(&session.screen, entry.from.as_deref(), entry.to.as_deref());
                let line = event_line(
                    &session.screen,
                    &entry.at,
                    &transition,
                    &entry.reason,
                    &entry.cause,
                );
                with_words(&session.screen, line, entry.instruction.as_ref())
            }
        };
        session.screen.line(&line)?;
        printed.push(entry);
    }
    Ok(printed)
}

/// Prints events as they arrive.
struct EventFollower {
    mode: OutputMode,
    /// The issue; `None` for all.
    issue_id: Option<String>,
    /// Timeline entries that were printed already.
    printed: Vec<TimelineRow>,
}

impl EventFollower {
    async fn follow(
        &mut self,
        session: &mut CliSession<'_>,
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

    /// Prints events until the stream ends, and returns why it ended.
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
                    eprintln!("note: some events are missing; the server no longer has them")
                }
                // Events of later versions.
                _ => {}
            }
            if event.id.is_some() {
                *cursor = event.id;
            }
        }
    }

    fn changed(&self, screen: &mut Screen, event: &SseEvent) -> anyhow::Result<()> {
        let value: Value = wire::read_event_exact(&event.data)?;
        let mut changed: Changed = wire::read(&value)?;
        changed.instruction = wire::read_exact(&value["instruction"])?;
        let sandbox = &changed.sandbox;
        let other = self.issue_id.as_ref().is_some_and(|id| *id != sandbox.issue_id);
        if other || self.printed.iter().any(|entry| is_same(entry, &changed)) {
            return Ok(());
        }
        let line = match self.mode {
            OutputMode::Data(notation) => {
                return screen.record(notation, &as_timeline(value, &changed));
            }
            OutputMode::Ids => sandbox.id.clone(),
            OutputMode::Table(_) => {
                let transition = transition(screen, changed.from.as_deref(), changed.to.as_deref());
                let what = match &self.issue_id {
                    Some(_) => transition,
                    None => format!("{} {transition}", inert(&sandbox.issue())),
                };
                // A change within a phase has no time from an older server, so the current one is used.
                let now = SystemClock.now().to_string();
                let is_timed = changed.at.is_some() || changed.from != changed.to;
                let at = if is_timed { at(&changed) } else { &now };
                let line = event_line(screen, at, &what, &changed.reason, &changed.cause);
                with_words(screen, line, changed.instruction.as_ref())
            }
        };
        screen.line(&line)?;
        Ok(())
    }
}

/// A change in the shape of a timeline entry: programs get one shape, with and without `-f`.
fn as_timeline(mut value: Value, changed: &Changed) -> Value {
    value["at"] = at(changed).into();
    value["generation"] = changed.sandbox.generation.into();
    value["issueId"] = value["sandbox"]["issueId"].take();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("sandbox");
    }
    value
}

/// When a change happened, as precisely as the event says.
fn at(changed: &Changed) -> &str {
    if let Some(at) = &changed.at {
        return at;
    }
    changed.sandbox.deleted_at.as_ref().unwrap_or(&changed.sandbox.phase_since)
}

fn is_same(entry: &TimelineRow, changed: &Changed) -> bool {
    entry.at == at(changed)
        && entry.to == changed.to
        && entry.reason == changed.reason
        && entry.cause == changed.cause
}

/// `creating → running`, or the phase alone if it did not change.
fn transition(screen: &Screen, from: Option<&str>, to: Option<&str>) -> String {
    let word = |phase: Option<&str>, none: &'static str| {
        let phase = phase.unwrap_or(none);
        screen.phase(phase, &inert(phase))
    };
    if from == to {
        return word(to, "no sandbox");
    }
    format!("{} → {}", word(from, "nothing"), word(to, "deleted"))
}

/// The line, and a second one with what a person asked for.
fn with_words(screen: &Screen, line: String, words: Option<&AskedWords>) -> String {
    match words {
        Some(words) => format!("{line}\n    {}", screen.faint(&words.line())),
        None => line,
    }
}

fn event_line(screen: &Screen, at: &str, what: &str, reason: &str, cause: &str) -> String {
    let at = screen.faint(&inert(at));
    let cause = screen.faint(&format!("({})", inert(cause)));
    format!("{at} {what}  {} {cause}", inert(reason))
}
