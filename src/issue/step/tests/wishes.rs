//! Holds and quotas, commands in comments, and news from around the issue.

use super::Bench;
use super::nudges::{applied, labelled, nudge};
use super::tables::bench_in;
use crate::issue::commit::Reply;
use crate::issue::event::{
    Around, Bar, BarKind, Command, Done, Effect, IssueEvent, IssueName, NotAsked, Trouble,
};
use crate::issue::state::{IssueState, StoppedBy};
use crate::types::{
    Alias, Cause, DeliveryId, Generation, HomeId, IssueNumber, Phase, Repository, Timestamp,
};

fn bar() -> Option<Bar> {
    Some(Bar { kind: BarKind::Held, reason: "the server is held".into() })
}

fn reason(commit: &crate::issue::Commit) -> String {
    match &commit.reply {
        Reply::Delivered(result) => result.reason.clone(),
        other => panic!("a delivery is answered, got {other:?}"),
    }
}

#[test]
fn what_would_make_or_start_is_refused_to_callers_and_changes_nothing() {
    type Ask = fn(&mut Bench) -> crate::issue::Commit;
    let ensure: Ask = Bench::ensure;
    let start: Ask = |bench| bench.command(Command::Start);
    let retry: Ask = |bench| bench.command(Command::Retry);
    for (phase, ask, barred) in [
        (None, ensure, true),
        (Some(Phase::Stopped), ensure, true),
        (Some(Phase::Running), ensure, false),
        (Some(Phase::Creating), ensure, false),
        (Some(Phase::Failed), ensure, false),
        (Some(Phase::Stopping), ensure, false),
        (Some(Phase::Stopped), start, true),
        (Some(Phase::Running), start, false),
        (Some(Phase::Failed), retry, true),
    ] {
        let mut bench = bench_in(phase);
        bench.bar = bar();
        let commit = ask(&mut bench);
        assert_eq!(matches!(commit.reply, Reply::Barred(_)), barred, "{phase:?}: {commit:?}");
        if barred {
            assert!(!commit.changed && commit.call.is_none(), "{phase:?}");
        }
    }
}

#[test]
fn a_deliverys_wish_stays_and_is_granted() {
    for phase in [None, Some(Phase::Stopped)] {
        let mut bench = bench_in(phase);
        bench.bar = bar();
        let commit = bench.apply(labelled(60));
        assert!(applied(&commit) && reason(&commit).contains("the server is held"), "{commit:?}");
        assert_eq!(bench.issue.state.phase(), phase);
        let since = bench.issue.wish.as_ref().expect("a wish").since;
        bench.now = bench.now.after(std::time::Duration::from_secs(5));
        bench.apply(labelled(61));
        assert_eq!(bench.issue.wish.as_ref().map(|w| w.since), Some(since), "its place in the row");
        assert!(!bench.apply(IssueEvent::Granted).changed, "still held");
        bench.bar = None;
        bench.issue.delete_due = Some(bench.now);
        let commit = bench.apply(IssueEvent::Granted);
        assert!(commit.call.is_some(), "{phase:?}");
        assert_eq!(bench.issue.delete_due, None, "somebody wants it");
        assert_eq!(bench.issue.wish, None);
        assert!(!bench.apply(IssueEvent::Granted).changed, "once");
    }
}

#[test]
fn who_ends_it_withdraws_the_wish() {
    let wishing = || {
        let mut bench = bench_in(None);
        bench.bar = bar();
        bench.apply(labelled(60));
        assert!(bench.issue.wish.is_some());
        bench
    };
    for ending in [
        nudge("closed", Effect::Stop("the issue was closed"), 70, false, true),
        // The delivery that closed it was lost.
        nudge("edited", Effect::Update, 70, false, true),
        nudge("unlabeled", Effect::Stop("the label was taken off"), 70, true, false),
        nudge("deleted", Effect::Delete, 70, true, true),
        IssueEvent::Around {
            news: Around::Stop("the repository was archived".into()),
            delivery: DeliveryId::trusted("d"),
        },
    ] {
        let mut bench = wishing();
        bench.apply(ending.clone());
        assert_eq!(bench.issue.wish, None, "{ending:?}");
        bench.bar = None;
        assert!(!bench.apply(IssueEvent::Granted).changed);
    }
}

