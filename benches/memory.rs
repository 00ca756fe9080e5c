//! Resident memory of a server: idle, with 20,000 live sandboxes, while each of these issues gets one
//! delivery after the other, and with 100,000 live sandboxes; and how long a start takes with that
//! many. Each is of the real program in a process of its own.
//!
//! An hour of 1,500 deliveries a second is 270 for each of 20,000 issues. What an actor remembers of
//! deliveries is full after [`ROUNDS`] already, and they are sent as fast as they are answered, so that
//! every actor stays awake: at 1,500 a second some of them would sleep. `MEMORY_ROUNDS=270` sends the
//! whole hour's, and `MEMORY_RATE=1500` as slowly.

mod common;
#[path = "../tests/common/crowd.rs"]
mod crowd;

use std::time::{Duration, Instant};

use common::served::{Home, Served, ensure};
use common::{SECRET, load, median};
use issuebox::github::webhook::sign;
use issuebox::types::Secret;

const SANDBOXES: usize = 20_000;
const SANDBOXES_MANY: usize = 100_000;
const CONNECTIONS: usize = 64;
/// Deliveries for each issue.
const ROUNDS: usize = 24;
/// How many points of the curve are printed.
const POINTS: usize = 8;
const STARTS: usize = 5;

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let home = Home::new();

    let server = Served::start(&home.config);
    server.fetch("/v1/system");
    println!("idle: {:.1} MB resident (at most 40)", server.resident_mb("VmRSS"));
    let requests: Vec<Vec<u8>> = (0..SANDBOXES).map(ensure).collect();
    let took: Duration = {
        let began = Instant::now();
        load(server.address, CONNECTIONS, &requests, None);
        began.elapsed()
    };
    server.until(&all_of(SANDBOXES));
    println!("{SANDBOXES} ensures took {took:.1?}");
    println!(
        "with {SANDBOXES} live: {:.1} MB resident (at most 250), {:.1} MB at its highest",
        server.resident_mb("VmRSS"),
        server.resident_mb("VmHWM")
    );
    curve(&server);
    server.end();
    starts(&home, SANDBOXES, 250);

    let home = Home::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (data, simulated) = (home.dir.path().join("data"), home.simulated.path());
    runtime.expect("a runtime").block_on(crowd::live(&data, simulated, SANDBOXES_MANY));
    starts(&home, SANDBOXES_MANY, 300);
}

/// The line of the metrics when these many sandboxes run.
fn all_of(sandboxes: usize) -> String {
    format!("issuebox_sandboxes_live{{phase=\"running\"}} {sandboxes}\n")
}

/// Sends one delivery after the other to each issue, and prints how the memory grows.
fn curve(server: &Served) {
    let setting = |name| std::env::var(name).ok()?.parse().ok();
    let rounds = setting("MEMORY_ROUNDS").unwrap_or(ROUNDS);
    let rate = setting("MEMORY_RATE").map(|rate: usize| rate as f64);
    let template = comment();
    let began = Instant::now();
    for round in 1..=rounds {
        let requests: Vec<_> = (0..SANDBOXES).map(|n| delivery(&template, round, n)).collect();
        load(server.address, CONNECTIONS, &requests, rate);
        if round % rounds.div_ceil(POINTS) == 0 || round == rounds {
            println!(
                "{round:>4} deliveries for each, after {:>4.0} s: {:.1} MB resident (at most 250)",
                began.elapsed().as_secs_f64(),
                server.resident_mb("VmRSS")
            );
        }
    }
}

/// A comment on an issue, which is activity and no command, with `"#id"` and `"#number"` where the
/// issue's numbers belong.
fn comment() -> String {
    let fixture = issuebox::github::fixtures::named("issue_comment.created.plain");
    let body = fixture.expect("a fixture").body;
    let mut payload: serde_json::Value = serde_json::from_str(body).expect("a fixture is JSON");
    payload["issue"]["id"] = "#id".into();
    payload["issue"]["number"] = "#number".into();
    payload["repository"]["full_name"] = "octo/hello".into();
    payload.to_string()
}

fn delivery(template: &str, round: usize, n: usize) -> Vec<u8> {
    let body = template.replace("\"#id\"", &(4_000_000_000_usize + n).to_string());
    let body = body.replace("\"#number\"", &(n + 1).to_string());
    let signature = sign(&Secret::new(SECRET), body.as_bytes());
    let head = format!(
        "POST /webhooks/github HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
         x-github-event: issue_comment\r\n\
         x-github-delivery: 00000000-0000-4000-8000-{:012x}\r\n\
         x-hub-signature-256: {signature}\r\ncontent-length: {}\r\n\r\n",
        round * SANDBOXES + n,
        body.len()
    );
    (head + &body).into_bytes()
}

/// Starts the server some times, and prints how long that took and what it needs: when it is ready,
/// and when it has compared its records with its provider's objects.
fn starts(home: &Home, sandboxes: usize, at_most_mb: usize) {
    let (mut starts, mut ready, mut swept) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let server = Served::start(&home.config);
        server.until(&all_of(sandboxes));
        starts.push(server.ready_after.as_secs_f64());
        ready.push(server.resident_mb("VmRSS"));
        let compared = format!("\"objects\":{sandboxes}");
        server.until_answered("/v1/system/drift", &compared);
        swept.push(server.resident_mb("VmRSS"));
        server.end();
    }
    println!(
        "start to ready with {sandboxes}: {:.2} s (median of {STARTS}, at most 1), then {:.1} MB; \
         after the first sweep {:.1} MB (at most {at_most_mb})",
        median(&mut starts),
        median(&mut ready),
        median(&mut swept)
    );
}
