//! An unreachable provider costs no issue its tries, and is used again once it recovers.

use super::provider::TestOutage;
use super::{EngineBench, account, ensure, eventually};
use crate::engine::BreakerState;
use crate::issue::IssueState;
use crate::issue::state::Step;
use crate::types::Phase;

impl EngineBench {
    fn breaker(&self) -> BreakerState {
        self.engine.figures().breakers[0].1.state
    }

    /// The attempt that waits for its time, and how often a step may still fail.
    fn waiting(&self) -> Option<(u32, u32)> {
        match self.store.issue(1)?.state {
            IssueState::Creating { record, step: Step::Waiting { tries_left, .. }, .. } => {
                Some((record.attempt.0, tries_left))
            }
            _ => None,
        }
    }

    fn is_running(&self) -> bool {
        self.store.issue(1).is_some_and(|issue| issue.state.phase() == Some(Phase::Running))
    }
}

#[actix::test]
async fn an_outage_costs_one_try_and_heals_by_itself() {
    let bench = EngineBench::new().await;
    bench.provider.outage(Some(TestOutage::Says));
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("it is found to be unreachable", async || bench.breaker() == BreakerState::Open)
        .await;
    let trouble = bench.engine.figures().breakers[0].1.reason.clone();
    assert_eq!(trouble.as_deref(), Some("connection refused"));
    // The create was attempt 1; the looks after it are answered without asking anybody.
    let mut waiting = None;
    eventually("two looks were not made", async || {
        waiting = bench.waiting();
        waiting.is_some_and(|(attempt, _)| attempt >= 3)
    })
    .await;
    assert_eq!(waiting.map(|(_, tries_left)| tries_left), Some(2), "of three one is spent");
    assert_eq!((bench.provider.count("create"), bench.provider.count("find")), (1, 0));
    bench.provider.outage(None);
    eventually("it is running", async || bench.is_running()).await;
    assert_eq!((bench.breaker(), bench.provider.objects()), (BreakerState::Closed, 1));
}

#[actix::test]
async fn a_provider_that_says_nothing_is_unreachable_and_calls_wait_for_the_verdict() {
    let bench = EngineBench::new().await;
    bench.provider.outage(Some(TestOutage::Hangs));
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("it is found to be unreachable", async || bench.breaker() == BreakerState::Open)
        .await;
    assert_eq!(bench.provider.count("find"), 0, "the look waited for what health says");
    bench.provider.outage(None);
    eventually("it is running", async || bench.is_running()).await;
}

#[actix::test]
async fn a_lost_answer_of_a_provider_that_is_well_opens_nothing() {
    let bench = EngineBench::new().await;
    bench.provider.lose_next();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    // Once who it is, before the first call, and once because of the lost answer.
    eventually("its health is asked", async || bench.provider.count("health") == 2).await;
    eventually("it is running", async || bench.is_running()).await;
    assert_eq!(bench.breaker(), BreakerState::Closed);
    assert_eq!((bench.provider.count("create"), bench.provider.count("health")), (1, 2));
}
