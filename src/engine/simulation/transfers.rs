//! Issues that are transferred: another id, another number, reported by either repository, both
//! or one, in any order. Once it is delivered, all of the names are one home's.

use super::counts::Happening;
use super::github::DeliveryContent;
use super::github::{MOVED, SimName};
use super::world::WorldState;
use crate::issue::event::{DeliveryEffect, IssueName};
use crate::issue::{Issue, IssueDelivery, IssueState};
use crate::types::{Alias, HomeId, IssueId, IssueNumber};

use super::driver::account;

/// How often one issue is transferred at most.
const TRANSFERS_MAX: usize = 2;

impl WorldState {
    /// An issue is transferred to the other repository; the numbers of its deliveries.
    pub fn transfer(&mut self, at: usize) -> Vec<usize> {
        let issue = &mut self.github.issues[at];
        let before = *issue.names.last().expect("it has a name");
        if issue.names.len() > TRANSFERS_MAX {
            return Vec::new();
        }
        issue.names.push(SimName {
            id: before.id + MOVED,
            repository: 1 - before.repository,
            number: before.number + MOVED,
            is_reported: false,
        });
        let repository = &self.github.repositories[before.repository];
        let formerly = IssueName {
            issue_id: IssueId::from_github(before.id),
            repository: repository.name(),
            repository_id: repository.id,
            number: IssueNumber(before.number),
        };
        self.count(Happening::Transfer);
        self.renumber_comments(at);
        let news = self.news(at);
        let sides: &[&str] = match self.chance.below(4) {
            0 => &["transferred"],
            1 => &["opened"],
            _ => &["transferred", "opened"],
        };
        let mut sent = Vec::new();
        for action in sides {
            let issue_delivery = IssueDelivery {
                delivery: self.fresh_guid(),
                received_at: self.now(),
                recovered: false,
                event: "issues".into(),
                action: (*action).to_owned(),
                news: news.clone(),
                acted_at: news.as_of,
                formerly: Some(formerly.clone()),
                comment: None,
                installation: None,
                effect: DeliveryEffect::Update,
                instruction: None,
            };
            sent.push(self.sends(DeliveryContent::Issue(Box::new(issue_delivery))));
        }
        sent
    }

    /// The server said that it has this delivery. If it is of a transfer, all four names are one
    /// home's from now on.
    pub fn transfer_is_delivered(&mut self, issue_delivery: &IssueDelivery) {
        let Some(formerly) = &issue_delivery.formerly else { return };
        self.check_merged(issue_delivery);
        let names = self.github.issues.iter_mut().flat_map(|issue| &mut issue.names);
        let after = names.filter(|name| IssueId::from_github(name.id - MOVED) == formerly.issue_id);
        after.for_each(|name| name.is_reported = true);
    }

    fn check_merged(&mut self, issue_delivery: &IssueDelivery) {
        let Some(formerly) = &issue_delivery.formerly else { return };
        let news = &issue_delivery.news;
        let names = [
            Alias::Issue(news.issue_id.clone()),
            Alias::Numbered(news.repository.clone(), news.number),
            Alias::Issue(formerly.issue_id.clone()),
            Alias::Numbered(formerly.repository.clone(), formerly.number),
        ];
        let homes = names.map(|name| self.rows.resolve(&account(), &name));
        let first = homes.iter().flatten().next().copied();
        if first.is_none() || homes.iter().any(|home| *home != first) {
            let what = format!(
                "{} says that its names are one issue's: {homes:?}",
                issue_delivery.delivery
            );
            self.violate(first, what);
        }
    }

    /// At rest all that deliveries said of transfers still holds.
    pub fn check_all_merged(&mut self) {
        let delivered = self.github.deliveries.iter().filter_map(|delivery| match &delivery.what {
            DeliveryContent::Issue(issue_delivery) => Some(issue_delivery.clone()),
            DeliveryContent::ScopeEvent(_) => None,
        });
        for issue_delivery in delivered.collect::<Vec<_>>() {
            self.check_merged(&issue_delivery);
        }
    }

    /// Whether a home's names went to another one.
    pub fn gave_way(&self, home: HomeId) -> bool {
        self.rows.issues.get(&home).is_some_and(|issue| issue.merged_into.is_some())
    }

    /// A home that gave way has its sandbox deleted, and never makes another one. And none begins
    /// for an issue that is known to be another home's.
    pub fn check_one_home(&mut self, before: Option<&Issue>, after: &Issue) {
        let home = Some(after.home);
        if after.merged_into.is_some() {
            let now = self.elapsed_ms();
            if before.is_some_and(|issue| issue.merged_into.is_none()) {
                self.ledger.merged_ms.push(now);
                self.count(Happening::Merge);
            }
            match after.state {
                IssueState::Absent | IssueState::Deleting { next: None, .. } => {}
                IssueState::Creating { .. }
                | IssueState::Running { .. }
                | IssueState::Stopping { .. }
                | IssueState::Stopped { .. }
                | IssueState::Starting { .. }
                | IssueState::Failed { .. }
                | IssueState::Deleting { next: Some(_), .. } => {
                    self.violate(home, "it gave way to another home and keeps its sandbox");
                }
            }
        }
        let Some(number) = self.github.issue_of(&after.facts.issue_id) else { return };
        // GitHub speaks to one account.
        if before.is_none() && after.account == account() && self.github.is_reported(number) {
            let is_other = |issue: &&Issue| {
                issue.account == after.account
                    && issue.home != after.home
                    && issue.merged_into.is_none()
                    && self.github.issue_of(&issue.facts.issue_id) == Some(number)
            };
            if let Some(other) = self.rows.issues.values().find(is_other) {
                let what = format!("issue {number} is home {}'s already", other.home);
                self.violate(home, what);
            }
        }
    }
}
