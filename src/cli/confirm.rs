//! Asks before an action that cannot be undone. Without a terminal, `--yes` is required.

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::CliFailure;

/// The texts of a confirmation.
pub(super) struct Question<'a> {
    /// The prompt, without `[y/N]`.
    pub prompt: &'a str,
    /// What the action would do, for the error when there is no terminal.
    pub consequence: &'a str,
    /// What did not happen, for the error when the answer is no.
    pub declined: &'a str,
}

/// Asks, and fails unless the answer is yes.
///
/// # Errors
/// [`CliFailure::Usage`] without a terminal, [`CliFailure::Failed`] if the answer is no.
pub(super) fn confirm(question: &Question<'_>) -> anyhow::Result<()> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(CliFailure::Usage {
            message: format!("{}, and there is no terminal to confirm it", question.consequence),
            hint: "add --yes to confirm".to_owned(),
        }
        .into());
    }
    eprint!("{} [y/N] ", question.prompt);
    io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliFailure::Failed {
        message: question.declined.to_owned(),
        hint: "answer y to confirm".to_owned(),
    }
    .into())
}
