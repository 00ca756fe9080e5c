//! A failure that only an outage caused is retried by itself, for a day.

use std::time::Duration;

use super::issue_deliveries::labelled;
use super::tables::bench_in;
use super::{StepBench, unavailable};
use crate::issue::Commit;
use crate::issue::event::{CallError, Command, Denial, DenialKind, Done, IssueEvent, NotAsked};
use crate::issue::state::{IssueState, Step, Verb};
use crate::types::{FailureCode, ObjectState, Phase, ProviderName};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn phase(bench: &StepBench) -> Option<Phase> {
    bench.issue.state.phase()
}

fn asked(bench: &StepBench) -> Option<Verb> {
    match bench.issue.state.step() {
        Some(Step::Asked { verb, .. }) => Some(verb.clone()),
        Some(Step::Waiting { .. }) | None => None,
    }
}

/// Answers every call so until nothing is asked and nothing waits but a retry of the failure.
fn fail_with(bench: &mut StepBench, trouble: &CallError) {
    for _ in 0..1_000 {
        match bench.issue.state.step() {
            Some(Step::Asked { .. }) => drop(bench.answer(Err(trouble.clone()))),
            Some(Step::Waiting { .. }) => drop(bench.due()),
            None => return,
        }
    }
    panic!("it never came to rest: {:?}", bench.issue.state);
}

fn back(bench: &mut StepBench, provider: &str) {
    bench.apply(IssueEvent::ProviderBack(ProviderName::trusted(provider)));
}

#[test]
fn what_an_outage_failed_is_retried_until_the_provider_is_back_or_a_day_has_passed() {
    for begun in [Phase::Creating, Phase::Starting] {
        let mut bench = bench_in(Some(begun));
        fail_with(&mut bench, &unavailable());
        let failed_at = bench.now;
        let mut retries = 0;
        while let Some(due) = bench.issue.due_at() {
            assert_eq!(phase(&bench), Some(Phase::Failed), "{begun}");
            assert!(due > bench.now && due.since(bench.now) <= Duration::from_secs(38 * 60));
            let commit = bench.due();
            assert!(commit.timeline[0].reason.starts_with("retrying "), "{:?}", commit.timeline);
            assert_eq!(phase(&bench), Some(begun));
            fail_with(&mut bench, &unavailable());
            retries += 1;
        }
        assert!(bench.now.since(failed_at) >= DAY, "{begun}");
        assert!((40..100).contains(&retries), "{begun}: {retries} retries");
        let record = bench.issue.state.record().expect("it is failed");
        assert!(record.reason.contains("waits for a person"), "{}", record.reason);

        // A person's retry begins a day of its own.
        bench.command(Command::Retry);
        fail_with(&mut bench, &unavailable());
        let due = bench.issue.due_at().expect("it is retried");
        assert!(due.since(bench.now) <= Duration::from_secs(75));
    }
}

#[test]
fn a_provider_that_is_back_ends_the_waiting_of_its_own_issues_at_once() {
    let mut bench = bench_in(Some(Phase::Creating));
    fail_with(&mut bench, &unavailable());
    back(&mut bench, "another");
    assert_eq!(phase(&bench), Some(Phase::Failed));
    back(&mut bench, "p");
    assert_eq!(asked(&bench), Some(Verb::Look), "a create of before may have landed");
    bench.answer(Ok(Done::Found(vec![])));
    bench.now = bench.now.after(Duration::from_secs(120));
    bench.due();
    if asked(&bench) == Some(Verb::Look) {
        bench.answer(Ok(Done::Found(vec![])));
    }
    bench.up();
    assert_eq!(phase(&bench), Some(Phase::Running));
    assert_eq!(bench.issue.state.record().and_then(|record| record.healing), None);

    for begun in [Phase::Creating, Phase::Starting, Phase::Stopping] {
        let mut bench = bench_in(Some(begun));
        let next_try = Duration::from_secs(50);
        let message = "connection refused".to_owned();
        bench.answer(Err(CallError::NotAsked(NotAsked::Unreachable { message, next_try })));
        assert_eq!(asked(&bench), None, "{begun}: it waits");
        back(&mut bench, "p");
        assert!(asked(&bench).is_some(), "{begun}: it goes on");
    }
}

#[test]
fn what_the_provider_refused_or_broke_waits_for_a_person() {
    for trouble in [
        CallError::Refused("no such image".into()),
        CallError::Broken("it answered nonsense".into()),
    ] {
        let mut bench = bench_in(Some(Phase::Starting));
        fail_with(&mut bench, &trouble);
        assert_eq!(phase(&bench), Some(Phase::Failed));
        assert_eq!(bench.issue.due_at(), None, "{trouble:?}");
        back(&mut bench, "p");
        assert_eq!(phase(&bench), Some(Phase::Failed), "{trouble:?}");
    }
}

