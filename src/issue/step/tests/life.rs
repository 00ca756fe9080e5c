//! Time: idle, closed and old sandboxes, phases that take too long, records deleted by force.

use std::time::Duration;

use super::issue_deliveries::{issue_delivery, labelled};
use super::tables::bench_in;
use super::{StepBench, unavailable};
use crate::issue::commit::Reply;
use crate::issue::event::{CallError, Command, DeliveryEffect, Done, IssueEvent, NotAsked};
use crate::issue::state::{IssueState, Step, StoppedBy, Verb};
use crate::types::{
    Attempt, Cause, FailureCode, Generation, ObjectState, OnLimit, Phase, ProviderName,
    ProviderStep, SandboxId, Wanted,
};

const IDLE: Duration = Duration::from_secs(1800);
const SECOND: Duration = Duration::from_secs(1);

fn running_with(set: impl FnOnce(&mut StepBench)) -> StepBench {
    let mut bench = StepBench::new(true);
    set(&mut bench);
    bench.ensure();
    bench.up();
    bench
}

fn due(bench: &mut StepBench, busy: bool) {
    bench.now = bench.issue.due_at().expect("something is due");
    bench.apply(IssueEvent::Due { in_flight: None, busy });
}

fn worked(bench: &mut StepBench) {
    let sandbox = bench.issue.state.record().expect("a sandbox").id.clone();
    bench.apply(IssueEvent::Worked { sandbox, start: true, cause: Cause::Service("test") });
}

#[test]
fn an_idle_sandbox_is_stopped_and_work_starts_it_again() {
    let mut bench = running_with(|bench| bench.rules.idle_stop = Some(IDLE));
    let began = bench.now;
    assert_eq!(bench.issue.due_at(), Some(began.after(IDLE)));
    bench.now = began.after(IDLE / 2);
    worked(&mut bench);
    assert_eq!(bench.issue.due_at(), Some(began.after(IDLE / 2 + IDLE)), "work counts");
    due(&mut bench, false);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping));
    bench.answer(Ok(Done::Down));
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Idle, .. }));
    assert_eq!(bench.issue.due_at(), None, "what is down is not idle");
    worked(&mut bench);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
}

#[test]
fn a_limit_event_is_recorded_and_stops_the_sandbox_if_its_template_says_so() {
    for (on_limit, phase, reason) in [
        (OnLimit::Kill, Phase::Running, "memory limit 512 MB reached"),
        (OnLimit::Stop, Phase::Stopping, "stopping: memory limit 512 MB reached"),
    ] {
        let mut bench = running_with(|bench| bench.rules.default_template.on_limit = on_limit);
        let sandbox = bench.issue.state.record().expect("a sandbox").id.clone();
        let limit_event = |sandbox: &SandboxId| IssueEvent::LimitStruck {
            sandbox: sandbox.clone(),
            reason: "memory limit 512 MB reached".into(),
            ended: false,
        };
        let other = bench.apply(limit_event(&SandboxId::trusted("another")));
        assert!(!other.changed && other.timeline.is_empty(), "a late one of an earlier sandbox");
        let commit = bench.apply(limit_event(&sandbox));
        let entry = commit.timeline.last().expect("an entry");
        assert_eq!((entry.reason.as_str(), entry.cause.as_str()), (reason, "provider event"));
        assert!(commit.changed, "the entry is stored");
        assert_eq!(bench.issue.state.phase(), Some(phase));
        if on_limit == OnLimit::Stop {
            assert!(
                bench.apply(limit_event(&sandbox)).timeline.is_empty(),
                "it is stopping already"
            );
            bench.answer(Ok(Done::Down));
            assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Limit, .. }));
            worked(&mut bench);
            assert_eq!(bench.issue.state.phase(), Some(Phase::Starting), "work starts it again");
        }
    }
}

