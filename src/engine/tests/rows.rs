//! What is durable in the stores of the engine's tests, and the contract by which it changes.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::issue::{EffectKind, EffectQueue, FanOut, Issue, Scope};
use crate::sabotage::{Bug, on};
use crate::store::{
    CommitError, DeliveryRow, DeliveryState, EffectDelay, EffectId, EffectRow, Look, LookAsk,
    NewEffect, NumberedHome, Orphan, PENDING_TRIES_MAX, PendingRow, PendingStartRow, Write,
};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, ExternalId, Hold, HoldScope, HomeId, Phase,
    ProviderName, Repository, Sandbox, SandboxId, Timestamp,
};

/// The rows of a store in memory.
#[derive(Default)]
pub struct TestRows {
    pub epoch: u64,
    pub issues: BTreeMap<HomeId, Issue>,
    pub deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    pub history: Vec<Sandbox>,
    pub holds: Vec<Hold>,
    pub reserved_homes: i64,
    aliases: BTreeMap<(AccountName, String), NumberedHome>,
    pending: Vec<PendingRow>,
    orphans: BTreeMap<(String, String), Orphan>,
    identities: BTreeMap<String, String>,
    /// In the order of recording.
    pub outbox: Vec<EffectRow>,
    last_effect: i64,
}

/// Names are compared without regard to a repository's case.
fn key(account: &AccountName, alias: &Alias) -> (AccountName, String) {
    let name = match alias {
        Alias::Issue(id) => id.to_string(),
        Alias::Numbered(repository, number) => format!("{}#{number}", repository.folded()),
    };
    (account.clone(), name)
}

fn orphan_key(provider: &ProviderName, external_id: &ExternalId) -> (String, String) {
    (provider.to_string(), external_id.to_string())
}

impl TestRows {
    /// Applies a write whole, or says why not.
    pub fn apply(&mut self, epoch: Epoch, write: &Write) -> Result<(), CommitError> {
        if let Some(delivery) = &write.delivery
            && self.deliveries.contains_key(&delivery.id)
        {
            return Err(CommitError::DuplicateDelivery);
        }
        if epoch.0 != self.epoch && !on(Bug::NoVersionFence) {
            return Err(CommitError::Fenced);
        }
        if let Some(issue) = &write.issue {
            let stored = self.issues.get(&issue.home).map_or(0, |issue| issue.version);
            let follows = issue.version == stored + 1;
            if !follows && !on(Bug::NoVersionFence) {
                return Err(CommitError::Fenced);
            }
            let other = |alias: &Alias| {
                self.resolve(&issue.account, alias).is_some_and(|home| home != issue.home)
            };
            if write.aliases.iter().any(other) {
                return Err(CommitError::AliasTaken);
            }
            for alias in write.aliases.iter().chain(&write.taken_over) {
                self.give(issue, alias);
            }
            if let Some(other) = write.names_go_to {
                let own = self.aliases.values_mut().filter(|had| had.home == issue.home);
                own.for_each(|had| had.home = other);
            }
            self.issues.insert(issue.home, issue.clone());
        }
        write.effects.iter().for_each(|effect| self.record_effect(effect));
        self.history.extend(write.ended.clone());
        self.deliveries.extend(write.delivery.clone().map(|row| (row.id.clone(), row)));
        Ok(())
    }

    fn record_effect(&mut self, new: &NewEffect) {
        let NewEffect { home, effect, due_at } = new;
        if effect.kind().queue() != EffectQueue::Provider {
            return;
        }
        let is_same = |row: &&mut EffectRow| {
            row.home == *home
                && (row.effect.kind(), row.effect.key()) == (effect.kind(), effect.key())
        };
        let (effect, home, due_at) = (effect.clone(), *home, *due_at);
        match self.outbox.iter_mut().find(is_same) {
            Some(row) if row.effect == effect => {}
            Some(row) => {
                let id = EffectId { revision: row.id.revision + 1, ..row.id };
                *row = EffectRow { id, home, effect, due_at, tries: 0 };
            }
            None => {
                self.last_effect += 1;
                let id = EffectId { number: self.last_effect, revision: 0 };
                self.outbox.push(EffectRow { id, home, effect, due_at, tries: 0 });
            }
        }
    }

    /// The first effect of each home and kind, the earliest due first.
    fn first_effects(&self) -> Vec<EffectRow> {
        let mut seen = HashSet::new();
        let mut first: Vec<_> =
            self.outbox.iter().filter(|row| seen.insert((row.home, row.effect.kind()))).collect();
        first.sort_by_key(|row| (row.due_at, row.id));
        first.into_iter().cloned().collect()
    }

    pub fn effects(&self, now: Timestamp, limit: usize) -> Vec<EffectRow> {
        let due = self.first_effects().into_iter().filter(|row| row.due_at <= now);
        due.take(limit).collect()
    }

