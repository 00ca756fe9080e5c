//! Tests of admission: quotas, reservations, and holds.

use std::sync::Arc;

use futures_util::FutureExt;

use super::*;
use crate::issue::IssueEvent;
use crate::issue::{PendingStart, StepContext};
use crate::types::{AccountName, Alias, IssueNumber, Timestamp};

fn issue(home: i64, repository: &str) -> Issue {
    let id = IssueId::from_github(home.unsigned_abs());
    let mut issue = Issue::new(HomeId(home), AccountName::default_account(), id);
    issue.facts.repository = Some(Repository::trusted(repository));
    issue.facts.number = Some(IssueNumber(home.unsigned_abs()));
    issue
}

/// The same with a live sandbox.
fn running(mut issue: Issue) -> Issue {
    let rules = crate::engine::tests::rules();
    let ids = crate::clock::SystemIds;
    let context = StepContext {
        now: Timestamp::from_unix_ms(0),
        rules: &rules,
        fresh_id: crate::clock::IdSource::sandbox_id(&ids),
        fresh: crate::engine::environment::fresh_ids(&ids),
        jitter_permille: 0,
        unix_ns: 0,
        may_fast_create: false,
        denial: None,
    };
    let pending_start = PendingStart { since: context.now, why: "a test".into(), plan: None };
    issue.pending_start = Some(pending_start);
    crate::issue::step::step(&issue, IssueEvent::Granted, &context).issue
}

fn pending_start(home: i64, repository: &str) -> PendingStartRow {
    PendingStartRow {
        home: HomeId(home),
        account: AccountName::default_account(),
        repository: Some(repository.into()),
        since: Timestamp::from_unix_ms(home),
    }
}

fn hold(scope: HoldScope) -> Hold {
    let (reason, by) = ("repairs".to_owned(), "me".to_owned());
    Hold { scope, reason, since: Timestamp::from_unix_ms(0), by, followed_to: None }
}

/// Why the issue may not start, and the slot that it gets if it may.
fn admit(admission: &Arc<Admission>, issue: &Issue) -> Result<Option<QuotaReservation>, Denial> {
    admission.admit(issue, &IssueEvent::Granted.meta())
}

/// The same, with the commit that makes the slot its own.
fn denial(admission: &Arc<Admission>, issue: &Issue) -> Option<Denial> {
    match admit(admission, issue) {
        Ok(reservation) => {
            reservation.into_iter().for_each(QuotaReservation::keep);
            None
        }
        Err(denial) => Some(denial),
    }
}

fn kind(denial: Option<Denial>) -> Option<DenialKind> {
    denial.map(|denial| denial.kind)
}

#[test]
fn the_last_slot_is_given_once_and_comes_back() {
    for quotas in [
        Quotas { account: 2, ..Quotas::default() },
        Quotas { repository: 2, ..Quotas::default() },
        Quotas { server: 2, ..Quotas::default() },
    ] {
        let admission = Arc::new(Admission::new(quotas));
        assert_eq!(kind(denial(&admission, &issue(1, "o/r"))), None);
        let second = admit(&admission, &issue(2, "O/R")).expect("the last slot");
        assert_eq!(
            kind(denial(&admission, &issue(3, "o/r"))),
            Some(DenialKind::Quota),
            "{quotas:?}"
        );
        assert_eq!(kind(denial(&admission, &issue(1, "o/r"))), None, "it has a place already");
        // No sandbox came of the second one.
        drop(second);
        assert_eq!(kind(denial(&admission, &issue(3, "o/r"))), None, "{quotas:?}");
        admission.count(&running(issue(3, "o/r")));
        admission.count(&issue(3, "o/r"));
        assert_eq!(kind(denial(&admission, &issue(4, "o/r"))), Some(DenialKind::Quota), "not yet");
        admission.leave(HomeId(3));
        admission.leave(HomeId(3));
        assert_eq!(kind(denial(&admission, &issue(4, "o/r"))), None);
        assert_eq!(kind(denial(&admission, &issue(5, "o/r"))), Some(DenialKind::Quota));
    }
    let admission = Arc::new(Admission::new(Quotas { repository: 1, ..Quotas::default() }));
    assert_eq!(kind(denial(&admission, &issue(1, "o/r"))), None);
    admission.count(&running(issue(1, "o/moved")));
    assert_eq!(kind(denial(&admission, &issue(3, "o/r"))), None, "its repository was renamed");
    admission.leave(HomeId(3));
    admission.count(&running(issue(1, "o/r")));
    assert_eq!(kind(denial(&admission, &issue(2, "o/s"))), None, "another repository");
    // Until it is durable that it moved, it counts in both.
    admission.count_step(&running(issue(1, "o/t")));
    assert_eq!(kind(denial(&admission, &issue(5, "o/r"))), Some(DenialKind::Quota));
    assert_eq!(kind(denial(&admission, &issue(5, "o/t"))), Some(DenialKind::Quota));
    admission.count(&running(issue(1, "o/r")));
    assert_eq!(kind(denial(&admission, &issue(5, "o/t"))), None, "the step was refused");
    admission.leave(HomeId(5));
    // What comes late may name the repository where the issue was before.
    let before = (Repository::trusted("o/before"), IssueNumber(4));
    let late = IssueEvent::Ensure(crate::issue::event::EnsureAsk {
        sandbox: crate::issue::event::SandboxAsk::default(),
        title: None,
        numbered: Some(before),
        claims: Vec::new(),
        retry: false,
        cause: crate::types::Cause::Service("test"),
    });
    assert_eq!(
        kind(admission.admit(&issue(4, "o/r"), &late.meta()).err()),
        Some(DenialKind::Quota)
    );
}

