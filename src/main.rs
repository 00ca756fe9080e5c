//! The `issuebox` program: everything is in the library.

use std::process::ExitCode;

/// Many small pieces are made on one thread and given back on another (requests, commits,
/// answers), which the system's allocator is slow at: 15 % of the time of an intake. Without huge
/// pages: clearing 2 MiB at a time for pieces of a few bytes took a seventh of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: a launcher has one thread and no environment, and stays so.
    if let Some(ended) = issuebox::app::providers::run_hidden_command() {
        return ended;
    }
    issuebox::cli::run(std::env::args_os())
}
