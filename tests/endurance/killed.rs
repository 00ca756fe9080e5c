//! The real thing killed: under load, with every fault of the provider, about once a second. What
//! was acknowledged is there afterwards, once, and nothing else.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::eye::Eye;
use crate::load::{Kill, Load};
use crate::plan::{KINDS, Script};
use crate::process::Place;
use crate::verdict::{self, Failed};
use crate::{alone, given, print_line};

/// Scripts that are begun with each server: two of each kind.
const SCRIPTS: u64 = 2 * KINDS;
/// How many issues there are at most, so that a long run stays one of hundreds of issues that are
/// killed often, and the lists at its end stay short.
const ISSUES_MAX: u64 = 3_000;

/// The configuration of one server's life, with what goes wrong at its provider.
fn faults(unique_names: bool, chance: &mut Chance) -> String {
    let create_delay_ms = chance.one_of(&[0, 5, 40, 300]);
    let stop_delay_ms = chance.one_of(&[0, 20, 200]);
    let delete_delay_ms = chance.one_of(&[0, 20, 200]);
    let unavailable = chance.one_in(8);
    format!(
        "unique_names = {unique_names}\nunavailable = {unavailable}\n\
         create_delay_ms = {create_delay_ms}\nstop_delay_ms = {stop_delay_ms}\n\
         delete_delay_ms = {delete_delay_ms}\nfail_create = 0.1\nlose_response = 0.3\n{LIFECYCLE}"
    )
}

/// A create that a killed server has asked for counts as possible until its deadline.
const LIFECYCLE: &str = "[lifecycle]\ncreate_timeout_seconds = 2\nreconcile_seconds = 1";

/// Kills servers over one place for so long, and then counts.
async fn killed_for(seconds: u64, mode: &'static str, unique_names: bool, seed: u64) {
    print_line(&format!("seed {seed}, {seconds} s, mode {mode}, unique_names {unique_names}"));
    let place = Place::simulated("").in_mode(mode);
    let eye = Eye::on(&place.simulated_dir());
    let (load, chance) = (Load::default(), Mutex::new(Chance::of(seed)));
    let (mut kills, mut issues, mut slowest) = (0, 0, Duration::ZERO);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let kill = {
            let mut chance = chance.lock().expect("not poisoned");
            place.configure(&faults(unique_names, &mut chance));
            let more = (issues + SCRIPTS).min(ISSUES_MAX);
            for number in issues..more {
                load.begin(Script::of(number, &mut chance));
            }
            issues = more;
            Kill::by(&mut chance)
        };
        let asked = Instant::now();
        let server = place.serve().await;
        slowest = slowest.max(asked.elapsed());
        load.until_killed(&server, kill, &chance).await;
        let log = server.log();
        assert!(!log.contains("panicked"), "{log}");
        server.kill().await;
        kills += 1;
    }

    place.configure(&format!("unique_names = {unique_names}\n{LIFECYCLE}"));
    let server = place.serve().await;
    load.until_done(&server, &chance).await;
    verdict::quiet(&server, Failed::Retried).await;
    let counts = load.counts();
    let (scripts, acknowledged) = load.into_parts();
    let objects = verdict::each_has_come_to_its_end(&place, &server, &scripts).await;
    verdict::no_drift(&server).await;
    verdict::all_are_known(&server, &acknowledged).await;
    verdict::quiet(&server, Failed::Retried).await;
    let after = verdict::each_has_come_to_its_end(&place, &server, &scripts).await;
    assert_eq!(objects, after, "what was known changed nothing");
    let live = verdict::list(&server, "").await;
    let fast = live.values().filter(|sandbox| sandbox["mode"] == "fast").count();
    assert_eq!(fast > 0, mode == "fast", "{fast} of {} were recorded fast", live.len());
    let (status, _, log) = server.stop().await;
    assert!(status.success(), "{log}");
    verdict::each_has_a_result(&place.data(), &acknowledged).await;
    let seen = eye.end();
    assert!(seen.doubles.is_empty(), "two objects at one moment: {:?}", seen.doubles);
    let creates = place.calls("create");
    let ended = |how: &str| creates.iter().filter(|call| call["result"] == how).count();
    print_line(&format!(
        "  {issues} issues; deliveries: {} sent, {} distinct, {} answered; API calls: {} answered; \
         without an answer {}, refused for now {}\n  \
         {kills} kills, {kills} restarts, slowest start {slowest:.1?}; creates: {} asked, {} lost \
         their answer, {} failed\n  \
         objects: {} made, {objects} left, {fast} recorded fast, {} gone before they were read\n  \
         duplicates 0, lost 0, orphans 0",
        counts.sent,
        acknowledged.len(),
        counts.acknowledged,
        counts.calls,
        counts.unanswered,
        counts.refused,
        creates.len(),
        ended("lost"),
        ended("broken"),
        seen.made,
        seen.unread,
    ));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; run by .ci/run, longer with KILL_SECONDS and another KILL_SEED"]
async fn killed_every_second_each_issue_has_its_one_object() {
    let _alone = alone().await;
    let (seconds, seed) = (given("KILL_SECONDS", 60), given("KILL_SEED", 1));
    print_line(&format!("KILL_SEED={seed} KILL_SECONDS={seconds}"));
    for mode in ["strong", "fast"] {
        for unique_names in [true, false] {
            killed_for(seconds.div_ceil(4), mode, unique_names, seed).await;
        }
    }
}
