//! Where acts take their place: equal times, our clock beside GitHub's, what a sandbox's life ends, and
//! rows that are older than acts.

use std::time::Duration;

use super::StepBench;
use super::issue_deliveries::{applied, issue_delivery, labelled};
use super::pending_starts::{commented, denial};
use crate::issue::acts::Acts;
use crate::issue::event::{CallError, Command, DeliveryEffect, Done, IssueEvent, TriggerKind};
use crate::issue::state::{IssueState, PendingStart, StoppedBy};
use crate::types::{Phase, Timestamp, Wanted};

const HOUR: Duration = Duration::from_secs(3600);

/// A command in a comment that was written at this second.
fn comment_at(command: Command, second: i64) -> IssueEvent {
    let mut event = commented(DeliveryEffect::Command(command), second.unsigned_abs() + 1000);
    if let IssueEvent::Delivery { issue_delivery, .. } = &mut event {
        issue_delivery.acted_at = at(second);
        issue_delivery.news.as_of = at(second);
    }
    event
}

fn unlabelled(second: i64) -> IssueEvent {
    issue_delivery("unlabeled", DeliveryEffect::Stop("unlabelled"), second, true, false)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000 + second * 1000)
}

/// An issue whose sandbox runs since its label was put on at second 0; it is an hour later here.
fn running() -> StepBench {
    let mut bench = StepBench::new(true);
    bench.apply(labelled(0));
    bench.up();
    bench.now = bench.now.after(HOUR);
    bench
}

fn is_asked_for(bench: &StepBench) -> bool {
    bench.issue.is_asked_for()
}

#[test]
fn a_callers_stop_is_later_than_all_that_is_known_however_slow_our_clock() {
    let mut bench = running();
    bench.now = at(-200);
    bench.apply(labelled(50));
    bench.command(Command::Stop);
    assert!(!is_asked_for(&bench), "it takes effect");
    assert!(!applied(&bench.apply(labelled(49))), "older than what was known then");
    assert!(applied(&bench.apply(labelled(51))), "what is newer starts it");
    bench.command(Command::Stop);
    bench.command(Command::Start);
    assert!(is_asked_for(&bench));
    assert!(!applied(&bench.apply(comment_at(Command::Stop, 30))), "older than the start");
    assert!(applied(&bench.apply(comment_at(Command::Stop, 60))));
    assert!(!is_asked_for(&bench));
}

#[test]
fn a_delivery_behind_a_callers_act_is_compared_with_our_clock() {
    let mut bench = running();
    bench.command(Command::Stop);
    assert!(!applied(&bench.apply(labelled(3599))), "put on before the stop, delivered late");
    assert!(applied(&bench.apply(labelled(3600))), "in the second of the stop");
    bench.now = bench.now.after(Duration::from_secs(1));
    bench.command(Command::Delete);
    assert!(!applied(&bench.apply(labelled(3600))), "known before the delete");
    bench.now = bench.now.after(HOUR);
    bench.ensure();
    assert!(is_asked_for(&bench));
    for late in
        [comment_at(Command::Stop, 7000), comment_at(Command::Delete, 7001), unlabelled(7002)]
    {
        assert!(!applied(&bench.apply(late.clone())), "{late:?}");
        assert!(is_asked_for(&bench), "{late:?}");
    }
}

#[test]
fn an_ensure_that_changes_nothing_writes_at_most_each_half_minute() {
    let mut bench = running();
    assert!(bench.ensure().changed);
    bench.now = bench.now.after(Duration::from_secs(29));
    assert!(!bench.ensure().changed);
    bench.now = bench.now.after(Duration::from_secs(2));
    assert!(bench.ensure().changed);
}

#[test]
fn what_a_wrong_clock_of_ours_dated_counts_as_of_now_once_the_clock_is_right() {
    let mut bench = running();
    bench.now = at(40_000_000);
    bench.ensure();
    bench.command(Command::Stop);
    bench.now = at(7200);
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 7190, true, true));
    assert_eq!(bench.issue.facts.acts.stopped, Some(at(7200)));
    assert!(bench.issue.facts.acts.asked < bench.issue.facts.acts.stopped, "in their order");
    assert!(!applied(&bench.apply(labelled(7100))));
    assert!(applied(&bench.apply(labelled(7201))), "it does not wait for the clock to come there");
    assert!(is_asked_for(&bench));
}

