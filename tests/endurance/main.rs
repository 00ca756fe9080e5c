//! What must hold for long, at size, and while a provider is gone: the real program under load,
//! killed about every second; ten thousand live sandboxes and a million known issues; an outage.
//!
//! What takes long is ignored here and run by `.ci/run` against the release build, which
//! `ISSUEBOX_BINARY` names: `cargo test --test endurance -- --ignored`. Each prints what it counted. They are a binary
//! of their own because each of them keeps the machine busy, and some measure.

mod chance;
#[path = "../common/crowd.rs"]
mod crowd;
mod eye;
mod killed;
mod load;
mod outage;
mod plan;
#[path = "../common/process.rs"]
mod process;
mod scale;
#[path = "../common/story.rs"]
mod story;
mod verdict;

use std::io::Write;

use tokio::sync::{Mutex, MutexGuard};

/// Not `eprintln!`, which the test harness would swallow.
fn print_line(what: &str) {
    writeln!(std::io::stderr(), "{what}").expect("standard error");
}

/// A number from the environment.
fn given(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number: {text:?}")),
        Err(_) => default,
    }
}

/// Serialises the tests: each of them keeps the machine busy, and some of them
/// measure.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}
