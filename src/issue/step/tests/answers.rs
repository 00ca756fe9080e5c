//! Answers of providers, one by one: what each is worth, and how often a step is tried.

use std::time::Duration;

use super::tables::bench_in;
use super::{StepBench, unavailable};
use crate::issue::event::{
    CallError, Command, CommandAsk, Done, EnsureAsk, IssueEvent, ObservedObject, Owner, QUARANTINE,
    TriggerKind,
};
use crate::issue::state::{Step, Verb};
use crate::types::{
    Alias, Cause, ExternalId, FailureCode, Generation, IssueId, Mode, ObjectState, Phase, SandboxId,
};

fn broken() -> CallError {
    CallError::Broken("it broke".into())
}

/// A foreign object, or one of this home of that generation.
fn other(generation: Option<u32>, state: ObjectState) -> ObservedObject {
    let owner = generation.map(|generation| Owner {
        sandbox: SandboxId::trusted("another"),
        generation: Generation(generation),
        mode: Mode::Strong,
    });
    ObservedObject { external_id: ExternalId::trusted("another's"), owner, state }
}

fn asked(bench: &StepBench) -> Option<Verb> {
    match bench.issue.state.step() {
        Some(Step::Asked { verb, .. }) => Some(verb.clone()),
        Some(Step::Waiting { .. }) | None => None,
    }
}

fn failure(bench: &StepBench) -> Option<FailureCode> {
    bench.issue.state.failure().map(|failure| failure.code)
}

#[test]
fn starting_and_stopping_are_tried_as_often_as_allowed_and_each_try_is_recorded() {
    for phase in [Phase::Starting, Phase::Stopping] {
        let mut bench = bench_in(Some(phase));
        for left in [2, 1] {
            let commit = bench.answer(Err(broken()));
            assert_eq!(bench.issue.state.phase(), Some(phase), "{left} left");
            let reasons: Vec<_> = commit.timeline.iter().map(|entry| &entry.reason).collect();
            let expected = "tried again: the provider failed: it broke";
            assert!(reasons[0].contains(expected), "{reasons:?}");
            assert!(bench.due().call.is_some());
        }
        bench.answer(Err(broken()));
        assert_eq!(bench.issue.state.phase(), Some(Phase::Failed), "{phase}");
    }
}

#[test]
fn a_start_that_brought_up_somebody_elses_object_lost_ours() {
    let mut bench = bench_in(Some(Phase::Starting));
    bench.answer(Ok(Done::Up(other(None, ObjectState::Running))));
    assert_eq!(failure(&bench), Some(FailureCode::ObjectLost));
}

#[test]
fn a_create_that_brought_up_ours_is_up_and_somebody_elses_is_in_the_way() {
    let mut bench = bench_in(Some(Phase::Creating));
    let commit = bench.up();
    assert_eq!(commit.timeline[0].reason, "it is up", "nothing was adopted");

    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Ok(Done::Up(other(None, ObjectState::Running))));
    assert_eq!(failure(&bench), Some(FailureCode::NameTaken));
}

#[test]
fn an_answer_that_does_not_fit_costs_a_try() {
    for unfit in [Ok(Done::Removing), Ok(Done::Down), Err(CallError::Absent)] {
        let mut bench = bench_in(Some(Phase::Creating));
        bench.answer(unfit.clone());
        assert_eq!(bench.issue.state.step().map(Step::tries_left), Some(2), "{unfit:?}");
    }
}

#[test]
fn half_made_objects_are_completed_where_names_are_enforced_and_else_removed() {
    for names_enforced in [true, false] {
        let mut bench = StepBench::new(names_enforced);
        bench.ensure();
        let half = bench.ours(ObjectState::Partial);
        bench.answer(Ok(Done::Found(vec![half])));
        let completes = asked(&bench) == Some(Verb::Create);
        let removes = matches!(asked(&bench), Some(Verb::Delete { .. }));
        assert_eq!((completes, removes), (names_enforced, !names_enforced));
    }
}

#[test]
fn what_is_being_destroyed_has_its_time_before_it_is_asked_for_again() {
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.ensure();
    bench.answer(Err(CallError::Absent));
    assert_eq!(bench.issue.generation, Generation(2));
    bench.answer(Err(CallError::Present(other(Some(1), ObjectState::Destroying))));
    assert_eq!(asked(&bench), None, "it waits");
    assert!(matches!(bench.due().call.map(|call| call.verb), Some(Verb::Delete { .. })));
}

#[test]
fn a_removal_that_was_accepted_is_not_asked_again_at_once() {
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.answer(Ok(Done::Removing));
    let mut still = bench.ours(ObjectState::Running);
    still.external_id = bench.issue.state.external_id().expect("known").clone();
    assert_eq!(bench.answer(Ok(Done::Found(vec![still]))).call, None);
}

