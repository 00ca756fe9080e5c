//! The demo's report: a row for each issue, and whether each issue got exactly one sandbox.

use comfy_table::{Table, presets};

use crate::types::inert;

use super::flood::Answers;
use crate::cli::output::Screen;
use crate::cli::wire::ApiSandbox;

/// A sandbox, and a command's output in it if it runs.
pub(super) struct DemoSandbox {
    pub sandbox: ApiSandbox,
    pub said: Option<String>,
}

/// Whether the guarantee held, and a sentence about it.
pub(super) struct PromiseCheck {
    pub holds: bool,
    pub words: String,
}

/// A row for every issue that a delivery was about.
pub(super) fn table(screen: &Screen, answers: &Answers, work: &[DemoSandbox]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["PHASE", "ISSUE", "DELIVERIES", "SANDBOXES", "OUTPUT"]);
    for (id, concerned) in &answers.issues {
        let all: Vec<&DemoSandbox> = work.iter().filter(|w| w.sandbox.issue_id == *id).collect();
        // The list is newest first.
        let newest = all.first();
        let says = match newest {
            Some(work) => work.said.as_deref().or(work.sandbox.reason.as_deref()),
            None => concerned.ignored.as_deref(),
        };
        table.add_row([
            newest.map_or("none", |w| w.sandbox.phase_word()).to_owned(),
            inert(&concerned.name).into_owned(),
            concerned.deliveries.to_string(),
            all.len().to_string(),
            inert(says.unwrap_or("-")).into_owned(),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    screen.coloured_by_first_word(&text)
}

/// Checks that each issue with a sandbox has exactly one.
pub(super) fn verdict(answers: &Answers, work: &[DemoSandbox]) -> PromiseCheck {
    let mut issues: Vec<&str> = work.iter().map(|w| w.sandbox.issue_id.as_str()).collect();
    issues.sort_unstable();
    issues.dedup();
    let failed = work.iter().filter(|w| w.sandbox.phase_word() == "failed").count();
    let holds = issues.len() == work.len() && failed == 0 && answers.all_taken();
    let words = if holds {
        format!(
            "{} issues got a sandbox, each exactly one, although their deliveries were duplicated \
             and out of order.",
            issues.len()
        )
    } else {
        format!(
            "Unexpected: {} sandboxes for {} issues; {failed} sandboxes failed.",
            work.len(),
            issues.len()
        )
    };
    PromiseCheck { holds, words }
}
