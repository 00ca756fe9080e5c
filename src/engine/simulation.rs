//! The whole engine in a world that lies, hangs, repeats, reorders and crashes, from a seed.
//!
//! The engine runs as it is, on one thread and in virtual time, against the ports: a clock that
//! steps (`time`), a store whose commits are slow, fail and land or not at a crash (`store`),
//! providers that lose answers and act late (`provider`, `objects`, `lists`), GitHub (`github`), callers
//! (`clients`), people who change objects at the provider (`outsiders`), and another provider at the
//! same address (`impostors`). GitHub transfers issues (`transfers`), renames and archives repositories
//! (`scope_event`), and has what the server writes on issues (`said`, by the client `writer`, from the
//! rows of `outbox`), where people comment, delete, quote, lock and close (`people`). Agents work in sandboxes
//! (`agents`), started by the real worker (`runs`) for what people say to them (`sayings`, kept as rows by
//! `talk`); some templates have hooks (`hooks`). All of that is the `world`, which outlives every server; a `ServerLife` is one server
//! process. What happens is chosen by the `driver`, how bad it is by the `weather`, both from the
//! seed (`chance`), so that a seed is one history and can be repeated. In the end it becomes calm, and all must come to `rest`.
//! What happened in all of them is counted (`counts`), and a run of all seeds in which something never happened fails.
//!
//! # What a crash is
//! The local set that a server runs on is dropped, at any step. Dropping runs `Drop` although SIGKILL
//! would not: so from the step of the crash on the world ignores that life. Dropping a client never
//! cancels its call: what was asked of a provider goes on in the world. A group of writes that was
//! under way has landed or has not, by chance; writes that waited are lost.
//!
//! # What is checked at every step (`checks`)
//! Of homes and issues:
//! - There are never two objects for one home, nor for one GitHub issue in the account that GitHub
//!   speaks to, whatever names it by (`unique`); objects that outsiders made do not count, nor does what a record that was given up
//!   by force left at another provider.
//! - Once the server said that it has a delivery of a transfer, all names of the issue are one home's,
//!   for ever. A home that gave way has its sandbox deleted and makes no other, and no home begins
//!   for an issue that has one.
//! - The known repository and number of an issue never become older.
//! - Versions and generations grow; attempts of a sandbox never shrink; another sandbox follows
//!   only a deleted one.
//! - A sandbox that a caller was given stays its issue's sandbox until it is deleted.
//! - An accepted delete is never taken back. A confirmed one means that no object of it is there,
//!   and none comes back.
//! - Every phase in which something is under way is left in bounded time, except *deleting*.
//!
//! Of what is said and asked:
//! - A delivery that was acknowledged is durable with what came of it; so is every sandbox that a
//!   caller is given; nothing is published that is not durable.
//! - A delivery that concerns many issues was applied to each of them before it counts as done.
//! - A provider is asked nothing that is not recorded, and one thing at a time for a home; one that
//!   the server knows to have another identity, nothing at all.
//! - Only objects of the home itself are touched, and only one that carries the sandbox is adopted.
//! - No outsider is blamed (`object_lost`, `killed_outside`, `duplicate_object`) for an object that
//!   none changed, whatever lists a sweep is shown.
//! - Nothing begins that is held; a pending start ends granted or withdrawn (`holds`).
//! - A provider's answer is taken; no caller is refused without a fault that explains it; no two
//!   activations of a home write, except behind an actor that ended in the middle.
//!
//! Of what is written at GitHub (`said`), in the histories that have it:
//! - There are never two comments of ours with one marker, nor two pull requests of one sandbox.
//! - Nothing is replaced by what was written before it, although a call of unknown outcome takes effect
//!   late. A stranger's comment is never edited, whatever it quotes.
//! - A call is recorded before it is made, alone, within GitHub's limits, and never while calls rest.
//!
//! Of agents (`agents`, `talk`), in the histories that have them:
//! - A home has at most one process of an agent. It begins once its run is durably recorded as running and was
//!   verified with all of its messages, goes on with the home's own session, and is given the messages of its
//!   run: all, no other, and none that the session has.
//! - A run in progress is never forgotten, has a process only in a sandbox that is up, and does not begin under a
//!   hold. No agent outlives its run or goes on under a hold for longer than it takes to end one.
//! - The gateway for models knows the run of each agent that asks.
//!
//! Of hooks (`hooks`), in the histories that have them:
//! - No sandbox is recorded as running before a cold start of its object has succeeded.
//! - No sandbox that ran is stopped or deleted before the hooks that come before that ran.
//! - Two hooks of a sandbox never run at the same time.
//!
//! # What is checked at rest
//! That it comes at all: a history, and its calm, may last for a bounded virtual time.
//!
//! Everything that GitHub sent is acknowledged and stored. Each object belongs to the live record
//! of its home: no orphan. If no outsider was, sweeps find no drift, and what is recorded as up or
//! down is there; if only GitHub spoke, an issue that is closed has nothing running. Once all is
//! released, no pending start waits for nothing, and no more are live than may be. Once all is deleted, nothing
//! is left. What was to be said is there as the state asks for it, or was given up for a reason that
//! there was (`spoken`). Each message is for one run, which has ended, or waits for what it says.
//!
//! # What providers keep to
//! The contract of `sandbox.rs`, and not more: an effect comes at the latest at the call's deadline
//! plus the settle time; a name is never given twice if that is promised, and elsewhere only
//! if two creates overlap; *absent* is only said of what is not there; a removal may take its
//! time, or end only when it is asked again. Lists alone may be out of date or not complete; and a
//! *forgetful* provider shows sweeps nothing at all, which no contract covers, only the bound on what
//! a sweep believes.
//!
//! In fast mode a crash, a create whose answer was lost, or one that cannot be undone in all its
//! tries, may leave an object without a record until sweeps have removed it; such a one does not
//! count as a second.
//!
//! # What GitHub keeps to
//! A writing call takes effect within [`said`]'s bound after its arrival, or never; what is refused or was
//! not reached had no effect. Lists of comments and pull requests may lack what was made some seconds ago.
//!
//! # What sandboxes keep to
//! Where agents work, sandboxes and their processes end with the server, as those that can run agents do. A
//! process runs until it ends, is killed or its sandbox goes down; calls on it may fail, and the connection
//! to its output may be lost while it goes on.
//!
//! # Repeating a seed
//! `SIM_SEED=7 cargo test --lib engine::simulation::the_promise -- --nocapture` lives through one
//! history; with `SIM_SEEDS=50000` as well through so many from there on, with `SIM_STEP=6` as well through
//! each sixth of them. If the promise is
//! broken, the history is printed: the last lines of the home concerned and of the whole world, or with
//! `SIM_TRACE=2000` so many lines of all homes.
//!
//! # That it can fail
//! `proof` switches deliberate bugs on, one at a time (`sabotage`), and each is noticed.

