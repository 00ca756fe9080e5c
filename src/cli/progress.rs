//! A spinner on standard error while a verb waits; silent if that is not a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::types::inert;

/// A spinner; a drop removes it.
pub(super) struct Spinner(ProgressBar);

impl Spinner {
    /// Starts a spinner if the verb waits at all.
    pub fn start(what: &str, waits: bool) -> Self {
        if !waits || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(inert(what).into_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Replaces the text.
    pub fn set(&self, what: &str) {
        self.0.set_message(inert(what).into_owned());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