#[test]
fn a_reservation_that_is_dropped_gives_its_slot_back() {
    let admission = Arc::new(Admission::new(Quotas { server: 1, ..Quotas::default() }));
    let unused = admit(&admission, &issue(1, "o/r")).expect("there is a slot");
    assert_eq!(kind(denial(&admission, &issue(2, "o/r"))), Some(DenialKind::Quota));
    drop(unused);
    let mut refused = admit(&admission, &issue(2, "o/r")).expect("it came back").expect("a slot");
    assert!(admission.wake.notified().now_or_never().is_none(), "no start waited for it");
    refused.handed_in();
    drop(refused);
    assert!(admission.wake.notified().now_or_never().is_some(), "a start may wait for it");
    let kept = admit(&admission, &issue(3, "o/r")).expect("it came back").expect("a slot");
    kept.keep();
    assert!(matches!(admit(&admission, &issue(3, "o/r")), Ok(None)), "it has its slot");
    assert_eq!(kind(denial(&admission, &issue(4, "o/r"))), Some(DenialKind::Quota));
}

#[test]
fn a_hold_covers_what_it_names_and_nothing_else() {
    let other = issue(9, "else/where");
    for (scope, covers_other) in [
        (HoldScope::Server, true),
        (HoldScope::Account(AccountName::default_account()), true),
        (HoldScope::Repository(Repository::trusted("Octo/Hello")), false),
        (HoldScope::Issue(AccountName::default_account(), IssueId::from_github(1)), false),
    ] {
        let admission = Arc::new(Admission::new(Quotas::default()));
        admission.put(hold(scope.clone()), None);
        let denied = denial(&admission, &issue(1, "octo/hello")).expect("held");
        assert_eq!(denied.kind, DenialKind::Held);
        assert!(
            denied.reason.contains("repairs") && denied.reason.contains("me"),
            "{}",
            denied.reason
        );
        assert_eq!(denial(&admission, &other).is_some(), covers_other, "{scope}");
        admission.release(&scope);
        assert_eq!(denial(&admission, &issue(1, "octo/hello")), None, "{scope}");
    }
    let admission = Arc::new(Admission::new(Quotas::default()));
    let by_new_id = HoldScope::Issue(AccountName::default_account(), IssueId::from_github(77));
    admission.put(hold(by_new_id.clone()), Some(HomeId(1)));
    assert!(denial(&admission, &issue(1, "o/r")).is_some(), "held by the id it was transferred to");
    admission.release(&by_new_id);
    assert!(denial(&admission, &issue(1, "o/r")).is_none());
}

