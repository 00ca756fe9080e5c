//! Holds and quotas, commands in comments, and news from around the issue.

use super::StepBench;
use super::issue_deliveries::{applied, issue_delivery, labelled};
use super::tables::bench_in;
use crate::issue::commit::Reply;
use crate::issue::event::{
    CallError, Command, DeliveryEffect, Denial, DenialKind, Done, EnsureAsk, IssueEvent, IssueName,
    NotAsked, SandboxAsk, ScopeEvent,
};
use crate::issue::state::{IssueState, StoppedBy};
use crate::types::{
    Alias, Cause, DeliveryId, Generation, HomeId, IssueNumber, Phase, Repository, Timestamp,
};

pub(super) fn denial() -> Option<Denial> {
    Some(Denial { kind: DenialKind::Held, reason: "the server is held".into() })
}

fn reason(commit: &crate::issue::Commit) -> String {
    match &commit.reply {
        Reply::Delivered(result) => result.reason.clone(),
        other => panic!("a delivery is answered, got {other:?}"),
    }
}

#[test]
fn what_would_make_or_start_is_refused_to_callers_and_changes_nothing() {
    type Ask = fn(&mut StepBench) -> crate::issue::Commit;
    let ensure: Ask = StepBench::ensure;
    let start: Ask = |bench| bench.command(Command::Start);
    let retry: Ask = |bench| bench.command(Command::Retry);
    for (phase, ask, denied) in [
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
        bench.denial = denial();
        let commit = ask(&mut bench);
        assert_eq!(matches!(commit.reply, Reply::Denied(_)), denied, "{phase:?}: {commit:?}");
        if denied {
            assert!(!commit.changed && commit.call.is_none(), "{phase:?}");
        }
    }
}

#[test]
fn a_deliverys_pending_start_stays_and_is_granted() {
    for phase in [None, Some(Phase::Stopped)] {
        let mut bench = bench_in(phase);
        bench.denial = denial();
        let commit = bench.apply(labelled(60));
        assert!(applied(&commit) && reason(&commit).contains("the server is held"), "{commit:?}");
        assert_eq!(bench.issue.state.phase(), phase);
        let since = bench.issue.pending_start.as_ref().expect("a pending start").since;
        bench.now = bench.now.after(std::time::Duration::from_secs(5));
        bench.apply(labelled(61));
        assert_eq!(
            bench.issue.pending_start.as_ref().map(|w| w.since),
            Some(since),
            "its place in the row"
        );
        assert!(!bench.apply(IssueEvent::Granted).changed, "still held");
        bench.denial = None;
        bench.issue.delete_due = Some(bench.now);
        let commit = bench.apply(IssueEvent::Granted);
        assert!(commit.call.is_some(), "{phase:?}");
        assert_eq!(bench.issue.delete_due, None, "a caller wants it");
        assert_eq!(bench.issue.pending_start, None);
        assert!(!bench.apply(IssueEvent::Granted).changed, "once");
    }
}

#[test]
fn who_ends_it_withdraws_the_pending_start() {
    let pending = || {
        let mut bench = bench_in(None);
        bench.denial = denial();
        bench.apply(labelled(60));
        assert!(bench.issue.pending_start.is_some());
        bench
    };
    for ending in [
        issue_delivery("closed", DeliveryEffect::Stop("the issue was closed"), 70, false, true),
        // The delivery that closed it was lost.
        issue_delivery("edited", DeliveryEffect::Update, 70, false, true),
        issue_delivery(
            "unlabeled",
            DeliveryEffect::Stop("the label was taken off"),
            70,
            true,
            false,
        ),
        issue_delivery("deleted", DeliveryEffect::Delete, 70, true, true),
        IssueEvent::ScopeEvent {
            news: ScopeEvent::Stop("the repository was archived".into()),
            delivery: DeliveryId::trusted("d"),
        },
    ] {
        let mut bench = pending();
        bench.apply(ending.clone());
        assert_eq!(bench.issue.pending_start, None, "{ending:?}");
        bench.denial = None;
        assert!(!bench.apply(IssueEvent::Granted).changed);
    }
}

#[test]
fn what_was_queued_behind_a_stop_or_a_delete_becomes_a_pending_start_when_held_meanwhile() {
    let mut bench = bench_in(Some(Phase::Stopping));
    bench.ensure();
    bench.denial = denial();
    assert_eq!(bench.answer(Ok(Done::Down)).call, None);
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));
    assert!(bench.issue.pending_start.is_some());

    let mut bench = bench_in(Some(Phase::Deleting));
    bench.ensure();
    bench.denial = denial();
    assert_eq!(bench.answer(Err(CallError::Absent)).call, None);
    assert_eq!(bench.issue.state, IssueState::Absent);
    bench.denial = None;
    bench.apply(IssueEvent::Granted);
    assert_eq!(bench.issue.generation, Generation(2));
}

