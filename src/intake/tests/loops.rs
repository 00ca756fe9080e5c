//! The worker as it runs.

use std::time::Duration;

use super::world::{RecoveryWorld, app_of};
use crate::config::IntakeMode;
use crate::engine::tests::eventually;
use crate::intake::RecoveryPace;
use crate::types::Phase;

#[actix::test]
async fn with_intake_deliveries_a_label_leads_to_a_sandbox_without_any_webhook() {
    let world = RecoveryWorld::with_app().await;
    let mode = IntakeMode::Deliveries;
    assert_eq!(RecoveryPace::of(mode).compare_every, Duration::from_secs(15));
    let pace = RecoveryPace { compare_every: Duration::from_millis(20), ..RecoveryPace::of(mode) };
    let worker = world.worker_as(app_of(&world.github), mode, pace);
    let lived = async {
        eventually("a first comparison", async || world.intake.figures().compared_at.is_some())
            .await;
        world.label();
        world.until_phase(Phase::Running).await;
        world.github.close(world.at(), super::world::MAINTAINER);
        world.until_phase(Phase::Stopped).await;
    };
    tokio::select! {
        () = worker.run() => {}
        () = lived => {}
    }
    let rows = world.rows().await;
    let by_log = |action: &str| {
        let is_it = |id: &str| !id.starts_with("checked-");
        rows.iter().filter(|row| row.action == action && is_it(row.id.as_str())).count()
    };
    assert_eq!((by_log("labeled"), by_log("closed")), (1, 1), "{rows:?}");
}

#[actix::test]
async fn after_a_delivery_was_turned_away_the_log_is_read_soon() {
    let world = RecoveryWorld::with_app().await;
    let worker = world.worker();
    let lived = async {
        eventually("a first comparison", async || world.intake.figures().compared_at.is_some())
            .await;
        let first = world.intake.figures().compared_at;
        world.label();
        world.intake.missed_one();
        // Long before the next comparison would begin.
        world.clock.set_forward(Duration::from_secs(20));
        eventually("a second comparison", async || world.intake.figures().compared_at > first)
            .await;
        world.until_phase(Phase::Running).await;
    };
    tokio::select! {
        () = worker.run() => {}
        () = lived => {}
    }
}
