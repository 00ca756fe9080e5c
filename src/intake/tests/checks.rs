//! The label check, and the issues of live sandboxes.

use std::time::Duration;

use jiff::SignedDuration;

use super::world::{MAINTAINER, REPOSITORY, RecoveryWorld};
use crate::intake::RecoveryWorker;
use crate::intake::known::known_repositories;
use crate::types::Phase;

/// GitHub's log does not have what happened until now any more.
fn forgotten(world: &RecoveryWorld) {
    world.github.move_clock(SignedDuration::from_hours(73));
}

async fn check_labels(worker: &RecoveryWorker) {
    let all = known_repositories(&worker.parts).await.expect("they are known");
    worker.check_labels(&all, Duration::ZERO).await;
}

#[actix::test]
async fn an_issue_labelled_before_any_delivery_gets_its_sandbox_once() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    forgotten(&world);
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    assert_eq!(world.rows().await, [], "no delivery says so");
    check_labels(&worker).await;
    world.until_phase(Phase::Running).await;
    let rows = world.rows().await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].id.as_str().starts_with("checked-labeled-") && rows[0].recovered, "{rows:?}");
    assert!(rows[0].applied, "{rows:?}");
    check_labels(&worker).await;
    check_labels(&world.worker()).await;
    assert_eq!(world.rows().await.len(), 1);
    world.nothing_wrong();
}

#[actix::test]
async fn a_list_that_did_not_change_costs_nothing() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    let worker = world.worker();
    check_labels(&worker).await;
    check_labels(&worker).await;
    let calls = world.github.calls_to("GET", &format!("/repos/{REPOSITORY}/issues"), "");
    let statuses: Vec<u16> = calls.iter().map(|call| call.status).collect();
    assert_eq!(statuses, [200, 304]);
}

#[actix::test]
async fn a_label_of_somebody_without_the_right_is_ignored() {
    let world = RecoveryWorld::new().await;
    world.github.install("octo");
    // The author without a role put the label on, which needs the right of an author.
    let number = world.github.open_issue(REPOSITORY, "stranger", "Another", "");
    world.github.label((REPOSITORY, number), "stranger", "agent");
    forgotten(&world);
    check_labels(&world.worker()).await;
    let rows = world.rows().await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0].applied, rows[0].reason.as_str()), (false, "the sender may not trigger"));
    assert_eq!(world.sandbox().await, None);
}

#[actix::test]
async fn a_label_put_on_while_the_server_runs_is_left_to_its_delivery_for_a_while() {
    let world = RecoveryWorld::with_app().await;
    let worker = world.worker();
    check_labels(&worker).await;
    world.github.move_clock(SignedDuration::from_secs(2));
    world.label();
    check_labels(&worker).await;
    assert_eq!(world.rows().await, [], "its delivery is on its way");
    world.github.move_clock(SignedDuration::from_mins(11));
    check_labels(&worker).await;
    world.until_phase(Phase::Running).await;
}

#[actix::test]
async fn a_deleted_sandbox_comes_back_by_a_new_label_alone() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    world.until_phase(Phase::Running).await;
    world.delete_sandbox().await;
    check_labels(&worker).await;
    assert_eq!(world.sandbox().await, None, "the label is the one that was known");
    world.github.unlabel(world.at(), MAINTAINER, "agent");
    world.github.move_clock(SignedDuration::from_mins(2));
    world.label();
    world.github.move_clock(SignedDuration::from_mins(11));
    check_labels(&worker).await;
    world.until_phase(Phase::Running).await;
}

#[actix::test]
async fn an_issue_that_was_closed_while_nothing_was_heard_stops_its_sandbox() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    world.until_phase(Phase::Running).await;
    world.github.close(world.at(), MAINTAINER);
    worker.check_issues().await.expect("they are read");
    let phase = world.sandbox().await.expect("a sandbox").phase;
    assert_eq!(phase, Some(Phase::Running), "something was heard just now");
    world.clock.set_forward(Duration::from_secs(16 * 60));
    worker.check_issues().await.expect("they are read");
    world.until_phase(Phase::Stopped).await;
    let newest = world.rows().await.swap_remove(0);
    assert!(newest.action == "closed" && newest.recovered && newest.applied, "{newest:?}");
}

#[actix::test]
async fn an_issue_whose_label_went_while_nothing_was_heard_stops_its_sandbox() {
    let world = RecoveryWorld::with_app().await;
    world.label();
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    world.until_phase(Phase::Running).await;
    world.github.move_clock(SignedDuration::from_secs(5));
    world.github.unlabel(world.at(), MAINTAINER, "agent");
    world.clock.set_forward(Duration::from_secs(16 * 60));
    worker.check_issues().await.expect("they are read");
    world.until_phase(Phase::Stopped).await;
    world.github.move_clock(SignedDuration::from_secs(5));
    // It is read once, and then again after a while.
    let read = || world.github.calls_to("GET", &format!("/repos/{REPOSITORY}/issues/"), "").len();
    let before = read();
    worker.check_issues().await.expect("they are read");
    assert_eq!(read(), before);
}
