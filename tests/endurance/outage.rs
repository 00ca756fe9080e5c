//! A provider that is gone for a while, under load: nothing is lost, nothing is made twice, the
//! server says what is wrong, and it heals by itself.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::eye::Eye;
use crate::load::Load;
use crate::plan::{KINDS, Script};
use crate::process::{Place, Server, TOKEN, until};
use crate::{alone, given, print_line, verdict};

/// What the provider does while it works.
const WORKING: &str = "create_delay_ms = 20\nstop_delay_ms = 20\ndelete_delay_ms = 20\n\
                       [lifecycle]\nreconcile_seconds = 1";

/// What the server says of its readiness, which it answers 200 all the while.
async fn readiness(server: &Server) -> Value {
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, 200, "deliveries can be committed: {answer:?}");
    answer.json()["data"].clone()
}

/// Checks that readiness, the API and the command line say what is wrong.
async fn it_says_what_is_wrong(place: &Place, server: &Server) {
    let ready = readiness(server).await;
    assert_eq!(
        (&ready["status"], &ready["degraded"][0]),
        (&json!("degraded"), &json!("simulated"))
    );
    let reason = ready["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("set unavailable"), "{ready}");
    let system = server.get("/v1/system").await.json();
    let provider = &system["data"]["providers"][0];
    assert_eq!(provider["healthy"], false, "{provider}");
    assert!(provider["trouble"].as_str().expect("a text").contains("is unavailable"), "{provider}");
    let mut command = place.command(&["ls", "--server", &server.url]);
    let sent = command.env("ISSUEBOX_TOKEN", TOKEN).output().await.expect("it runs");
    let sent = String::from_utf8(sent.stderr).expect("UTF-8");
    assert!(sent.contains("simulated") && sent.contains("set unavailable"), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes half a minute; run by .ci/run, longer with OUTAGE_SECONDS"]
async fn an_outage_under_load_loses_nothing_and_heals_by_itself() {
    let _alone = alone().await;
    let outage = Duration::from_secs(given("OUTAGE_SECONDS", 20));
    let place = Place::simulated(WORKING);
    let eye = Eye::on(&place.simulated_dir());
    let (load, chance) = (Load::default(), Mutex::new(Chance::of(given("KILL_SEED", 1))));
    let begin = |numbers: std::ops::Range<u64>| {
        let mut chance = chance.lock().expect("not poisoned");
        numbers.for_each(|number| load.begin(Script::of(number, &mut chance)));
    };
    let server = place.serve().await;
    let mut issues = 4 * KINDS;
    begin(0..issues);
    load.until_done(&server, &chance).await;
    // Some of these are under way when it goes.
    begin(issues..2 * issues);
    issues *= 2;
    let gone = async {
        place.configure(&format!("unavailable = true\n{WORKING}"));
        server.reload().await;
    };
    tokio::join!(load.until_done(&server, &chance), gone);
    let began = Instant::now();
    let is_noticed = || async { readiness(&server).await["status"] == "degraded" };
    until("it is noticed", is_noticed).await;
    while began.elapsed() < outage {
        begin(issues..issues + KINDS);
        issues += KINDS;
        load.until_done(&server, &chance).await;
        it_says_what_is_wrong(&place, &server).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let failed = server.get("/v1/sandboxes?phase=failed").await.json();
    assert_eq!(failed["total"], 0, "an outage is not an issue's failure: {failed}");
    place.configure(WORKING);
    server.reload().await;
    let back = Instant::now();
    let is_well = || async { readiness(&server).await["status"] == "ready" };
    until("it is found to be well", is_well).await;
    verdict::quiet(&server, verdict::Failed::Never).await;
    let healed = back.elapsed();
    let counts = load.counts();
    let (scripts, _) = load.into_parts();
    let objects = verdict::each_has_come_to_its_end(&place, &server, &scripts).await;
    verdict::no_drift(&server).await;
    let seen = eye.end();
    assert!(seen.doubles.is_empty(), "two objects at one moment: {:?}", seen.doubles);
    print_line(&format!(
        "provider gone for {outage:.0?} under {} deliveries for {issues} issues: healed {healed:.1?} \
         after it was back; objects {objects}, duplicates 0, lost 0",
        counts.sent
    ));
}