#[test]
fn that_something_else_came_up_is_no_absence() {
    for up in [other(None, ObjectState::Running), other(Some(2), ObjectState::Running)] {
        let mut bench = bench_in(Some(Phase::Creating));
        bench.command(Command::Delete);
        bench.answer(Ok(Done::Up(up)));
        assert_eq!(asked(&bench), Some(Verb::Look));
        bench.answer(Ok(Done::Found(vec![])));
        assert_eq!(bench.issue.state.phase(), None);
    }
}

#[test]
fn only_the_absence_of_the_sandboxs_own_object_ends_a_delete_and_only_where_none_may_land() {
    // An older generation's object is in the way of a look.
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.answer(Err(CallError::Unavailable { message: "lost".into(), retry_after: None }));
    bench.due();
    bench.answer(Ok(Done::Removing));
    bench.answer(Ok(Done::Found(vec![other(Some(0), ObjectState::Running)])));
    bench.due();
    assert!(matches!(asked(&bench), Some(Verb::Delete { .. })));
    bench.answer(Err(CallError::Absent));
    assert_eq!(asked(&bench), Some(Verb::Look), "that was another's");
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state.phase(), None);

    // A later generation is no business of this delete: the sweep decides about it.
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.answer(Ok(Done::Removing));
    bench.answer(Ok(Done::Found(vec![other(Some(2), ObjectState::Running)])));
    assert_eq!(bench.issue.state.phase(), None);

    let (mut bench, _) = lost_create();
    bench.due();
    let ours = bench.ours(ObjectState::Running);
    bench.answer(Ok(Done::Found(vec![ours])));
    bench.command(Command::Delete);
    bench.answer(Err(CallError::Absent));
    assert_eq!(asked(&bench), Some(Verb::Look), "another may have landed behind it");
}

/// An issue of a provider that does not enforce names, with a create of unknown outcome, and the
/// time until which that may land.
fn lost_create() -> (StepBench, crate::types::Timestamp) {
    let mut bench = StepBench::new(false);
    bench.ensure();
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(asked(&bench), Some(Verb::Create));
    bench.answer(Err(unavailable()));
    let until = bench.issue.state.record().and_then(|r| r.may_land_until).expect("it may land");
    (bench, until)
}

#[test]
fn a_look_from_before_a_create_had_to_have_landed_is_no_absence_however_late_its_answer() {
    let (mut bench, until) = lost_create();
    bench.due();
    assert_eq!(asked(&bench), Some(Verb::Look));
    bench.now = until.after(Duration::from_secs(1));
    assert_eq!(bench.answer(Ok(Done::Found(vec![]))).call, None);
    bench.due();
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(asked(&bench), Some(Verb::Create), "asked after it had to have landed");

    let (mut bench, until) = lost_create();
    bench.due();
    bench.command(Command::Delete);
    bench.now = until.after(Duration::from_secs(1));
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting), "not confirmed");
    bench.due();
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state.phase(), None);
}

#[test]
fn clearing_up_waits_for_what_may_land_and_believes_no_older_look() {
    for answered_late in [false, true] {
        let mut bench = bench_in(Some(Phase::Creating));
        bench.answer(Err(unavailable()));
        let until = bench.issue.state.record().and_then(|r| r.may_land_until).expect("may land");
        bench.due();
        bench.answer(Ok(Done::Found(vec![])));
        assert_eq!(asked(&bench), Some(Verb::Create), "names are enforced");
        bench.answer(Err(CallError::Refused("no".into())));
        assert_eq!(asked(&bench), Some(Verb::Look), "leftovers are looked for");
        if answered_late {
            bench.now = until.after(Duration::from_secs(1));
        }
        bench.answer(Ok(Done::Found(vec![])));
        assert_eq!(bench.issue.state.phase(), Some(Phase::Creating), "{answered_late}");
        assert_eq!(bench.issue.due_at(), Some(until));
        bench.due();
        bench.answer(Ok(Done::Found(vec![])));
        assert_eq!(failure(&bench), Some(FailureCode::ProviderRefused));
    }
}

#[test]
fn leftovers_that_come_up_after_all_are_removed_and_somebody_elses_are_not() {
    let giving_up = || {
        let mut bench = bench_in(Some(Phase::Creating));
        bench.answer(Err(CallError::Refused("no".into())));
        bench
    };
    let mut bench = giving_up();
    bench.up();
    assert!(matches!(asked(&bench), Some(Verb::Delete { .. })), "{:?}", asked(&bench));
    let mut bench = giving_up();
    bench.answer(Ok(Done::Up(other(None, ObjectState::Running))));
    assert_eq!(asked(&bench), Some(Verb::Look));
}

#[test]
fn names_that_an_event_claims_are_given_by_it() {
    let claims = vec![Alias::Issue(IssueId::trusted("x"))];
    let cause = || Cause::Service("test");
    let ensure = EnsureAsk {
        sandbox: crate::issue::event::SandboxAsk::default(),
        title: None,
        numbered: None,
        claims: claims.clone(),
        retry: false,
        cause: cause(),
    };
    assert_eq!(IssueEvent::Ensure(ensure).meta().claims, claims);
    let (sandbox, command) = (SandboxId::trusted("s"), Command::Stop);
    let ask = CommandAsk { sandbox, command, cause: cause() };
    assert_eq!(IssueEvent::Command(ask).meta().claims, []);
}

