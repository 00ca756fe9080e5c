//! Tables of sandboxes, deliveries, holds and files, and the details of a sandbox. Text from others
//! is made inert.

use comfy_table::{Table, presets};

use crate::types::{Timestamp, dollars, inert};

use super::account::AccountRow;
use super::files::FileRow;
use super::output::{Screen, Width};
use super::runs::{ApiRun, ApiUsage, RunIssue};
use super::templates::TemplateRow;
use super::token::TokenRow;
use super::usage::UsageReport;
use super::wire::{AgentNow, ApiSandbox, AskedWords, Checkout, Delivery, Endpoint, HoldRow, Limit};

/// Longest title or reason if the output is not a terminal, in characters.
const TITLE_LEN_MAX: usize = 48;
/// A title or reason is never cut below this; on a narrow terminal lines wrap instead.
const TITLE_LEN_MIN: usize = 24;
/// The gap between columns.
const GAP: usize = 2;

/// The widths of a table that is printed in parts: each part is at least as wide as those before, and
/// the longest column is cut as in the first.
#[derive(Debug, Default)]
pub(super) struct TableParts {
    widths: Vec<usize>,
    len_max: Option<usize>,
}

/// A table of sandboxes, the phase first. With `parts` it is one part of a table, and the first has
/// the header.
pub(super) fn list(
    screen: &Screen,
    width: Width,
    (sandboxes, holds): (&[ApiSandbox], &[HoldRow]),
    now: Timestamp,
    parts: &mut TableParts,
) -> String {
    let row = |sandbox: &ApiSandbox| {
        let mut row = vec![
            inert(sandbox.phase_word()).into_owned(),
            inert(&sandbox.issue()).into_owned(),
            inert(sandbox.issue_title.as_deref().unwrap_or("-")).into_owned(),
            age(&sandbox.created_at, now),
            inert(sandbox.agent_word().unwrap_or("-")).into_owned(),
            inert(&sandbox.name).into_owned(),
        ];
        if width == Width::Whole {
            row.extend([
                age(&sandbox.phase_since, now),
                inert(&sandbox.provider).into_owned(),
                inert(&sandbox.template).into_owned(),
                inert(&sandbox.id).into_owned(),
                inert(
                    holds.iter().find(|hold| hold.covers(sandbox)).map_or("-", |hold| &hold.scope),
                )
                .into_owned(),
                inert(sandbox.reason.as_deref().unwrap_or("-")).into_owned(),
            ]);
        }
        row
    };
    let header = ["PHASE", "ISSUE", "TITLE", "AGE", "AGENT", "SANDBOX"];
    // Of several holds the widest is named.
    let more = ["SINCE", "PROVIDER", "TEMPLATE", "ID", "HELD", "REASON"];
    let more = if width == Width::Whole { &more[..] } else { &[] };
    let rows = sandboxes.iter().map(row).collect();
    parts.next(screen, width, &[&header, more].concat(), Some(2), rows)
}

/// A table of deliveries, the status first.
pub(super) fn deliveries(
    screen: &Screen,
    width: Width,
    deliveries: &[Delivery],
    now: Timestamp,
) -> String {
    let row = |delivery: &Delivery| {
        let event = delivery.event.as_deref().unwrap_or("-");
        let event = match &delivery.action {
            Some(action) => format!("{event}.{action}"),
            None => event.to_owned(),
        };
        let mark = if delivery.recovered { ", recovered" } else { "" };
        vec![
            format!("{}{mark}", inert(&delivery.status)),
            age(&delivery.received_at, now),
            inert(&event).into_owned(),
            inert(delivery.issue_id.as_deref().unwrap_or("-")).into_owned(),
            inert(&delivery.reason).into_owned(),
            inert(delivery.delivery.as_deref().unwrap_or("-")).into_owned(),
        ]
    };
    let header = ["STATUS", "AGE", "EVENT", "ISSUE", "REASON", "DELIVERY"];
    laid_out(screen, width, &header, Some(4), deliveries.iter().map(row).collect())
}

/// A table of runs, the state first.
pub(super) fn runs(screen: &Screen, width: Width, runs: &[ApiRun], now: Timestamp) -> String {
    let row = |run: &ApiRun| {
        let issue = run.issue.as_ref().map_or_else(|| "-".to_owned(), RunIssue::shown);
        let why = if run.why().is_empty() { "-" } else { run.why() };
        vec![
            inert(&run.state).into_owned(),
            inert(&issue).into_owned(),
            inert(&run.agent).into_owned(),
            age(&run.since, now),
            run.messages.to_string(),
            dollars(run.usage.cost_usd),
            inert(why).into_owned(),
            inert(&run.id).into_owned(),
        ]
    };
    let header = ["STATE", "ISSUE", "AGENT", "SINCE", "MESSAGES", "COST", "WHY", "RUN"];
    laid_out(screen, width, &header, Some(6), runs.iter().map(row).collect())
}

