//! What sweeps see, and what it leads to.

use std::time::Duration;

use super::tables::bench_in;
use super::{StepBench, template, unavailable};
use crate::issue::commit::{CommandRefusal, Commit, Reply};
use crate::issue::event::{
    AdoptAsk, CallError, Command, Done, FAST_ORPHAN_MAX, IssueEvent, ListedObject, Observation,
    ObservedObject, Owner, QUARANTINE,
};
use crate::issue::state::{IssueState, StoppedBy, Verb};
use crate::issue::{Cleanup, CleanupAction, Effect};
use crate::sabotage::{Bug, with};
use crate::types::{
    Attempt, Cause, ExternalId, FailureCode, Generation, Mode, ObjectName, ObjectState, Phase,
    ProviderName, SandboxId,
};

/// The state that a sweep would have read now, and these objects.
fn observation(bench: &StepBench, objects: Vec<ListedObject>) -> Observation {
    Observation {
        provider: ProviderName::trusted("p"),
        generation: bench.issue.generation,
        attempt: bench.issue.state.record().map_or_else(Attempt::default, |r| r.attempt),
        phase: bench.issue.state.phase(),
        by_event: false,
        asked_at: bench.now,
        objects,
    }
}

pub(super) fn swept(bench: &StepBench, seen: ObservedObject) -> ListedObject {
    ListedObject { seen, known_deleted: false, first_seen_at: bench.now }
}

/// The recorded object, in a state.
fn own(bench: &StepBench, state: ObjectState) -> ListedObject {
    let mut seen = bench.ours(state);
    if let Some(id) = bench.issue.state.external_id() {
        seen.external_id = id.clone();
    }
    swept(bench, seen)
}

fn orphan(bench: &StepBench, generation: u32, mode: Mode, state: ObjectState) -> ListedObject {
    let owner = Owner {
        sandbox: SandboxId::trusted("a stranger"),
        generation: Generation(generation),
        mode,
    };
    let external_id = ExternalId::trusted("stray");
    swept(bench, ObservedObject { external_id, owner: Some(owner), state })
}

/// The one effect of a commit, a cleanup.
fn cleanup_of(commit: Commit) -> Option<Cleanup> {
    assert!(commit.effects.len() <= 1, "{commit:?}");
    match commit.effects.into_iter().next()? {
        Effect::CleanUp(cleanup) => Some(cleanup),
        Effect::Github(_) => None,
    }
}

fn code(bench: &StepBench) -> Option<FailureCode> {
    bench.issue.state.failure().map(|failure| failure.code)
}

pub(super) fn observe(bench: &mut StepBench, objects: Vec<ListedObject>) -> Commit {
    let observation = observation(bench, objects);
    bench.apply(IssueEvent::Observed(observation))
}

#[test]
fn a_look_to_which_an_event_of_the_provider_led_says_so() {
    for (by_event, cause) in [(true, "provider event"), (false, "sweep")] {
        let mut bench = bench_in(Some(Phase::Running));
        let stopped = own(&bench, ObjectState::Stopped);
        let seen = Observation { by_event, ..observation(&bench, vec![stopped]) };
        let commit = bench.apply(IssueEvent::Observed(seen));
        assert_eq!(commit.timeline.last().expect("an entry").cause, cause);
    }
}

#[test]
fn a_failed_sandbox_learns_whether_its_object_is_there_and_is_stopped_if_that_is_wanted() {
    let reason = |commit: &Commit| commit.timeline.last().map(|row| row.reason.clone());
    // It comes back.
    let mut bench = bench_in(Some(Phase::Failed));
    assert!(!observe(&mut bench, vec![]).changed, "as the failure says");
    let running = own(&bench, ObjectState::Running);
    let commit = observe(&mut bench, vec![running.clone()]);
    assert!(reason(&commit).is_some_and(|reason| reason.contains("is there")), "{commit:?}");
    assert_eq!(bench.issue.state.external_id(), Some(&running.seen.external_id));
    assert_eq!((commit.call, bench.issue.state.phase()), (None, Some(Phase::Failed)));
    assert!(!observe(&mut bench, vec![running.clone()]).changed, "once");

    // A stop works on it, and one that is not wanted to run is stopped.
    let stopped = bench.issue.clone();
    let commit = bench.command(Command::Stop);
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Stop));
    bench.answer(Ok(Done::Down));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopped));

    let mut bench = bench_in(Some(Phase::Failed));
    bench.command(Command::Stop);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed), "nothing to be stopped is known");
    let commit = observe(&mut bench, vec![running.clone()]);
    assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Stop));

    // It disappears.
    bench.issue = stopped;
    let commit = observe(&mut bench, vec![]);
    assert!(reason(&commit).is_some_and(|reason| reason.contains("is gone")), "{commit:?}");
    assert_eq!(bench.issue.state.external_id(), None);
    bench.command(Command::Retry);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating), "retry creates another");
}

