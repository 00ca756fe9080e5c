//! The binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a launcher has one thread and no environment, and stays so.
    if let Some(ended) = issuebox::sandbox::local::run_hidden_command() {
        return ended;
    }
    ExitCode::SUCCESS
}