/// A table of what was used of models, with the sum of all at the end.
pub(super) fn usage(screen: &Screen, width: Width, by: &str, report: &UsageReport) -> String {
    let row = |name: &str, usage: &ApiUsage| {
        vec![
            inert(name).into_owned(),
            usage.requests.to_string(),
            usage.input_tokens.to_string(),
            usage.output_tokens.to_string(),
            dollars(usage.cost_usd),
        ]
    };
    let mut rows: Vec<_> = report.sums.iter().map(|one| row(&one.shown(), &one.usage)).collect();
    rows.push(row("total", &report.total));
    let header = [&*by.to_uppercase(), "REQUESTS", "INPUT TOKENS", "OUTPUT TOKENS", "COST"];
    laid_out(screen, width, &header, None, rows)
}

/// A table of holds.
pub(super) fn holds(screen: &Screen, holds: &[HoldRow], now: Timestamp) -> String {
    let row = |hold: &HoldRow| {
        let reason = Some(hold.reason.as_str()).filter(|reason| !reason.is_empty());
        vec![
            inert(hold.shown()).into_owned(),
            age(&hold.since, now),
            inert(&hold.by).into_owned(),
            inert(reason.unwrap_or("-")).into_owned(),
        ]
    };
    let header = ["HELD", "AGE", "BY", "REASON"];
    laid_out(screen, Width::Whole, &header, None, holds.iter().map(row).collect())
}

/// A table of tokens.
pub(super) fn tokens(screen: &Screen, width: Width, tokens: &[TokenRow], now: Timestamp) -> String {
    let row = |token: &TokenRow| {
        let until = token.expires_at.as_deref();
        vec![
            inert(&token.name).into_owned(),
            inert(&token.role).into_owned(),
            inert(&token.account).into_owned(),
            age(&token.created_at, now),
            token.last_used_at.as_deref().map_or_else(|| "never".to_owned(), |at| age(at, now)),
            inert(until.unwrap_or("-")).into_owned(),
            inert(&token.id).into_owned(),
        ]
    };
    let header = ["NAME", "ROLE", "ACCOUNT", "AGE", "LAST USED", "EXPIRES", "ID"];
    laid_out(screen, width, &header, None, tokens.iter().map(row).collect())
}

/// A table of accounts.
pub(super) fn accounts(screen: &Screen, width: Width, accounts: &[AccountRow]) -> String {
    let row = |account: &AccountRow| {
        let installations = account.installations.iter().map(|id| format!("installation {id}"));
        let owners = account.owners.iter().map(|owner| format!("{owner}/*"));
        let all = installations.chain(owners).chain(account.repositories.iter().cloned());
        let all = all.collect::<Vec<String>>().join(", ");
        vec![
            inert(&account.name).into_owned(),
            if account.disabled { "disabled" } else { "enabled" }.to_owned(),
            if account.configured { "configuration" } else { "API" }.to_owned(),
            inert(if all.is_empty() { "-" } else { &all }).into_owned(),
        ]
    };
    let header = ["NAME", "STATE", "FROM", "BELONGS TO IT"];
    laid_out(screen, width, &header, None, accounts.iter().map(row).collect())
}

/// A table of templates, by name.
pub(super) fn templates(screen: &Screen, width: Width, templates: &[TemplateRow]) -> String {
    let row = |template: &TemplateRow| {
        let resources = &template.resources;
        let mut row = vec![
            inert(&template.shown()).into_owned(),
            inert(&template.provider).into_owned(),
            inert(template.agent.as_deref().unwrap_or("-")).into_owned(),
            inert(&template.network).into_owned(),
            format!("{} CPU, {} MiB", resources.cpu, resources.memory_mb),
            inert(&template.version).into_owned(),
            inert(template.unusable.as_deref().unwrap_or("-")).into_owned(),
        ];
        if width == Width::Whole {
            let ports: Vec<_> = template.ports.iter().map(u16::to_string).collect();
            row.extend([
                format!("{} MiB", resources.disk_mb),
                inert(&template.mode).into_owned(),
                if ports.is_empty() { "-".to_owned() } else { ports.join(",") },
                inert(template.source().unwrap_or("-")).into_owned(),
            ]);
        }
        row
    };
    let header = ["TEMPLATE", "PROVIDER", "AGENT", "NETWORK", "RESOURCES", "VERSION", "PROBLEM"];
    let more = ["DISK", "MODE", "PORTS", "IMAGE"];
    let more = if width == Width::Whole { &more[..] } else { &[] };
    let rows = templates.iter().map(row).collect();
    laid_out(screen, width, &[&header, more].concat(), Some(6), rows)
}

