//! People who put holds on and release them, and quotas: what may begin, and what waits.

use std::sync::Arc;

use super::driver::{SimServer, account};
use super::store::SimStore;
use super::world::{World, WorldState};
use crate::issue::Issue;
use crate::issue::state::IssueState;
use crate::store::Store;
use crate::types::{AccountName, HoldScope, HomeId, Phase, Repository, Timestamp, Wanted};

impl SimServer {
    /// A person puts a hold on. From when that is answered nothing that it covers may begin.
    pub fn hold(&self) {
        let (life, engine) = (Arc::clone(&self.life), self.engine.clone());
        let scope = self.with(WorldState::any_scope);
        self.life.spawn(async move {
            let hold = engine.hold(scope.clone(), "repairs".into(), "a person".into());
            if hold.await.is_ok() && life.step() {
                life.world().with(|inner| {
                    inner.note(None, || format!("held: {scope}"));
                    // It may have been released meanwhile.
                    let stays = inner.rows.holds.iter().any(|hold| hold.scope == scope);
                    if stays && !inner.weather.calm {
                        let since = inner.latest();
                        inner.ledger.held.insert(scope.folded(), (scope, since));
                    }
                });
            }
        });
    }

    /// A person releases a hold, which may be there.
    pub fn release(&self) {
        let (life, engine) = (Arc::clone(&self.life), self.engine.clone());
        let scope = self.with(WorldState::any_scope);
        self.life.spawn(async move {
            let released = engine.release(&scope).await.is_ok();
            if life.step() {
                life.world().with(|inner| {
                    inner.note(None, || format!("released: {scope} {released}"));
                });
            }
        });
    }

    /// All is released: what waits has its turn.
    pub async fn release_all(&self) {
        self.with(|inner| inner.ledger.held.clear());
        for hold in self.engine.holds() {
            if let Err(error) = self.engine.release(&hold.scope).await {
                let what = format!("{} cannot be released: {error}", hold.scope);
                self.with(|inner| inner.violate(None, what));
            }
        }
    }
}

impl WorldState {
    fn any_scope(&mut self) -> HoldScope {
        match self.chance.below(5) {
            0 | 1 => HoldScope::Server,
            2 => HoldScope::Account(self.any_account()),
            3 => {
                let at = usize::from(self.weather.transfers && self.chance.permille(500));
                HoldScope::Repository(self.github.repositories[at].name())
            }
            _ => {
                let number = self.chance.between(1, self.weather.issues);
                HoldScope::Issue(account(), self.github.id_of(number))
            }
        }
    }

    /// What is held does not begin, and a pending start ends with its sandbox, or with whatever
    /// withdrew it.
    pub fn check_admission(&mut self, before: Option<&Issue>, after: &Issue, is_reported: bool) {
        let was = before.and_then(|issue| issue.state.record()).map(|record| &record.id);
        let Some(record) = after.state.record() else {
            return self.check_pending_start(before, after, is_reported);
        };
        let is_new = was != Some(&record.id);
        let resumes = before.and_then(|issue| issue.state.phase()) == Some(Phase::Stopped)
            && matches!(after.state, IssueState::Starting { .. });
        if is_new {
            self.check_quotas();
        }
        if (is_new || resumes) && self.is_held(after, record.phase_since) {
            self.violate(Some(after.home), "it begins although it is held");
        }
        self.check_pending_start(before, after, is_reported);
    }

    /// Whether what began then on an issue began under a hold.
    pub fn is_held(&self, issue: &Issue, began: Timestamp) -> bool {
        self.ledger.held.values().any(|(scope, since)| {
            let covers = match scope {
                HoldScope::Server => true,
                HoldScope::Account(held) => *held == issue.account,
                HoldScope::Repository(held) => place(issue) == Some(held.folded()),
                HoldScope::Issue(of, held) => *of == issue.account && *held == issue.facts.issue_id,
            };
            covers && began > *since
        })
    }

