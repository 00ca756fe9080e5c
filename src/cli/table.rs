//! Sandboxes as a table and as a sheet, deliveries and holds, with everything that others wrote
//! made inert.

use comfy_table::{Table, presets};

use crate::types::{Timestamp, inert};

use super::output::Screen;
use super::wire::{Delivery, Hold, Sandbox};

/// Longest title or reason in a table, in characters.
const TITLE_LEN_MAX: usize = 48;

/// A list of sandboxes, the phase in front.
pub(super) fn list(screen: &Screen, sandboxes: &[Sandbox], now: Timestamp) -> String {
    let mut table = plain_table();
    table.set_header(["PHASE", "ISSUE", "TITLE", "AGE", "SANDBOX"]);
    for sandbox in sandboxes {
        table.add_row([
            sandbox.phase_word().to_owned(),
            inert(&sandbox.issue()).into_owned(),
            shortened(&inert(sandbox.issue_title.as_deref().unwrap_or("-"))),
            age(&sandbox.created_at, now),
            inert(&sandbox.name).into_owned(),
        ]);
    }
    laid_out(screen, table)
}

/// A list of deliveries, what became of them in front.
pub(super) fn deliveries(screen: &Screen, deliveries: &[Delivery], now: Timestamp) -> String {
    let mut table = plain_table();
    table.set_header(["STATUS", "AGE", "EVENT", "ISSUE", "REASON", "DELIVERY"]);
    for delivery in deliveries {
        let event = delivery.event.as_deref().unwrap_or("-");
        let event = match &delivery.action {
            Some(action) => format!("{event}.{action}"),
            None => event.to_owned(),
        };
        table.add_row([
            inert(&delivery.status).into_owned(),
            age(&delivery.received_at, now),
            inert(&event).into_owned(),
            inert(delivery.issue_id.as_deref().unwrap_or("-")).into_owned(),
            shortened(&inert(&delivery.reason)),
            inert(delivery.delivery.as_deref().unwrap_or("-")).into_owned(),
        ]);
    }
    laid_out(screen, table)
}

/// A list of holds.
pub(super) fn holds(screen: &Screen, holds: &[Hold], now: Timestamp) -> String {
    let mut table = plain_table();
    table.set_header(["HELD", "AGE", "BY", "REASON"]);
    for hold in holds {
        let reason = Some(hold.reason.as_str()).filter(|reason| !reason.is_empty());
        table.add_row([
            inert(&hold.id).into_owned(),
            age(&hold.since, now),
            inert(&hold.by).into_owned(),
            inert(reason.unwrap_or("-")).into_owned(),
        ]);
    }
    laid_out(screen, table)
}

fn laid_out(screen: &Screen, mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    screen.coloured_by_first_word(&table.to_string())
}

/// All there is to say of one sandbox.
pub(super) fn sheet(screen: &Screen, sandbox: &Sandbox, now: Timestamp) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut row = |name, value: Option<&str>| {
        if let Some(value) = value {
            rows.push((name, inert(value).into_owned()));
        }
    };
    let phase = sandbox.phase_word();
    let since = age(&sandbox.phase_since, now);
    row("issue", Some(&sandbox.issue()));
    row("title", sandbox.issue_title.as_deref());
    row("page", sandbox.issue_url.as_deref());
    row("sandbox", Some(&sandbox.name));
    row("id", Some(&sandbox.id));
    row("phase", Some(&format!("{phase} for {since}")));
    row("reason", sandbox.reason.as_deref());
    if Some(sandbox.wanted.as_str()) != sandbox.phase.as_deref() {
        row("wanted", Some(&sandbox.wanted));
    }
    if let Some(failure) = &sandbox.failure {
        let text = format!("{} ({} at {})", failure.message, failure.code, failure.step);
        row("failure", Some(&text));
    }
    row("provider", Some(&sandbox.provider));
    row("object", sandbox.external_id.as_deref());
    row("template", Some(&sandbox.template));
    row("generation", Some(&sandbox.generation.to_string()));
    row("created", Some(&sandbox.created_at));
    row("activity", sandbox.last_activity_at.as_deref());
    row("deleted", sandbox.deleted_at.as_deref());
    let line = |(name, value): (&str, String)| {
        let value = if name == "phase" { screen.phase(phase, &value) } else { value };
        format!("{} {value}", screen.faint(&format!("{name:<10}")))
    };
    rows.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One line about one sandbox, for verbs that act.
pub(super) fn line(screen: &Screen, sandbox: &Sandbox) -> String {
    let phase = sandbox.phase_word();
    let mut line = format!("{} {}", inert(&sandbox.name), screen.phase(phase, phase));
    if let Some(failure) = &sandbox.failure {
        line.push_str(&screen.faint(&format!(" ({})", inert(&failure.message))));
    }
    line
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= TITLE_LEN_MAX {
        return text.to_owned();
    }
    let kept: String = text.chars().take(TITLE_LEN_MAX - 1).collect();
    format!("{}…", kept.trim_end())
}

/// How long ago a time was, in its largest unit: `5s`, `12m`, `3h`, `9d`.
pub(super) fn age(at: &str, now: Timestamp) -> String {
    let Some(at) = Timestamp::parse(at) else { return "?".to_owned() };
    let seconds = now.since(at).as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
