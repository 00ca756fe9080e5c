//! Look-ups over HTTP where a million issues are known, against the same where ten are: of live
//! sandboxes, and of issues whose sandbox is gone. Both servers are in this process, in turn, so
//! that they meet the same machine.

mod common;
#[path = "../tests/common/crowd.rs"]
mod crowd;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::time::Instant;

use common::{Bench, get, load, median, rate};

const ROUNDS: usize = 7;
const LOOKUPS: usize = 20_000;
const CONNECTIONS: usize = 64;
/// Live sandboxes of either server.
const LIVE: [usize; 2] = [10, 1_000];
/// Issues of either whose sandbox is gone.
const PAST: [usize; 2] = [10, 999_000];

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let began = Instant::now();
    let [few, many] = [0, 1].map(|which| of(LIVE[which], PAST[which]));
    println!("{} known issues were made in {:.1?}", LIVE[1] + PAST[1], began.elapsed());
    for (what, first, count) in [("live", [0, 0], LIVE), ("past", LIVE, PAST)] {
        let [of_few, of_many] = [0, 1].map(|which| requests(first[which], count[which]));
        let mut ratios = Vec::new();
        for round in 0..=ROUNDS {
            let (ten, million) = (timed(&few, &of_few), timed(&many, &of_many));
            // The first round warms both up.
            if round > 0 {
                let ratio = million / ten;
                println!("{what}: ten {ten:>8.0}/s   a million {million:>8.0}/s   {ratio:.2}");
                ratios.push(ratio);
            }
        }
        println!("{what}: {:.2} of the speed with ten (median of {ROUNDS})", median(&mut ratios));
    }
    few.running.stop().expect("it ends well");
    many.running.stop().expect("it ends well");
}

/// A server that knows these many issues.
fn of(live: usize, past: usize) -> Bench {
    Bench::start_on(|data, simulated| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            crowd::live(data, simulated, live).await;
            crowd::known(data, live as u64 + 1, past as u64).await;
        });
    })
}

/// Look-ups of issues from all over a part of the crowd.
fn requests(first: usize, count: usize) -> Vec<Vec<u8>> {
    // A step without a common divisor with the counts above, so that each comes up as often.
    let number = |n: usize| first + n * 7_919 % count;
    let path = |n| format!("/v1/issues/{}/sandbox", crowd::FIRST + number(n) as u64);
    (0..LOOKUPS).map(|n| get(&path(n))).collect()
}

fn timed(bench: &Bench, requests: &[Vec<u8>]) -> f64 {
    let began = Instant::now();
    let answered = load(bench.running.address, CONNECTIONS, requests, None).len();
    rate(answered, began.elapsed())
}