#[test]
fn what_is_as_recorded_changes_nothing() {
    for (phase, state) in
        [(Some(Phase::Running), ObjectState::Running), (Some(Phase::Stopped), ObjectState::Stopped)]
    {
        let mut bench = bench_in(phase);
        let own = own(&bench, state);
        let commit = observe(&mut bench, vec![own]);
        assert!(
            !commit.changed && commit.call.is_none() && commit.effects.is_empty(),
            "{commit:?}"
        );
    }
    assert!(!observe(&mut bench_in(None), vec![]).changed);
}

#[test]
fn what_disagrees_is_made_known_or_right() {
    type Case = (Phase, Option<ObjectState>, Phase, Option<FailureCode>);
    let error = || Some(ObjectState::Error { message: "no image".into() });
    let table: [Case; 9] = [
        (Phase::Running, error(), Phase::Failed, Some(FailureCode::ProviderBroken)),
        (Phase::Stopped, error(), Phase::Failed, Some(FailureCode::ProviderBroken)),
        (Phase::Running, None, Phase::Failed, Some(FailureCode::ObjectLost)),
        (Phase::Stopped, None, Phase::Failed, Some(FailureCode::ObjectLost)),
        (
            Phase::Running,
            Some(ObjectState::Stopped),
            Phase::Failed,
            Some(FailureCode::KilledOutside),
        ),
        (
            Phase::Running,
            Some(ObjectState::Partial),
            Phase::Failed,
            Some(FailureCode::KilledOutside),
        ),
        (Phase::Running, Some(ObjectState::Destroying), Phase::Running, None),
        (Phase::Stopped, Some(ObjectState::Running), Phase::Stopping, None),
        (Phase::Failed, None, Phase::Failed, Some(FailureCode::ProviderRefused)),
    ];
    for (before, state, after, code) in table {
        let mut bench = bench_in(Some(before));
        let own: Vec<_> = state.clone().map(|state| own(&bench, state)).into_iter().collect();
        let commit = observe(&mut bench, own);
        assert_eq!(bench.issue.state.phase(), Some(after), "{before} {state:?}");
        assert_eq!(bench.issue.state.failure().map(|f| f.code), code, "{before} {state:?}");
        let verb = commit.call.map(|call| call.verb);
        assert_eq!(verb, (after == Phase::Stopping).then_some(Verb::Stop), "{before} {state:?}");
    }
}

#[test]
fn an_object_with_our_external_id_and_somebody_elses_sandbox_is_not_ours() {
    let mut bench = bench_in(Some(Phase::Running));
    let mut taken = own(&bench, ObjectState::Running);
    taken.seen.owner = None;
    observe(&mut bench, vec![taken]);
    assert_eq!(bench.issue.state.failure().map(|f| f.code), Some(FailureCode::ObjectLost));
}

#[test]
fn a_stop_that_takes_effect_after_the_sandbox_was_started_again_killed_nothing() {
    for crashed in [false, true] {
        let mut bench = bench_in(Some(Phase::Stopping));
        bench.ensure();
        if crashed {
            bench.apply(IssueEvent::Activated { in_flight: None, after_restart: true });
        } else {
            bench.answer(Err(unavailable()));
            bench.due();
        }
        bench.answer(Ok(Done::Down));
        bench.up();
        let until = bench.issue.state.record().and_then(|r| r.stop_may_land_until).expect("may");
        let (up, down) = (own(&bench, ObjectState::Running), own(&bench, ObjectState::Stopped));
        // However late: no sweep looked, since the provider was away or the server was down.
        for seen_after in [30, 3600, 24 * 3600].map(Duration::from_secs) {
            let mut bench = StepBench { issue: bench.issue.clone(), ..bench_in(None) };
            bench.now = until.after(seen_after);
            let commit = observe(&mut bench, vec![down.clone()]);
            let verb = commit.call.map(|call| call.verb);
            assert_eq!(verb, Some(Verb::Start), "crashed: {crashed}, {seen_after:?}");
            // It was started again after the stop must have taken effect.
            bench.up();
            observe(&mut bench, vec![down.clone()]);
            assert_eq!(code(&bench), Some(FailureCode::KilledOutside));
        }
        // A look shows what was there when it was asked for.
        let mut settled = observation(&bench, vec![up]);
        bench.now = until.after(Duration::from_secs(5));
        settled.asked_at = until.before(Duration::from_millis(1));
        bench.apply(IssueEvent::Observed(settled.clone()));
        let mut early = StepBench { issue: bench.issue.clone(), ..bench_in(None) };
        early.now = bench.now;
        observe(&mut early, vec![down.clone()]);
        assert_eq!(code(&early), None, "it may have been stopped after that look");
        settled.asked_at = until;
        bench.apply(IssueEvent::Observed(settled));
        observe(&mut bench, vec![down]);
        assert_eq!(code(&bench), Some(FailureCode::KilledOutside));
    }
}