/// A table of a directory's entries.
pub(super) fn files(screen: &Screen, width: Width, entries: &[FileRow], now: Timestamp) -> String {
    let row = |entry: &FileRow| {
        let size = if entry.kind == "file" { entry.size.to_string() } else { "-".to_owned() };
        vec![
            inert(&entry.kind).into_owned(),
            inert(&entry.mode).into_owned(),
            size,
            age(&entry.modified_at, now),
            inert(&entry.path()).into_owned(),
        ]
    };
    let header = ["KIND", "MODE", "SIZE", "AGE", "PATH"];
    laid_out(screen, width, &header, None, entries.iter().map(row).collect())
}

/// A table of versions of a workspace.
pub(super) fn versions(screen: &Screen, rows: Vec<Vec<String>>) -> String {
    let header = ["VERSION", "AGE", "FILES", "BYTES", "STORED"];
    laid_out(screen, Width::Whole, &header, None, rows)
}

/// A table in which the column `longest` is cut to fit.
fn laid_out(
    screen: &Screen,
    width: Width,
    header: &[&str],
    longest: Option<usize>,
    rows: Vec<Vec<String>>,
) -> String {
    TableParts::default().next(screen, width, header, longest, rows)
}

impl TableParts {
    fn next(
        &mut self,
        screen: &Screen,
        width: Width,
        header: &[&str],
        longest: Option<usize>,
        mut rows: Vec<Vec<String>>,
    ) -> String {
        if let (Width::Fitting, Some(at)) = (width, longest) {
            let fitting = || {
                screen.columns.map_or(TITLE_LEN_MAX, |columns| {
                    columns.saturating_sub(width_beside(header, at, &rows)).max(TITLE_LEN_MIN)
                })
            };
            let len_max = self.len_max.unwrap_or_else(fitting);
            self.len_max = Some(len_max);
            for cell in rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                *cell = shortened(cell, len_max);
            }
        }
        let is_first = self.widths.is_empty();
        self.widths.resize(header.len(), 0);
        for (column, (name, known)) in header.iter().zip(&mut self.widths).enumerate() {
            *known = width_of(name, column, &rows).max(*known);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        // The header is laid out with each part, since it carries the widths.
        table.set_header(
            header.iter().zip(&self.widths).map(|(name, width)| format!("{name:<width$}")),
        );
        table.add_rows(rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, u16::try_from(GAP).expect("a few columns")));
        }
        let text = screen.coloured_by_first_word(&table.to_string());
        match text.split_once('\n') {
            Some((_header, rows)) if !is_first => rows.to_owned(),
            Some(_) | None => text,
        }
    }
}

/// The width of all columns but one, with the gaps.
fn width_beside(header: &[&str], at: usize, rows: &[Vec<String>]) -> usize {
    let columns = header.iter().enumerate().filter(|(column, _)| *column != at);
    let others = columns.map(|(column, name)| width_of(name, column, rows)).sum::<usize>();
    others + GAP * header.len().saturating_sub(1)
}

/// The width of a column with its name.
fn width_of(name: &str, column: usize, rows: &[Vec<String>]) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
    cells.max().unwrap_or(0).max(name.len())
}