#[test]
fn what_the_provider_ended_is_stopped_whatever_its_template_says() {
    let mut bench = running_with(|bench| bench.rules.default_template.on_limit = OnLimit::Kill);
    let sandbox = bench.issue.state.record().expect("a sandbox").id.clone();
    let reason = "the host's disk is nearly full: 12 MB left".to_owned();
    let commit = bench.apply(IssueEvent::LimitStruck { sandbox, reason, ended: true });
    let reason = &commit.timeline.last().expect("an entry").reason;
    assert_eq!(reason, "stopping: the host's disk is nearly full: 12 MB left");
    bench.answer(Ok(Done::Down));
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Host, .. }));
    worked(&mut bench);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting), "work starts it again");
}

#[test]
fn a_sandbox_in_which_a_silent_command_runs_is_not_idle() {
    let mut bench = running_with(|bench| bench.rules.idle_stop = Some(IDLE));
    due(&mut bench, true);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    assert_eq!(bench.issue.due_at(), Some(bench.now.after(IDLE)), "asked again later");
}

#[test]
fn a_short_idle_time_is_not_cut_by_the_resolution_of_activity() {
    let idle = Duration::from_secs(2);
    let mut bench = running_with(|bench| bench.rules.idle_stop = Some(idle));
    bench.now = bench.now.after(SECOND);
    worked(&mut bench);
    assert_eq!(bench.issue.due_at(), Some(bench.now.after(idle)));
}

#[test]
fn a_closed_issues_sandbox_goes_after_the_grace_period() {
    let mut bench = bench_in(Some(Phase::Running));
    let closed = |second| {
        issue_delivery("closed", DeliveryEffect::Stop("the issue was closed"), second, false, true)
    };
    bench.apply(closed(5));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping), "at once");
    bench.answer(Ok(Done::Down));
    let grace = bench.rules.delete_after_close;
    let first = bench.now.after(grace);
    assert_eq!(bench.issue.due_at(), Some(first));
    bench.now = bench.now.after(SECOND);
    bench.apply(closed(6));
    assert_eq!(bench.issue.due_at(), Some(first), "closed once more is no new grace");
    due(&mut bench, false);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
}

#[test]
fn a_reopening_or_a_callers_ensure_cancels_that() {
    let closed =
        issue_delivery("closed", DeliveryEffect::Stop("the issue was closed"), 5, false, true);
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(closed.clone());
    bench.answer(Ok(Done::Down));
    // By whatever delivery it becomes known.
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 9, true, true));
    assert_eq!((bench.issue.delete_due, bench.issue.due_at()), (None, None));

    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(closed);
    bench.answer(Ok(Done::Down));
    bench.ensure();
    assert_eq!(bench.issue.delete_due, None);
}

#[test]
fn a_close_whose_delivery_was_lost_is_made_good_by_the_next_one() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(labelled(1));
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 9, false, true));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping));
    assert!(bench.issue.delete_due.is_some());
}

#[test]
fn a_sandbox_that_is_too_old_is_deleted_also_when_it_failed() {
    let ttl = Duration::from_secs(3600);
    let mut bench = running_with(|bench| bench.rules.ttl = Some(ttl));
    let made = bench.issue.state.record().expect("a sandbox").created_at;
    assert_eq!(bench.issue.due_at(), Some(made.after(ttl)));
    bench.command(Command::Stop);
    bench.answer(Err(CallError::Refused("no".into())));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
    due(&mut bench, false);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
}

fn unreachable(next_try: Duration) -> CallError {
    CallError::NotAsked(NotAsked::Unreachable { message: "down".into(), next_try })
}

