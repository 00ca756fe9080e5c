//! Draws `issuebox top`: a state and a size in, lines out.

use unicode_width::UnicodeWidthChar;

use crate::cli::output::Screen;
use crate::cli::table::age;
use crate::cli::wire::ApiSandbox;
use crate::types::{Timestamp, inert};

use super::state::{KEPT_MAX, TopView};

/// The size of a terminal, in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// The widths of the columns before the title, with their gaps.
const PHASE_WIDTH: usize = 10;
const SINCE_WIDTH: usize = 6;
/// The width of the agent's column, and of a terminal that has room for it.
const AGENT_WIDTH: usize = 11;
const AGENT_FROM: usize = 110;
/// Widest issue column.
const ISSUE_WIDTH_MAX: usize = 32;

/// The lines of the view: at most as many as the terminal's rows, none wider than it. Text from
/// others is inert; `screen` decides about colours.
pub(super) fn frame(state: &TopView, size: Size, screen: &Screen, now: Timestamp) -> Vec<String> {
    let mut lines = vec![first_line(state, size, screen), fitted(&counts(state), size.columns)];
    lines.extend(attention(state, size, screen));
    lines.push(String::new());
    let shown = state.shown();
    lines.push(screen.faint(&header(size)));
    // One row is for the last line.
    let room = size.rows.saturating_sub(lines.len() + 1);
    let at = shown.iter().position(|s| Some(&s.id) == state.selected.as_ref());
    let first = at.map_or(0, |at| (at + 1).saturating_sub(room));
    for (number, sandbox) in shown.iter().enumerate().skip(first).take(room) {
        lines.push(row(sandbox, size, screen, now, at == Some(number)));
    }
    if shown.is_empty() && room > 0 {
        let text = if state.kept() == 0 {
            "no sandboxes yet; issuebox ensure ISSUE makes one"
        } else {
            "no sandbox matches the filter; Esc clears it"
        };
        lines.push(screen.faint(&fitted(text, size.columns)));
    }
    // A terminal with few rows shows the first lines and the last one.
    lines.truncate(size.rows.saturating_sub(1));
    lines.resize(size.rows.saturating_sub(1), String::new());
    lines.push(last_line(state, size, screen));
    lines.truncate(size.rows);
    lines
}

fn first_line(state: &TopView, size: Size, screen: &Screen) -> String {
    let version = inert(&state.system.version);
    let title = format!("issuebox {version} at {}: ", inert(&state.server));
    match &state.lost {
        None => {
            let text = fitted(&format!("{title}live"), size.columns);
            // A truncated line has no word to colour.
            match text.strip_suffix("live") {
                Some(title) => format!("{title}{}", screen.phase("running", "live")),
                None => text,
            }
        }
        Some(why) => {
            let text = format!("NOT LIVE ({}), retrying. {title}", inert(why));
            screen.phase("failed", &fitted(&text, size.columns))
        }
    }
}

fn counts(state: &TopView) -> String {
    let counts = &state.system.counts;
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    let noun = if total == 1 { "sandbox" } else { "sandboxes" };
    let each = counts.iter().filter(|(_, count)| *count > 0);
    let each: Vec<_> = each.map(|(phase, count)| format!("{count} {}", inert(phase))).collect();
    let mut text = format!("{total} {noun}");
    if !each.is_empty() {
        text.push_str(&format!(": {}", each.join(", ")));
    }
    // The two numbers are from different times, so this is added only when the list is full.
    if state.kept() >= KEPT_MAX && u64::try_from(KEPT_MAX).is_ok_and(|kept| kept < total) {
        text.push_str(&format!("; showing the latest {KEPT_MAX}"));
    }
    text
}