#[test]
fn what_was_queued_behind_a_stop_or_a_delete_becomes_a_wish_when_held_meanwhile() {
    let mut bench = bench_in(Some(Phase::Stopping));
    bench.ensure();
    bench.bar = bar();
    assert_eq!(bench.answer(Ok(Done::Down)).call, None);
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));
    assert!(bench.issue.wish.is_some());

    let mut bench = bench_in(Some(Phase::Deleting));
    bench.ensure();
    bench.bar = bar();
    assert_eq!(bench.answer(Err(Trouble::Absent)).call, None);
    assert_eq!(bench.issue.state, IssueState::Absent);
    bench.bar = None;
    bench.apply(IssueEvent::Granted);
    assert_eq!(bench.issue.generation, Generation(2));
}

fn commented(effect: Effect, comment: u64) -> IssueEvent {
    let mut event = nudge("created", effect, 60, true, false);
    if let IssueEvent::Nudge { nudge, .. } = &mut event {
        nudge.comment = Some(comment);
        nudge.delivery = DeliveryId::trusted(format!("{comment}-again"));
    }
    event
}

#[test]
fn a_comments_command_counts_once_whatever_brings_it_again() {
    let mut bench = bench_in(Some(Phase::Running));
    assert!(applied(&bench.apply(commented(Effect::Command(Command::Stop), 7))));
    bench.answer(Ok(Done::Down));
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));
    bench.command(Command::Start);
    bench.up();
    assert!(!applied(&bench.apply(commented(Effect::Command(Command::Stop), 7))), "once");
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    assert!(applied(&bench.apply(commented(Effect::Command(Command::Stop), 8))), "another one");
    for comment in 100..400 {
        bench.apply(commented(Effect::Command(Command::Start), comment));
    }
    assert_eq!(bench.issue.facts.counted_comments.len(), 64, "bounded");
}

#[test]
fn comments_command_by_the_table() {
    for (phase, command, is_applied, after) in [
        (None, Command::Stop, false, None),
        (Some(Phase::Running), Command::Stop, true, Some(Phase::Stopping)),
        (Some(Phase::Stopped), Command::Start, true, Some(Phase::Starting)),
        (Some(Phase::Failed), Command::Start, false, Some(Phase::Failed)),
        (Some(Phase::Failed), Command::Retry, true, Some(Phase::Creating)),
        (Some(Phase::Running), Command::Retry, false, Some(Phase::Running)),
        (Some(Phase::Running), Command::Delete, true, Some(Phase::Deleting)),
    ] {
        let mut bench = bench_in(phase);
        let commit = bench.apply(commented(Effect::Command(command), 1));
        assert_eq!(applied(&commit), is_applied, "{phase:?} {command:?}: {}", reason(&commit));
        assert_eq!(bench.issue.state.phase(), after, "{phase:?} {command:?}");
    }
    let mut bench = bench_in(Some(Phase::Running));
    let told = reason(&bench.apply(commented(Effect::Status, 1)));
    assert!(told.contains("running"), "{told}");
}

#[test]
fn a_renamed_repository_is_followed_and_older_names_do_not_come_back() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(nudge("edited", Effect::Update, 10, true, true));
    let number = bench.issue.facts.number.expect("known");
    let renamed = |name: &str, second: i64| IssueEvent::Around {
        news: Around::Renamed {
            repository: Repository::trusted(name),
            formerly: None,
            as_of: Timestamp::from_unix_ms(1_800_000_000_000 + second * 1000),
        },
        delivery: DeliveryId::trusted("d"),
    };
    let commit = bench.apply(renamed("octo/new", 20));
    let new: Repository = Repository::trusted("octo/new");
    assert_eq!(commit.taken_over, [Alias::Numbered(new.clone(), number)]);
    assert!(!applied(&bench.apply(renamed("octo/older", 15))));
    assert!(applied(&bench.apply(renamed("octo/new", 20))), "the same once more");
    bench.apply(nudge("edited", Effect::Update, 12, true, true));
    assert_eq!(bench.issue.facts.repository.as_ref(), Some(&new));
    assert_eq!(bench.issue.facts.number, Some(IssueNumber(number.0)));
}

