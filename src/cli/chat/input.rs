//! What is said: the arguments, lines of a terminal, or all of standard input.

use std::io::{IsTerminal, Read, stdin};

use tokio::sync::mpsc;

use crate::cli::failure::CliFailure;
use crate::cli::raw::read_keys;
use crate::cli::target::IssueArg;

/// How many lines may wait.
const LINES_MAX: usize = 16;

/// The messages to say.
pub(super) struct ChatInput {
    ready: Option<String>,
    lines: Option<mpsc::Receiver<String>>,
    /// Whether a person types them.
    pub is_terminal: bool,
}

impl ChatInput {
    /// Whether there may be another message.
    pub const fn has_more(&self) -> bool {
        self.ready.is_some() || self.lines.is_some()
    }

    /// The next message; `None` if the input ended, or the line has nothing.
    pub async fn next(&mut self) -> Option<String> {
        if let Some(text) = self.ready.take() {
            return Some(text);
        }
        let line = self.lines.as_mut()?.recv().await;
        if line.is_none() {
            self.lines = None;
        }
        line.filter(|line| !line.trim().is_empty())
    }
}

/// What is to be said by these arguments.
///
/// # Errors
/// [`CliFailure::Usage`] if there is nothing to say.
pub(super) fn messages(text: &[String], issue: &IssueArg) -> anyhow::Result<ChatInput> {
    if text.is_empty() && stdin().is_terminal() {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let mut line = Vec::new();
        read_keys(move |bytes| {
            bytes.split_inclusive(|byte| *byte == b'\n').all(|piece| {
                line.extend_from_slice(piece);
                if line.last() != Some(&b'\n') {
                    return true;
                }
                let said = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                sender.blocking_send(said).is_ok()
            })
        })?;
        eprintln!("each line is a message to the agent of {issue}; Ctrl-D ends, Ctrl-C leaves");
        return Ok(ChatInput { ready: None, lines: Some(lines), is_terminal: true });
    }
    let text = match text {
        [] => {
            let mut text = String::new();
            stdin().lock().read_to_string(&mut text)?;
            text
        }
        words => words.join(" "),
    };
    if text.trim().is_empty() {
        let message = "there is nothing to say".to_owned();
        let hint = format!("run issuebox chat {issue} \"fix the build\", or pipe the text in");
        return Err(CliFailure::Usage { message, hint }.into());
    }
    Ok(ChatInput { ready: Some(text), lines: None, is_terminal: false })
}
