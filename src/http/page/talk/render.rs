//! Entries of a conversation as HTML. Every text of an agent or a tool is escaped, bounded, and written out
//! where it would act.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::http::page::ansi::Painter;
use crate::http::page::text::{shown, shown_lines};
use crate::http::page::time::since;
use crate::types::{RunState, Timestamp, dollars};

use super::TalkView;
use super::entries::{TalkEntry, TalkKind, ToolResult};

/// Most characters of a message or of the agent's words.
const WORDS_LEN_MAX: usize = 20_000;
/// Most characters of what a tool is given or answers.
const OUTPUT_LEN_MAX: usize = 8_000;

/// One entry.
pub fn entry(entry: &TalkEntry, view: &TalkView) -> Markup {
    let key = format!("e{}", entry.key);
    match &entry.kind {
        TalkKind::Message { from, author, title, text, at } => html! {
            article .said data-key=(key) {
                p .by {
                    strong { bdi { (shown(if author.is_empty() { "Someone" } else { author })) } }
                    span { (shown(from)) }
                    @if let Some(at) = Timestamp::parse(at) { (since(at, view.now)) }
                }
                @if let Some(title) = title { p .title { bdi { (shown(title)) } } }
                p .words { (shown_lines(text, WORDS_LEN_MAX)) }
            }
        },
        TalkKind::Words { text, is_whole } => html! {
            p .words .agents .open[!is_whole] data-key=(key) { (shown_lines(text.trim_end(), WORDS_LEN_MAX)) }
        },
        TalkKind::Thought { text, .. } => html! {
            details .tool data-key=(key) {
                summary { span .soft { "Thought" } }
                p .words .soft { (shown_lines(text, WORDS_LEN_MAX)) }
            }
        },
        TalkKind::Tool { tool, title, input, result, .. } => html! {
            details .tool .bad[result.as_ref().is_some_and(|result| result.is_error)] data-key=(key) {
                summary {
                    strong { (shown(tool)) } " " code { (shown(title)) }
                    @match result {
                        None => { " " span .soft { "…" } }
                        Some(result) if result.is_error => { " " span .failed-word { "failed" } }
                        Some(_) => {}
                    }
                }
                (given(input))
                @if let Some(result) = result { (answered(result)) }
            }
        },
        TalkKind::Note(text) => html! { p .aside data-key=(key) { (shown(text)) } },
        TalkKind::Run { run, state, reason, attempt } => {
            let usage = view.usage.of(*run);
            html! {
                p .aside .run .(state.as_str()) data-key=(key) {
                    span { "Run " (word(*state)) }
                    @if *attempt > 1 { span { "attempt " (attempt) } }
                    @if !reason.is_empty() { span { bdi { (shown(reason)) } } }
                    @if !state.is_in_progress() && usage.requests > 0 {
                        span { (dollars(usage.cost_usd)) ", " (usage.input_tokens) " tokens in, " (usage.output_tokens) " out" }
                    }
                }
            }
        }
    }
}

const fn word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "waits",
        RunState::Running => "began",
        RunState::WaitingForPerson => "waits for a person",
        RunState::Cancelling => "is being ended",
        RunState::Interrupted => "was interrupted, and goes on by itself",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::OverBudget => "is over budget",
        RunState::Cancelled => "was cancelled",
    }
}

/// What a tool was given: a change of a file as a diff, anything else as JSON.
fn given(input: &Value) -> Markup {
    let text = |key: &str| input[key].as_str();
    let changes = match (text("old_string"), text("new_string"), text("content")) {
        (Some(old), Some(new), _) => Some(change(old, new)),
        (_, _, Some(content)) if text("file_path").is_some() => Some(change("", content)),
        _ => input["edits"].as_array().map(|edits| {
            let of = |edit: &Value, key: &str| edit[key].as_str().unwrap_or_default().to_owned();
            edits
                .iter()
                .map(|edit| change(&of(edit, "old_string"), &of(edit, "new_string")))
                .collect()
        }),
    };
    let shown = match (changes, text("command"), input) {
        (Some(diff), ..) => diff,
        (None, Some(command), _) => command.to_owned(),
        (None, None, Value::Null) => return html! {},
        (None, None, Value::Object(fields)) if fields.is_empty() => return html! {},
        (None, None, other) => format!("{other:#}"),
    };
    html! { pre .out .given { (painted(&shown)) } }
}

