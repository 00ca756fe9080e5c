//! Asking before what cannot be taken back: on a terminal; where there is nobody to ask, `--yes`
//! must say that it is meant.

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::CliFailure;

/// What is asked, and what is said where it is not confirmed.
pub(super) struct Question<'a> {
    /// What is asked, without the question mark's `[y/N]`.
    pub asked: &'a str,
    /// What it would do, where there is nobody to ask.
    pub unasked: &'a str,
    /// What did not happen, where the answer was no.
    pub refused: &'a str,
}

/// Asks, and fails unless the answer is yes.
///
/// # Errors
/// [`CliFailure::Usage`] where there is nobody to ask, [`CliFailure::Failed`] where the answer is no.
pub(super) fn confirm(question: &Question<'_>) -> anyhow::Result<()> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(CliFailure::Usage {
            message: format!("{}, and there is nobody to ask", question.unasked),
            hint: "add --yes where that is meant".to_owned(),
        }
        .into());
    }
    eprint!("{} [y/N] ", question.asked);
    io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliFailure::Failed {
        message: question.refused.to_owned(),
        hint: "answer y where that is meant".to_owned(),
    }
    .into())
}
