//! At size: ten thousand live sandboxes, and a million known issues.

use std::time::{Duration, Instant};

use crate::crowd;
use crate::process::{Place, Server, until};
use crate::{alone, print_line};

/// From the start of a process until it is ready, with all that it knows.
const READY_MAX: Duration = Duration::from_secs(2);
/// From the start of a process until it has compared its records with the provider's objects.
const RECONCILED_MAX: Duration = Duration::from_secs(30);
/// Resident memory with a million known issues, in bytes.
const RESIDENT_MAX: u64 = 150_000_000;

/// Starts a server; how long it took to be ready.
async fn started(place: &Place) -> (Server, Duration) {
    let began = Instant::now();
    let server = place.serve().await;
    (server, began.elapsed())
}

/// A server's resident memory in bytes, and the most that it has been.
fn resident(server: &Server) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid));
    let status = status.expect("it runs");
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it is listed");
        let kib = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>();
        kib.expect("a number") * 1024
    };
    (of("VmRSS"), of("VmHWM"))
}

async fn running(server: &Server) -> u64 {
    let list = server.get("/v1/sandboxes?phase=running&limit=1").await.json();
    list["total"].as_u64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes ten thousand sandboxes; run by .ci/run"]
async fn killed_with_ten_thousand_live_it_is_ready_at_once_and_finds_them_all() {
    let _alone = alone().await;
    const LIVE: usize = 10_000;
    let place = Place::simulated("");
    crowd::live(&place.data(), &place.simulated_dir(), LIVE).await;
    started(&place).await.0.kill().await;

    let killed = Instant::now();
    let (server, ready) = started(&place).await;
    assert_eq!(running(&server).await, LIVE as u64);
    let drift = || async { server.get("/v1/system/drift").await.json() };
    let is_swept = || async { drift().await["sweeps"][0]["done"].as_u64() > Some(0) };
    until("everything is compared", is_swept).await;
    let reconciled = killed.elapsed();
    let drift = drift().await;
    assert_eq!((&drift["total"], &drift["sweeps"][0]["objects"]), (&0.into(), &LIVE.into()));
    let (now, most) = resident(&server);
    print_line(&format!(
        "{LIVE} live: killed to ready {ready:.2?}, to reconciled {reconciled:.2?}; \
         resident {} MB, at most {} MB",
        now / 1_000_000,
        most / 1_000_000
    ));
    assert!(ready < READY_MAX, "ready after {ready:?}");
    assert!(reconciled < RECONCILED_MAX, "reconciled after {reconciled:?}");
    assert_eq!(place.objects().len(), LIVE);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a database of a million issues; run by .ci/run"]
async fn a_million_known_issues_take_little_memory_and_no_time_to_start() {
    let _alone = alone().await;
    const LIVE: usize = 1_000;
    const KNOWN: u64 = 1_000_000;
    let place = Place::simulated("");
    let began = Instant::now();
    crowd::live(&place.data(), &place.simulated_dir(), LIVE).await;
    crowd::known(&place.data(), LIVE as u64 + 1, KNOWN - LIVE as u64).await;
    print_line(&format!("{KNOWN} known issues were made in {:.1?}", began.elapsed()));
    started(&place).await.0.kill().await;

    let (server, ready) = started(&place).await;
    assert_eq!(running(&server).await, LIVE as u64);
    let after_start = resident(&server).0;
    // Dated ones from all over, by both names, and one that has its sandbox again.
    for step in 0..2_000 {
        let number = LIVE as u64 + 1 + step * 499;
        let by_id = server.get(&format!("/v1/issues/{}/sandbox", crowd::FIRST - 1 + number)).await;
        let by_number = server.get(&format!("/v1/repos/octo/hello/issues/{number}/sandbox")).await;
        for answer in [by_id, by_number] {
            assert_eq!((answer.status, &answer.json()["data"]), (200, &serde_json::Value::Null));
        }
    }
    let again = crowd::FIRST - 1 + KNOWN / 2;
    assert_eq!(server.running(&again.to_string()).await["generation"], 2, "it is a known one");
    let list = server.get("/v1/sandboxes?deleted=true&limit=1").await.json();
    assert_eq!(list["total"], KNOWN + 1);
    let (now, most) = resident(&server);
    print_line(&format!(
        "{KNOWN} known, {LIVE} live: start to ready {ready:.2?}; resident {} MB after the start, \
         {} MB after look-ups and a list of all, at most {} MB",
        after_start / 1_000_000,
        now / 1_000_000,
        most / 1_000_000
    ));
    assert!(ready < READY_MAX, "ready after {ready:?}");
    assert!(most < RESIDENT_MAX, "{most} bytes resident");
    assert!(server.stop().await.0.success());
}
