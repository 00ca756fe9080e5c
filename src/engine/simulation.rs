//! The whole engine in a world that lies, hangs, repeats, reorders and crashes, from a seed.

mod chance;
mod checks;
mod driver;
mod github;
mod objects;
mod provider;
mod spawner;
mod store;
mod time;
mod weather;
mod world;

use std::sync::Arc;

use world::{Violation, World};

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
    }
}

/// Lives through the history of a seed, and tells all about it where the promise is broken.
fn check(seed: u64) -> Result<(), String> {
    let Err(_) = run(seed, false) else { return Ok(()) };
    // Once more, with a trace: keeping one all the time costs more than living.
    let Err((violation, world)) = run(seed, true) else {
        return Err(format!("seed {seed} is broken, but not when it is repeated"));
    };
    let home = violation.home.map_or_else(String::new, |home| format!(" (home {home})"));
    let trace = world.with(|inner| inner.trace_of(violation.home, 250));
    let weather = world.with(|inner| format!("{:?}", inner.weather));
    Err(format!(
        "seed {seed}{home}: {}\n{weather}\n{trace}\n\nto repeat it: SIM_SEED={seed} cargo test \
         --lib engine::simulation -- --nocapture",
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
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let next = std::sync::atomic::AtomicU64::new(first);
    let broken = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    if let Err(why) = check(seed) {
                        broken.lock().expect("not poisoned").push((seed, why));
                        return;
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
}

#[test]
fn the_promise_holds_whatever_happens() {
    check_seeds(300);
}
