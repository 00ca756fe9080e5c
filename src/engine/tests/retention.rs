//! What is too old is asked for in bites until there is no more of it.

use std::time::Duration;

use super::EngineBench;
use crate::engine::Retention;
use crate::engine::retention::round;
use crate::store::CommitError;

const DAY: Duration = Duration::from_secs(86_400);

#[actix::test]
async fn a_round_goes_on_until_nothing_is_left_to_remove() {
    let bench = EngineBench::new().await;
    bench.store.set_prunable(2_500);
    let deliveries = Some(DAY * 30);
    let retention = Retention { deliveries, deleted: Some(DAY * 365), timeline: None };
    assert_eq!(round(&bench.engine.parts.env, retention).await, Ok(2_500));
    let asks = bench.store.prunes();
    assert_eq!(asks.len(), 3, "two full ones, and one that was not");
    for ask in asks {
        let deliveries = ask.deliveries_before.map(|before| ask.now.since(before));
        assert_eq!((deliveries, ask.timeline_before), (Some(DAY * 30), None));
        let deleted = ask.deleted_before.map(|before| ask.now.since(before));
        assert_eq!(deleted, Some(DAY * 365));
        assert!(ask.limit < 2_500, "in bites");
    }
    assert_eq!(round(&bench.engine.parts.env, retention).await, Ok(0));
}

#[actix::test]
async fn a_round_ends_with_the_server_and_with_a_store_that_fails() {
    let bench = EngineBench::new().await;
    bench.store.set_prunable(u64::MAX);
    bench.engine.parts.env.begin_stop();
    let retention = Retention { timeline: Some(DAY), ..Retention::default() };
    assert!(round(&bench.engine.parts.env, retention).await.is_ok_and(|rows| rows < 5_000));
    assert_eq!(bench.store.prunes().len(), 1);

    let bench = EngineBench::new().await;
    bench.store.fail_next(CommitError::Overloaded);
    assert_eq!(round(&bench.engine.parts.env, retention).await, Err(CommitError::Overloaded));
}
