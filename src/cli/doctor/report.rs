//! Prints the doctor's checks.

use serde_json::{Value, json};

use crate::app::doctor::{Check, CheckState};
use crate::types::inert;

use super::super::output::{OutputMode, Screen};

pub(super) fn show(screen: &mut Screen, mode: OutputMode, checks: &[Check]) -> anyhow::Result<()> {
    match mode {
        OutputMode::Data(notation) => {
            let all: Vec<Value> = checks.iter().map(body).collect();
            return screen.data(notation, &Value::Array(all));
        }
        OutputMode::Ids => {
            for check in checks.iter().filter(|check| check.state == CheckState::Broken) {
                screen.line(&inert(&check.what))?;
            }
        }
        OutputMode::Table(_) => {
            let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
            for check in checks {
                for line in lines(screen, check, width) {
                    screen.line(&line)?;
                }
            }
            eprintln!("{}", summary(checks));
        }
    }
    Ok(())
}

fn body(check: &Check) -> Value {
    let Check { what, state, found, remedy } = check;
    json!({"check": what, "state": state.as_str(), "found": found, "remedy": remedy})
}

fn lines(screen: &Screen, check: &Check, width: usize) -> Vec<String> {
    let word = check.state.as_str();
    // The colours of phases with the same meaning.
    let word = match check.state {
        CheckState::Right => screen.phase("running", &format!("{word:<6}")),
        CheckState::Noted => screen.phase("stopping", &format!("{word:<6}")),
        CheckState::Broken => screen.phase("failed", &format!("{word:<6}")),
    };
    let mut found = check.found.lines();
    let first = inert(found.next().unwrap_or_default()).into_owned();
    let mut lines = vec![format!("{word}  {:<width$}  {first}", inert(&check.what))];
    let indent = " ".repeat(width + 10);
    lines.extend(found.map(|more| format!("{indent}{}", inert(more))));
    if let Some(remedy) = &check.remedy {
        lines.push(format!("{indent}{}", screen.faint(&format!("→ {}", inert(remedy)))));
    }
    lines
}

fn summary(checks: &[Check]) -> String {
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    match (count(CheckState::Broken), count(CheckState::Noted)) {
        (0, 0) => "all checks passed".to_owned(),
        (0, noted) => format!("works; notes to review: {noted}"),
        (broken, _) => format!("checks failed: {broken}"),
    }
}