#[test]
fn a_label_that_was_renamed_is_not_there_any_more_until_github_says_so() {
    let mut bench = bench_in(None);
    bench.apply(nudge("edited", Effect::Update, 5, true, true));
    let gone = IssueEvent::Around { news: Around::LabelGone, delivery: DeliveryId::trusted("d") };
    assert!(applied(&bench.apply(gone)));
    let reopened = nudge(
        "reopened",
        Effect::Trigger(crate::issue::event::TriggerKind::Reopened),
        5,
        true,
        true,
    );
    assert!(applied(&bench.apply(reopened)), "its list has the label again, and it is as new");
}

#[test]
fn a_merged_home_deletes_its_sandbox_gives_its_names_away_and_makes_nothing_more() {
    let mut bench = bench_in(Some(Phase::Running));
    let merged = IssueEvent::Merged { into: HomeId(9), cause: Cause::Service("test") };
    let commit = bench.apply(merged);
    assert_eq!(commit.names_go_to, Some(HomeId(9)));
    assert_eq!(commit.reply, Reply::Merged { wanted: true });
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
    bench.answer(Err(Trouble::NotAsked(NotAsked::NoTurn)));
    bench.due();
    bench.answer(Ok(Done::Seen(vec![])));
    assert_eq!(bench.issue.state, IssueState::Absent);
    assert_eq!(bench.issue.merged_into, Some(HomeId(9)));
    assert!(!bench.apply(IssueEvent::Granted).changed);
}

/// A delivery about the issue in a repository, told by its numeric id.
fn from_repository(event: IssueEvent, id: u64, formerly: Option<u64>) -> IssueEvent {
    let IssueEvent::Nudge { mut nudge, claims, takes, place_elsewhere } = event else {
        panic!("a nudge")
    };
    let name = |id: u64| IssueName {
        issue_id: nudge.news.issue_id.clone(),
        repository: Repository::trusted(format!("octo/r{id}")),
        repository_id: id,
        number: IssueNumber(id),
    };
    let (new, old) = (name(id), formerly.map(name));
    nudge.news.repository_id = id;
    nudge.news.repository = new.repository;
    nudge.news.number = new.number;
    nudge.formerly = old;
    IssueEvent::Nudge { nudge, claims, takes, place_elsewhere }
}

#[test]
fn what_comes_late_from_a_repository_that_was_left_moves_and_deletes_nothing() {
    let edited = |second| nudge("edited", Effect::Update, second, true, true);
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(from_repository(edited(1), 1, None));
    bench.apply(from_repository(edited(5), 2, Some(1)));
    let place = |bench: &Bench| bench.issue.facts.number.map(|number| number.0);
    assert_eq!(place(&bench), Some(2));
    bench.apply(from_repository(edited(5), 1, None));
    assert_eq!(place(&bench), Some(2), "as new as the transfer, and from where it was before");
    let deleted = nudge("deleted", Effect::Delete, 9, true, true);
    assert!(!applied(&bench.apply(from_repository(deleted.clone(), 1, None))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    // Back again: then the other one is left, and an old transfer that comes late changes nothing.
    bench.apply(from_repository(edited(20), 1, Some(2)));
    bench.apply(from_repository(edited(5), 2, Some(1)));
    assert_eq!((place(&bench), &bench.issue.facts.left_repositories), (Some(1), &vec![2]));
    assert!(applied(&bench.apply(from_repository(deleted, 1, None))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
}

#[test]
fn comments_that_would_begin_something_wait_or_are_told_why_not() {
    let mut bench = bench_in(Some(Phase::Stopped));
    bench.bar = bar();
    let commit = bench.apply(commented(Effect::Command(Command::Start), 1));
    assert!(applied(&commit) && commit.call.is_none() && bench.issue.wish.is_some());
    let mut bench = bench_in(Some(Phase::Failed));
    bench.bar = bar();
    let commit = bench.apply(commented(Effect::Command(Command::Retry), 1));
    assert!(!applied(&commit) && reason(&commit).contains("the server is held"));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
}