#[test]
fn triggers_and_times_are_what_the_documentation_says() {
    assert_eq!(QUARANTINE, Duration::from_secs(86_400));
    let bench = StepBench::new(true);
    let described: std::collections::BTreeSet<_> = [
        TriggerKind::Opened,
        TriggerKind::Label,
        TriggerKind::Command,
        TriggerKind::EditedComment,
        TriggerKind::EditedIssue,
        TriggerKind::Assigned,
        TriggerKind::Reopened,
    ]
    .map(|kind| kind.describe(&bench.rules, None))
    .into();
    assert_eq!(described.len(), 7, "each in words of its own");
    assert!(described.contains("label agent added"));
}

#[test]
fn a_delete_during_a_stop_goes_on_with_the_removal() {
    let mut bench = bench_in(Some(Phase::Stopping));
    assert_eq!(bench.command(Command::Delete).call, None, "one call at a time");
    bench.answer(Ok(Done::Down));
    assert!(matches!(asked(&bench), Some(Verb::Delete { .. })), "{:?}", bench.issue.state);
}

#[test]
fn what_stands_in_the_way_of_a_delete_is_shown_and_recorded_once_for_each_kind() {
    let mut bench = bench_in(Some(Phase::Deleting));
    let entries = |commit: &crate::issue::Commit| commit.timeline.len();
    assert_eq!(entries(&bench.answer(Err(CallError::Refused("no".into())))), 1);
    let failure = bench.issue.state.failure().expect("shown");
    assert!(failure.retryable, "it is tried again whatever it was");
    bench.due();
    assert_eq!(entries(&bench.answer(Err(CallError::Refused("no".into())))), 0, "the same again");
    bench.due();
    assert_eq!(entries(&bench.answer(Err(broken()))), 1, "another kind");
    bench.due();
    bench.now = bench.now.after(Duration::from_secs(9));
    let ended = bench.answer(Err(CallError::Absent)).ended.expect("history");
    assert_eq!((ended.phase, ended.failure.as_ref()), (None, None));
    assert_eq!((ended.phase_since, ended.deleted_at), (bench.now, Some(bench.now)));
    assert_eq!(ended.reason, "the provider no longer has it");
}

#[test]
fn only_the_last_try_of_a_stop_kills_at_once() {
    let mut bench = bench_in(Some(Phase::Running));
    let call = bench.command(Command::Stop).call.expect("a stop");
    assert!(!call.force, "the first has its grace");
    bench.answer(Err(broken()));
    assert!(!bench.due().call.expect("the second").force);
    bench.answer(Err(broken()));
    assert!(bench.due().call.expect("the last").force);
}

#[test]
fn the_first_wait_is_half_of_half_a_second_and_chance_for_the_other_half() {
    let mut bench = bench_in(Some(Phase::Starting));
    bench.answer(Err(broken()));
    // The tests' chance is 500 of 1,000.
    assert_eq!(bench.issue.due_at(), Some(bench.now.after(Duration::from_millis(375))));
}

#[test]
fn names_alone_are_a_change_to_be_stored() {
    let alias = Alias::Issue(IssueId::trusted("another-name"));
    let cause = || Cause::Service("test");
    let mut bench = bench_in(Some(Phase::Running));
    let before = bench.issue.version;
    let commit = bench.apply(IssueEvent::Ensure(EnsureAsk {
        sandbox: crate::issue::event::SandboxAsk::default(),
        title: None,
        numbered: None,
        claims: vec![alias.clone()],
        retry: false,
        cause: cause(),
    }));
    assert!(commit.changed && commit.aliases == [alias.clone()]);
    assert_eq!(bench.issue.version, before + 1);

    let event = super::issue_deliveries::issue_delivery(
        "edited",
        crate::issue::event::DeliveryEffect::Update,
        5,
        true,
        true,
    );
    bench.apply(event.clone());
    let IssueEvent::Delivery { issue_delivery, claims, place_elsewhere, .. } = event else {
        panic!("a nudge")
    };
    let takes = vec![alias.clone()];
    let again = IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere };
    let commit = bench.apply(again);
    assert!(commit.changed && commit.taken_over == [alias]);

    let merged = || IssueEvent::Merged { into: crate::types::HomeId(9), cause: cause() };
    bench.apply(merged());
    assert!(bench.apply(merged()).changed, "its names go there, also when it is repeated");
}

#[test]
fn what_must_have_landed_by_now_holds_up_nothing() {
    let (mut bench, _) = lost_create();
    bench.command(Command::ForceDelete);
    let until = bench.issue.may_land_until.expect("it may land");
    bench.now = until;
    bench.ensure();
    assert_eq!(bench.issue.state.record().and_then(|record| record.may_land_until), None);
}
