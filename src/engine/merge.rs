//! Merges the homes of one issue: after a transfer, or when an issue was known by two names.
//!
//! A transfer gives an issue another id and another number. Both repositories report it, in either
//! order, at once, or only one of them does. Under its new names the issue may have got a home, and a
//! sandbox, before. The same happens if callers knew an issue by its number and by an id of their own,
//! until a delivery says that both are one. Here all of its names become one home's: the home with the
//! older live sandbox stays, the sandboxes of the others are deleted.
//!
//! # Guarantees
//! - One merge at a time, under one lock for all accounts: merges are rare, and two at once could each
//!   choose another home to stay.
//! - The choice is made from durable states: everything that was sent to a home before is flushed first.
//! - The home that stays learns what the other one knows *before* that one gives way: the news under
//!   one name may be newer than the news under the other. The same holds for a requested sandbox.
//! - A caller that found a home which then gave way gets the answer to look again, once the names are
//!   durably the other home's. So nothing is created in a home that gave way.
//! - A home that was never stored cannot give way. While its fast create is being undone, the delivery
//!   is refused: it can be sent again as soon as the object is destroyed.
//!
//! # Races that are accepted
//! - The names move before the delivery itself is applied. After a crash in between, its redelivery
//!   finishes the merge. Lost is only what the home that gave way was sent between its hand-over and
//!   its giving way.
//! - Two homes each have a sandbox until a delivery says that they are one issue.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::issue::event::{DeliveryEffect, TriggerKind};
use crate::issue::{Issue, IssueDelivery, IssueEvent, IssueState, Reply};
use crate::sabotage::{Bug, on};
use crate::types::{AccountName, Alias, Cause, HomeId};

use super::actors::{Actors, EventFailure};
use super::api::{EngineError, IssueKey};
use super::directory::Directory;
use super::directory::route::{Homes, NamedPlace, Route};
use super::environment::Environment;
use super::mailbox::{Activation, Answered};

/// How often names are looked up again if other homes claim them meanwhile.
const TRIES: u32 = 8;

/// Makes one home of several.
pub(super) struct Merger {
    env: Arc<Environment>,
    directory: Arc<Directory>,
    actors: Actors,
    /// Held by a merge: one at a time, whatever the homes.
    one_at_a_time: Mutex<()>,
}

impl Merger {
    /// By the names that the directory knows.
    pub fn new(env: Arc<Environment>, directory: Arc<Directory>, actors: Actors) -> Self {
        Self { env, directory, actors, one_at_a_time: Mutex::default() }
    }

    /// Makes one home of all that a delivery names, and applies the delivery to it.
    pub async fn merge(
        &self,
        account: &AccountName,
        issue_delivery: &IssueDelivery,
    ) -> Result<Answered, EngineError> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let sides = sides(issue_delivery);
        let mut asked_for = false;
        for _ in 0..TRIES {
            if self.env.is_stopping() {
                return Err(EngineError::ShuttingDown);
            }
            let id = &issue_delivery.news.issue_id;
            let route = match self.directory.route_all(account, id, &sides).await? {
                Homes::Changed => continue,
                Homes::Several { homes, by_id } => {
                    asked_for |=
                        self.merge_sides(account, issue_delivery, &sides, homes, by_id).await?;
                    continue;
                }
                Homes::One(route) => route,
            };
            let Route { home, activation, claims, number } = route;
            let (takes, place_elsewhere) =
                self.directory.takes(&issue_delivery.news, number).await?;
            let issue_delivery = asking_for(issue_delivery, asked_for);
            let event = IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere };
            match self.actors.ask(home, activation, event).await {
                Ok(answered) => return Ok(answered),
                Err(EventFailure::Again) => {}
                Err(EventFailure::For(error)) => return Err(error),
            }
        }
        Err(EngineError::StoreFailed("the issue's names changed again and again".into()))
    }

    /// Lets all homes but one give way. Returns whether one of them had been asked for a running
    /// sandbox and the one that stays had not.
    async fn merge_sides(
        &self,
        account: &AccountName,
        issue_delivery: &IssueDelivery,
        sides: &[NamedPlace],
        homes: BTreeSet<HomeId>,
        by_id: Option<HomeId>,
    ) -> Result<bool, EngineError> {
        let directory = &self.directory;
        let aliases: Vec<Alias> = sides.iter().flat_map(NamedPlace::aliases).collect();
        let mut known = Vec::new();
        for home in homes {
            match self.durable(account, issue_delivery, home).await? {
                Some(issue) if issue.merged_into.is_none() => known.push(issue),
                // Callers that still find it look again.
                Some(_) => directory.gave_way(self.env.now(), account, home),
                // It was never stored. Its object may be there until its create is undone.
                None if directory.is_held(account, home, &aliases) => {
                    return Err(EngineError::CreateBeingUndone);
                }
                None => directory.abandon(self.env.now(), account, home, &aliases),
            }
        }
        known.sort_by_cached_key(|issue| rank(issue, by_id));
        let Some((stays, others)) = known.split_first() else { return Ok(false) };
        let mut asked_for = false;
        for other in others {
            // Before it gives way, so that a crash in between loses nothing of what it knows.
            if !self.hand_over(issue_delivery, stays.home, other).await? {
                return Ok(asked_for);
            }
            let cause = Cause::Delivery(issue_delivery.delivery.clone());
            let event = IssueEvent::Merged { into: stays.home, cause };
            match self.actors.ask_home(other.home, Activation::default(), event).await {
                Ok(answered) => {
                    let (into, home) = (stays.home.0, other.home.0);
                    tracing::info!(home, into, "merged two homes of one issue");
                    directory.gave_way(self.env.now(), account, other.home);
                    // As it was when it gave way, not when it was read: a sandbox may have been
                    // requested in between.
                    let wanted = matches!(answered.reply, Reply::Merged { wanted: true });
                    asked_for |= wanted && !stays.is_asked_for();
                    // And what it learned since it was read.
                    let left = self.env.store.load(other.home).await?;
                    let since = left.filter(|left| left.facts != other.facts);
                    if let Some(since) = since
                        && !self.hand_over(issue_delivery, stays.home, &since).await?
                    {
                        return Ok(asked_for);
                    }
                }
                // Looked at again by the caller.
                Err(EventFailure::Again) => return Ok(asked_for),
                Err(EventFailure::For(error)) => return Err(error),
            }
        }
        Ok(asked_for)
    }

    /// Gives the home that stays what another one knows, durably. Returns false if its names are
    /// another home's by now, or its actor had to end: the caller looks again.
    async fn hand_over(
        &self,
        issue_delivery: &IssueDelivery,
        stays: HomeId,
        other: &Issue,
    ) -> Result<bool, EngineError> {
        if on(Bug::MergeForgets) {
            return Ok(true);
        }
        let facts = Box::new(other.facts.clone());
        let asked_for = other.is_asked_for() && !is_ending(issue_delivery);
        let asked_for = asked_for.then_some(issue_delivery.news.as_of);
        let cause = Cause::Delivery(issue_delivery.delivery.clone());
        let event = IssueEvent::Learned { from: other.home, facts, asked_for, cause };
        match self.actors.ask(stays, Activation::default(), event).await {
            Ok(_answered) => Ok(true),
            Err(EventFailure::Again) => Ok(false),
            Err(EventFailure::For(error)) => Err(error),
        }
    }

    /// The durable state of a home, with everything that was sent to it before.
    async fn durable(
        &self,
        account: &AccountName,
        issue_delivery: &IssueDelivery,
        home: HomeId,
    ) -> Result<Option<Issue>, EngineError> {
        // For one whose first commit is still to come.
        let seed = Some((account.clone(), issue_delivery.news.issue_id.clone()));
        match self.actors.flush(home, Activation { seed, ..Activation::default() }).await {
            // If the actor had to end, what it left is as durable as it gets.
            Ok(()) | Err(EventFailure::Again) => {}
            Err(EventFailure::For(error)) => return Err(error),
        }
        Ok(self.env.store.load(home).await?)
    }
}