#[test]
fn a_hold_follows_the_names_of_what_it_holds() {
    let admission = Arc::new(Admission::new(Quotas::default()));
    let [old, new, newer] = ["o/old", "o/new", "o/newer"].map(Repository::trusted);
    let of = |name: &Repository| HoldScope::Repository(name.clone());
    let follow = |from, to| -> Vec<Hold> {
        let followed = admission.followed(from, to);
        followed.iter().for_each(|hold| admission.put(hold.clone(), None));
        followed
    };
    let is_held = |name: &Repository| denial(&admission, &issue(1, name.as_str())).is_some();
    assert_eq!(follow(&old, &new), [], "it is not held");
    admission.put(hold(of(&old)), None);
    let [source, followed] = follow(&old, &new).try_into().expect("both are to be stored");
    assert_eq!((source.scope, source.followed_to), (of(&old), Some(new.clone())));
    assert_eq!((followed.scope, followed.followed_to), (of(&new), None));
    assert_eq!(followed.reason, "repairs (it was o/old)");
    assert_eq!(follow(&old, &new), [], "once");
    assert_eq!([&old, &new, &newer].map(is_held), [true, true, false]);

    // Another issue learns a later name from an older one.
    assert_eq!(follow(&old, &newer).len(), 2, "from the name it had been followed to");
    assert!(is_held(&newer));
    admission.release(&of(&newer));
    for from in [&old, &new] {
        assert_eq!(follow(from, &newer), [], "what was released stays released");
    }
    assert_eq!([&old, &new, &newer].map(is_held), [true, true, false]);
    admission.release(&of(&new));
    assert_eq!(follow(&old, &newer), [], "also what it would have been followed from");

    // A name that is held for its own sake is followed to as well, and then no more.
    admission.put(hold(of(&old)), None);
    admission.put(hold(of(&newer)), None);
    assert_eq!(follow(&old, &newer).len(), 1);
    admission.release(&of(&newer));
    assert_eq!(follow(&old, &newer), []);

    // Names that went round in a circle lead nowhere: rather held than not.
    admission.put(hold(of(&old)), None);
    assert_eq!((follow(&old, &new).len(), follow(&new, &old).len()), (2, 1));
    assert_eq!(follow(&old, &newer).len(), 1);
    assert!(is_held(&newer));
    assert!(!is_held(&Repository::trusted("o/other")));
}

#[test]
fn an_issue_is_held_by_every_id_that_it_turns_out_to_have() {
    let admission = Arc::new(Admission::new(Quotas::default()));
    let ids = [77, 88].map(IssueId::from_github);
    for id in &ids {
        admission.put(hold(HoldScope::Issue(AccountName::default_account(), id.clone())), None);
    }
    let claiming = IssueEvent::Delivery {
        issue_delivery: crate::engine::tests::serial::issue_delivery("d", 1),
        claims: vec![Alias::Issue(ids[0].clone())],
        takes: Vec::new(),
        place_elsewhere: false,
    };
    assert!(admission.admit(&issue(1, "o/r"), &claiming.meta()).is_err(), "as soon as it is said");
    assert_eq!(denial(&admission, &issue(1, "o/r")), None, "the claim was not stored");
    let account = AccountName::default_account();
    admission.named(&account, HomeId(1), &ids, None);
    admission.named(&account, HomeId(1), &[], Some(HomeId(2)));
    assert_eq!(admission.grantable(vec![pending_start(1, "o/r"), pending_start(2, "o/r")]), []);
    for id in ids {
        assert!(denial(&admission, &issue(1, "o/r")).is_some(), "by its new id");
        assert!(
            denial(&admission, &issue(2, "o/r")).is_some(),
            "and the home that it was merged into"
        );
        admission.release(&HoldScope::Issue(AccountName::default_account(), id));
    }
    assert_eq!(denial(&admission, &issue(1, "o/r")), None);
    assert_eq!(denial(&admission, &issue(2, "o/r")), None);
}

#[test]
fn only_starts_that_can_be_granted_are_granted() {
    let admission =
        Arc::new(Admission::new(Quotas { account: 3, repository: 1, ..Quotas::default() }));
    assert_eq!(denial(&admission, &issue(1, "o/full")), None);
    admission.put(hold(HoldScope::Repository(Repository::trusted("o/held"))), None);
    let pending_starts = vec![
        pending_start(2, "o/full"),
        pending_start(3, "o/held"),
        pending_start(4, "o/a"),
        pending_start(5, "o/a"),
        pending_start(6, "o/b"),
        pending_start(7, "o/c"),
        pending_start(1, "o/full"),
    ];
    let can = admission.grantable(pending_starts);
    assert_eq!(can, [HomeId(4), HomeId(6), HomeId(1)], "one has its place already");
}

#[test]
fn what_holds_a_home_that_gives_way_holds_the_one_that_learns_from_it() {
    let admission = Arc::new(Admission::new(Quotas::default()));
    let other = issue(2, "o/there");
    let learned = IssueEvent::Learned {
        from: other.home,
        facts: Box::new(other.facts.clone()),
        asked_for: None,
        cause: crate::types::Cause::Service("test"),
    };
    let is_held = || admission.admit(&issue(1, "o/here"), &learned.meta()).is_err();
    assert!(!is_held());
    for (scope, home) in [
        (HoldScope::Repository(Repository::trusted("o/there")), None),
        (
            HoldScope::Issue(AccountName::default_account(), other.facts.issue_id.clone()),
            Some(other.home),
        ),
    ] {
        admission.put(hold(scope.clone()), home);
        assert!(is_held(), "{scope}");
        admission.release(&scope);
        assert!(!is_held(), "{scope}");
    }
}