#[test]
fn an_unreachable_provider_costs_no_try_but_the_phase_ends_by_its_deadline() {
    for phase in [Phase::Creating, Phase::Starting, Phase::Stopping] {
        let mut bench = bench_in(Some(phase));
        let deadline = bench.issue.state.deadline().expect("a deadline");
        let tries = bench.issue.state.step().map(Step::tries_left);
        bench.answer(Err(unreachable(Duration::from_secs(20))));
        assert_eq!(bench.issue.state.step().map(Step::tries_left), tries, "{phase}");
        for n in 0..200 {
            if bench.issue.state.phase() == Some(Phase::Failed) {
                break;
            }
            bench.due();
            bench.answer(Err(unreachable(Duration::from_secs(20))));
            assert!(n < 199, "{phase} is never left");
        }
        let late = bench.now.since(deadline);
        let allowed = if phase == Phase::Creating { 400 } else { 60 };
        assert!(late < Duration::from_secs(allowed), "{phase} was left {late:?} too late");
        let failure = bench.issue.state.failure().expect("a failure");
        assert!(
            matches!(
                failure.code,
                FailureCode::DeadlineExceeded | FailureCode::ProviderUnavailable
            ),
            "{phase}: {failure:?}"
        );
    }
}

#[test]
fn a_phase_that_has_been_waiting_when_its_deadline_passes_asks_one_last_time_without_grace() {
    let mut bench = bench_in(Some(Phase::Stopping));
    let deadline = bench.issue.state.deadline().expect("a deadline");
    bench.answer(Err(unreachable(Duration::from_secs(3600))));
    assert_eq!(bench.issue.due_at(), Some(deadline), "not an hour later");
    let call = bench.due().call.expect("a last call");
    assert_eq!((call.verb, call.force), (Verb::Stop, true));
    bench.answer(Err(unavailable()));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
    assert_eq!(bench.issue.state.failure().map(|f| f.step), Some(ProviderStep::Stop));
}

#[test]
fn a_late_look_adopts_what_is_there_after_all() {
    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Err(unreachable(Duration::from_secs(36_000))));
    assert_eq!(bench.due().call.map(|call| call.verb), Some(Verb::Look));
    let ours = bench.ours(ObjectState::Running);
    bench.answer(Ok(Done::Found(vec![ours])));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

#[test]
fn time_without_a_turn_does_not_count() {
    let mut bench = bench_in(Some(Phase::Creating));
    let before = bench.issue.state.deadline().expect("a deadline");
    bench.now = bench.now.after(Duration::from_secs(60));
    bench.answer(Err(CallError::NotAsked(NotAsked::NoTurn)));
    assert_eq!(bench.issue.state.deadline(), Some(before.after(Duration::from_secs(60))));
}

#[test]
fn a_delete_past_its_deadline_says_so_and_goes_on_with_force() {
    let mut bench = bench_in(Some(Phase::Deleting));
    let deadline = bench.issue.state.deadline().expect("a deadline");
    for _ in 0..40 {
        bench.answer(Ok(Done::Removing));
        let mut destroying = bench.ours(ObjectState::Destroying);
        destroying.external_id = bench.issue.state.external_id().expect("known").clone();
        bench.answer(Ok(Done::Found(vec![destroying])));
        let call = bench.due().call;
        if bench.now > deadline
            && let Some(call) = call
        {
            assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
            assert_eq!(
                bench.issue.state.failure().map(|f| f.code),
                Some(FailureCode::DeadlineExceeded)
            );
            assert!(call.force);
            return;
        }
        if call.is_none() {
            bench.due();
        }
    }
    panic!("the deadline never came");
}

#[test]
fn force_gives_the_record_up_from_every_phase_and_the_next_generation_waits_for_what_may_land() {
    for phase in Phase::ALL {
        let mut bench = bench_in(Some(*phase));
        let old = bench.issue.state.record().expect("a sandbox").id.clone();
        let commit = bench.command(Command::ForceDelete);
        assert_eq!(commit.reply, Reply::AlreadyAbsent, "{phase}");
        let ended = commit.ended.expect("history");
        assert_eq!((ended.id, ended.phase), (old, None));
        assert!(ended.reason.contains("force"), "{}", ended.reason);
        assert_eq!(bench.issue.state, IssueState::Absent);
        assert_eq!(commit.call, None, "the sweep removes the object");
    }
    let mut bench = StepBench::new(false);
    bench.ensure();
    bench.answer(Ok(Done::Found(vec![])));
    let Some(Step::Asked { verb: Verb::Create, until, .. }) = bench.issue.state.step().cloned()
    else {
        panic!("it is being created: {:?}", bench.issue.state)
    };
    bench.command(Command::ForceDelete);
    let settled = until.after(super::LATE_EFFECT_WINDOW);
    assert_eq!(bench.issue.may_land_until, Some(settled));
    assert_eq!(bench.ensure().call.map(|call| call.verb), Some(Verb::Look));
    assert_eq!(bench.issue.generation, Generation(2));
    let commit = bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(commit.call, None, "nothing is made while the old one may come");
    assert_eq!(bench.issue.due_at(), Some(settled));
}

