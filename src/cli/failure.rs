//! How a verb can fail, and what that means for the exit code and the person who reads it.

use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize;

use crate::types::inert;

use super::connect::Environment;
use super::output::stderr_has_colours;

/// Exit code: what was asked failed.
pub(super) const FAILED: u8 = 1;
/// Exit code: it was asked wrongly.
pub(super) const USAGE: u8 = 2;
/// Exit code: there is no such issue or sandbox.
pub(super) const NOT_FOUND: u8 = 3;

/// A failure with something to do next.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliFailure {
    /// The server said no.
    #[error("{message}")]
    Api {
        /// The HTTP status.
        status: u16,
        /// The stable word for what went wrong.
        code: String,
        /// The same for people.
        message: String,
        /// What to do next.
        hint: Option<String>,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("{server} cannot be reached")]
    Unreachable {
        /// Which server.
        server: String,
        /// Why.
        source: reqwest::Error,
    },
    /// What was asked for is not there.
    #[error("{message}")]
    NotFound {
        /// What is not there.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// It was asked wrongly.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// It was asked rightly and did not come about.
    #[error("{message}")]
    Failed {
        /// What happened.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// Some of several failed; each was told already.
    #[error("not all of it was done")]
    Told(u8),
}

impl CliFailure {
    fn code(&self) -> u8 {
        match self {
            Self::Api { status: 404, .. } | Self::NotFound { .. } => NOT_FOUND,
            Self::Api { status: 400, .. } | Self::Usage { .. } => USAGE,
            Self::Api { .. } | Self::Unreachable { .. } | Self::Failed { .. } => FAILED,
            Self::Told(code) => *code,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Api { hint, .. } => hint.as_deref(),
            Self::NotFound { hint, .. } | Self::Usage { hint, .. } | Self::Failed { hint, .. } => {
                Some(hint)
            }
            Self::Unreachable { .. } => Some("is it running, and is this its address?"),
            Self::Told(_) => None,
        }
    }
}

/// The exit code of an error.
pub(super) fn code_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<CliFailure>().map_or(FAILED, CliFailure::code)
}

/// Tells an error on standard error, with what to do next.
pub(super) fn tell(error: &anyhow::Error, env: &Environment) {
    let failure = error.downcast_ref::<CliFailure>();
    if matches!(failure, Some(CliFailure::Told(_))) {
        return;
    }
    let (error_word, hint_word) = if stderr_has_colours(env) {
        ("error".red().bold().to_string(), "hint".cyan().to_string())
    } else {
        ("error".to_owned(), "hint".to_owned())
    };
    // Several lines are several problems; each is shown by itself.
    let text = format!("{error:#}");
    let lines: Vec<_> = text.lines().map(inert).collect();
    eprintln!("{error_word}: {}", lines.join("\n       "));
    if let Some(hint) = failure.and_then(CliFailure::hint) {
        eprintln!("  {hint_word}: {}", inert(hint));
    }
}

/// Tells an error and gives the exit code. Nobody left to read our output is no error.
pub(super) fn report(error: &anyhow::Error, env: &Environment) -> ExitCode {
    let nobody_reads = error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    });
    if nobody_reads {
        return ExitCode::SUCCESS;
    }
    tell(error, env);
    ExitCode::from(code_of(error))
}
