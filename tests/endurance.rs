//! What must hold for long, at size, and while a provider is gone: the real program under load,
//! killed about every second; ten thousand live sandboxes and a million known issues; an outage.
//!
//! All of it is ignored here and run by `.ci/run` against the release build, which
//! `ISSUEBOX_BINARY` names. One test at a time, since each of them measures a busy machine:
//! `cargo test --test endurance -- --ignored --nocapture --test-threads=1`

#[path = "endurance/chance.rs"]
mod chance;
#[path = "common/crowd.rs"]
mod crowd;
#[path = "endurance/eye.rs"]
mod eye;
#[path = "endurance/killed.rs"]
mod killed;
#[path = "endurance/load.rs"]
mod load;
#[path = "endurance/outage.rs"]
mod outage;
#[path = "endurance/plan.rs"]
mod plan;
#[path = "common/process.rs"]
mod process;
#[path = "endurance/scale.rs"]
mod scale;
#[path = "common/story.rs"]
mod story;
#[path = "endurance/verdict.rs"]
mod verdict;

use std::io::Write;

/// Not `eprintln!`, which the test harness would swallow.
fn tell(what: &str) {
    writeln!(std::io::stderr(), "{what}").expect("standard error");
}

/// A number from the environment.
fn given(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number: {text:?}")),
        Err(_) => default,
    }
}