    pub fn next_effect(&self, now: Timestamp) -> Option<Timestamp> {
        self.first_effects().iter().map(|row| row.due_at).find(|due| *due > now)
    }

    pub fn effect_counts(&self) -> Vec<(EffectKind, u64)> {
        let count =
            |kind| self.outbox.iter().filter(|row| row.effect.kind() == kind).count() as u64;
        EffectKind::ALL
            .into_iter()
            .map(|kind| (kind, count(kind)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    pub fn finish_effect(&mut self, id: EffectId) {
        self.outbox.retain(|row| row.id != id);
    }

    pub fn delay_effect(&mut self, id: EffectId, delay: &EffectDelay) {
        if let Some(row) = self.outbox.iter_mut().find(|row| row.id == id) {
            (row.due_at, row.tries) = (delay.due_at, delay.tries);
        }
    }

    fn give(&mut self, issue: &Issue, alias: &Alias) {
        let is_own = |name: &Repository| {
            issue.facts.repository.as_ref().is_some_and(|own| own.folded() == name.folded())
        };
        let known = match alias {
            Alias::Issue(_) => None,
            Alias::Numbered(name, _) => issue.facts.repository_id.filter(|_| is_own(name)),
        };
        let key = key(&issue.account, alias);
        let before = self.aliases.get(&key).filter(|had| had.home == issue.home);
        let repository_id = known.or(before.and_then(|had| had.repository_id));
        self.aliases.insert(key, NumberedHome { home: issue.home, repository_id });
    }

    pub fn resolve(&self, account: &AccountName, alias: &Alias) -> Option<HomeId> {
        self.aliases.get(&key(account, alias)).map(|had| had.home)
    }

    pub fn look(&self, account: &AccountName, ask: LookAsk<'_>) -> Look {
        let numbered = |(repository, number): (&Repository, _)| {
            self.aliases.get(&key(account, &Alias::Numbered(repository.clone(), number))).copied()
        };
        Look {
            delivery: ask.delivery.and_then(|id| self.deliveries.get(id).cloned()),
            by_issue: ask.issue.and_then(|id| self.resolve(account, &Alias::Issue(id.clone()))),
            by_number: ask.numbered.and_then(numbered),
        }
    }

    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<HomeId> {
        let due = |issue: &Issue| Some((issue.due_at()?, issue.home));
        let mut due: Vec<_> = self.issues.values().filter_map(due).collect();
        due.retain(|(at, _)| *at <= now);
        due.sort_unstable();
        due.into_iter().map(|(_, home)| home).take(limit).collect()
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.issues.values().filter_map(Issue::due_at).min()
    }

    pub fn live(&self, after: Option<HomeId>, limit: usize) -> Vec<Issue> {
        let live = |issue: &&Issue| Some(issue.home) > after && issue.state.phase().is_some();
        self.issues.values().filter(live).take(limit).cloned().collect()
    }

    pub fn sandbox(&self, id: &SandboxId) -> Option<Sandbox> {
        let live = |issue: &&Issue| issue.state.record().is_some_and(|record| record.id == *id);
        let live = self.issues.values().find(live).and_then(Issue::sandbox);
        live.or_else(|| self.history.iter().find(|sandbox| sandbox.id == *id).cloned())
    }

    pub fn newest(&self, home: HomeId) -> Option<Sandbox> {
        let live = self.issues.get(&home).and_then(Issue::sandbox);
        live.or_else(|| self.history.iter().rfind(|sandbox| sandbox.home == home).cloned())
    }

    pub fn homes(&self, scope: &Scope, after: Option<HomeId>, limit: usize) -> Vec<HomeId> {
        let concerned = |issue: &&Issue| match scope {
            Scope::Repositories(ids) => {
                issue.facts.repository_id.is_some_and(|id| ids.contains(&id))
            }
            Scope::Installation(id) => issue.facts.installation_id == Some(*id),
        };
        let later = self.issues.values().filter(|issue| Some(issue.home) > after);
        later.filter(concerned).map(|issue| issue.home).take(limit).collect()
    }

    pub fn unsettled_at(
        &self,
        provider: &ProviderName,
        after: Option<HomeId>,
        limit: usize,
    ) -> Vec<HomeId> {
        let is_meant = |issue: &&Issue| {
            let record = issue.state.record();
            Some(issue.home) > after
                && record.is_some_and(|record| record.template.provider == *provider)
                && !matches!(issue.state.phase(), None | Some(Phase::Running | Phase::Stopped))
        };
        let mut homes: Vec<_> =
            self.issues.values().filter(is_meant).map(|issue| issue.home).collect();
        homes.sort_unstable();
        homes.truncate(limit);
        homes
    }

    pub fn pending_starts(&self, skip: usize, limit: usize) -> Vec<PendingStartRow> {
        let row = |issue: &Issue| {
            Some(PendingStartRow {
                home: issue.home,
                account: issue.account.clone(),
                repository: issue.facts.repository.as_ref().map(Repository::folded),
                since: issue.pending_start.as_ref()?.since,
            })
        };
        let mut pending_starts: Vec<_> = self.issues.values().filter_map(row).collect();
        pending_starts.sort_by_key(|pending_start| (pending_start.since, pending_start.home));
        let mut turns = HashMap::new();
        let mut fair: Vec<_> = pending_starts
            .into_iter()
            .map(|pending_start| {
                let group = (pending_start.account.clone(), pending_start.repository.clone());
                let turn = turns.entry(group).or_insert(0_usize);
                *turn += 1;
                (*turn, pending_start)
            })
            .collect();
        fair.sort_by_key(|(turn, _)| *turn);
        fair.into_iter().map(|(_, pending_start)| pending_start).skip(skip).take(limit).collect()
    }

    pub fn deleted(&self, ids: &[SandboxId]) -> HashSet<SandboxId> {
        let past = self.history.iter().map(|sandbox| &sandbox.id);
        past.filter(|id| ids.contains(id)).cloned().collect()
    }

    pub fn put_pending(&mut self, fan_out: FanOut) -> Result<(), CommitError> {
        let row = DeliveryRow {
            account: AccountName::default_account(),
            id: fan_out.delivery.clone(),
            received_at: fan_out.received_at,
            recovered: fan_out.recovered,
            event: fan_out.event.clone(),
            action: fan_out.action.clone(),
            home: None,
            applied: false,
            reason: String::new(),
            state: DeliveryState::Pending,
        };
        if self.deliveries.contains_key(&row.id) {
            return Err(CommitError::DuplicateDelivery);
        }
        self.deliveries.insert(row.id.clone(), row);
        self.pending.push(PendingRow { fan_out, tries: 0, done_to: None });
        Ok(())
    }

    pub fn pending(&self, limit: usize) -> Vec<PendingRow> {
        self.pending.iter().take(limit).cloned().collect()
    }

    pub fn advance_pending(&mut self, id: &DeliveryId, done_to: HomeId) {
        if let Some(row) = self.pending.iter_mut().find(|row| row.fan_out.delivery == *id) {
            row.done_to = row.done_to.max(Some(done_to));
        }
    }

    pub fn fail_pending(&mut self, id: &DeliveryId, error: String) {
        let pending = self.pending.iter_mut().find(|row| row.fan_out.delivery == *id);
        let Some(row) = pending else { return };
        row.tries += 1;
        if row.tries >= PENDING_TRIES_MAX {
            self.finish_delivery(id, DeliveryState::SetAside, false, error);
        }
    }

    pub fn finish_delivery(
        &mut self,
        id: &DeliveryId,
        state: DeliveryState,
        applied: bool,
        reason: String,
    ) {
        self.pending.retain(|row| row.fan_out.delivery != *id);
        if let Some(row) = self.deliveries.get_mut(id)
            && row.state == DeliveryState::Pending
        {
            *row = DeliveryRow { state, applied, reason, ..row.clone() };
        }
    }

    pub fn put_holds(&mut self, holds: Vec<Hold>) {
        self.holds.retain(|had| holds.iter().all(|hold| had.scope != hold.scope));
        self.holds.extend(holds);
    }

    pub fn remove_hold(&mut self, scope: &HoldScope) -> bool {
        let before = self.holds.len();
        self.holds.retain(|had| had.scope != *scope);
        self.holds.len() < before
    }

    pub fn orphans(&self) -> Vec<Orphan> {
        self.orphans.values().cloned().collect()
    }

    pub fn put_orphans(&mut self, orphans: Vec<Orphan>) {
        for orphan in orphans {
            let key = orphan_key(&orphan.provider, &orphan.external_id);
            let first =
                self.orphans.get(&key).map_or(orphan.first_seen_at, |had| had.first_seen_at);
            self.orphans.insert(key, Orphan { first_seen_at: first, ..orphan });
        }
    }

    pub fn remove_orphans(&mut self, keys: &[(ProviderName, ExternalId)]) {
        for (provider, external_id) in keys {
            self.orphans.remove(&orphan_key(provider, external_id));
        }
    }

    pub fn identities(&self) -> Vec<(ProviderName, String)> {
        let all = self.identities.iter();
        all.map(|(name, id)| (ProviderName::trusted(name.as_str()), id.clone())).collect()
    }

    pub fn put_identity(&mut self, provider: &ProviderName, identity: &str) {
        self.identities.insert(provider.to_string(), identity.to_owned());
    }
}
