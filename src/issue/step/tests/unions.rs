//! What a home learns from one that gives way to it, and what a restored backup comes to.

use std::time::Duration;

use super::StepBench;
use super::issue_deliveries::{applied, issue_delivery};
use super::pending_starts::{commented, from_repository};
use super::tables::bench_in;
use crate::issue::commit::Reply;
use crate::issue::event::{CallError, Command, DeliveryEffect, IssueEvent};
use crate::issue::restored;
use crate::issue::state::{Facts, IssueState, StoppedBy};
use crate::types::{Cause, FailureCode, HomeId, Phase, Repository, Timestamp, Wanted};

fn learn(bench: &mut StepBench, facts: &Facts) {
    learn_asked(bench, facts, None);
}

fn learn_asked(bench: &mut StepBench, facts: &Facts, asked_for: Option<Timestamp>) {
    let (facts, cause) = (Box::new(facts.clone()), Cause::Service("test"));
    let reply = bench.apply(IssueEvent::Learned { from: HomeId(2), facts, asked_for, cause }).reply;
    assert_eq!(reply, Reply::Accepted);
}

#[test]
fn what_was_asked_for_over_there_is_asked_for_here_unless_it_ended() {
    // Behind whatever a person did here before.
    let late = Timestamp::from_unix_ms(i64::MAX / 2);
    for (phase, open, is_asked_for) in [
        (Some(Phase::Stopped), true, true),
        (Some(Phase::Deleting), true, true),
        (None, true, true),
        (Some(Phase::Stopped), false, false),
        (None, false, false),
    ] {
        let mut bench = bench_in(phase);
        let mut other = bench_in(None);
        other.apply(issue_delivery("edited", DeliveryEffect::Update, 5, open, true));
        let facts = other.issue.facts;
        learn(&mut bench, &facts);
        assert!(!bench.issue.is_asked_for(), "{phase:?}");
        learn_asked(&mut bench, &facts, Some(late));
        assert_eq!(bench.issue.is_asked_for(), is_asked_for, "{phase:?}, open: {open}");
        let before = bench.issue.clone();
        learn_asked(&mut bench, &facts, Some(late));
        assert_eq!(bench.issue.state, before.state, "once");
    }
}

#[test]
fn of_what_two_homes_know_the_newer_counts() {
    for (second, is_newer) in [(4, false), (5, false), (6, true)] {
        let mut bench = bench_in(Some(Phase::Running));
        bench.apply(issue_delivery("edited", DeliveryEffect::Update, 5, true, true));
        let mut other = bench_in(None);
        let closed = issue_delivery("unassigned", DeliveryEffect::Update, second, false, false);
        other.apply(from_repository(closed, 2, None));
        let (ours, theirs) = (bench.issue.facts.clone(), other.issue.facts);
        learn(&mut bench, &theirs);
        let facts = bench.issue.facts;
        let newer = if is_newer { &theirs } else { &ours };
        assert_eq!(
            (&facts.title, &facts.open, &facts.labelled),
            (&newer.title, &newer.open, &newer.labelled),
            "{second}"
        );
        assert_eq!(facts.assigned, theirs.assigned, "only there it is known: {second}");
        assert_eq!(
            (facts.repository, facts.repository_id, facts.number, facts.placed_as_of),
            (newer.repository.clone(), newer.repository_id, newer.number, newer.placed_as_of),
            "{second}"
        );
        let stops = bench.issue.state.phase() == Some(Phase::Stopping);
        assert_eq!(stops, is_newer, "it was closed: {second}");
    }
    // One that knows nothing takes it all, and from one that knows nothing nothing is taken.
    let mut known = bench_in(None);
    known.apply(issue_delivery("edited", DeliveryEffect::Update, 5, true, true));
    let mut empty = bench_in(None);
    let nothing = empty.issue.facts.clone();
    learn(&mut empty, &known.issue.facts);
    assert_eq!(empty.issue.facts, known.issue.facts);
    learn(&mut empty, &nothing);
    assert_eq!(empty.issue.facts, known.issue.facts);
    assert_eq!(known.issue.facts.repository, Some(Repository::trusted("octo/hello")));
}