#[test]
fn a_clock_that_was_set_back_while_the_server_was_down_stops_nothing_for_long() {
    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Err(unavailable()));
    let day = 86_400_000;
    bench.now = crate::types::Timestamp::from_unix_ms(bench.now.unix_ms() - day);
    bench.apply(IssueEvent::Activated { in_flight: None, after_restart: true });
    let wait = bench.issue.due_at().expect("due").since(bench.now);
    assert!(wait <= Duration::from_secs(3600), "it waits for {wait:?}");
    let record = bench.issue.state.record().expect("a sandbox");
    let longest = bench.now.after(bench.rules.create.timeout + super::LATE_EFFECT_WINDOW);
    assert_eq!(record.may_land_until, Some(longest), "as long as if it were asked now");
    assert_eq!(record.last_activity_at, bench.now);
}

/// A generation that was given up by force was at a provider whose calls come into effect later.
#[test]
fn a_start_waits_as_long_as_before_for_what_another_provider_may_still_bring_forth() {
    let mut bench = bench_in(Some(Phase::Creating));
    let mut slow = *bench.rules.providers.values().next().expect("a provider");
    slow.late_effect_window = Duration::from_secs(20);
    bench.rules.providers.insert(ProviderName::trusted("slow"), slow);
    let until = bench.now.after(bench.rules.create.timeout + slow.late_effect_window);
    bench.issue.state.record_mut().expect("a sandbox").may_land_until = Some(until);
    bench.apply(IssueEvent::Activated { in_flight: None, after_restart: true });
    let record = bench.issue.state.record().expect("a sandbox");
    assert_eq!(record.may_land_until, Some(until));
}

#[test]
fn a_phase_has_as_long_as_all_of_its_tries() {
    // Three tries of a minute and a look of half a minute each; behind a create its settling.
    for (phase, seconds) in [
        (Phase::Creating, 3 * (60 + 30 + 7)),
        (Phase::Starting, 3 * (60 + 30)),
        (Phase::Stopping, 3 * (60 + 30)),
        (Phase::Deleting, 3 * (60 + 30)),
    ] {
        let bench = bench_in(Some(phase));
        let whole = Duration::from_secs(seconds);
        assert_eq!(bench.issue.state.deadline(), Some(bench.now.after(whole)), "{phase}");
    }
    for phase in [Phase::Running, Phase::Stopped, Phase::Failed] {
        assert_eq!(bench_in(Some(phase)).issue.state.deadline(), None, "{phase}");
    }
}

/// Lets tries fail until so many are left and the next waits, then lets the deadline pass.
fn overdue_with(bench: &mut StepBench, tries_left: u32) {
    let left = |bench: &StepBench| bench.issue.state.step().map(Step::tries_left);
    for _ in 0..20 {
        if left(bench) == Some(tries_left) {
            break;
        }
        if matches!(bench.issue.state.step(), Some(Step::Waiting { .. })) {
            bench.due();
        } else {
            bench.answer(Err(CallError::Broken("no".into())));
        }
    }
    assert_eq!(left(bench), Some(tries_left));
    if !matches!(bench.issue.state.step(), Some(Step::Waiting { .. })) {
        bench.answer(Err(unreachable(Duration::from_secs(20))));
    }
    bench.now = bench.issue.state.deadline().expect("a deadline");
    bench.apply(IssueEvent::Due { in_flight: None, busy: false });
}

