//! Acts of which GitHub's times do not say which came last.

use std::time::Duration;

use jiff::SignedDuration;

use super::world::{MAINTAINER, RecoveryWorld};
use crate::engine::tests::eventually;
use crate::intake::RecoveryPace;
use crate::types::Phase;

/// The label's events move no time of the issue in this GitHub, so all count as of one second.
#[actix::test]
async fn a_label_that_is_switched_within_one_second_ends_as_github_shows_it() {
    let world = RecoveryWorld::with_app().await;
    let every = Duration::from_millis(20);
    let worker = world.paced(RecoveryPace {
        compare_every: every,
        payload_pause: Duration::ZERO,
        labels_first_above: 1_000,
    });
    let arrived = async |count: usize| {
        eventually("the deliveries arrived", async || world.lacking().await.is_empty()).await;
        let by_log = world.rows().await.iter().filter(|row| row.event == "issues").count();
        assert!(by_log >= count, "{by_log} of {count}");
        world.github.move_clock(SignedDuration::from_secs(3));
        world.clock.set_forward(Duration::from_secs(3));
    };
    let lived = async {
        world.label();
        world.github.unlabel(world.at(), MAINTAINER, "agent");
        world.label();
        arrived(3).await;
        world.until_phase(Phase::Running).await;
        // What is not on any more is not an older act either.
        world.github.unlabel(world.at(), MAINTAINER, "agent");
        arrived(4).await;
        world.until_phase(Phase::Stopped).await;
        world.label();
        world.github.unlabel(world.at(), MAINTAINER, "agent");
        world.github.close(world.at(), MAINTAINER);
        world.github.reopen(world.at(), MAINTAINER);
        world.label();
        arrived(9).await;
        world.until_phase(Phase::Running).await;
    };
    tokio::select! {
        () = worker.run() => {}
        () = lived => {}
    }
    world.nothing_wrong();
}
