//! With a token: the delivery logs of repositories' webhooks.

use serde_json::json;

use super::world::{MAINTAINER, REPOSITORY, RecoveryWorld};
use crate::config::IntakeMode;
use crate::github::client::GitHubCredentials;
use crate::github::model::HookDoor;
use crate::intake::{DeliverySourceKind, ReceivedDelivery, RecoveryPace, RecoveryWorker};
use crate::store::recovered::RecoveryStore;
use crate::types::{DeliveryId, Phase, Secret, Timestamp};

const EVENTS: [&str; 2] = ["issues", "issue_comment"];

fn worker(world: &RecoveryWorld, mode: IntakeMode) -> RecoveryWorker {
    let token = world.github.user_token(MAINTAINER, None);
    let credentials = GitHubCredentials::Token(Secret::new(token));
    world.worker_as(credentials, mode, RecoveryPace::of(mode))
}

/// An issue of the repository is known: it sent a delivery once.
async fn known(world: &RecoveryWorld, repository_id: u64) {
    let payload = json!({
        "action": "opened",
        "issue": {"id": 77, "number": 70, "title": "Known", "state": "open", "labels": [],
            "updated_at": "2026-01-31T12:00:00Z"},
        "repository": {"id": repository_id, "full_name": REPOSITORY},
    })
    .to_string();
    let received = ReceivedDelivery {
        id: DeliveryId::trusted("it-arrived"),
        event: "issues",
        json: payload.as_bytes(),
        received_at: Timestamp::from_unix_ms(1_900_000_000_000),
        source: DeliverySourceKind::Webhook,
    };
    world.intake.take(received).await.expect("it is taken in");
}

#[actix::test]
async fn what_a_webhook_could_not_deliver_is_recovered() {
    let world = RecoveryWorld::new().await;
    let hook =
        world.github.add_hook(REPOSITORY, "https://box.example.org/webhooks/github", &EVENTS);
    let worker = worker(&world, IntakeMode::Webhook);
    worker.compare().await.expect("no repository is known");
    assert_eq!(world.github.calls_to("GET", "/repos/", "/deliveries").len(), 0);
    let id = world.repository_id;
    known(&world, id).await;
    world.github.set_door(HookDoor::Swallows(200));
    world.label();
    worker.compare().await.expect("it is compared");
    assert_eq!(world.store.repository_hooks().await, Ok(vec![(id, hook)]), "found by its path");
    world.until_phase(Phase::Running).await;
    assert_eq!(world.lacking().await, Vec::<String>::new());
    world.nothing_wrong();
}

#[actix::test]
async fn a_webhook_is_known_by_what_it_delivered() {
    let world = RecoveryWorld::new().await;
    let hook = world.github.add_hook(REPOSITORY, "https://tunnel.example.org/", &EVENTS);
    let id = world.repository_id;
    known(&world, id).await;
    let worker = worker(&world, IntakeMode::Webhook);
    worker.compare().await.expect("it is compared");
    assert_eq!(world.store.repository_hooks().await, Ok(Vec::new()), "no webhook has our path");
    world.intake.note_hook(id, hook);
    world.label();
    worker.compare().await.expect("it is compared");
    world.until_phase(Phase::Running).await;
}