#[test]
fn no_room_and_a_deadline_pass_by_themselves_too() {
    let no_room = CallError::Exhausted { what: "its disk".into(), retry_after: None };
    let mut bench = bench_in(Some(Phase::Starting));
    fail_with(&mut bench, &no_room);
    let code = bench.issue.state.failure().map(|failure| failure.code);
    assert!(
        matches!(code, Some(FailureCode::ProviderExhausted | FailureCode::DeadlineExceeded)),
        "{code:?}"
    );
    assert!(bench.issue.due_at().is_some());
}

#[test]
fn a_sandbox_that_is_not_wanted_any_more_is_not_created_by_a_retry() {
    let mut bench = bench_in(Some(Phase::Creating));
    fail_with(&mut bench, &unavailable());
    bench.command(Command::Stop);
    let commit = bench.due();
    assert_eq!((commit.call, phase(&bench)), (None, Some(Phase::Failed)));
    assert_eq!(bench.issue.due_at(), None);
}

#[test]
fn a_retry_is_denied_like_any_start_and_comes_again_later() {
    let mut bench = bench_in(Some(Phase::Starting));
    fail_with(&mut bench, &unavailable());
    bench.denial = Some(Denial { kind: DenialKind::Held, reason: "repairs".into() });
    let commit = bench.due();
    assert_eq!((commit.call, phase(&bench)), (None, Some(Phase::Failed)));
    bench.denial = None;
    bench.due();
    assert_eq!(phase(&bench), Some(Phase::Starting));
    let external_id = bench.issue.state.external_id().cloned().expect("known");
    let mut seen = bench.ours(ObjectState::Running);
    seen.external_id = external_id;
    bench.answer(Ok(Done::Up(seen)));
    assert!(matches!(bench.issue.state, IssueState::Running { .. }));
}

#[test]
fn a_new_trigger_a_start_and_an_ensure_with_retry_are_a_retry_of_the_same_sandbox() {
    let failed = || bench_in(Some(Phase::Failed));
    let id = |bench: &StepBench| bench.issue.state.record().map(|record| record.id.clone());
    for (what, retry) in [
        ("a label", (|bench| bench.apply(labelled(60))) as fn(&mut StepBench) -> Commit),
        ("a start", |bench| bench.command(Command::Start)),
        ("an ensure with retry", |bench| bench.ensure_with(true)),
    ] {
        let mut bench = failed();
        let before = id(&bench);
        let commit = retry(&mut bench);
        assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look), "{what}");
        assert_eq!((phase(&bench), id(&bench)), (Some(Phase::Creating), before), "{what}");

        let mut bench = failed();
        bench.denial = Some(Denial { kind: DenialKind::Held, reason: "repairs".into() });
        assert_eq!(retry(&mut bench).call, None, "{what}: a hold denies it");
        assert_eq!(phase(&bench), Some(Phase::Failed), "{what}");
    }
    let mut bench = failed();
    assert_eq!(bench.ensure_with(false).call, None, "a plain ensure gets it as it is");
    // A trigger from before the failure is late news.
    let mut bench = failed();
    assert_eq!(bench.apply(labelled(-60)).call, None);
    assert_eq!(phase(&bench), Some(Phase::Failed));
}

#[test]
fn a_failed_create_of_which_nothing_is_left_takes_no_slot_until_it_is_retried() {
    let mut bench = bench_in(Some(Phase::Failed));
    assert!(!bench.issue.state.takes_slot());
    bench.command(Command::Retry);
    assert!(bench.issue.state.takes_slot());
    // A delete takes none either, so that the next generation is admitted like any other.
    let mut bench = bench_in(Some(Phase::Failed));
    bench.command(Command::Delete);
    assert!(!bench.issue.state.takes_slot());
    bench.ensure();
    bench.denial = Some(Denial { kind: DenialKind::Quota, reason: "it is full".into() });
    bench.answer(Ok(Done::Found(Vec::new())));
    assert_eq!((phase(&bench), bench.issue.pending_start.is_some()), (None, true));
    // What may be left counts.
    let mut bench = bench_in(Some(Phase::Creating));
    fail_with(&mut bench, &unavailable());
    assert_eq!(phase(&bench), Some(Phase::Failed));
    assert!(bench.issue.state.takes_slot());
}
