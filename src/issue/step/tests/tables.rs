//! The tables of *ensure* and of commands, and the paths of each provider step.

use super::{StepBench, unavailable};
use crate::issue::commit::{CommandRefusal, Reply};
use crate::issue::event::{CallError, Command, Done, IssueEvent, NotAsked, ObservedObject};
use crate::issue::state::{IssueState, Step, StoppedBy, Verb};
use crate::types::{
    Alias, Cause, ExternalId, FailureCode, Generation, ObjectState, Outcome, Phase, SandboxId,
    Wanted,
};

/// An issue brought to a phase by the events that lead there.
pub(super) fn bench_in(phase: Option<Phase>) -> StepBench {
    let mut bench = StepBench::new(true);
    let Some(phase) = phase else { return bench };
    bench.ensure();
    match phase {
        Phase::Creating => {}
        Phase::Running => {
            bench.up();
        }
        Phase::Stopping => {
            bench.up();
            bench.command(Command::Stop);
        }
        Phase::Stopped => {
            bench.up();
            bench.command(Command::Stop);
            bench.answer(Ok(Done::Down));
        }
        Phase::Starting => {
            bench.up();
            bench.command(Command::Stop);
            bench.answer(Ok(Done::Down));
            bench.ensure();
        }
        Phase::Failed => {
            bench.answer(Err(CallError::Refused("no".into())));
            bench.answer(Ok(Done::Found(vec![])));
        }
        Phase::Deleting => {
            bench.up();
            bench.command(Command::Delete);
        }
    }
    assert_eq!(bench.issue.state.phase(), Some(phase));
    bench
}

#[test]
fn ensure_answers_by_its_table() {
    use Outcome::{Created, Existing, Failed, Queued, Resumed};
    let table = [
        (None, Created, Some(Phase::Creating), true),
        (Some(Phase::Creating), Existing, Some(Phase::Creating), false),
        (Some(Phase::Starting), Existing, Some(Phase::Starting), false),
        (Some(Phase::Running), Existing, Some(Phase::Running), false),
        (Some(Phase::Stopping), Queued, Some(Phase::Stopping), false),
        (Some(Phase::Stopped), Resumed, Some(Phase::Starting), true),
        (Some(Phase::Failed), Failed, Some(Phase::Failed), false),
        (Some(Phase::Deleting), Queued, Some(Phase::Deleting), false),
    ];
    for (before, outcome, after, calls) in table {
        let mut bench = bench_in(before);
        let id = bench.issue.state.record().map(|r| r.id.clone());
        let commit = bench.ensure();
        let Reply::Ensured { outcome: got, ref reason, .. } = commit.reply else {
            panic!("ensure is answered in {before:?}")
        };
        assert_eq!(got, outcome, "outcome in {before:?}");
        assert!(!reason.is_empty());
        assert_eq!(bench.issue.state.phase(), after, "phase after {before:?}");
        assert_eq!(commit.call.is_some(), calls, "a call in {before:?}");
        if let Some(id) = id {
            assert_eq!(bench.issue.state.record().map(|r| r.id.clone()), Some(id), "{before:?}");
        }
        let wanted = match before {
            Some(Phase::Failed) => bench.issue.state.wanted(),
            _ => Wanted::Running,
        };
        assert_eq!(bench.issue.state.wanted(), wanted, "wanted in {before:?}");
    }
}

#[test]
fn the_first_commit_of_a_home_claims_its_issue_id() {
    let mut bench = StepBench::new(true);
    let own = Alias::Issue(bench.issue.facts.issue_id.clone());
    assert_eq!(bench.ensure().aliases, [own], "also if no caller said so");
    assert_eq!(bench.ensure().aliases, []);
}