pub(super) fn commented(effect: DeliveryEffect, comment: u64) -> IssueEvent {
    let mut event = issue_delivery("created", effect, 60, true, false);
    if let IssueEvent::Delivery { issue_delivery, .. } = &mut event {
        issue_delivery.comment = Some(comment);
        issue_delivery.delivery = DeliveryId::trusted(format!("{comment}-again"));
    }
    event
}

#[test]
fn a_comments_command_counts_once_whatever_brings_it_again() {
    let mut bench = bench_in(Some(Phase::Running));
    assert!(applied(&bench.apply(commented(DeliveryEffect::Command(Command::Stop), 7))));
    bench.answer(Ok(Done::Down));
    assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));
    bench.command(Command::Start);
    bench.up();
    assert!(!applied(&bench.apply(commented(DeliveryEffect::Command(Command::Stop), 7))), "once");
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    assert!(
        applied(&bench.apply(commented(DeliveryEffect::Command(Command::Stop), 8))),
        "another one"
    );
    for comment in 100..400 {
        bench.apply(commented(DeliveryEffect::Command(Command::Start), comment));
    }
    assert_eq!(bench.issue.facts.counted_comments.len(), 64, "bounded");
}

#[test]
fn comments_command_by_the_table() {
    for (phase, command, is_applied, after) in [
        (None, Command::Stop, true, None),
        (None, Command::Start, false, None),
        (None, Command::Retry, false, None),
        (Some(Phase::Running), Command::Stop, true, Some(Phase::Stopping)),
        (Some(Phase::Stopped), Command::Start, true, Some(Phase::Starting)),
        (Some(Phase::Failed), Command::Start, true, Some(Phase::Creating)),
        (Some(Phase::Failed), Command::Retry, true, Some(Phase::Creating)),
        (Some(Phase::Running), Command::Retry, false, Some(Phase::Running)),
        (Some(Phase::Running), Command::Delete, true, Some(Phase::Deleting)),
    ] {
        let mut bench = bench_in(phase);
        let commit = bench.apply(commented(DeliveryEffect::Command(command), 1));
        assert_eq!(applied(&commit), is_applied, "{phase:?} {command:?}: {}", reason(&commit));
        assert_eq!(bench.issue.state.phase(), after, "{phase:?} {command:?}");
    }
    let mut bench = bench_in(Some(Phase::Running));
    let answer = reason(&bench.apply(commented(DeliveryEffect::Status, 1)));
    assert!(answer.contains("running"), "{answer}");
}

#[test]
fn a_renamed_repository_is_followed_and_older_names_do_not_come_back() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 10, true, true));
    let number = bench.issue.facts.number.expect("known");
    let renamed = |name: &str, second: i64| IssueEvent::ScopeEvent {
        news: ScopeEvent::Renamed {
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
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 12, true, true));
    assert_eq!(bench.issue.facts.repository.as_ref(), Some(&new));
    assert_eq!(bench.issue.facts.number, Some(IssueNumber(number.0)));
}

#[test]
fn a_rename_hides_no_older_transfer_to_another_repository() {
    let delivery = |second| issue_delivery("edited", DeliveryEffect::Update, second, true, true);
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(from_repository(delivery(10), 5, None));
    // Its old repository got another name after the issue had left it.
    bench.apply(IssueEvent::ScopeEvent {
        news: ScopeEvent::Renamed {
            repository: Repository::trusted("octo/new"),
            formerly: None,
            as_of: Timestamp::from_unix_ms(1_800_000_020_000),
        },
        delivery: DeliveryId::trusted("d"),
    });
    bench.apply(from_repository(delivery(15), 6, Some(5)));
    let facts = &bench.issue.facts;
    assert_eq!(facts.repository_id, Some(6));
    assert_ne!(facts.repository, Some(Repository::trusted("octo/new")));
    assert_eq!(facts.named_as_of(), Some(Timestamp::from_unix_ms(1_800_000_015_000)));
}