#[test]
fn past_the_deadline_there_is_one_last_call_and_none_where_that_was_it() {
    for phase in [Phase::Starting, Phase::Stopping] {
        let mut bench = bench_in(Some(phase));
        overdue_with(&mut bench, 3);
        assert_eq!(bench.issue.state.phase(), Some(phase), "one more");
        assert_eq!(bench.issue.state.step().map(Step::tries_left), Some(1));
        let mut bench = bench_in(Some(phase));
        overdue_with(&mut bench, 1);
        let failure = bench.issue.state.failure().map(|failure| failure.code);
        assert_eq!(failure, Some(FailureCode::DeadlineExceeded), "{phase}");
        assert_eq!(bench.issue.state.phase(), Some(Phase::Failed), "{phase}");
    }
    let mut bench = bench_in(Some(Phase::Creating));
    overdue_with(&mut bench, 3);
    assert_eq!(bench.issue.state.failure(), None, "it looks once more");
    let mut bench = bench_in(Some(Phase::Creating));
    overdue_with(&mut bench, 1);
    let failure = bench.issue.state.failure().map(|failure| failure.code);
    assert_eq!(failure, Some(FailureCode::DeadlineExceeded), "leftovers are looked for");
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating));
    overdue_with(&mut bench, 2);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating), "and looked for once more");
    bench.answer(Err(unreachable(Duration::from_secs(20))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));

    let mut bench = bench_in(Some(Phase::Creating));
    overdue_with(&mut bench, 1);
    overdue_with(&mut bench, 1);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
    let message = bench.issue.state.failure().map(|failure| failure.message.clone());
    assert!(message.is_some_and(|message| message.contains("may be left at the provider")));
}

#[test]
fn what_is_being_deleted_or_is_down_has_no_more_life_to_be_timed() {
    let closed =
        issue_delivery("closed", DeliveryEffect::Stop("the issue was closed"), 5, false, true);
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.apply(closed.clone());
    assert_eq!(bench.issue.delete_due, None);
    let mut bench = bench_in(None);
    bench.apply(closed);
    assert_eq!(bench.issue.delete_due, None, "there is nothing to delete");

    let mut bench = running_with(|bench| {
        bench.rules.idle_stop = Some(IDLE);
        bench.rules.ttl = Some(IDLE * 3);
    });
    bench.now = bench.now.after(IDLE / 2);
    bench.apply(IssueEvent::Due { in_flight: None, busy: false });
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running), "not idle for long enough");
    // The time was made longer since: what was due by the old one is not.
    bench.rules.idle_stop = Some(IDLE * 2);
    due(&mut bench, false);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

#[test]
fn nothing_is_done_before_its_time_and_nothing_that_is_being_answered_yet() {
    let due = |in_flight| IssueEvent::Due { in_flight, busy: false };
    // A call in flight: the scheduler comes too early, in time while it is held, and behind it.
    let mut bench = bench_in(Some(Phase::Creating));
    let Some(Step::Asked { until, .. }) = bench.issue.state.step().cloned() else {
        panic!("a call is in flight")
    };
    let held = bench.issue.state.record().map(|record| record.attempt);
    bench.now = crate::types::Timestamp::from_unix_ms(until.unix_ms() - 1);
    assert!(!bench.apply(due(None)).changed, "too early");
    bench.now = until;
    assert!(!bench.apply(due(held)).changed, "the answer will come");
    let mut elsewhere = StepBench { issue: bench.issue.clone(), ..bench_in(None) };
    elsewhere.now = until;
    for (bench, in_flight) in [(&mut bench, None), (&mut elsewhere, held.map(Attempt::next))] {
        let commit = bench.apply(due(in_flight));
        assert_eq!(commit.call.map(|call| call.verb), Some(Verb::Look), "{in_flight:?}");
    }

    // A call that waits for its time.
    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Err(unavailable()));
    let waits_until = bench.issue.due_at().expect("it waits");
    bench.now = crate::types::Timestamp::from_unix_ms(waits_until.unix_ms() - 1);
    assert!(!bench.apply(due(None)).changed, "too early");
    bench.now = waits_until;
    assert_eq!(bench.apply(due(None)).call.map(|call| call.verb), Some(Verb::Look));
}

