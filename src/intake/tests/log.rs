//! The comparison with the App's delivery log.

use std::time::{Duration, Instant};

use jiff::SignedDuration;

use super::world::{MAINTAINER, REPOSITORY, RecoveryWorld};
use crate::config::IntakeMode;
use crate::engine::DeliveredStatus;
use crate::github::model::{FaultKind, HookDoor, ModelFault};
use crate::intake::{DeliverySourceKind, ReceivedDelivery, RecoveryPace};
use crate::sabotage::{Bug, with};
use crate::store::recovered::RecoveryStore;
use crate::types::{DeliveryId, Phase, Timestamp};

#[actix::test]
async fn what_did_not_arrive_is_recovered_whatever_answered_in_our_place() {
    let world = RecoveryWorld::with_app().await;
    let doors = [
        HookDoor::Closed,
        HookDoor::Swallows(200),
        HookDoor::Swallows(401),
        HookDoor::Swallows(503),
    ];
    for door in doors {
        world.github.set_door(door);
        world.github.comment(world.at(), MAINTAINER, "Look at this");
        world.github.set_locked(world.at(), MAINTAINER, true);
        world.github.set_locked(world.at(), MAINTAINER, false);
    }
    world.label();
    world.worker().compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, Vec::<String>::new());
    let rows = world.rows().await;
    assert_eq!(rows.len(), world.github.delivered_guids().len(), "each is stored once");
    assert!(rows.iter().all(|row| row.recovered), "each is marked: {rows:?}");
    world.until_phase(Phase::Running).await;
    assert_eq!(world.intake.figures().recovered, rows.len() as u64);
    assert!(world.intake.figures().compared_at.is_some());
    world.nothing_wrong();
}

/// How many deliveries lack after a comparison, if something in between answered 200 for us.
fn lacking_after_a_swallow() -> usize {
    actix::System::new().block_on(async {
        let world = RecoveryWorld::with_app().await;
        world.github.set_door(HookDoor::Swallows(200));
        world.label();
        world.worker().compare().await.expect("it is compared");
        world.lacking().await.len()
    })
}

#[test]
fn a_delivery_lacks_whatever_github_says_of_it() {
    assert_eq!(lacking_after_a_swallow(), 0);
    assert!(with(Bug::LogStatusBelieved, lacking_after_a_swallow) > 0, "a bug is noticed");
}

#[actix::test]
async fn what_cannot_have_an_effect_is_recorded_and_its_payload_is_not_read() {
    let world = RecoveryWorld::with_app().await;
    world.github.set_locked(world.at(), MAINTAINER, true);
    world.worker().compare().await.expect("it is compared");
    let rows = world.rows().await;
    let locked = rows.iter().find(|row| row.action == "locked").expect("it is recorded");
    assert!(!locked.applied && locked.recovered, "{locked:?}");
    assert_eq!(locked.reason, "issues locked has no effect");
    assert_eq!(world.payloads_read(), rows.len() - 1, "all others are read: {rows:?}");
}

#[actix::test]
async fn what_is_stored_is_neither_read_nor_applied_again() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    world.until_phase(Phase::Running).await;
    let (rows, read) = (world.rows().await, world.payloads_read());
    assert!(read > 0, "the first comparison read something");
    worker.compare().await.expect("it is compared");
    world.worker().compare().await.expect("as after a start");
    assert_eq!((world.rows().await, world.payloads_read()), (rows.clone(), read));
    // It arrives after all.
    let (event, json) = (rows[0].event.clone(), br#"{"action":"opened"}"#);
    let received = ReceivedDelivery {
        id: DeliveryId::trusted(world.github.delivered_guids()[0].as_str()),
        event: "ping",
        json,
        received_at: Timestamp::from_unix_ms(1_900_000_000_000),
        source: DeliverySourceKind::Webhook,
    };
    let again = world.intake.take(received).await;
    assert_eq!(again.expect("an answer").status, DeliveredStatus::Duplicate, "{event}");
    world.nothing_wrong();
}

