//! The `issuebox` program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a launcher has one thread and no environment, and stays so.
    if let Some(ended) = issuebox::sandbox::local::run_hidden_command() {
        return ended;
    }
    issuebox::cli::run(std::env::args_os())
}