#[test]
fn a_limit_event_is_recorded_in_every_phase() {
    const REASON: &str = "memory limit 512 MB reached";
    for (on_limit, phase, begins, wanted) in [
        (OnLimit::Kill, Phase::Creating, REASON, Wanted::Running),
        (OnLimit::Kill, Phase::Starting, REASON, Wanted::Running),
        (OnLimit::Kill, Phase::Stopping, REASON, Wanted::Stopped),
        (OnLimit::Kill, Phase::Stopped, REASON, Wanted::Stopped),
        (OnLimit::Kill, Phase::Failed, REASON, Wanted::Running),
        (OnLimit::Kill, Phase::Deleting, REASON, Wanted::Deleted),
        (OnLimit::Stop, Phase::Creating, "desired state: stopped (", Wanted::Stopped),
        (OnLimit::Stop, Phase::Starting, "desired state: stopped (", Wanted::Stopped),
        (OnLimit::Stop, Phase::Stopping, REASON, Wanted::Stopped),
        (OnLimit::Stop, Phase::Stopped, REASON, Wanted::Stopped),
        (OnLimit::Stop, Phase::Failed, REASON, Wanted::Running),
        (OnLimit::Stop, Phase::Deleting, REASON, Wanted::Deleted),
    ] {
        let mut bench = bench_in(Some(phase));
        let record = bench.issue.state.record_mut().expect("a sandbox");
        record.template.on_limit = on_limit;
        let sandbox = record.id.clone();
        let limit_event = || IssueEvent::LimitStruck {
            sandbox: sandbox.clone(),
            reason: REASON.into(),
            ended: false,
        };
        let commit = bench.apply(limit_event());
        let last = &commit.timeline.last().expect("an entry").reason;
        assert!(last.starts_with(begins) && last.contains(REASON), "{phase} {on_limit:?}: {last}");
        assert_eq!(bench.issue.state.phase(), Some(phase));
        assert_eq!(bench.issue.state.wanted(), wanted, "{phase} {on_limit:?}");
        if wanted == Wanted::Stopped && begins != REASON {
            assert!(bench.apply(limit_event()).timeline.is_empty(), "{phase}: it has an entry");
        }
    }
}

#[test]
fn a_crash_leaves_open_what_only_the_lost_call_may_still_do() {
    // Which call is lost, whether its objects die with the server and the server did; whether a
    // create, or a stop, may still come into effect.
    for (phase, dies, after_restart, creates, stops) in [
        (Phase::Creating, false, true, true, false),
        (Phase::Creating, false, false, true, false),
        (Phase::Creating, true, false, true, false),
        (Phase::Creating, true, true, false, false),
        (Phase::Starting, false, true, false, false),
        (Phase::Stopping, false, true, false, true),
        (Phase::Deleting, false, true, false, false),
    ] {
        let mut bench = bench_in(Some(phase));
        for provider in bench.rules.providers.values_mut() {
            provider.dies_with_server = dies;
        }
        let Some(Step::Asked { until, .. }) = bench.issue.state.step().cloned() else {
            panic!("a call is in flight")
        };
        bench.apply(IssueEvent::Activated { in_flight: None, after_restart });
        let record = bench.issue.state.record().expect("a sandbox");
        let settled = until.after(super::LATE_EFFECT_WINDOW);
        assert_eq!(
            (record.may_land_until, record.stop_may_land_until),
            (creates.then_some(settled), stops.then_some(settled)),
            "{phase} {dies} {after_restart}"
        );
    }
}