#[test]
fn a_label_that_was_renamed_is_not_there_any_more_until_github_says_so() {
    let mut bench = bench_in(None);
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 5, true, true));
    let gone =
        IssueEvent::ScopeEvent { news: ScopeEvent::LabelGone, delivery: DeliveryId::trusted("d") };
    assert!(applied(&bench.apply(gone)));
    let reopened = issue_delivery(
        "reopened",
        DeliveryEffect::Trigger(crate::issue::event::TriggerKind::Reopened),
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
    bench.answer(Err(CallError::NotAsked(NotAsked::NoTurn)));
    bench.due();
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(bench.issue.state, IssueState::Absent);
    assert_eq!(bench.issue.merged_into, Some(HomeId(9)));
    assert!(!bench.apply(IssueEvent::Granted).changed);
    // Nor from a request that was sent before the issue's new place was known.
    bench.denial = denial();
    bench.apply(labelled(60));
    assert!(bench.issue.pending_start.is_some());
    bench.denial = None;
    assert_eq!(bench.apply(IssueEvent::Granted).call, None);
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn a_home_that_gives_way_says_whether_it_was_asked_for() {
    let merged = || IssueEvent::Merged { into: HomeId(9), cause: Cause::Service("test") };
    for (phase, pending_starts, wanted) in [
        (None, false, false),
        (None, true, true),
        (Some(Phase::Running), false, true),
        (Some(Phase::Stopped), false, false),
        (Some(Phase::Stopped), true, true),
    ] {
        let mut bench = bench_in(phase);
        if pending_starts {
            bench.denial = denial();
            bench.apply(labelled(60));
        }
        assert_eq!(
            bench.apply(merged()).reply,
            Reply::Merged { wanted },
            "{phase:?} {pending_starts}"
        );
    }
}

#[test]
fn a_persons_stop_outlives_githubs_whichever_came_first_and_whatever_was_wished_since() {
    let person = |bench: &mut StepBench| bench.command(Command::Stop);
    let issue = |bench: &mut StepBench| {
        bench.apply(issue_delivery(
            "closed",
            DeliveryEffect::Stop("the issue was closed"),
            70,
            false,
            true,
        ))
    };
    type Stop<'a> = &'a dyn Fn(&mut StepBench) -> crate::issue::Commit;
    let orders: [(Stop<'_>, Stop<'_>); 2] = [(&person, &issue), (&issue, &person)];
    for (first, second) in orders {
        let mut bench = bench_in(Some(Phase::Running));
        first(&mut bench);
        bench.answer(Ok(Done::Down));
        second(&mut bench);
        assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));

        // What it is started again for is forbidden by the time it is down.
        let mut bench = bench_in(Some(Phase::Running));
        for stop in [first, second] {
            stop(&mut bench);
            bench.ensure();
        }
        bench.denial = denial();
        bench.answer(Ok(Done::Down));
        assert!(matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }));
    }
}

/// *Ensure* by a caller who says these things of the issue.
fn ensured_at(
    bench: &mut StepBench,
    title: &str,
    repository: &str,
    number: u64,
    template: Option<&str>,
) -> Reply {
    let ask = EnsureAsk {
        sandbox: SandboxAsk { template: template.map(super::template), ..SandboxAsk::default() },
        title: Some(title.to_owned()),
        numbered: Some((Repository::trusted(repository), IssueNumber(number))),
        claims: vec![],
        retry: false,
        cause: Cause::Service("test"),
    };
    bench.apply(IssueEvent::Ensure(ask)).reply
}

#[test]
fn what_a_caller_says_of_the_issue_fills_gaps_and_contradicts_nothing() {
    let mut bench = bench_in(None);
    ensured_at(&mut bench, "first", "octo/hello", 1, None);
    let facts = bench.issue.facts.clone();
    assert_eq!(facts.title.as_ref().map(|known| known.value.as_str()), Some("first"));
    assert_eq!(facts.repository, Some(Repository::trusted("octo/hello")));
    assert_eq!(facts.number, Some(IssueNumber(1)));
    // The same place, however its letters are written; what is known stays as it is.
    let again = ensured_at(&mut bench, "second", "Octo/Hello", 1, None);
    assert!(matches!(again, Reply::Ensured { .. }), "{again:?}");
    assert_eq!(bench.issue.facts, facts);
    let before = bench.issue.clone();
    assert_eq!(ensured_at(&mut bench, "third", "octo/hello", 2, None), Reply::OtherPlace);
    assert_eq!(ensured_at(&mut bench, "third", "octo/other", 1, None), Reply::OtherPlace);
    assert_eq!(bench.issue, before);
    // GitHub's word is newer than a caller's.
    bench.apply(issue_delivery("edited", DeliveryEffect::Update, 5, true, true));
    let title = bench.issue.facts.title.as_ref().map(|known| known.value.as_str());
    assert_eq!(title, Some("as of 5"));
}