    fn check_pending_start(&mut self, before: Option<&Issue>, after: &Issue, is_reported: bool) {
        let ended = before.is_some_and(|issue| issue.pending_start.is_some())
            && after.pending_start.is_none();
        let is_idle = matches!(after.state, IssueState::Absent | IssueState::Stopped { .. });
        let is_closed = |issue: &Issue| issue.facts.open.as_ref().is_some_and(|open| !open.value);
        // Also by what another home knew that gave way to this one.
        let closes = is_closed(after) && before.is_some_and(|before| !is_closed(before));
        // By what is known of its acts now, as of another home that gave way: `check_truth` holds that
        // against GitHub.
        let is_unwanted = after.facts.acts.verdict().wanted != Wanted::Running;
        let withdrawn = is_reported
            || closes
            || is_unwanted
            || self.is_being_stopped(after)
            || self.ledger.commanded.contains(&after.home);
        if ended && is_idle && after.merged_into.is_none() && !withdrawn {
            self.violate(Some(after.home), "a pending start is neither granted nor withdrawn");
        }
    }

    /// A start that waits although nothing denies it, once all is released.
    pub fn waits_for_nothing(&self) -> Option<HomeId> {
        let waits = |issue: &&Issue| {
            issue.pending_start.is_some() && (issue.state.takes_slot() || self.has_room(issue))
        };
        self.rows.issues.values().find(waits).map(|issue| issue.home)
    }

    /// Whether the quotas allow this issue one more.
    fn has_room(&self, issue: &Issue) -> bool {
        let quotas = self.weather.quotas;
        let live = || self.rows.issues.values().filter(|issue| issue.state.takes_slot());
        let has_room = |count: usize, allowed: u64| allowed == 0 || (count as u64) < allowed;
        has_room(live().count(), quotas.server)
            && has_room(live().filter(|l| l.account == issue.account).count(), quotas.account)
            && place(issue).is_none_or(|name| {
                let there = live().filter(|l| place(l).as_ref() == Some(&name));
                has_room(there.count(), quotas.repository)
            })
    }

    /// No more live than the quotas allow, whenever one begins and at rest.
    pub fn check_quotas(&mut self) {
        let quotas = self.weather.quotas;
        let live: Vec<&Issue> =
            self.rows.issues.values().filter(|issue| issue.state.takes_slot()).collect();
        // A live sandbox takes its place along, whether there is room or not.
        let stays = live.iter().filter(|issue| !self.ledger.moved.contains(&issue.home));
        let places: Vec<String> = stays.filter_map(|issue| place(issue)).collect();
        let in_place = |name: &String| places.iter().filter(|place| *place == name).count();
        let in_one_place = places.iter().map(in_place).max().unwrap_or(0);
        let exceeds = |count: usize, allowed: u64| allowed > 0 && count as u64 > allowed;
        let count = live.len();
        let of = |account: &AccountName| live.iter().filter(|l| l.account == *account).count();
        let of_one_account = live.iter().map(|issue| of(&issue.account)).max().unwrap_or(0);
        if exceeds(count, quotas.server)
            || exceeds(of_one_account, quotas.account)
            || exceeds(in_one_place, quotas.repository)
        {
            let what = format!(
                "{count} are live, {of_one_account} of one account, {in_one_place} in one place, \
                 of {quotas:?}"
            );
            self.violate(None, what);
        }
    }
}

/// The repository that an issue counts for.
fn place(issue: &Issue) -> Option<String> {
    issue.facts.repository.as_ref().map(Repository::folded)
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_off_once_its_removal_is_durable_whatever_becomes_of_the_server() {
    let world = World::new(0, false);
    let store = SimStore::open(world.begin_life());
    let scope = HoldScope::Server;
    world.with(|inner| {
        inner.weather.calm = true;
        let held = (scope.clone(), inner.latest());
        inner.ledger.held.insert(scope.folded(), held);
    });
    store.remove_hold(&scope).await.expect("durable");
    world.with(|inner| inner.kill("killed"));
    assert!(world.with(|inner| inner.ledger.held.is_empty()));
}
