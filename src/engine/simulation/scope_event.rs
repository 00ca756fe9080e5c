//! What happens to repositories and to the App's installation on GitHub, and so to many issues:
//! it is applied to every one of them before the delivery counts as done.

use std::collections::BTreeMap;

use super::counts::Happening;
use super::github::{DeliveryContent, INSTALLATION};
use super::world::WorldState;
use crate::issue::{FanOut, Issue, Scope, ScopeEvent};
use crate::store::DeliveryState;
use crate::types::{AccountName, DeliveryId, HomeId, Repository, Timestamp};

/// One repository as it truly is.
pub struct SimRepository {
    pub id: u64,
    first: &'static str,
    renamed: u64,
}

impl SimRepository {
    /// The world's repositories.
    pub fn all() -> Vec<Self> {
        let names = [(1, "octo/hello"), (2, "octo/harbour")];
        names.map(|(id, first)| Self { id, first, renamed: 0 }).into()
    }

    /// What it is called now.
    pub fn name(&self) -> Repository {
        Repository::trusted(match self.renamed {
            0 => self.first.to_owned(),
            times => format!("{}-{times}", self.first),
        })
    }
}

/// A delivery that is being applied to one issue after the other.
pub struct FanningOut {
    fan_out: FanOut,
    began_ms: u64,
    /// The homes that it must be applied to: those that were known when it was stored.
    concerned: Vec<HomeId>,
}

/// All of them.
pub type SimFanOuts = BTreeMap<DeliveryId, FanningOut>;

impl WorldState {
    /// Something happens to repositories; the numbers of its deliveries.
    pub fn happens_in_scope(&mut self) -> Vec<usize> {
        let as_of = self.github.clock(self.elapsed_ms());
        let at = usize::try_from(self.chance.below(2)).expect("an index");
        let of_repository = Scope::Repositories(vec![self.github.repositories[at].id]);
        let (event, action, scope, news) = match self.chance.below(6) {
            0..3 => {
                self.github.repositories[at].renamed += 1;
                let repository = self.github.repositories[at].name();
                (
                    "repository",
                    "renamed",
                    of_repository,
                    ScopeEvent::Renamed { repository, formerly: None, as_of },
                )
            }
            3 => {
                let news = ScopeEvent::Stop("the repository was archived".into());
                ("repository", "archived", of_repository, news)
            }
            4 => {
                let news = ScopeEvent::Stop("the installation was suspended".into());
                ("installation", "suspend", Scope::Installation(INSTALLATION), news)
            }
            _ => {
                let there =
                    self.github.issues.iter_mut().filter(|issue| {
                        issue.names.last().is_some_and(|name| name.repository == at)
                    });
                there.for_each(|issue| issue.labelled = false);
                ("label", "edited", of_repository, ScopeEvent::LabelGone)
            }
        };
        let fan_out = FanOut {
            account: AccountName::default_account(),
            delivery: self.fresh_guid(),
            received_at: self.now(),
            recovered: false,
            event: event.into(),
            action: action.into(),
            scope,
            news,
        };
        vec![self.sends(DeliveryContent::ScopeEvent(Box::new(fan_out)))]
    }

    /// Such a delivery is stored: from now on it is to be applied to each issue that it concerns.
    pub fn fan_out_begins(&mut self, fan_out: FanOut) {
        let is_concerned = |issue: &&Issue| {
            issue.merged_into.is_none()
                && match &fan_out.news {
                    ScopeEvent::Renamed { .. } => true,
                    ScopeEvent::Stop(_) => issue.is_asked_for(),
                    ScopeEvent::LabelGone | ScopeEvent::Noted(_) => false,
                }
                && is_of(issue, &fan_out.scope)
        };
        let concerned = self.rows.issues.values().filter(is_concerned);
        let concerned = concerned.map(|issue| issue.home).collect();
        let began_ms = self.elapsed_ms();
        let guid = fan_out.delivery.clone();
        self.note(None, || format!("durable: {guid} is pending"));
        self.fan_outs.insert(guid, FanningOut { fan_out, began_ms, concerned });
    }

    /// Whether an event that stops an issue's sandbox is just being applied.
    pub fn is_being_stopped(&self, issue: &Issue) -> bool {
        self.fan_outs.values().any(|FanningOut { fan_out, .. }| {
            matches!(fan_out.news, ScopeEvent::Stop(_)) && is_of(&issue, &fan_out.scope)
        })
    }

    /// It counts as done: it was applied to every home that it concerns.
    pub fn fan_out_ends(&mut self, guid: &DeliveryId) {
        let Some(FanningOut { fan_out, began_ms, concerned }) = self.fan_outs.remove(guid) else {
            return;
        };
        self.note(None, || format!("durable: {guid} is done"));
        self.count(Happening::FanOut);
        let was_applied = |home: &HomeId| {
            let Some(issue) = self.rows.issues.get(home) else { return true };
            let unasked_ms = self.ledger.unasked_ms.get(home);
            issue.merged_into.is_some()
                || !is_of(&issue, &fan_out.scope)
                || match &fan_out.news {
                    ScopeEvent::Renamed { as_of, .. } => issue.facts.named_as_of() >= Some(*as_of),
                    ScopeEvent::Stop(_) => unasked_ms.is_some_and(|at| *at >= began_ms),
                    ScopeEvent::LabelGone | ScopeEvent::Noted(_) => true,
                }
        };
        if let Some(home) = concerned.iter().find(|home| !was_applied(home)) {
            let what = format!("{guid} is done, and it was not applied");
            self.violate(Some(*home), what);
        }
    }

    /// It could not be applied to every home. After some tries it is set aside, with the reason.
    pub fn fan_out_fails(&mut self, guid: &DeliveryId) {
        let row = self.rows.deliveries.get(guid);
        if row.is_some_and(|row| row.state != DeliveryState::Pending) {
            self.note(None, || format!("durable: {guid} is set aside"));
            self.fan_outs.remove(guid);
        }
    }

    /// The known repository and number of an issue never become older.
    pub fn check_place(&mut self, before: Option<&Issue>, after: &Issue) {
        if before.is_some_and(|before| placed(before) > placed(after)) {
            self.violate(Some(after.home), "its known repository and number became older");
        }
        // An accepted race: one that left the scope and came back need not be found again.
        for FanningOut { fan_out, concerned, .. } in self.fan_outs.values_mut() {
            concerned.retain(|home| *home != after.home || is_of(&after, &fan_out.scope));
        }
        let place = |issue: &Issue| issue.facts.repository.as_ref().map(Repository::folded);
        if before.is_some_and(|before| place(before) != place(after)) {
            self.ledger.moved.insert(after.home);
        }
        if !after.is_asked_for() {
            let now = self.elapsed_ms();
            self.ledger.unasked_ms.insert(after.home, now);
        }
    }
}

fn placed(issue: &Issue) -> Option<Timestamp> {
    issue.facts.placed_as_of
}

fn is_of(issue: &&Issue, scope: &Scope) -> bool {
    match scope {
        Scope::Repositories(ids) => issue.facts.repository_id.is_some_and(|id| ids.contains(&id)),
        Scope::Installation(id) => issue.facts.installation_id == Some(*id),
    }
}