#[test]
fn only_a_template_other_than_what_is_there_is_a_mismatch() {
    for (phase, asked, differs) in [
        (Some(Phase::Running), "default", false),
        (Some(Phase::Running), "big", true),
        // What is made next is made from what was asked for.
        (Some(Phase::Deleting), "big", false),
        (None, "big", false),
    ] {
        let mut bench = bench_in(phase);
        let reply = ensured_at(&mut bench, "title", "octo/hello", 1, Some(asked));
        let Reply::Ensured { mismatch, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(mismatch == ["template"], differs, "{phase:?} {asked}");
        assert_eq!(mismatch.is_empty(), !differs, "{phase:?} {asked}");
    }
}

/// A delivery about the issue in a repository, with its numeric id.
pub(super) fn from_repository(event: IssueEvent, id: u64, formerly: Option<u64>) -> IssueEvent {
    let IssueEvent::Delivery { mut issue_delivery, claims, takes, place_elsewhere } = event else {
        panic!("a nudge")
    };
    let name = |id: u64| IssueName {
        issue_id: issue_delivery.news.issue_id.clone(),
        repository: Repository::trusted(format!("octo/r{id}")),
        repository_id: id,
        number: IssueNumber(id),
    };
    let (new, old) = (name(id), formerly.map(name));
    issue_delivery.news.repository_id = id;
    issue_delivery.news.repository = new.repository;
    issue_delivery.news.number = new.number;
    issue_delivery.formerly = old;
    IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere }
}

#[test]
fn what_comes_late_from_a_repository_that_was_left_moves_and_deletes_nothing() {
    let edited = |second| issue_delivery("edited", DeliveryEffect::Update, second, true, true);
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(from_repository(edited(1), 1, None));
    bench.apply(from_repository(edited(5), 2, Some(1)));
    let place = |bench: &StepBench| bench.issue.facts.number.map(|number| number.0);
    assert_eq!(place(&bench), Some(2));
    bench.apply(from_repository(edited(5), 1, None));
    assert_eq!(place(&bench), Some(2), "as new as the transfer, and from where it was before");
    let deleted = issue_delivery("deleted", DeliveryEffect::Delete, 9, true, true);
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
fn each_repository_that_was_left_is_known_once_also_where_the_place_is_as_new() {
    let edited = |second| issue_delivery("edited", DeliveryEffect::Update, second, true, true);
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(from_repository(edited(5), 1, None));
    for (second, to, from, left) in [
        (5, 2, 1, [1].as_slice()),
        // The other side sends the same transfer.
        (5, 2, 1, &[1]),
        (9, 3, 2, &[1, 2]),
    ] {
        bench.apply(from_repository(edited(second), to, Some(from)));
        assert_eq!(bench.issue.facts.left_repositories, left, "to {to}");
    }
}

#[test]
fn comments_that_would_begin_something_wait_or_say_why_not() {
    let mut bench = bench_in(Some(Phase::Stopped));
    bench.denial = denial();
    let commit = bench.apply(commented(DeliveryEffect::Command(Command::Start), 1));
    assert!(applied(&commit) && commit.call.is_none() && bench.issue.pending_start.is_some());
    let mut bench = bench_in(Some(Phase::Failed));
    bench.denial = denial();
    let commit = bench.apply(commented(DeliveryEffect::Command(Command::Retry), 1));
    assert!(!applied(&commit) && reason(&commit).contains("the server is held"));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
}

#[test]
fn a_changed_desired_state_without_a_step_is_recorded_and_an_unchanged_one_is_not() {
    type Ask = fn(&mut StepBench) -> crate::issue::Commit;
    let ensure: Ask = StepBench::ensure;
    let stop: Ask = |bench| bench.command(Command::Stop);
    for (phase, ask, entry) in [
        (Phase::Creating, ensure, None),
        (Phase::Creating, stop, Some("desired state: stopped (a caller asked for it)")),
        (Phase::Stopping, stop, None),
        (Phase::Stopping, ensure, Some("desired state: running (a caller asked for it)")),
        (Phase::Running, ensure, None),
        (Phase::Deleting, ensure, Some("desired state: running (a caller asked for it)")),
    ] {
        let mut bench = bench_in(Some(phase));
        let timeline = ask(&mut bench).timeline;
        let rows: Vec<_> = timeline.iter().map(|entry| entry.reason.as_str()).collect();
        assert_eq!(rows, entry.into_iter().collect::<Vec<_>>(), "{phase}");
    }
}