#[test]
fn commands_answer_by_their_table() {
    use Command::{Delete, Retry, Start, Stop};
    let not_failed = || Reply::Refused(CommandRefusal::NotFailed(Retry));
    let ok = || Reply::Accepted;
    let refused = Reply::Refused;
    let table = [
        (Phase::Creating, Stop, ok(), Phase::Creating),
        (Phase::Starting, Stop, ok(), Phase::Starting),
        (Phase::Running, Stop, ok(), Phase::Stopping),
        (Phase::Stopping, Stop, ok(), Phase::Stopping),
        (Phase::Stopped, Stop, ok(), Phase::Stopped),
        (Phase::Failed, Stop, ok(), Phase::Failed),
        (Phase::Deleting, Stop, ok(), Phase::Deleting),
        (Phase::Creating, Start, ok(), Phase::Creating),
        (Phase::Starting, Start, ok(), Phase::Starting),
        (Phase::Running, Start, ok(), Phase::Running),
        (Phase::Stopping, Start, ok(), Phase::Stopping),
        (Phase::Stopped, Start, ok(), Phase::Starting),
        (Phase::Failed, Start, ok(), Phase::Creating),
        (Phase::Deleting, Start, refused(CommandRefusal::Deleting), Phase::Deleting),
        (Phase::Creating, Retry, not_failed(), Phase::Creating),
        (Phase::Starting, Retry, not_failed(), Phase::Starting),
        (Phase::Running, Retry, not_failed(), Phase::Running),
        (Phase::Stopping, Retry, not_failed(), Phase::Stopping),
        (Phase::Stopped, Retry, not_failed(), Phase::Stopped),
        (Phase::Failed, Retry, ok(), Phase::Creating),
        (Phase::Deleting, Retry, not_failed(), Phase::Deleting),
        (Phase::Creating, Delete, ok(), Phase::Deleting),
        (Phase::Starting, Delete, ok(), Phase::Deleting),
        (Phase::Running, Delete, ok(), Phase::Deleting),
        (Phase::Stopping, Delete, ok(), Phase::Deleting),
        (Phase::Stopped, Delete, ok(), Phase::Deleting),
        (Phase::Failed, Delete, ok(), Phase::Deleting),
        (Phase::Deleting, Delete, ok(), Phase::Deleting),
    ];
    for (before, command, reply, after) in table {
        let mut bench = bench_in(Some(before));
        let commit = bench.command(command);
        assert_eq!(commit.reply, reply, "{command:?} in {before}");
        assert_eq!(bench.issue.state.phase(), Some(after), "{command:?} in {before}");
    }
    for command in [Stop, Start, Retry] {
        let commit = bench_in(None).command(command);
        assert_eq!(commit.reply, refused(CommandRefusal::SandboxDeleted), "{command:?} past");
    }
    assert_eq!(bench_in(None).command(Delete).reply, Reply::AlreadyAbsent);
}

#[test]
fn a_stop_during_creating_stops_when_up() {
    let mut bench = bench_in(Some(Phase::Creating));
    bench.command(Command::Stop);
    let commit = bench.up();
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Stop));
    bench.answer(Ok(Done::Down));
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));
}

#[test]
fn an_ensure_during_stopping_starts_it_again_after() {
    let mut bench = bench_in(Some(Phase::Stopping));
    bench.ensure();
    let commit = bench.answer(Ok(Done::Down));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Start));
}

#[test]
fn an_ensure_during_deleting_makes_the_next_generation_after_absence() {
    let mut bench = bench_in(Some(Phase::Deleting));
    let first = bench.issue.state.record().expect("a sandbox").id.clone();
    bench.ensure();
    bench.answer(Ok(Done::Removing));
    assert_eq!(bench.issue.generation, Generation(1), "accepted is not absent");
    let destroying = bench.ours(ObjectState::Destroying);
    bench.answer(Ok(Done::Found(vec![destroying])));
    assert_eq!(bench.issue.generation, Generation(1), "destroying is not absent");
    bench.due();
    let commit = bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.generation, Generation(2));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating));
    assert_ne!(bench.issue.state.record().expect("a sandbox").id, first);
    assert_eq!(commit.ended.map(|sandbox| sandbox.id), Some(first));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Create));
}

#[test]
fn a_second_delete_withdraws_the_queued_generation() {
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.ensure();
    bench.command(Command::Delete);
    bench.answer(Err(CallError::Absent));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn a_create_whose_answer_was_lost_is_looked_for_and_adopted() {
    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Err(unavailable()));
    let commit = bench.due();
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look), "a look, not a create");
    let there = bench.ours(ObjectState::Running);
    bench.answer(Ok(Done::Found(vec![there])));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

#[test]
fn without_enforced_names_nothing_is_asked_twice_before_it_must_have_settled() {
    let mut bench = StepBench::new(false);
    let commit = bench.ensure();
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look), "looked at first");
    bench.answer(Ok(Done::Found(vec![])));
    bench.answer(Err(unavailable()));
    let settled = bench.issue.state.record().expect("a sandbox").may_land_until;
    assert!(settled.is_some());
    bench.due();
    let commit = bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(commit.call, None, "it may still land");
    assert_eq!(bench.issue.due_at(), settled);
    let commit = bench.due();
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look));
    let commit = bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Create));
}

#[test]
fn a_foreign_object_of_our_name_is_a_failure_and_stays_untouched() {
    let mut bench = bench_in(Some(Phase::Creating));
    let foreign = ObservedObject {
        external_id: ExternalId::trusted("theirs"),
        owner: None,
        state: ObjectState::Running,
    };
    bench.answer(Err(CallError::Present(foreign.clone())));
    let commit = bench.answer(Ok(Done::Found(vec![foreign])));
    assert_eq!(commit.call, None, "neither adopted nor deleted");
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
    let failure = bench.issue.state.failure().expect("a failure");
    assert_eq!(failure.code, FailureCode::NameTaken);
}

