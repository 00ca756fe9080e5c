//! The slot of a home: a newer call waits behind the one that holds it.

use std::time::Duration;

use super::{EngineBench, account, ensure, eventually, named, settled, template};
use crate::engine::WaitFor;
use crate::issue::{Command, ProviderCall, Record, Verb};
use crate::types::{
    AccountName, Attempt, Cause, Generation, HomeId, IssueId, Mode, ObjectName, Phase,
    ProviderName, SandboxId, SandboxMeta, Timestamp,
};

/// A look at what is there for a sandbox.
pub(in crate::engine) fn call(sandbox: &str, attempt: u32) -> ProviderCall {
    let then = Timestamp::from_unix_ms(0);
    let record = Record {
        id: SandboxId::trusted(sandbox),
        name: "claude-issue-1".into(),
        object_name: ObjectName::trusted("claude-issue-1"),
        generation: Generation(1),
        template_version: template().version(),
        template: template(),
        agent_id: None,
        meta: SandboxMeta::default(),
        mode: Mode::Strong,
        created_at: then,
        phase_since: then,
        last_activity_at: then,
        reason: String::new(),
        attempt: Attempt(attempt),
        may_land_until: None,
        stop_may_land_until: None,
        deadline: None,
        made_at_ns: None,
        healing: None,
        left_nothing: false,
        needs_cold_start: false,
        owes_farewell: false,
    };
    ProviderCall {
        provider: ProviderName::trusted("held"),
        attempt: Attempt(attempt),
        verb: Verb::Look,
        account: AccountName::default_account(),
        issue: IssueId::parse("1").expect("a valid id"),
        record,
        external_id: None,
        force: false,
        deadline: Timestamp::from_unix_ms(i64::MAX / 2),
        lasts_max: Duration::from_secs(3600),
        before: None,
    }
}

const HOME: HomeId = HomeId(1);

#[actix::test]
async fn a_newer_call_waits_until_the_held_one_has_really_ended() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("the create is asked", async || bench.provider.count("create") == 1).await;
    let parts = &bench.engine.parts;
    parts.executor.submit(HOME, call("given-up", 8));
    parts.executor.submit(HOME, call("given-up", 9));
    let waiting = parts.executor.in_flight(HOME, &SandboxId::trusted("given-up"));
    assert_eq!(waiting, Some(Attempt(9)));
    assert_eq!(bench.provider.count("find"), 0, "one call at a time");
    bench.provider.release();
    settled(&bench, Phase::Running).await;
    eventually("the newest has left", async || bench.provider.count("find") == 1).await;
    eventually("the slot is free", async || {
        parts.executor.in_flight(HOME, &SandboxId::trusted("given-up")).is_none()
    })
    .await;
    assert_eq!((bench.provider.count("find"), bench.provider.count("create")), (1, 1));
}

#[actix::test]
async fn an_answer_about_a_sandbox_that_was_given_up_is_nothing_to_its_successor() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    bench.provider.hold();
    parts.executor.submit(HOME, call("given-up", 1));
    eventually("the look is asked", async || bench.provider.count("find") == 1).await;
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    assert_eq!(bench.provider.count("create"), 0, "it waits behind the look");
    // The look's answer is of attempt 1, like the create that waits.
    bench.provider.release();
    settled(&bench, Phase::Running).await;
    let issue = bench.store.issue(1).expect("it is stored");
    let attempt = issue.state.record().map(|record| record.attempt);
    assert_eq!((attempt, bench.provider.count("create")), (Some(Attempt(1)), 1));
}

#[actix::test]
async fn a_call_that_waited_too_long_is_not_made() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    bench.provider.hold();
    parts.executor.submit(HOME, call("held", 1));
    eventually("it is asked", async || bench.provider.count("find") == 1).await;
    let late = ProviderCall { deadline: parts.env.now(), ..call("late", 1) };
    parts.executor.submit(HOME, late);
    bench.provider.release();
    eventually("the slot is free", async || {
        parts.executor.in_flight(HOME, &SandboxId::trusted("late")).is_none()
    })
    .await;
    assert_eq!(bench.provider.count("find"), 1);
}

#[actix::test]
async fn a_call_takes_no_longer_than_it_was_ordered_for_although_the_clock_was_set_back() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    bench.provider.hold();
    // Its deadline is of the clock before it was set back.
    let call = ProviderCall { lasts_max: Duration::from_millis(50), ..call("held", 1) };
    parts.executor.submit(HOME, call);
    eventually("it is asked", async || bench.provider.count("find") == 1).await;
    eventually("the slot is free", async || {
        parts.executor.in_flight(HOME, &SandboxId::trusted("held")).is_none()
    })
    .await;
    bench.provider.release();
}

#[actix::test]
async fn no_more_creates_are_under_way_at_once_than_are_allowed() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    let issues = ["1", "2", "3", "4", "5"];
    for issue in issues {
        bench.engine.ensure(&account(), ensure(issue)).await.expect("it is answered");
    }
    eventually("as many as may are asked", async || bench.provider.count("create") == 2).await;
    // Every other call has been handed in as well, and had its chance to leave.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.provider.creating_most(), 2);
    bench.provider.release();
    eventually("all are made", async || bench.provider.objects() == issues.len()).await;
    assert_eq!(bench.provider.creating_most(), 2);
}

#[actix::test]
async fn a_delete_does_not_wait_for_a_create_that_only_waits_for_its_turn() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    for issue in ["1", "2"] {
        bench.engine.ensure(&account(), ensure(issue)).await.expect("it is answered");
    }
    eventually("as many as may are asked", async || bench.provider.count("create") == 2).await;
    bench.engine.ensure(&account(), ensure("3")).await.expect("it is answered");
    let (engine, waits) = (&bench.engine, named("3"));
    let delete = engine.command(&account(), &waits, Command::Delete, Cause::Service("test")).await;
    delete.expect("it is accepted");
    // The look that follows is held like every call: that it is made is what counts.
    eventually("it is looked at", async || bench.provider.count("find") == 1).await;
    assert_eq!(bench.provider.count("create"), 2, "while the other creates hang");
    bench.provider.release();
    let waited = engine.wait(&account(), &waits, WaitFor::Absent, Duration::from_secs(10)).await;
    assert!(waited.expect("it is known").settled);
    assert_eq!(bench.provider.count("create"), 2);
}
