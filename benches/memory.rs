//! Resident memory of a server, idle and with 20,000 live sandboxes, and how long a start takes
//! with that many; each of the real program in a process of its own.

mod common;

use std::time::{Duration, Instant};

use common::served::{Home, Served, ensure};
use common::{load, median};

const SANDBOXES: usize = 20_000;
const CONNECTIONS: usize = 64;
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
    let all = format!("issuebox_sandboxes_live{{phase=\"running\"}} {SANDBOXES}\n");
    server.until(&all);
    println!("{SANDBOXES} ensures took {took:.1?}");
    println!(
        "with {SANDBOXES} live: {:.1} MB resident (at most 250), {:.1} MB at its highest",
        server.resident_mb("VmRSS"),
        server.resident_mb("VmHWM")
    );
    server.end();

    let mut starts = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..STARTS {
        let server = Served::start(&home.config);
        server.until(&all);
        starts.push(server.ready_after.as_secs_f64());
        resident.push(server.resident_mb("VmRSS"));
        server.end();
    }
    println!(
        "start to ready with {SANDBOXES}: {:.2} s (median of {STARTS}, at most 1), then {:.1} MB",
        median(&mut starts),
        median(&mut resident)
    );
}