#[test]
fn an_older_generation_is_removed_first() {
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.ensure();
    let old = bench.ours(ObjectState::Stopped);
    bench.answer(Err(CallError::Absent));
    let commit = bench.answer(Err(CallError::Present(old.clone())));
    let expected = old.owner.clone().expect("an owner").sandbox;
    let removal = Verb::Delete { external_id: old.external_id, expected };
    assert_eq!(commit.call.map(|call| call.verb), Some(removal));
    bench.answer(Ok(Done::Removing));
    let commit = bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Create));
    assert_eq!(bench.issue.generation, Generation(2));
}

#[test]
fn tries_are_bounded_and_leftovers_removed_before_it_says_failed() {
    let mut bench = bench_in(Some(Phase::Creating));
    for _ in 0..2 {
        bench.answer(Err(CallError::Broken("disk full".into())));
        bench.due();
        bench.answer(Ok(Done::Found(vec![])));
    }
    let commit = bench.answer(Err(CallError::Broken("disk full".into())));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look));
    let half = bench.ours(ObjectState::Partial);
    let commit = bench.answer(Ok(Done::Found(vec![half])));
    assert!(matches!(commit.call.map(|call| call.verb), Some(Verb::Delete { .. })));
    bench.answer(Ok(Done::Removing));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating), "not before it is gone");
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
}

#[test]
fn a_late_answer_changes_nothing() {
    let mut bench = bench_in(Some(Phase::Creating));
    let record = bench.issue.state.record().expect("a sandbox");
    let (sandbox, late) = (record.id.clone(), record.attempt);
    let seen = bench.ours(ObjectState::Running);
    bench.answer(Err(unavailable()));
    bench.due();
    let before = bench.issue.clone();
    let answer =
        crate::issue::event::CallAnswer { sandbox, attempt: late, result: Ok(Done::Up(seen)) };
    let commit = bench.apply(IssueEvent::Answered(answer));
    assert_eq!(bench.issue, before);
    assert!(!commit.changed && commit.call.is_none());
}

