//! The errors of a verb, their exit codes and how they are printed.

use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize;

use crate::http::error::Code;
use crate::types::inert;

use super::env::EnvVars;
use super::output::stderr_has_colours;

/// Exit code: the verb failed.
pub(super) const FAILED: u8 = 1;
/// Exit code: wrong usage.
pub(super) const USAGE: u8 = 2;
/// Exit code: there is no such issue or sandbox.
pub(super) const NOT_FOUND: u8 = 3;
/// Exit code of a shell: the command was found and cannot be executed (POSIX, Shell Command Language,
/// section 2.8.2).
const NOT_EXECUTABLE: u8 = 126;
/// Exit code of a shell: there is no such command.
const COMMAND_NOT_FOUND: u8 = 127;

/// An error with a hint what to do next.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliFailure {
    /// The server refused.
    #[error("{message}")]
    Api {
        /// The HTTP status.
        status: u16,
        /// The stable error code.
        code: String,
        /// The error as a sentence.
        message: String,
        /// What to do next.
        hint: Option<String>,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("cannot reach {server}")]
    Unreachable {
        /// Which server.
        server: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The server answered, and the answer ended before its end.
    #[error("the answer of {server} broke off")]
    BrokenOff {
        /// Which server.
        server: String,
        /// Why.
        source: reqwest::Error,
    },
    /// There is no such thing.
    #[error("{message}")]
    NotFound {
        /// What does not exist.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// Wrong usage.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// The verb failed.
    #[error("{message}")]
    Failed {
        /// What happened.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// Some of several actions failed; each error was printed already.
    #[error("some actions failed")]
    Reported(u8),
}

impl CliFailure {
    fn code(&self) -> u8 {
        match self {
            _ if self.is_code(Code::CommandNotFound) => COMMAND_NOT_FOUND,
            _ if self.is_code(Code::CannotStart) => NOT_EXECUTABLE,
            Self::Api { status: 404, .. } | Self::NotFound { .. } => NOT_FOUND,
            Self::Api { status: 400, .. } | Self::Usage { .. } => USAGE,
            Self::Api { .. }
            | Self::Unreachable { .. }
            | Self::BrokenOff { .. }
            | Self::Failed { .. } => FAILED,
            Self::Reported(code) => *code,
        }
    }

    /// Whether the server refused with this code.
    pub fn is_code(&self, asked: Code) -> bool {
        matches!(self, Self::Api { code, .. } if code == asked.as_str())
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Api { hint, .. } => hint.as_deref(),
            Self::NotFound { hint, .. } | Self::Usage { hint, .. } | Self::Failed { hint, .. } => {
                Some(hint)
            }
            Self::Unreachable { .. } => {
                Some("check that the server runs and that the address is right")
            }
            Self::BrokenOff { .. } => {
                Some("the server's log has the reason; what has arrived is not complete, try again")
            }
            Self::Reported(_) => None,
        }
    }
}

/// The exit code of an error.
pub(super) fn code_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<CliFailure>().map_or(FAILED, CliFailure::code)
}

/// Prints an error and its hint on standard error.
pub(super) fn print(error: &anyhow::Error, env: &EnvVars) {
    let failure = error.downcast_ref::<CliFailure>();
    if matches!(failure, Some(CliFailure::Reported(_))) {
        return;
    }
    let (error_word, hint_word) = if stderr_has_colours(env) {
        ("error".red().bold().to_string(), "hint".cyan().to_string())
    } else {
        ("error".to_owned(), "hint".to_owned())
    };
    // Several lines are several problems.
    let text = format!("{error:#}");
    let lines: Vec<_> = text.lines().map(inert).collect();
    eprintln!("{error_word}: {}", lines.join("\n       "));
    if let Some(hint) = failure.and_then(CliFailure::hint) {
        eprintln!("  {hint_word}: {}", inert(hint));
    }
}

/// Prints an error and returns its exit code. A closed standard output is not an error.
pub(super) fn report(error: &anyhow::Error, env: &EnvVars) -> ExitCode {
    let output_is_closed = error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    });
    if output_is_closed {
        return ExitCode::SUCCESS;
    }
    print(error, env);
    ExitCode::from(code_of(error))
}
