//! Both sides of a sweep: the records and the provider's objects, home by home.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dashmap::DashSet;

use super::super::actors::Actors;
use super::super::environment::Environment;
use super::super::executor::Executor;
use super::super::identity::Identities;
use super::super::providers::Providers;
use super::compare::{Finding, KnownHome, OrphanKind, Ours, SweepTally};
use super::drift::Drifted;
use super::items::{self, Outlook};
use crate::types::{ExternalId, HomeId, ProviderName, SandboxId, Timestamp};

/// What sweeps use of the engine.
pub(in crate::engine) struct SweepParts {
    pub env: Arc<Environment>,
    pub providers: Providers,
    pub identities: Arc<Identities>,
    pub executor: Arc<Executor>,
    pub actors: Actors,
    /// Homes whose first step after the server's start is not durable yet.
    pub restarting: Arc<DashSet<HomeId>>,
}

/// What both sides say, read once for a sweep.
pub(super) struct Sides {
    /// Each home about which the sides disagree, that has an object which no record names, or whose
    /// object a late stop may have taken down.
    pub homes: BTreeMap<HomeId, Home>,
    /// Which of the objects' sandboxes are deleted, as far as the store knows.
    pub deleted: HashSet<SandboxId>,
    /// When the objects without a record were first seen.
    pub first_seen: HashMap<ExternalId, Timestamp>,
    /// When the list had been read.
    pub at: Timestamp,
    pub tally: SweepTally,
    pub again_at: Option<Timestamp>,
}

pub(super) struct Home {
    pub known: KnownHome,
    pub objects: Vec<Ours>,
    pub findings: Vec<Finding>,
}

impl Sides {
    /// Counts what is missing and what is due to be removed.
    pub fn count(&mut self) {
        for finding in self.homes.values().flat_map(|home| &home.findings) {
            match finding {
                Finding::Lost => self.tally.lost += 1,
                Finding::Down(_) | Finding::Up | Finding::Back(_) => {}
                Finding::Orphan(object, kind) => {
                    let due = kind.removed_at(self.first_seen(object));
                    if due.is_some_and(|due| due <= self.at) {
                        self.tally.removals += 1;
                    } else if *kind == OrphanKind::FastNext {
                        self.again_at = [self.again_at, due].into_iter().flatten().min();
                    }
                }
            }
        }
    }

    /// When a sweep first saw an object without a record.
    pub fn first_seen(&self, object: &Ours) -> Timestamp {
        self.first_seen.get(&object.external_id).copied().unwrap_or(self.at)
    }

    /// A home's findings as items.
    pub fn items(&self, name: &ProviderName, home: &Home, outlook: &Outlook) -> Vec<Drifted> {
        let item = |finding: &Finding| {
            let first_seen_at = match finding {
                Finding::Orphan(object, _) => self.first_seen(object),
                Finding::Lost | Finding::Down(_) | Finding::Up | Finding::Back(_) => self.at,
            };
            items::of_home(name, &home.known, finding, first_seen_at, outlook)
        };
        home.findings.iter().map(item).collect()
    }
}