#[test]
fn a_delete_during_a_create_in_flight_removes_what_it_made() {
    let mut bench = bench_in(Some(Phase::Creating));
    let commit = bench.command(Command::Delete);
    assert_eq!(commit.call, None, "one call at a time");
    let commit = bench.up();
    assert!(matches!(commit.call.map(|call| call.verb), Some(Verb::Delete { .. })));
    bench.answer(Ok(Done::Removing));
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn a_call_that_found_no_turn_is_made_later_at_no_cost_and_never_for_a_delete() {
    let mut bench = bench_in(Some(Phase::Creating));
    for _ in 0..10 {
        bench.answer(Err(CallError::NotAsked(NotAsked::NoTurn)));
        let commit = bench.due();
        assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Create), "the same again");
    }
    bench.command(Command::Delete);
    let commit = bench.answer(Err(CallError::NotAsked(NotAsked::NoTurn)));
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look), "nothing is made any more");
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn a_delete_that_waits_for_a_create_to_settle_says_so() {
    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Err(unavailable()));
    bench.command(Command::Delete);
    let commit = bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting), "it may still land");
    let is_said = commit.timeline.iter().any(|row| row.reason.contains("may still take effect"));
    assert!(is_said, "{:?}", commit.timeline);
    bench.due();
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn a_delete_that_cannot_be_done_stays_deleting_and_says_why() {
    let mut bench = bench_in(Some(Phase::Deleting));
    for _ in 0..20 {
        bench.answer(Err(unavailable()));
        assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
        let failure = bench.issue.state.failure().expect("what stands in the way");
        assert_eq!(failure.code, FailureCode::ProviderUnavailable);
        bench.due();
    }
    bench.answer(Err(CallError::Absent));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn an_object_that_is_lost_fails_and_is_made_again_by_retry() {
    let mut bench = bench_in(Some(Phase::Stopped));
    bench.ensure();
    bench.answer(Err(CallError::Absent));
    let failure = bench.issue.state.failure().expect("a failure");
    assert_eq!(failure.code, FailureCode::ObjectLost);
    let id = bench.issue.state.record().expect("a sandbox").id.clone();
    bench.command(Command::Retry);
    bench.answer(Ok(Done::Found(vec![])));
    bench.up();
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    assert_eq!(bench.issue.state.record().map(|r| r.id.clone()), Some(id), "the same sandbox");
}

#[test]
fn after_a_restart_what_was_asked_is_looked_for() {
    let restart = || IssueEvent::Activated { in_flight: None, after_restart: true };
    for (phase, verb) in [
        (Phase::Creating, Verb::Look),
        (Phase::Starting, Verb::Start),
        (Phase::Stopping, Verb::Stop),
        (Phase::Deleting, Verb::Look),
    ] {
        let commit = bench_in(Some(phase)).apply(restart());
        assert_eq!(commit.call.map(|call| call.verb), Some(verb), "{phase}");
    }
    for phase in [Phase::Running, Phase::Stopped, Phase::Failed] {
        assert!(!bench_in(Some(phase)).apply(restart()).changed, "{phase}");
    }
}

#[test]
fn an_activation_that_inherits_the_call_waits_for_its_answer() {
    let mut bench = bench_in(Some(Phase::Creating));
    let in_flight = bench.issue.state.record().map(|r| r.attempt);
    let commit = bench.apply(IssueEvent::Activated { in_flight, after_restart: false });
    assert!(commit.call.is_none() && !commit.changed);
}

#[test]
fn what_dies_with_the_server_comes_back_stopped_and_work_starts_it() {
    let mut bench = bench_in(Some(Phase::Running));
    for provider in bench.rules.providers.values_mut() {
        provider.dies_with_server = true;
    }
    bench.apply(IssueEvent::Activated { in_flight: None, after_restart: true });
    assert_eq!(bench.issue.state.wanted(), Wanted::Stopped);
    let sandbox = bench.issue.sandbox().expect("a sandbox");
    assert!(sandbox.reason.starts_with("server_restarted"));
    let work = |sandbox: SandboxId| IssueEvent::Worked {
        sandbox,
        start: true,
        cause: Cause::Service("test"),
    };
    bench.apply(work(sandbox.id));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
    let mut stopped = bench_in(Some(Phase::Stopped));
    let id = stopped.issue.state.record().expect("a sandbox").id.clone();
    let commit = stopped.apply(work(id));
    assert_eq!(commit.reply, Reply::Refused(CommandRefusal::StoppedByPerson));
}

#[test]
fn waits_grow_and_never_undercut_what_the_provider_asked() {
    let mut bench = bench_in(Some(Phase::Creating));
    let asked = CallError::Unavailable {
        message: "busy".into(),
        retry_after: Some(std::time::Duration::from_secs(90)),
    };
    bench.answer(Err(asked));
    let Some(Step::Waiting { due, .. }) = bench.issue.state.step() else { panic!("it waits") };
    assert_eq!(due.since(bench.now).as_secs(), 90);
}

#[test]
fn a_removal_that_a_crash_broke_off_is_asked_again() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.command(Command::Delete);
    // The provider has marked it and the server died.
    bench.apply(IssueEvent::Activated { in_flight: None, after_restart: true });
    let seen = bench.ours(ObjectState::Destroying);
    bench.answer(Ok(Done::Found(vec![seen])));
    let commit = bench.due();
    assert!(matches!(commit.call.map(|call| call.verb), Some(Verb::Delete { .. })));
}

#[test]
fn a_delete_that_goes_slowly_is_asked_with_pauses() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.command(Command::Delete);
    let mut without_pause = 0;
    for _ in 0..50 {
        bench.answer(Ok(Done::Removing));
        let seen = bench.ours(ObjectState::Running);
        bench.answer(Ok(Done::Found(vec![seen])));
        if matches!(bench.issue.state.step(), Some(Step::Asked { .. })) {
            without_pause += 1
        } else {
            break;
        }
    }
    assert!(without_pause < 10, "{without_pause} deletes in one moment");
}

#[test]
fn the_waits_of_a_delete_grow() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.command(Command::Delete);
    let mut longest = 0;
    for _ in 0..30 {
        bench.answer(Err(super::unavailable()));
        let due = bench.issue.due_at().expect("due");
        longest = longest.max(due.unix_ms() - bench.now.unix_ms());
        bench.due();
    }
    assert!(longest > 20_000, "the longest wait of 30 was {longest} ms");
}

#[test]
fn an_object_that_stays_half_made_comes_to_an_end() {
    let mut bench = bench_in(None);
    bench.ensure();
    for n in 0..50 {
        let seen = bench.ours(ObjectState::Partial);
        bench.answer(Err(CallError::Present(seen)));
        if !matches!(bench.issue.state.step(), Some(Step::Asked { verb: Verb::Create, .. })) {
            return;
        }
        assert!(n < 20, "create asked {n} times in one moment");
    }
}

#[test]
fn a_request_to_run_counts_after_failed() {
    let mut bench = bench_in(Some(Phase::Failed));
    bench.command(Command::Stop);
    bench.ensure();
    assert_eq!(bench.issue.state.wanted(), crate::types::Wanted::Running);
}
