//! A provider without room, and objects that cannot run.

use std::time::Duration;

use super::StepBench;
use super::tables::bench_in;
use crate::issue::event::{CallError, Command, Done, ObservedObject};
use crate::issue::state::{IssueState, Step, Verb};
use crate::types::{FailureCode, ObjectState, Phase};

const RETRY_AFTER: Duration = Duration::from_secs(30);

fn no_room() -> CallError {
    CallError::Exhausted { what: "its quota of 5 objects".into(), retry_after: Some(RETRY_AFTER) }
}

fn in_error() -> ObjectState {
    ObjectState::Error { message: "the image is not there".into() }
}

fn asked(bench: &StepBench) -> Option<Verb> {
    match bench.issue.state.step() {
        Some(Step::Asked { verb, .. }) => Some(verb.clone()),
        Some(Step::Waiting { .. }) | None => None,
    }
}

fn failure(bench: &StepBench) -> (FailureCode, String) {
    let failure = bench.issue.state.failure().expect("it failed");
    (failure.code, failure.message.clone())
}

#[test]
fn a_call_that_found_no_room_is_made_again_after_the_providers_pause_at_no_cost() {
    for (phase, verb) in [
        (Phase::Creating, Verb::Create),
        (Phase::Starting, Verb::Start),
        (Phase::Stopping, Verb::Stop),
    ] {
        let mut bench = bench_in(Some(phase));
        let tries = bench.issue.state.step().map(Step::tries_left);
        let mut reasons = 0;
        for _ in 0..4 {
            let commit = bench.answer(Err(no_room()));
            reasons += commit.timeline.iter().filter(|row| row.reason.contains("quota")).count();
            assert_eq!(bench.issue.due_at(), Some(bench.now.after(RETRY_AFTER)), "{phase}");
            let record = bench.issue.state.record().expect("a sandbox");
            assert!(record.reason.contains("its quota of 5 objects"), "{}", record.reason);
            assert_eq!(record.may_land_until, None, "nothing was made");
            assert_eq!(bench.due().call.map(|call| call.verb), Some(verb.clone()), "{phase}");
            assert_eq!(bench.issue.state.step().map(Step::tries_left), tries, "{phase}");
        }
        assert_eq!(reasons, 1, "{phase}: on the timeline once");
        assert_eq!(bench.issue.state.phase(), Some(phase));
    }
}

#[test]
fn a_provider_that_does_not_say_when_to_come_back_is_not_asked_at_once() {
    let mut bench = bench_in(Some(Phase::Creating));
    let what = "memory".to_owned();
    bench.answer(Err(CallError::Exhausted { what, retry_after: None }));
    let due = bench.issue.due_at().expect("it waits");
    assert!(due.since(bench.now) >= Duration::from_secs(5));
}

#[test]
fn a_phase_that_never_finds_room_fails_at_its_deadline_and_says_so() {
    for phase in [Phase::Creating, Phase::Starting] {
        let mut bench = bench_in(Some(phase));
        let deadline = bench.issue.state.deadline().expect("it has one");
        while bench.now < deadline {
            bench.answer(Err(no_room()));
            bench.due();
        }
        bench.answer(Err(no_room()));
        if phase == Phase::Creating {
            assert_eq!(asked(&bench), Some(Verb::Look), "leftovers are looked for");
            bench.answer(Err(no_room()));
            bench.due();
            bench.answer(Ok(Done::Found(vec![])));
        }
        assert_eq!(bench.issue.state.phase(), Some(Phase::Failed), "{phase}");
        let (code, message) = failure(&bench);
        assert_eq!(code, FailureCode::ProviderExhausted, "{phase}");
        assert!(message.contains("no room: its quota of 5 objects"), "{message}");
    }
}

#[test]
fn a_delete_without_room_stays_deleting_and_comes_again() {
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.answer(Err(no_room()));
    assert_eq!(failure(&bench).0, FailureCode::ProviderExhausted);
    assert!(bench.issue.due_at().expect("it waits") >= bench.now.after(RETRY_AFTER));
    assert!(matches!(bench.due().call.map(|call| call.verb), Some(Verb::Delete { .. })));
    bench.answer(Err(CallError::Absent));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn an_object_in_error_after_a_create_fails_with_its_message_and_is_removed() {
    for names_enforced in [true, false] {
        let mut bench = StepBench::new(names_enforced);
        bench.ensure();
        if !names_enforced {
            bench.answer(Ok(Done::Found(vec![])));
        }
        bench.answer(Err(CallError::Broken("no answer that helps".into())));
        bench.due();
        let dead = bench.ours(in_error());
        bench.answer(Ok(Done::Found(vec![dead.clone()])));
        assert_eq!(asked(&bench), Some(Verb::Look), "leftovers are looked for");
        bench.answer(Ok(Done::Found(vec![dead])));
        assert!(matches!(asked(&bench), Some(Verb::Delete { .. })), "not completed");
        bench.answer(Ok(Done::Removing));
        bench.answer(Ok(Done::Found(vec![])));
        assert_eq!(bench.issue.state.phase(), Some(Phase::Failed), "{names_enforced}");
        let (code, message) = failure(&bench);
        assert_eq!(code, FailureCode::ProviderBroken);
        assert!(message.contains("the image is not there"), "{message}");
        made_anew_by_retry(&mut bench, None);
    }
}

#[test]
fn a_running_or_stopped_sandbox_in_error_fails_and_retry_makes_it_anew() {
    for phase in [Phase::Running, Phase::Stopped] {
        let mut bench = bench_in(Some(phase));
        let mut dead = bench.ours(in_error());
        dead.external_id = bench.issue.state.external_id().expect("known").clone();
        let swept = super::observations::swept(&bench, dead.clone());
        let commit = super::observations::observe(&mut bench, vec![swept]);
        assert_eq!(commit.call, None, "{phase}: a person decides");
        assert_eq!(bench.issue.state.phase(), Some(Phase::Failed), "{phase}");
        let (code, message) = failure(&bench);
        assert_eq!(code, FailureCode::ProviderBroken, "{phase}");
        assert!(message.contains("the image is not there; retry deletes"), "{message}");
        let goal = bench.issue.state.wanted();
        made_anew_by_retry(&mut bench, Some(dead));
        assert_eq!(bench.issue.state.wanted(), goal, "{phase}");
    }
}

/// A retry looks, removes what is there, and creates.
fn made_anew_by_retry(bench: &mut StepBench, there: Option<ObservedObject>) {
    bench.command(Command::Retry);
    assert_eq!(asked(bench), Some(Verb::Look));
    bench.answer(Ok(Done::Found(there.iter().cloned().collect())));
    if there.is_some() {
        assert!(matches!(asked(bench), Some(Verb::Delete { .. })), "{:?}", asked(bench));
        bench.answer(Ok(Done::Removing));
        bench.answer(Ok(Done::Found(vec![])));
    }
    assert_eq!(asked(bench), Some(Verb::Create));
    bench.up();
    assert_ne!(bench.issue.state.phase(), Some(Phase::Failed));
}
