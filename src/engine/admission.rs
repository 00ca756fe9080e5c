//! What may begin: holds that people put on, quotas of live sandboxes, and the room that a provider
//! has ([`capacity`]).
//!
//! A step that could make or start a sandbox is told beforehand what forbids it ([`Denial`]), and the
//! lifecycle decides. A place under the quotas is *reserved* when the step is told that nothing
//! forbids it, and given back after the step where no sandbox came of it; both under one lock, so
//! that two issues never get the last place. A home that has a live sandbox keeps its place until
//! the sandbox is gone, durably: a place that came free with a commit which is then refused would
//! be given to another while the sandbox is still there.
//!
//! What a delivery wished for meanwhile waits in its issue's state. Whenever a place comes free or
//! a hold is released, [`grant`](grant::run) tells those that can have their wish: turn by turn among the
//! repositories, the longest waiting of each first, so that one busy repository does not keep the
//! others waiting.

pub(super) mod capacity;
pub(super) mod grant;
mod held;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::issue::event::EventMeta;
use crate::issue::{Denial, DenialKind, Issue, IssueEvent};
use crate::sabotage::{Bug, on};
use crate::store::PendingStartRow;
use crate::types::{AccountName, Hold, HoldScope, HomeId, IssueId, Repository};

use held::HoldIndex;

/// How many live sandboxes there may be; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of one account.
    pub account: u64,
    /// Of one repository.
    pub repository: u64,
    /// On this server.
    pub server: u64,
}

impl Quotas {
    const fn is_unlimited(self) -> bool {
        self.account == 0 && self.repository == 0 && self.server == 0
    }
}

/// Holds, and who has a place under the quotas.
pub(super) struct Admission {
    quotas: Quotas,
    inner: Mutex<Inner>,
    /// Something came free or was released.
    wake: Notify,
}

#[derive(Default)]
struct Inner {
    held: HoldIndex,
    places: Places,
    /// The home whose step under way was given a place that it did not have before.
    reserved: Option<HomeId>,
}

/// Who has a place, and how many of each kind are taken.
#[derive(Clone, Default)]
struct Places {
    of_home: HashMap<HomeId, (AccountName, Option<String>)>,
    by_account: HashMap<AccountName, u64>,
    by_repository: HashMap<String, u64>,
}

impl Places {
    /// Which quota has no room for one more of this kind; `None` where there is room.
    fn full(
        &self,
        quotas: Quotas,
        account: &AccountName,
        repository: Option<&str>,
    ) -> Option<String> {
        let is_full = |taken: u64, allowed: u64| {
            let given = taken.saturating_sub(u64::from(on(Bug::LastPlaceTwice)));
            allowed > 0 && given >= allowed
        };
        let of_account = self.by_account.get(account).copied().unwrap_or(0);
        let of_repository =
            repository.and_then(|name| self.by_repository.get(name)).copied().unwrap_or(0);
        let of_server = u64::try_from(self.of_home.len()).unwrap_or(u64::MAX);
        if is_full(of_server, quotas.server) {
            let allowed = quotas.server;
            Some(format!(
                "this server has {of_server} live sandboxes, quota.live_server is {allowed}"
            ))
        } else if is_full(of_account, quotas.account) {
            let allowed = quotas.account;
            Some(format!("{account} has {of_account} live sandboxes, quota.live is {allowed}"))
        } else if is_full(of_repository, quotas.repository) {
            let allowed = quotas.repository;
            Some(format!(
                "{} has {of_repository} live sandboxes, quota.live_per_repository is {allowed}",
                repository.unwrap_or_default()
            ))
        } else {
            None
        }
    }

    fn take(&mut self, home: HomeId, account: &AccountName, repository: Option<String>) {
        *self.by_account.entry(account.clone()).or_default() += 1;
        if let Some(repository) = &repository {
            *self.by_repository.entry(repository.clone()).or_default() += 1;
        }
        self.of_home.insert(home, (account.clone(), repository));
    }