/// The issue's names now, and its former names.
fn sides(issue_delivery: &IssueDelivery) -> Vec<NamedPlace> {
    let news = &issue_delivery.news;
    let now = NamedPlace {
        key: IssueKey {
            id: Some(news.issue_id.clone()),
            numbered: Some((news.repository.clone(), news.number)),
        },
        repository_id: news.repository_id,
    };
    let before = issue_delivery.formerly.as_ref().map(|name| NamedPlace {
        key: IssueKey {
            id: Some(name.issue_id.clone()),
            numbered: Some((name.repository.clone(), name.number)),
        },
        repository_id: name.repository_id,
    });
    std::iter::once(now).chain(before).collect()
}

/// Which home stays: the least. The older of live sandboxes, one that is not being deleted first;
/// then one with a pending start; then the home of the issue id; then the older home.
fn rank(issue: &Issue, by_id: Option<HomeId>) -> (u8, i64, bool, HomeId) {
    let created = issue.state.record().map_or(0, |record| record.created_at.unix_ms());
    let class = match &issue.state {
        IssueState::Creating { .. }
        | IssueState::Running { .. }
        | IssueState::Stopping { .. }
        | IssueState::Stopped { .. }
        | IssueState::Starting { .. }
        | IssueState::Failed { .. } => 0,
        IssueState::Deleting { .. } => 1,
        IssueState::Absent if issue.pending_start.is_some() => 2,
        IssueState::Absent => 3,
    };
    (class, created, by_id != Some(issue.home), issue.home)
}

/// Whether a delivery ends what was asked for before.
const fn is_ending(issue_delivery: &IssueDelivery) -> bool {
    match issue_delivery.effect {
        DeliveryEffect::Stop(_) | DeliveryEffect::Delete => true,
        DeliveryEffect::Update
        | DeliveryEffect::Activity
        | DeliveryEffect::Trigger(_)
        | DeliveryEffect::FollowUp { .. }
        | DeliveryEffect::Command(_)
        | DeliveryEffect::Status
        | DeliveryEffect::Publish { .. }
        | DeliveryEffect::Note(_) => false,
    }
}

/// The delivery as the home that stays gets it. If a home that gave way had been asked for a
/// sandbox, a delivery that would only update facts becomes a trigger.
fn asking_for(issue_delivery: &IssueDelivery, asked_for: bool) -> IssueDelivery {
    let effect = match issue_delivery.effect {
        DeliveryEffect::Update | DeliveryEffect::Activity if asked_for => {
            DeliveryEffect::Trigger(TriggerKind::OtherName)
        }
        DeliveryEffect::Update
        | DeliveryEffect::Activity
        | DeliveryEffect::Trigger(_)
        | DeliveryEffect::Stop(_)
        | DeliveryEffect::Delete
        | DeliveryEffect::FollowUp { .. }
        | DeliveryEffect::Command(_)
        | DeliveryEffect::Status
        | DeliveryEffect::Publish { .. }
        | DeliveryEffect::Note(_) => issue_delivery.effect.clone(),
    };
    IssueDelivery { effect, ..issue_delivery.clone() }
}