/// The details of one sandbox: as [`Width::Whole`] also those that few people need.
pub(super) fn sheet(
    screen: &Screen,
    width: Width,
    sandbox: &ApiSandbox,
    holds: &[HoldRow],
    now: Timestamp,
) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut row = |name, value: Option<&str>| {
        if let Some(value) = value {
            rows.push((name, inert(value).into_owned()));
        }
    };
    let is_whole = width == Width::Whole;
    let time = |at: &String| match is_whole {
        true => format!("{} ago ({at})", age(at, now)),
        false => format!("{} ago", age(at, now)),
    };
    let phase = sandbox.phase_word();
    let since = age(&sandbox.phase_since, now);
    row("issue", Some(&sandbox.issue()));
    row("title", sandbox.issue_title.as_deref());
    row("page", sandbox.issue_url.as_deref());
    row("sandbox", Some(&sandbox.name));
    row("id", Some(&sandbox.id));
    row("phase", Some(&format!("{phase} for {since}")));
    match &sandbox.failure {
        // The reason repeats it.
        Some(failure) => {
            let text = format!("{} ({} at {})", failure.message, failure.code, failure.step);
            row("failure", Some(&text));
        }
        None => row("reason", sandbox.reason.as_deref()),
    }
    if Some(sandbox.wanted.as_str()) != sandbox.phase.as_deref() {
        row("wanted", Some(&sandbox.wanted));
    }
    for hold in holds.iter().filter(|hold| hold.covers(sandbox)) {
        let reason = Some(&hold.reason).filter(|reason| !reason.is_empty());
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        row("held", Some(&format!("{}, by {}{reason}", hold.shown(), hold.by)));
    }
    let agent = sandbox.agent.as_ref().filter(|agent| agent.run.is_some());
    row("agent", agent.map(|agent| agent_words(agent, now)).as_deref());
    row("provider", Some(&sandbox.provider));
    row("template", Some(&sandbox.template));
    row("agent id", sandbox.agent_id.as_deref());
    for (name, value) in &sandbox.meta {
        row("meta", Some(&format!("{name}={value}")));
    }
    row("network", sandbox.network.as_deref());
    row("generation", Some(&sandbox.generation.to_string()));
    if is_whole {
        row("account", Some(&sandbox.account));
        row("issue id", Some(&sandbox.issue_id));
        row("object", sandbox.external_id.as_deref());
        row("mode", sandbox.mode.as_deref());
        row("version", sandbox.template_version.as_deref());
        row("attempts", sandbox.attempt.map(|count| count.to_string()).as_deref());
    }
    row("created", Some(&time(&sandbox.created_at)));
    row("last used", sandbox.last_activity_at.as_ref().map(time).as_deref());
    row("deleted", sandbox.deleted_at.as_ref().map(time).as_deref());
    let line = |(name, value): (&str, String)| {
        let value = if name == "phase" { screen.phase(phase, &value) } else { value };
        format!("{} {value}", screen.faint(&format!("{name:<10}")))
    };
    rows.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What an agent does, since when, what that cost and why.
fn agent_words(agent: &AgentNow, now: Timestamp) -> String {
    let since = agent.since.as_ref().map(|since| format!(" for {}", age(since, now)));
    let cost = agent.cost.map(|cost| format!(", {}", dollars(cost)));
    let reason = Some(&agent.reason).filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}"));
    let parts = [Some(agent.state.clone()), since, cost, reason];
    parts.into_iter().flatten().collect()
}

/// A row of the details: what a person asked for last.
pub(super) fn asked(screen: &Screen, words: &AskedWords) -> String {
    format!("{} {}", screen.faint(&format!("{:<10}", "asked by")), words.line())
}

/// A row of the details: the limits, and whether each is enforced.
pub(super) fn limits(screen: &Screen, limits: &[Limit]) -> String {
    let words: Vec<String> = limits.iter().map(Limit::words).collect();
    format!("{} {}", screen.faint(&format!("{:<10}", "limits")), inert(&words.join(", ")))
}

/// A row of the details: how far the checkout is, and the sandbox's branch.
pub(super) fn checkout(screen: &Screen, checkout: &Checkout) -> String {
    let mut words = checkout.state.clone();
    if let Some(branch) = &checkout.branch {
        words = format!("{words}, on {branch}");
    }
    if !checkout.reason.is_empty() {
        words = format!("{words}: {}", checkout.reason);
    }
    format!("{} {}", screen.faint(&format!("{:<10}", "checkout")), inert(&words))
}

/// A row of the details: the servers in the sandbox, and whether they listen.
pub(super) fn endpoints(screen: &Screen, endpoints: &[Endpoint]) -> String {
    let word = |one: &Endpoint| match &one.state {
        Some(state) => format!("{} {state}", one.port),
        None => one.port.to_string(),
    };
    let words: Vec<String> = endpoints.iter().map(word).collect();
    format!("{} {}", screen.faint(&format!("{:<10}", "endpoints")), inert(&words.join(", ")))
}

/// One line about a sandbox, for verbs that act.
pub(super) fn line(screen: &Screen, sandbox: &ApiSandbox) -> String {
    let phase = sandbox.phase_word();
    let mut line = format!("{} {}", inert(&sandbox.name), screen.phase(phase, phase));
    if let Some(failure) = &sandbox.failure {
        line.push_str(&screen.faint(&format!(" ({})", inert(&failure.message))));
    }
    line
}

fn shortened(text: &str, len_max: usize) -> String {
    if text.chars().count() <= len_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(len_max - 1).collect();
    format!("{}…", kept.trim_end())
}

/// The age of a timestamp in its largest unit: `5s`, `12m`, `3h`, `9d`.
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