    /// Gives a home's place back; whether it had one.
    fn leave(&mut self, home: HomeId) -> bool {
        let Some((account, repository)) = self.of_home.remove(&home) else { return false };
        count_down(&mut self.by_account, &account);
        if let Some(repository) = repository {
            count_down(&mut self.by_repository, &repository);
        }
        true
    }
}

fn count_down<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Admission {
    /// With no holds, and nobody counted yet.
    pub fn new(quotas: Quotas) -> Self {
        Self { quotas, inner: Mutex::default(), wake: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counts and holds are right after each statement, whatever panicked.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What forbids to make or start a sandbox for this issue, of which an event may be the first
    /// to say what repository it is in. Where nothing does, it has a place under the quotas now;
    /// [`Self::confirm`] must follow.
    pub fn denial(&self, issue: &Issue, event: &EventMeta<'_>) -> Option<Denial> {
        // The event may know better where the issue is now; a hold on either place counts.
        let (told, known) = (event.repository, issue.facts.repository.as_ref());
        let repository = told.or(known);
        let mut inner = self.lock();
        let hold = |repository| inner.held.on(issue, event, repository);
        if let Some(hold) = hold(told).or_else(|| hold(known)) {
            return Some(denied(hold));
        }
        if self.quotas.is_unlimited() || inner.places.of_home.contains_key(&issue.home) {
            return None;
        }
        // It counts for the one that turns out to be newer: there must be room in both.
        let repository = repository.map(Repository::folded);
        let known = known.map(Repository::folded);
        let full = |name: Option<&str>| inner.places.full(self.quotas, &issue.account, name);
        match full(repository.as_deref()).or_else(|| full(known.as_deref())) {
            Some(reason) => Some(Denial { kind: DenialKind::Quota, reason }),
            None => {
                inner.places.take(issue.home, &issue.account, repository);
                inner.reserved = Some(issue.home);
                None
            }
        }
    }

    /// Keeps the home's place where it has a live sandbox after a step, and gives one back that was
    /// only reserved for it. Where its sandbox ended, [`Self::leave`] follows.
    pub fn confirm(&self, issue: &Issue) {
        if self.quotas.is_unlimited() {
            return;
        }
        let mut inner = self.lock();
        let was_reserved = inner.reserved.take() == Some(issue.home);
        if issue.state.phase().is_none() {
            // It was free before this step: nobody waits for it.
            if was_reserved {
                inner.places.leave(issue.home);
            }
        } else {
            let repository = issue.facts.repository.as_ref().map(Repository::folded);
            let place = inner.places.of_home.get(&issue.home);
            if place.is_none_or(|(_, counted)| *counted != repository) {
                inner.places.leave(issue.home);
                inner.places.take(issue.home, &issue.account, repository);
            }
        }
    }

    /// A home has no sandbox, durably, or turned out not to exist: its place is free.
    pub fn leave(&self, home: HomeId) {
        if !self.quotas.is_unlimited() && self.lock().places.leave(home) {
            self.wake.notify_one();
        }
    }

    /// How many live sandboxes there may be.
    pub const fn quotas(&self) -> Quotas {
        self.quotas
    }

    /// Every hold, the widest first, then by what is held.
    pub fn holds(&self) -> Vec<Hold> {
        self.lock().held.all()
    }

    /// A hold is durable; of an issue that is known, its home.
    pub fn put(&self, hold: Hold, home: Option<HomeId>) {
        self.lock().held.put(hold, home);
    }

    /// A hold was released.
    pub fn release(&self, scope: &HoldScope) {
        self.lock().held.release(scope);
        self.wake.notify_one();
    }

    /// A home has these ids now; and where it turned out to be the same issue as another one, that
    /// one has all that it had.
    pub fn named(&self, home: HomeId, ids: &[IssueId], goes_to: Option<HomeId>) {
        self.lock().held.named(home, ids, goes_to);
    }

    /// A repository has another name. Returns the holds that are to be stored and put in force so
    /// that it stays held.
    pub fn followed(&self, from: &Repository, to: &Repository) -> Vec<Hold> {
        self.lock().held.followed(from, to)
    }

    /// Which of these holds are in force, just so.
    pub fn in_force(&self, mut holds: Vec<Hold>) -> Vec<Hold> {
        let inner = self.lock();
        holds.retain(|hold| inner.held.has(hold));
        holds
    }

    /// Returns once something came free or was released.
    async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Which of these wishes can be granted now, in their order.
    fn grantable(&self, pending_starts: Vec<PendingStartRow>) -> Vec<HomeId> {
        let inner = self.lock();
        let mut places = inner.places.clone();
        let mut can = Vec::new();
        for PendingStartRow { home, account, repository, .. } in pending_starts {
            let has_place = places.of_home.contains_key(&home);
            if inner.held.covers(home, &account, repository.as_deref())
                || !has_place && places.full(self.quotas, &account, repository.as_deref()).is_some()
            {
                continue;
            }
            if !has_place {
                places.take(home, &account, repository);
            }
            can.push(home);
        }
        can
    }
}

fn denied(hold: &Hold) -> Denial {
    let why = if hold.reason.is_empty() { String::new() } else { format!(": {}", hold.reason) };
    let reason = format!("{} is held by {} since {}{why}", hold.scope, hold.by, hold.since);
    Denial { kind: DenialKind::Held, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::{PendingStart, StepContext};
    use crate::types::{Alias, IssueNumber, Timestamp};

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
            jitter_permille: 0,
            unix_ns: 0,
            may_fast_create: false,
            denial: None,
        };
        let pending_start =
            PendingStart { since: context.now, why: "a test".into(), template: None };
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

    fn denial(admission: &Admission, issue: &Issue) -> Option<Denial> {
        admission.denial(issue, &IssueEvent::Granted.meta())
    }

    fn kind(denial: Option<Denial>) -> Option<DenialKind> {
        denial.map(|denial| denial.kind)
    }

    #[test]
    fn the_last_place_is_given_once_and_comes_back() {
        for quotas in [
            Quotas { account: 2, ..Quotas::default() },
            Quotas { repository: 2, ..Quotas::default() },
            Quotas { server: 2, ..Quotas::default() },
        ] {
            let admission = Admission::new(quotas);
            assert_eq!(kind(denial(&admission, &issue(1, "o/r"))), None);
            assert_eq!(kind(denial(&admission, &issue(2, "O/R"))), None);
            assert_eq!(
                kind(denial(&admission, &issue(3, "o/r"))),
                Some(DenialKind::Quota),
                "{quotas:?}"
            );
            assert_eq!(kind(denial(&admission, &issue(1, "o/r"))), None, "it has a place already");
            // No sandbox came of the second one.
            admission.confirm(&issue(2, "o/r"));
            assert_eq!(kind(denial(&admission, &issue(3, "o/r"))), None, "{quotas:?}");
            admission.confirm(&running(issue(3, "o/r")));
            admission.confirm(&issue(3, "o/r"));
            assert_eq!(
                kind(denial(&admission, &issue(4, "o/r"))),
                Some(DenialKind::Quota),
                "not yet"
            );
            admission.leave(HomeId(3));
            admission.leave(HomeId(3));
            assert_eq!(kind(denial(&admission, &issue(4, "o/r"))), None);
            assert_eq!(kind(denial(&admission, &issue(5, "o/r"))), Some(DenialKind::Quota));
        }
        let admission = Admission::new(Quotas { repository: 1, ..Quotas::default() });
        assert_eq!(kind(denial(&admission, &issue(1, "o/r"))), None);
        admission.confirm(&running(issue(1, "o/moved")));
        assert_eq!(kind(denial(&admission, &issue(3, "o/r"))), None, "its repository was renamed");
        admission.confirm(&issue(3, "o/r"));
        admission.confirm(&running(issue(1, "o/r")));
        assert_eq!(kind(denial(&admission, &issue(2, "o/s"))), None, "another repository");
        // What comes late may tell of where the issue was before.
        let before = (Repository::trusted("o/before"), IssueNumber(4));
        let late = IssueEvent::Ensure(crate::issue::event::EnsureAsk {
            template: None,
            mode: None,
            title: None,
            numbered: Some(before),
            claims: Vec::new(),
            cause: crate::types::Cause::Service("test"),
        });
        assert_eq!(kind(admission.denial(&issue(4, "o/r"), &late.meta())), Some(DenialKind::Quota));
    }

    #[test]
    fn a_hold_covers_what_it_names_and_nothing_else() {
        let other = issue(9, "else/where");
        for (scope, covers_other) in [
            (HoldScope::Server, true),
            (HoldScope::Account(AccountName::default_account()), true),
            (HoldScope::Repository(Repository::trusted("Octo/Hello")), false),
            (HoldScope::Issue(IssueId::from_github(1)), false),
        ] {
            let admission = Admission::new(Quotas::default());
            admission.put(hold(scope.clone()), None);
            let told = denial(&admission, &issue(1, "octo/hello")).expect("held");
            assert_eq!(told.kind, DenialKind::Held);
            assert!(
                told.reason.contains("repairs") && told.reason.contains("me"),
                "{}",
                told.reason
            );
            assert_eq!(denial(&admission, &other).is_some(), covers_other, "{scope}");
            admission.release(&scope);
            assert_eq!(denial(&admission, &issue(1, "octo/hello")), None, "{scope}");
        }
        let admission = Admission::new(Quotas::default());
        let by_new_id = HoldScope::Issue(IssueId::from_github(77));
        admission.put(hold(by_new_id.clone()), Some(HomeId(1)));
        assert!(
            denial(&admission, &issue(1, "o/r")).is_some(),
            "held by the id it was transferred to"
        );
        admission.release(&by_new_id);
        assert!(denial(&admission, &issue(1, "o/r")).is_none());
    }

    #[test]
    fn a_hold_follows_the_names_of_what_it_holds() {
        let admission = Admission::new(Quotas::default());
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
        assert_eq!(follow(&old, &newer).len(), 2, "from where it had been followed to");
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
        let admission = Admission::new(Quotas::default());
        let ids = [77, 88].map(IssueId::from_github);
        for id in &ids {
            admission.put(hold(HoldScope::Issue(id.clone())), None);
        }
        let claiming = IssueEvent::Delivery {
            issue_delivery: crate::engine::tests::serial::issue_delivery("d", 1),
            claims: vec![Alias::Issue(ids[0].clone())],
            takes: Vec::new(),
            place_elsewhere: false,
        };
        assert!(
            admission.denial(&issue(1, "o/r"), &claiming.meta()).is_some(),
            "as soon as it is said"
        );
        assert_eq!(denial(&admission, &issue(1, "o/r")), None, "it came to nothing");
        admission.named(HomeId(1), &ids, None);
        admission.named(HomeId(1), &[], Some(HomeId(2)));
        assert_eq!(admission.grantable(vec![pending_start(1, "o/r"), pending_start(2, "o/r")]), []);
        for id in ids {
            assert!(denial(&admission, &issue(1, "o/r")).is_some(), "by its new id");
            assert!(
                denial(&admission, &issue(2, "o/r")).is_some(),
                "and whoever it is the same as"
            );
            admission.release(&HoldScope::Issue(id));
        }
        assert_eq!(denial(&admission, &issue(1, "o/r")), None);
        assert_eq!(denial(&admission, &issue(2, "o/r")), None);
    }

    #[test]
    fn who_can_have_a_wish_is_told_and_nobody_more() {
        let admission = Admission::new(Quotas { account: 3, repository: 1, ..Quotas::default() });
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
}