/// What needs attention, in at most a third of the terminal.
fn attention(state: &TopView, size: Size, screen: &Screen) -> Vec<String> {
    let failed = state.failed();
    let of_server = state.system.degraded.iter().map(|text| inert(text).into_owned());
    let of_sandboxes = failed.iter().map(|s| format!("{}: {}", inert(&s.issue()), why(s)));
    let total = state.system.degraded.len() + failed.len();
    let room = (size.rows / 3).max(1);
    let kept = if total > room { room.saturating_sub(1) } else { total };
    let all = of_server.chain(of_sandboxes).take(kept);
    let mut lines: Vec<String> = all
        .map(|text| screen.phase("failed", &fitted(&format!("! {text}"), size.columns)))
        .collect();
    if kept < total {
        let more = format!("! {} more need attention", total - kept);
        lines.push(screen.phase("failed", &fitted(&more, size.columns)));
    }
    lines
}

/// The reason of the sandbox's phase, inert.
fn why(sandbox: &ApiSandbox) -> String {
    let failure = sandbox.failure.as_ref().map(|failure| failure.message.as_str());
    inert(failure.or(sandbox.reason.as_deref()).unwrap_or("-")).into_owned()
}

/// The widths of the columns issue, title and reason.
fn widths(size: Size) -> (usize, usize, usize) {
    let rest = size.columns.saturating_sub(PHASE_WIDTH + SINCE_WIDTH + agent_width(size));
    let issue = (rest / 3).min(ISSUE_WIDTH_MAX);
    let title = (rest - issue) / 2;
    (issue, title, rest - issue - title)
}

/// The width of the agent's column; 0 if there is no room for it.
const fn agent_width(size: Size) -> usize {
    if size.columns >= AGENT_FROM { AGENT_WIDTH } else { 0 }
}

fn header(size: Size) -> String {
    let (issue, title, reason) = widths(size);
    let agent = cell("AGENT", agent_width(size));
    let before = format!("{}{}{agent}", cell("PHASE", PHASE_WIDTH), cell("SINCE", SINCE_WIDTH));
    let text = format!(
        "{before}{}{}{}",
        cell("ISSUE", issue),
        cell("TITLE", title),
        fitted("WHY", reason)
    );
    fitted(&text, size.columns)
}

fn row(
    sandbox: &ApiSandbox,
    size: Size,
    screen: &Screen,
    now: Timestamp,
    is_selected: bool,
) -> String {
    let (issue, title, reason) = widths(size);
    let phase = sandbox.phase_word();
    let rest = format!(
        "{}{}{}{}{}",
        cell(&age(&sandbox.phase_since, now), SINCE_WIDTH),
        cell(&inert(sandbox.agent_word().unwrap_or("-")), agent_width(size)),
        cell(&inert(&sandbox.issue()), issue),
        cell(&inert(sandbox.issue_title.as_deref().unwrap_or("-")), title),
        fitted(&why(sandbox), reason),
    );
    let in_front = cell(&inert(phase), PHASE_WIDTH);
    if size.columns < PHASE_WIDTH + SINCE_WIDTH {
        return fitted(&in_front, size.columns);
    }
    if is_selected {
        return screen.selected(&format!("{in_front}{rest}"));
    }
    format!("{}{rest}", screen.phase(phase, &in_front))
}

fn last_line(state: &TopView, size: Size, screen: &Screen) -> String {
    let filter = inert(&state.filter);
    let text = match (state.is_filter_edited, state.filter.is_empty()) {
        (true, _) => format!("/{filter}_  (Enter applies it, Esc clears it)"),
        (false, false) => format!("q quit  j/k move  Esc clears the filter {filter}"),
        (false, true) => "q quit  j/k move  / filter".to_owned(),
    };
    screen.faint(&fitted(&text, size.columns))
}

/// Text padded to a column's width, with a gap after it.
fn cell(text: &str, width: usize) -> String {
    let text = fitted(text, width.saturating_sub(1));
    let padding = width.saturating_sub(width_of(&text));
    text + &" ".repeat(padding)
}

/// Text truncated to a width in cells.
fn fitted(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let fits = width_of_char(*c) <= left;
        left = left.saturating_sub(width_of_char(*c));
        fits
    };
    let kept: String = text.chars().take_while(fits).collect();
    if width == 0 { kept } else { kept + "…" }
}

/// Sums characters: terminals join some of them, but none shows more than this.
fn width_of(text: &str) -> usize {
    text.chars().map(width_of_char).sum()
}

fn width_of_char(c: char) -> usize {
    c.width().unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests;