/// Whether a person is blamed for a stop of our own that took effect late, if no sweep could look for an
/// hour.
fn is_blamed_an_hour_later() -> bool {
    let mut bench = bench_in(Some(Phase::Stopping));
    bench.ensure();
    bench.answer(Err(unavailable()));
    bench.due();
    bench.answer(Ok(Done::Down));
    bench.up();
    let until = bench.issue.state.record().and_then(|record| record.stop_may_land_until);
    bench.now = until.expect("it may take effect").after(Duration::from_secs(3_600));
    let down = own(&bench, ObjectState::Stopped);
    observe(&mut bench, vec![down]);
    code(&bench) == Some(FailureCode::KilledOutside)
}

#[test]
fn a_late_stop_is_not_forgotten_while_its_provider_is_away() {
    assert!(!is_blamed_an_hour_later());
    assert!(with(Bug::LateStopForgotten, is_blamed_an_hour_later), "a bug is noticed");
}

#[test]
fn a_sight_from_before_a_call_or_of_another_provider_decides_nothing() {
    let mut bench = bench_in(Some(Phase::Running));
    let old = observation(&bench, vec![]);
    bench.command(Command::Stop);
    assert!(!bench.apply(IssueEvent::Observed(old.clone())).changed, "a stop is under way");
    bench.answer(Ok(Done::Down));
    bench.ensure();
    bench.up();
    assert_eq!(bench.issue.state.phase(), old.phase, "the same phase again");
    assert!(!bench.apply(IssueEvent::Observed(old)).changed, "stopped and started in between");
    let elsewhere =
        Observation { provider: ProviderName::trusted("q"), ..observation(&bench, vec![]) };
    assert!(!bench.apply(IssueEvent::Observed(elsewhere)).changed);
    for phase in [Phase::Creating, Phase::Starting, Phase::Stopping, Phase::Deleting] {
        let mut bench = bench_in(Some(phase));
        assert!(!observe(&mut bench, vec![]).changed, "{phase}");
    }
}