/// Lines that went and lines that came.
fn change(old: &str, new: &str) -> String {
    let line = |sign: &'static str| move |line: &str| format!("{sign}{line}\n");
    let went = old.lines().map(line("-"));
    let came = new.lines().map(line("+"));
    std::iter::once("@@\n".to_owned()).chain(went).chain(came).collect()
}

fn answered(result: &ToolResult) -> Markup {
    html! {
        @if result.text.trim().is_empty() { p .soft { "No output." } }
        @else { pre .out { (painted(&result.text)) } }
    }
}

/// Output in its colours; of a diff each line in that of its kind.
fn painted(text: &str) -> Markup {
    let cut = text.char_indices().nth(OUTPUT_LEN_MAX).map_or(text.len(), |(end, _)| end);
    let (text, left_out) = (&text[..cut], text.len() - cut);
    let mut painter = Painter::default();
    let mut out = String::new();
    if is_diff(text) {
        for line in text.split_inclusive('\n') {
            let line = painter.paint(line.as_bytes());
            match kind(&line) {
                Some(kind) => out.push_str(&format!("<span class=\"{kind}\">{line}</span>")),
                None => out.push_str(&line),
            }
        }
    } else {
        out.push_str(&painter.paint(text.as_bytes()));
    }
    out.push_str(&painter.end());
    html! {
        // The painter escapes all that it is given.
        (PreEscaped(out))
        @if left_out > 0 { span .cut { "\n" (left_out) " more bytes are not shown" } }
    }
}

fn is_diff(text: &str) -> bool {
    let begins = |start: &str| text.lines().any(|line| line.starts_with(start));
    begins("@@") || begins("diff --git ") || (begins("--- ") && begins("+++ "))
}

/// The class of a line of a diff.
fn kind(line: &str) -> Option<&'static str> {
    match line.bytes().next() {
        Some(b'+') => Some("came"),
        Some(b'-') => Some("went"),
        Some(b'@') => Some("hunk"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffs_have_the_colours_of_their_lines_and_hostile_output_does_nothing() {
        let diff = painted("diff --git a b\n@@ -1 +1 @@\n-old <b>\n+new\u{202e}\n same").0;
        assert!(diff.contains("<span class=\"went\">-old &lt;b&gt;\n</span>"), "{diff}");
        assert!(diff.contains("<span class=\"came\">+new\\u{202e}\n</span>"), "{diff}");
        assert!(diff.contains("<span class=\"hunk\">@@ -1 +1 @@\n</span>"), "{diff}");
        let hostile = painted("\u{1b}[31mred<img src=x>\u{1b}]52;c;x\u{7}\u{1b}[2J- no diff").0;
        assert!(hostile.contains("<span class=\"f1\">red&lt;img src=x&gt;"), "{hostile}");
        assert!(!hostile.contains('\u{1b}') && !hostile.contains("went"), "{hostile}");
        let long = painted(&"ä".repeat(1_000_000)).0;
        assert!(long.len() < 60_000 && long.contains("more bytes are not shown"), "{}", long.len());
    }

    #[test]
    fn a_changed_file_is_shown_as_a_diff() {
        let input = serde_json::json!({"file_path": "a", "old_string": "x\ny", "new_string": "z"});
        let shown = given(&input).0;
        assert!(shown.contains("<span class=\"went\">-x\n</span>"), "{shown}");
        assert!(shown.contains("<span class=\"came\">+z\n</span>"), "{shown}");
        assert!(given(&serde_json::json!({"command": "ls -l"})).0.contains("ls -l"));
        assert!(given(&serde_json::json!({})).0.is_empty());
    }
}