#[test]
fn facts_by_a_wrong_clock_give_way_too() {
    let mut bench = running();
    bench.apply(issue_delivery("closed", DeliveryEffect::Stop("closed"), 1_000_000, false, true));
    assert!(!is_asked_for(&bench));
    let reopened = DeliveryEffect::Trigger(TriggerKind::Reopened);
    assert!(applied(&bench.apply(issue_delivery("reopened", reopened, 3601, true, true))));
    assert!(is_asked_for(&bench));
}

#[test]
fn of_one_second_unlabelled_counts_last_and_a_list_less_than_the_act() {
    for turned in [false, true] {
        let mut bench = StepBench::new(true);
        let mut both = [labelled(5), unlabelled(5)];
        if turned {
            both.reverse();
        }
        both.into_iter().for_each(|event| drop(bench.apply(event)));
        assert!(!is_asked_for(&bench), "{turned}");
        assert_eq!(bench.issue.facts.labelled.as_ref().map(|known| known.value), Some(false));

        // Another label was put on just before; its list does not have ours yet.
        let mut bench = StepBench::new(true);
        let mut both =
            [labelled(5), issue_delivery("edited", DeliveryEffect::Update, 5, true, false)];
        if turned {
            both.reverse();
        }
        both.into_iter().for_each(|event| drop(bench.apply(event)));
        assert!(is_asked_for(&bench), "{turned}");
        assert_eq!(bench.issue.facts.labelled.as_ref().map(|known| known.value), Some(true));
    }
}

#[test]
fn commands_of_one_second_count_as_they_arrive() {
    let mut bench = running();
    bench.apply(comment_at(Command::Stop, 5));
    assert!(!is_asked_for(&bench));
    assert!(applied(&bench.apply(labelled(5))));
    assert!(is_asked_for(&bench));
    let mut stop = comment_at(Command::Stop, 5);
    if let IssueEvent::Delivery { issue_delivery, .. } = &mut stop {
        issue_delivery.comment = Some(2);
    }
    assert!(applied(&bench.apply(stop)));
    assert!(!is_asked_for(&bench));
    let mut again = comment_at(Command::Delete, 5);
    if let IssueEvent::Delivery { issue_delivery, .. } = &mut again {
        issue_delivery.comment = Some(1);
    }
    assert!(applied(&bench.apply(again)));
    assert_eq!(bench.issue.state.wanted(), Wanted::Deleted);
}

#[test]
fn a_stop_or_delete_that_waits_under_a_hold_withdraws_the_start() {
    for command in [Command::Stop, Command::Delete] {
        let mut bench = StepBench::new(true);
        bench.denial = denial();
        bench.apply(labelled(5));
        assert!(bench.issue.pending_start.is_some());
        assert!(applied(&bench.apply(comment_at(command, 6))));
        assert_eq!(bench.issue.pending_start, None, "{command:?}");
        assert!(!applied(&bench.apply(labelled(4))));
        assert_eq!(bench.issue.pending_start, None, "{command:?}");
        assert!(applied(&bench.apply(labelled(7))));
        assert!(bench.issue.pending_start.is_some());
    }
}

#[test]
fn a_sandbox_that_outlived_its_time_is_not_asked_for_by_what_was_known() {
    let mut bench = running();
    bench.rules.ttl = Some(HOUR);
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 9, true, true));
    bench.due();
    bench.answer(Err(CallError::Absent));
    assert_eq!(bench.issue.state, IssueState::Absent);
    assert!(!applied(&bench.apply(labelled(0))), "the same label by another webhook");
    assert!(!applied(&bench.apply(comment_at(Command::Start, 3700))), "there is none to start");
    assert_eq!(bench.issue.state, IssueState::Absent);
    assert!(applied(&bench.apply(labelled(3701))));
    assert!(is_asked_for(&bench));
}

#[test]
fn what_arrives_late_and_changes_nothing_leaves_an_idle_sandbox_stopped() {
    let mut bench = running();
    bench.rules.idle_stop = Some(HOUR);
    bench.apply(comment_at(Command::Start, 10));
    bench.now = bench.now.after(HOUR * 2);
    bench.due();
    bench.answer(Ok(Done::Down));
    for late in [labelled(5), comment_at(Command::Start, 6), comment_at(Command::Stop, 7)] {
        bench.apply(late);
        assert!(
            matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Idle, .. }),
            "{:?}",
            bench.issue.state
        );
    }
}