#[test]
fn two_objects_fail_closed_and_the_recorded_one_is_kept() {
    let mut bench = bench_in(Some(Phase::Running));
    let recorded = bench.issue.state.external_id().cloned();
    let mut second = own(&bench, ObjectState::Running);
    second.seen.external_id = ExternalId::trusted("second");
    let first = own(&bench, ObjectState::Running);
    let commit = observe(&mut bench, vec![second.clone(), first]);
    let failure = bench.issue.state.failure().expect("failed");
    assert_eq!(failure.code, FailureCode::DuplicateObject);
    assert!(failure.message.contains("second"), "{}", failure.message);
    assert_eq!(bench.issue.state.external_id(), recorded.as_ref());
    assert_eq!(commit.effects, [], "no rule says which of the two is right");
    let removal = discard(Some(second.seen), None);
    let cleanup = cleanup_of(bench.apply(removal)).expect("a person decided");
    assert_eq!((cleanup.external_id.as_str(), cleanup.action), ("second", CleanupAction::Remove));
    bench.command(Command::Retry);
    bench.up();
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

#[test]
fn another_object_is_a_second_one_unless_it_is_fast_modes_next() {
    for (mode, generation, is_second) in [
        (Mode::Strong, 1, true),
        (Mode::Strong, 2, true),
        (Mode::Fast, 1, true),
        (Mode::Fast, 2, false),
    ] {
        let mut bench = bench_in(Some(Phase::Running));
        let own = own(&bench, ObjectState::Running);
        let other = orphan(&bench, generation, mode, ObjectState::Running);
        observe(&mut bench, vec![own, other]);
        let code = is_second.then_some(FailureCode::DuplicateObject);
        assert_eq!(bench.issue.state.failure().map(|f| f.code), code, "{mode} {generation}");
    }
}

fn discard(object: Option<ObservedObject>, lost: Option<SandboxId>) -> IssueEvent {
    let (provider, cause) = (ProviderName::trusted("p"), Cause::Service("test"));
    IssueEvent::Discard { provider, object, lost, cause }
}

#[test]
fn a_person_can_remove_any_object_of_ours_but_the_records_own() {
    let own_object = |bench: &StepBench| own(bench, ObjectState::Running).seen;
    let second = |bench: &StepBench| {
        let external_id = ExternalId::trusted("second");
        ObservedObject { external_id, ..own_object(bench) }
    };
    let orphans = |bench: &StepBench| orphan(bench, 1, Mode::Strong, ObjectState::Running).seen;
    let foreign = |bench: &StepBench| ObservedObject { owner: None, ..orphans(bench) };
    type Object<'a> = &'a dyn Fn(&StepBench) -> ObservedObject;
    let table: [(Option<Phase>, Object<'_>, bool); 8] = [
        (Some(Phase::Running), &own_object, false),
        (Some(Phase::Running), &second, true),
        (Some(Phase::Running), &orphans, true),
        (Some(Phase::Running), &foreign, false),
        // Which object it has is not known yet.
        (Some(Phase::Creating), &second, false),
        (Some(Phase::Creating), &orphans, true),
        (None, &orphans, true),
        (None, &foreign, false),
    ];
    for (row, (phase, object, is_removed)) in table.into_iter().enumerate() {
        let mut bench = bench_in(phase);
        let object = object(&bench);
        let commit = bench.apply(discard(Some(object.clone()), None));
        let (reply, changed) = (commit.reply.clone(), commit.changed);
        let removed = cleanup_of(commit).map(|cleanup| (cleanup.external_id, cleanup.action));
        let expected = is_removed.then_some((object.external_id, CleanupAction::Remove));
        assert_eq!(removed, expected, "row {row}");
        assert_eq!(reply == Reply::Accepted, is_removed, "row {row}");
        assert!(!changed, "row {row}");
    }
    let nothing = bench_in(Some(Phase::Running)).apply(discard(None, None));
    assert_eq!(nothing.reply, Reply::Refused(CommandRefusal::ObservationOutdated));
}

#[test]
fn a_person_can_say_that_an_object_is_lost_where_the_record_still_has_one() {
    for phase in Phase::ALL {
        let mut bench = bench_in(Some(*phase));
        let own = bench.issue.state.record().expect("a sandbox").id.clone();
        let other = bench.apply(discard(None, Some(SandboxId::trusted("another"))));
        assert_eq!(other.reply, Reply::Refused(CommandRefusal::ObservationOutdated), "{phase}");
        assert!(!other.changed, "{phase}");
        let commit = bench.apply(discard(None, Some(own)));
        if matches!(phase, Phase::Running | Phase::Stopped) {
            assert_eq!(commit.reply, Reply::Accepted);
            let lost = bench.issue.state.failure().map(|failure| failure.code);
            assert_eq!(lost, Some(FailureCode::ObjectLost), "{phase}");
            assert_eq!(bench.issue.state.external_id(), None, "{phase}");
        } else {
            assert_eq!(
                commit.reply,
                Reply::Refused(CommandRefusal::ObservationOutdated),
                "{phase}"
            );
            assert!(!commit.changed, "{phase}");
        }
    }
}

#[test]
fn orphans_are_cleaned_up_by_what_is_known_of_them() {
    use CleanupAction::{Remove, Stop};
    use ObjectState::{Running, Stopped};
    let minute = FAST_ORPHAN_MAX;
    // Which generation, mode and state; known as deleted; seen for how long; what is done.
    let table = [
        (2, Mode::Strong, Running, true, Duration::ZERO, Some(Remove)),
        (2, Mode::Fast, Running, false, Duration::ZERO, None),
        (2, Mode::Fast, Running, false, minute, Some(Remove)),
        (3, Mode::Fast, Running, false, minute, Some(Stop)),
        (2, Mode::Strong, Running, false, Duration::ZERO, Some(Stop)),
        (2, Mode::Strong, Stopped, false, minute, None),
        (2, Mode::Strong, Stopped, false, QUARANTINE, Some(Remove)),
        (2, Mode::Strong, ObjectState::Destroying, true, Duration::ZERO, Some(Remove)),
        (2, Mode::Strong, ObjectState::Destroying, false, minute, None),
        (2, Mode::Strong, ObjectState::Destroying, false, QUARANTINE, Some(Remove)),
        (2, Mode::Fast, ObjectState::Destroying, false, Duration::ZERO, None),
        (2, Mode::Fast, ObjectState::Destroying, false, minute, Some(Remove)),
    ];
    for (generation, mode, state, known_deleted, seen_for, action) in table {
        let mut bench = bench_in(Some(Phase::Deleting));
        bench.answer(Err(CallError::Absent));
        assert_eq!(bench.issue.generation, Generation(1));
        let first_seen_at = bench.now;
        bench.now = bench.now.after(seen_for);
        let orphan = orphan(&bench, generation, mode, state.clone());
        let commit =
            observe(&mut bench, vec![ListedObject { known_deleted, first_seen_at, ..orphan }]);
        assert!(!commit.changed, "the issue's state stays as it is");
        assert_eq!(
            cleanup_of(commit).map(|cleanup| cleanup.action),
            action,
            "{generation} {mode} {state} {known_deleted} {seen_for:?}"
        );
    }
}

#[test]
fn foreign_objects_are_never_touched() {
    let mut bench = bench_in(None);
    let external_id = ExternalId::trusted("foreign");
    let foreign = ObservedObject { external_id, owner: None, state: ObjectState::Running };
    let foreign = ListedObject { known_deleted: true, ..swept(&bench, foreign) };
    assert_eq!(observe(&mut bench, vec![foreign]).effects, []);
}

#[test]
fn a_fast_object_without_a_record_is_removed_before_the_next_create() {
    let mut bench = bench_in(None);
    bench.ensure();
    let lost = orphan(&bench, 1, Mode::Fast, ObjectState::Running).seen;
    let call = bench.answer(Err(CallError::Present(lost.clone()))).call.expect("a removal");
    assert!(matches!(call.verb, Verb::Delete { .. }), "{:?}", call.verb);

    let mut bench = bench_in(None);
    bench.ensure();
    let unknown = orphan(&bench, 1, Mode::Strong, ObjectState::Running).seen;
    bench.answer(Err(CallError::Present(unknown)));
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state.failure().map(|f| f.code), Some(FailureCode::NameTaken));
}

#[test]
fn a_person_can_adopt_what_no_record_knows_but_no_older_generation() {
    let ask = |generation, state| {
        IssueEvent::Adopt(AdoptAsk {
            object: ObservedObject {
                external_id: ExternalId::trusted("found"),
                owner: Some(Owner {
                    sandbox: SandboxId::trusted("of a lost record"),
                    generation: Generation(generation),
                    mode: Mode::Strong,
                }),
                state,
            },
            name: ObjectName::trusted("claude-issue-1"),
            template: template("default"),
            claims: vec![],
            cause: Cause::Service("test"),
        })
    };
    let mut bench = bench_in(None);
    assert_eq!(bench.apply(ask(7, ObjectState::Stopped)).reply, Reply::Accepted);
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Provider, .. }));
    assert_eq!(bench.issue.generation, Generation(7));
    assert_eq!(bench.issue.sandbox().map(|s| s.id.to_string()), Some("of a lost record".into()));
    assert!(matches!(bench.apply(ask(8, ObjectState::Stopped)).reply, Reply::Refused(_)), "live");

    let mut bench = bench_in(Some(Phase::Deleting));
    bench.answer(Err(CallError::Absent));
    assert!(matches!(bench.apply(ask(1, ObjectState::Running)).reply, Reply::Refused(_)), "older");
    for state in [ObjectState::Partial, ObjectState::Error { message: "no image".into() }] {
        assert!(matches!(bench.apply(ask(2, state)).reply, Reply::Refused(_)));
    }
}

#[test]
fn a_fast_sandbox_is_asked_for_at_once_only_where_its_generation_is_certain() {
    for (may_fast_create, mode, is_fast_create) in
        [(true, Mode::Fast, true), (false, Mode::Fast, false), (true, Mode::Strong, false)]
    {
        let mut bench = StepBench::new(true);
        bench.may_fast_create = may_fast_create;
        bench.rules.default_template.mode = mode;
        let commit = bench.ensure();
        let record = bench.issue.state.record().expect("a sandbox");
        assert_eq!(
            (commit.is_fast_create, record.mode == Mode::Fast),
            (is_fast_create, is_fast_create)
        );
        assert_eq!(record.made_at_ns.is_some(), is_fast_create);
        if is_fast_create {
            // echo -n claude-issue-1:default:1800000000000000000 | md5sum
            assert_eq!(record.id.as_str(), "2b438dbdb7138bfb63321fb7c1557c3f");
        }
    }
}