#[actix::test]
async fn a_comparison_that_ended_in_the_middle_goes_on_after_the_start() {
    let world = RecoveryWorld::with_app().await;
    for n in 0..12 {
        world.github.comment(world.at(), MAINTAINER, &format!("Comment {n}"));
    }
    world.label();
    let payload = "app/hook/deliveries/*";
    world.github.order(ModelFault::on("GET", payload, FaultKind::LostAfter).skip(5).times(1_000));
    world.worker().compare().await.expect_err("GitHub is gone");
    assert_eq!(world.store.compared_until("app").await, Ok(None), "it is not compared");
    let before = world.rows().await.len();
    assert!((1..12).contains(&before), "some are taken in: {before}");
    world.github.cancel_faults();
    // More than the time that is looked back.
    world.github.move_clock(SignedDuration::from_mins(5));
    world.worker().compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, Vec::<String>::new());
    world.until_phase(Phase::Running).await;
}

#[actix::test]
async fn one_payload_that_cannot_be_read_holds_up_no_other() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    let payload = "app/hook/deliveries/*";
    world.github.order(ModelFault::on("GET", payload, FaultKind::Status(500)).skip(1));
    let worker = world.worker();
    worker.compare().await.expect("the others are there");
    assert_eq!(world.lacking().await.len(), 1);
    worker.compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, Vec::<String>::new());
}

#[actix::test]
async fn the_first_comparison_goes_back_ten_minutes() {
    let world = RecoveryWorld::with_app().await;
    world.github.move_clock(SignedDuration::from_mins(11));
    let old = world.lacking().await;
    world.github.comment(world.at(), MAINTAINER, "Just now");
    world.worker().compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, old);
}

#[actix::test]
async fn each_comparison_begins_where_the_last_one_ended() {
    let world = RecoveryWorld::with_app().await;
    world.worker().compare().await.expect("it is compared");
    world.github.comment(world.at(), MAINTAINER, "While the server is down");
    world.github.move_clock(SignedDuration::from_hours(30));
    world.worker().compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, Vec::<String>::new());
}

#[actix::test]
async fn a_delivery_without_a_payload_is_sent_again() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    world.github.forget_payloads();
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    let lacking = world.lacking().await.len();
    let asked = world.github.calls_to("POST", "/app/hook/deliveries/", "/attempts").len();
    assert!(lacking > 0 && asked == lacking, "{lacking} lack, {asked} are sent again");
    // The new attempts have payloads, and did not arrive either.
    worker.compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, Vec::<String>::new());
    world.until_phase(Phase::Running).await;
}

#[actix::test]
async fn payloads_are_read_at_a_pace() {
    let world = RecoveryWorld::with_app().await;
    for n in 0..10 {
        world.github.comment(world.at(), MAINTAINER, &format!("Comment {n}"));
    }
    let payload_pause = Duration::from_millis(50);
    let worker =
        world.paced(RecoveryPace { payload_pause, ..RecoveryPace::of(IntakeMode::Webhook) });
    let began = Instant::now();
    worker.compare().await.expect("it is compared");
    let read = u32::try_from(world.payloads_read()).expect("some");
    assert!(read > 10 && began.elapsed() >= payload_pause * (read - 1), "{:?}", began.elapsed());
}

/// Deliveries of an outage: so many that the log has many pages.
async fn outage(deliveries: usize) {
    let world = RecoveryWorld::with_app().await;
    for n in 0..deliveries / 2 {
        world.github.set_locked(world.at(), MAINTAINER, true);
        if n % 10 == 0 {
            world.github.comment(world.at(), MAINTAINER, "Comment");
        }
        world.github.set_locked(world.at(), MAINTAINER, false);
    }
    world.label();
    let pace = RecoveryPace {
        payload_pause: Duration::ZERO,
        labels_first_above: 50,
        ..RecoveryPace::of(IntakeMode::Webhook)
    };
    let worker = world.paced(pace);
    worker.compare().await.expect("it is compared");
    assert_eq!(world.lacking().await, Vec::<String>::new());
    let calls = world.github.calls();
    let first = |start: &str| calls.iter().position(|call| call.path.starts_with(start));
    let labels = first(&format!("/repos/{REPOSITORY}/issues")).expect("the labels are checked");
    assert!(labels < first("/app/hook/deliveries/").expect("payloads"), "the labels come first");
    world.until_phase(Phase::Running).await;
    world.nothing_wrong();
}

#[actix::test]
async fn after_an_outage_all_is_recovered_and_what_is_wanted_now_comes_first() {
    outage(450).await;
}

#[actix::test]
#[ignore = "takes half a minute"]
async fn after_an_outage_of_seven_thousand_deliveries_all_are_recovered() {
    outage(7_000).await;
}