mod agents;
mod chance;
mod checks;
mod clients;
mod counts;
mod driver;
mod github;
mod holds;
mod hooks;
mod impostors;
mod lists;
mod objects;
mod outbox;
mod outsiders;
mod people;
mod proof;
mod provider;
mod rest;
mod runs;
mod said;
mod sayings;
mod scope_event;
mod spawner;
mod spoken;
mod store;
mod talk;
mod time;
mod transfers;
mod unique;
mod weather;
mod world;
mod writer;

use std::sync::Arc;

use counts::Counts;
use world::{Violation, World, WorldState};

/// How many lines of a broken history are printed.
const TRACE_LINES_MAX: usize = 250;
/// How many histories `cargo test` lives through.
const SEEDS_OF_TESTS: u64 = 300;
/// How many CI does.
const SEEDS_OF_CI: u64 = 2_600;

/// Lives through the history of a seed.
fn run(seed: u64, traced: bool) -> Result<Arc<World>, (Violation, Arc<World>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _on_it = runtime.enter();
    let world = World::new(seed, traced);
    world.with(|inner| inner.check_phases());
    runtime.spawn(Arc::clone(&world).turn());
    loop {
        let local = tokio::task::LocalSet::new();
        let life = world.begin_life();
        let at_end = runtime.block_on(local.run_until(async {
            tokio::select! {
                biased;
                () = world.over() => false,
                at_end = driver::live(life) => at_end,
            }
        }));
        world.with(|inner| inner.kill("killed"));
        drop(local);
        if let Some(violation) = world.with(|inner| inner.violation.clone()) {
            return Err((violation, world));
        }
        if at_end {
            return Ok(world);
        }
        let downtime = world.with(WorldState::downtime);
        runtime.block_on(tokio::time::sleep(downtime));
    }
}