/// The transfer from a repository, as of a second.
fn transferred_from(repository_id: u64, second: i64) -> IssueEvent {
    let mut event = issue_delivery("transferred", DeliveryEffect::Update, second, true, true);
    let IssueEvent::Delivery { issue_delivery, .. } = &mut event else { return event };
    let news = &issue_delivery.news;
    issue_delivery.formerly = Some(crate::issue::IssueName {
        issue_id: news.issue_id.clone(),
        repository: news.repository.clone(),
        repository_id,
        number: news.number,
    });
    event
}

#[test]
fn a_transfer_counts_also_while_our_clock_is_far_behind() {
    let placed = |bench: &StepBench| bench.issue.facts.repository_id;
    let known_as_of = |bench: &StepBench| bench.issue.facts.placed_as_of;
    let moves = |second, is_as_of_receipt| {
        let mut bench = running();
        bench.apply(issue_delivery("edited", DeliveryEffect::Update, 9000, true, true));
        let mut event = transferred_from(7, second);
        if let IssueEvent::Delivery { issue_delivery, .. } = &mut event {
            issue_delivery.news.repository_id = 8;
            if is_as_of_receipt {
                issue_delivery.received_at = issue_delivery.news.as_of;
            }
        }
        bench.apply(event);
        bench
    };
    assert_eq!(placed(&moves(9001, false)), Some(8));
    assert_eq!(placed(&moves(8000, false)), Some(7), "it came back since");
    let behind = moves(8000, true);
    assert_eq!(placed(&behind), Some(8));
    assert_eq!(known_as_of(&behind), Some(at(9000)), "it never becomes older");
}

#[test]
fn an_issue_that_was_called_deleted_where_it_left_is_asked_for_as_before() {
    let mut bench = running();
    bench.apply(issue_delivery("deleted", DeliveryEffect::Delete, 9, true, true));
    assert_eq!(bench.issue.state.wanted(), Wanted::Deleted);
    let transferred = transferred_from(6, 8);
    bench.apply(transferred);
    assert_eq!(bench.issue.state.wanted(), Wanted::Running, "the next generation");
}

#[test]
fn an_issue_of_an_older_row_goes_on_as_it_was() {
    let ended = Some(at(100));
    for (phase, ended, wanted) in [
        (Some(Phase::Running), None, Wanted::Running),
        (Some(Phase::Running), ended, Wanted::Running),
        (Some(Phase::Stopped), ended, Wanted::Stopped),
        (Some(Phase::Deleting), ended, Wanted::Deleted),
        (Some(Phase::Deleting), None, Wanted::Deleted),
        (None, ended, Wanted::Deleted),
    ] {
        let mut bench = super::tables::bench_in(phase);
        bench.issue.facts.acts = Acts::of_older_row(&bench.issue, ended);
        let acts = &bench.issue.facts.acts;
        assert_eq!(acts.verdict().wanted, wanted, "{phase:?} {ended:?}");
        let refused = ended.is_some() && phase != Some(Phase::Running);
        assert_eq!(!applied(&bench.apply(labelled(99))), refused, "{phase:?} {ended:?}");
        assert!(applied(&bench.apply(labelled(101))), "{phase:?} {ended:?}");
        assert!(is_asked_for(&bench), "{phase:?} {ended:?}");
        assert!(applied(&bench.apply(comment_at(Command::Stop, 102))), "{phase:?} {ended:?}");
        assert!(!is_asked_for(&bench), "{phase:?} {ended:?}");
    }
    // One that was deleted long ago is not started, and one that waits still waits.
    let mut bench = super::tables::bench_in(Some(Phase::Deleting));
    bench.answer(Err(CallError::Absent));
    bench.issue.facts.acts = Acts::of_older_row(&bench.issue, None);
    assert!(!applied(&bench.apply(comment_at(Command::Start, 103))));
    let mut bench = StepBench::new(true);
    let (since, why) = (bench.now, "the label".to_owned());
    bench.issue.pending_start = Some(PendingStart { since, why, plan: None });
    bench.issue.facts.acts = Acts::of_older_row(&bench.issue, None);
    assert_eq!(bench.issue.facts.acts.verdict().wanted, Wanted::Running);
}