#[test]
fn what_was_deleted_over_there_stops_here() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 5, true, true));
    let mut other = Facts::new(bench.issue.facts.issue_id.clone());
    other.acts.deleted = Some(bench.now.after(Duration::from_secs(100)));
    learn(&mut bench, &other);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping), "its workspace is kept");
}

#[test]
fn what_was_left_counted_and_ended_over_there_was_so_here() {
    let mut bench = bench_in(Some(Phase::Stopped));
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 5, true, true));
    bench.issue.facts.left_repositories = vec![3];
    bench.issue.facts.counted_comments = vec![8];
    let mut other = Facts::new(bench.issue.facts.issue_id.clone());
    other.left_repositories = vec![9, 7, 3];
    other.counted_comments = vec![8, 5];
    other.installation_id = Some(1);
    let ended = bench.now.after(Duration::from_secs(100));
    other.acts.deleted = Some(ended);
    learn(&mut bench, &other);
    let facts = &bench.issue.facts;
    assert_eq!(facts.left_repositories, [3, 9], "it is in 7, and each counts once");
    assert_eq!(facts.installation_id, Some(1));
    assert_eq!(facts.acts.deleted, Some(ended));
    assert_eq!(facts.counted_comments, [8, 5]);
    assert!(!applied(&bench.apply(commented(DeliveryEffect::Command(Command::Start), 5))), "once");
    other.installation_id = Some(2);
    other.acts.deleted = Some(bench.now);
    learn(&mut bench, &other);
    assert_eq!(bench.issue.facts.installation_id, Some(1), "its own comes first");
    assert_eq!(bench.issue.facts.acts.deleted, Some(ended), "the later one");
}

#[test]
fn nothing_is_under_way_after_a_restore_but_what_takes_down() {
    // Whether a sandbox was asked for since; what it comes to, if it was not at rest.
    for (phase, ensured, after) in [
        (Some(Phase::Creating), false, Some((Phase::Failed, Wanted::Running))),
        (Some(Phase::Starting), false, Some((Phase::Stopped, Wanted::Stopped))),
        (Some(Phase::Stopping), true, Some((Phase::Stopping, Wanted::Stopped))),
        (Some(Phase::Deleting), true, Some((Phase::Deleting, Wanted::Deleted))),
        (None, false, None),
        (Some(Phase::Running), false, None),
        (Some(Phase::Stopping), false, None),
        (Some(Phase::Stopped), false, None),
        (Some(Phase::Failed), false, None),
        (Some(Phase::Deleting), false, None),
    ] {
        let mut bench = bench_in(phase);
        if ensured {
            bench.ensure();
        }
        let before = bench.issue.clone();
        let now = bench.now.after(Duration::from_secs(3600));
        let entry = restored(&mut bench.issue, now);
        let Some((phase_after, wanted)) = after else {
            assert!(entry.is_none() && bench.issue == before, "{phase:?}");
            continue;
        };
        let entry = entry.expect("an entry");
        assert_eq!((entry.at, entry.from, entry.to), (now, phase, Some(phase_after)));
        assert_eq!(entry.generation, before.generation);
        assert_eq!(bench.issue.state.phase(), Some(phase_after), "{phase:?}");
        assert_eq!(bench.issue.state.wanted(), wanted, "{phase:?}");
        assert_eq!(bench.issue.version, before.version + 1);
        let (old, new) = (before.state.record(), bench.issue.state.record());
        let (old, new) = (old.expect("a record"), new.expect("a record"));
        assert_eq!(new.reason, entry.reason);
        let (since, deadline) = match phase == Some(phase_after) {
            true => (old.phase_since, old.deadline),
            false => (now, None),
        };
        assert_eq!((new.phase_since, new.deadline), (since, deadline), "{phase:?}");
    }
}

#[test]
fn a_restore_keeps_why_a_create_was_given_up_and_lets_work_start_what_was_starting() {
    let mut bench = bench_in(Some(Phase::Creating));
    bench.answer(Err(CallError::Refused("no".into())));
    restored(&mut bench.issue, bench.now);
    let code = bench.issue.state.failure().map(|failure| failure.code);
    assert_eq!(code, Some(FailureCode::ProviderRefused));
    let mut bench = bench_in(Some(Phase::Starting));
    restored(&mut bench.issue, bench.now);
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Restart, .. }));
}