/// Lives through the history of a seed, and describes it if the promise is broken.
fn check(seed: u64) -> Result<Counts, String> {
    if let Ok(world) = run(seed, false) {
        return Ok(world.with(|inner| inner.counts.clone()));
    }
    // Once more, with a trace: keeping one all the time costs more than living.
    let Err((violation, world)) = run(seed, true) else {
        return Err(format!("seed {seed} is broken, but not when it is repeated"));
    };
    let home = violation.home.map_or_else(String::new, |home| format!(" (home {home})"));
    let trace = world.with(|inner| match number("SIM_TRACE") {
        Some(lines) => inner.trace_of(None, usize::try_from(lines).unwrap_or(usize::MAX)),
        None => inner.trace_of(violation.home, TRACE_LINES_MAX),
    });
    let weather = world.with(|inner| format!("{:?}", inner.weather));
    Err(format!(
        "seed {seed}{home}: {}\n{weather}\n{trace}\n\nto repeat it: SIM_SEED={seed} cargo test \
         --lib engine::simulation::the_promise -- --nocapture",
        violation.what
    ))
}

/// Reads a number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Lives through many histories, on all cores.
fn check_seeds(count: u64) {
    let (first, count) = match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(first), count) => (first, count.unwrap_or(1)),
        (None, more) => (0, more.unwrap_or(count)),
    };
    let step = number("SIM_STEP").unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let next = std::sync::atomic::AtomicU64::new(first);
    let broken = std::sync::Mutex::new(Vec::new());
    let counts = std::sync::Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(step, std::sync::atomic::Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    match check(seed) {
                        Ok(of_seed) => counts.lock().expect("not poisoned").add(&of_seed),
                        Err(why) => {
                            broken.lock().expect("not poisoned").push((seed, why));
                            return;
                        }
                    }
                }
            });
        }
    });
    let mut broken = broken.into_inner().expect("not poisoned");
    broken.sort();
    if let Some((_, why)) = broken.first() {
        panic!("{why}");
    }
    let counts = counts.into_inner().expect("not poisoned");
    println!("{count} seeds from {first} on: {counts:?}");
    if count >= SEEDS_OF_TESTS && step == 1 {
        assert_eq!(counts.missing(), [], "some of what the seeds are about did not happen in them");
    }
}

#[test]
fn the_promise_holds_whatever_happens() {
    check_seeds(SEEDS_OF_TESTS);
}

#[test]
fn a_seed_is_one_history() {
    let trace = |seed| {
        let world = match run(seed, true) {
            Ok(world) | Err((_, world)) => world,
        };
        world.with(|inner| inner.trace_of(None, usize::MAX))
    };
    for seed in 0..20 {
        let (first, again) = (trace(seed), trace(seed));
        let differs = first.lines().zip(again.lines()).position(|(first, again)| first != again);
        // The lines just before are the same and show the context.
        let from = differs.unwrap_or_default().saturating_sub(12);
        let shown = |trace: &str| trace.lines().skip(from).take(16).collect::<Vec<_>>().join("\n");
        assert_eq!(differs, None, "seed {seed}:\n{}\n\n{}", shown(&first), shown(&again));
        assert_eq!(first.len(), again.len(), "seed {seed}");
    }
}

#[test]
#[ignore = "takes minutes; CI runs it"]
fn the_promise_holds_for_every_seed_of_ci() {
    check_seeds(SEEDS_OF_CI);
}
