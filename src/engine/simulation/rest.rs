//! Calm: no fault strikes any more, and all must come to rest. Then everything is deleted, and
//! nothing may be left over.

use std::time::Duration;

use super::driver::{SWEEP_PERIOD, SimServer, account, cause};
use super::world::WorldState;
use crate::engine::{DriftItem, DriftKind, Remedy, SandboxRef};
use crate::issue::Command;
use crate::sandbox::Object;
use crate::types::{ExternalId, Generation, HomeId, ObjectState, Phase, Wanted};

/// How long calm may take to bring everything to rest.
const REST_TIME_MAX: Duration = Duration::from_secs(6 * 3600);
/// How many sweeps calm may take until records and providers agree.
const SWEEPS_MAX: u32 = 4;
/// How often it is looked whether everything is at rest.
const REST_PAUSE: Duration = Duration::from_secs(10);

impl SimServer {
    /// No fault strikes any more: what was acknowledged must be done, and nothing left over.
    pub async fn come_to_rest(&self) {
        self.with(|inner| {
            inner.weather.calm = true;
            inner.calm_since_ms = Some(inner.elapsed_ms());
            (inner.crash_in, inner.panic_in) = (None, None);
            inner.disturb("calm");
        });
        self.rest("everything comes to rest").await;
        self.agree().await;
        self.with(WorldState::check_rest);
        // What was deleted makes room for what waits.
        while self.delete_all().await {
            self.rest("everything is deleted").await;
        }
        self.with(WorldState::check_nothing_left);
    }

    /// Deletes what lives; false if nothing does.
    async fn delete_all(&self) -> bool {
        let live = self.with(|inner| {
            if inner.violation.is_some() {
                return Vec::new();
            }
            let live = inner.rows.issues.values().filter_map(crate::issue::Issue::sandbox);
            live.map(|sandbox| (sandbox.account, sandbox.id)).collect::<Vec<_>>()
        });
        for (account, id) in &live {
            let meant = SandboxRef::Id(id.clone());
            let delete = self.engine.command(account, &meant, Command::Delete, cause());
            if let Err(error) = delete.await {
                self.with(|inner| inner.violate(None, format!("{id} cannot be deleted: {error}")));
            }
        }
        !live.is_empty()
    }

    /// Sweeps find what was not reported, and what follows from it comes to rest.
    async fn agree(&self) {
        let mut left = Vec::new();
        for _ in 0..SWEEPS_MAX {
            self.engine.sweep_now().await;
            self.rest("everything comes to rest after a sweep").await;
            left = self.engine.drift().items;
            let in_quarantine = |item: &DriftItem| {
                let object = item.object.as_ref().map(|object| &object.external_id);
                self.with(|inner| object.is_some_and(|id| inner.is_in_quarantine(id)))
            };
            // What is true of a failed sandbox stays until a person decides.
            let waits_for_a_person = |item: &DriftItem| {
                item.record.as_ref().is_some_and(|record| record.phase == Phase::Failed)
                    && matches!(item.kind, DriftKind::StartedOutside | DriftKind::ObjectLost)
            };
            left.retain(|item| !in_quarantine(item) && !waits_for_a_person(item));
            // So many that a sweep acts on none of them: a person says that it may.
            for item in left.iter().filter(|item| item.kind == DriftKind::MassRemoval) {
                // An error means that the next sweep looks again.
                drop(self.engine.remedy(&item.id, Remedy::Remove, cause()).await);
            }
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(SWEEP_PERIOD).await;
        }
        self.rest("everything comes to rest after all sweeps").await;
        self.with(|inner| {
            // What an outsider made stays, until a person decides.
            if !inner.weather.outsiders {
                inner.violate(None, format!("drift is left: {left:?}"));
            }
        });
    }

    async fn rest(&self, what: &str) {
        let begin = tokio::time::Instant::now();
        loop {
            // Also what was just being put on when it became calm.
            self.release_all().await;
            self.with(WorldState::people_relent);
            for delivery in self.with(|inner| inner.missing()) {
                self.deliver(delivery);
            }
            tokio::time::sleep(REST_PAUSE).await;
            let (rests, unrest) = self.with(|inner| {
                let unrest = inner.unrest();
                (unrest.is_none(), unrest)
            });
            if rests {
                return;
            }
            if begin.elapsed() > REST_TIME_MAX {
                let (home, why) = unrest.expect("it is not at rest");
                self.with(|inner| inner.violate(home, format!("never: {what}: {why}")));
                return;
            }
        }
    }
}

impl WorldState {
    /// What is not at rest, if something is not.
    fn unrest(&self) -> Option<(Option<HomeId>, String)> {
        if let Some(at) = self.missing().first() {
            let guid = self.github.deliveries[*at].guid();
            return Some((None, format!("{guid} is not acknowledged")));
        }
        if let Some(guid) = self.fan_outs.keys().next() {
            return Some((None, format!("{guid} is not applied to all that it concerns")));
        }
        if let Some(home) = self.waits_for_nothing() {
            return Some((Some(home), "its pending start waits for nothing".into()));
        }
        if let Some(row) = self.rows.outbox.first() {
            return Some((Some(row.home), "an effect is still in the outbox".into()));
        }
        if let Some(unrest) = self.unsaid().or_else(|| self.restless_run()) {
            return Some(unrest);
        }
        let under_way = |issue: &&crate::issue::Issue| issue.state.step().is_some();
        if let Some(issue) = self.rows.issues.values().find(under_way) {
            let phase = issue.state.phase();
            return Some((Some(issue.home), format!("it is still in {phase:?}")));
        }
        // A clock that was set back gives a call more time.
        if let Some(home) = self.ledger.open_call() {
            return Some((home, "a call to its provider is under way".into()));
        }
        (!self.is_quiet()).then(|| (None, "something is still going to happen".into()))
    }

    /// Whether a sweep has taken this object down to keep it for a while: one that haste left, once
    /// its generation was given to another sandbox, at another provider.
    fn is_in_quarantine(&self, id: &ExternalId) -> bool {
        let mut objects = self.clouds.iter().flat_map(|cloud| &cloud.objects).map(|o| &o.object);
        let Some(object) = objects.find(|object| object.external_id == *id) else { return false };
        let is_up = object.state == ObjectState::Running;
        let last = object.labels.as_ref().and_then(|labels| {
            Some((labels.generation, self.rows.issues.get(&labels.home)?.generation))
        });
        let is_given = last.is_some_and(|(its, last)| its <= last);
        !is_up && is_given && self.is_left_by_haste(object)
    }

    /// At rest: everything acknowledged is there, one object for each live record and none else.
    fn check_rest(&mut self) {
        let acknowledged: Vec<_> =
            self.github.deliveries.iter().map(|delivery| delivery.guid().clone()).collect();
        for guid in acknowledged {
            self.check_acknowledged(&guid);
        }
        let objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        let objects = objects.filter(|object| object.ours).map(|o| &o.object);
        let objects = objects.filter(|object| !self.is_in_quarantine(&object.external_id));
        let objects: Vec<Object> = objects.cloned().collect();
        for object in objects {
            let labels = object.labels.as_ref().expect("what a call makes has labels");
            let issue = self.rows.issues.get(&labels.home);
            let record = issue.and_then(|issue| issue.state.record());
            if record.is_none_or(|record| record.id != labels.sandbox) {
                let what = format!("{} of {} is an orphan", object.external_id, labels.sandbox);
                self.violate(Some(labels.home), what);
            }
        }
        self.check_all_merged();
        self.check_said();
        self.check_messages();
        self.check_journals();
        self.check_quotas();
        if !self.weather.outsiders {
            self.check_present();
        }
        if !self.weather.callers && !self.ledger.is_clock_behind {
            self.check_truth();
        }
    }

    /// If no outsider changed objects: what is recorded as up or down is there. What a late
    /// delete took a sweep has found.
    fn check_present(&mut self) {
        let lost = self.rows.issues.values().find_map(|issue| {
            let (Some(Phase::Running | Phase::Stopped), Some(id)) =
                (issue.state.phase(), issue.state.external_id())
            else {
                return None;
            };
            let mut objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
            let there = objects.any(|object| object.object.external_id == *id);
            (!there).then(|| (issue.home, format!("{id} is recorded and not there")))
        });
        if let Some((home, what)) = lost {
            self.violate(Some(home), what);
        }
    }

    /// If only GitHub spoke: what it says last is what came of it.
    fn check_truth(&mut self) {
        let wrong = self.rows.issues.values().find_map(|issue| {
            if issue.account != account() {
                return None;
            }
            let number = self.github.issue_of(&issue.facts.issue_id)?;
            let truth = self.github.issue(number).filter(|_| issue.merged_into.is_none())?;
            let phase = issue.state.phase();
            let up = phase == Some(Phase::Running);
            let fits = if truth.deleted {
                true
            } else if !truth.open || self.github.verdict(number).wanted != Wanted::Running {
                !up
            } else if truth.labelled && !self.weather.scope_events {
                // It has one, or waits for a place.
                issue.generation == Generation(0)
                    || phase.is_some()
                    || issue.pending_start.is_some()
            } else {
                true
            };
            (!fits)
                .then(|| (issue.home, format!("issue {number} is not as GitHub says: {phase:?}")))
        });
        if let Some((home, what)) = wrong {
            self.violate(Some(home), what);
        }
    }

    /// Everything was deleted: no object of ours is left, and everybody else's is.
    fn check_nothing_left(&mut self) {
        let objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        let mut left = objects.filter(|object| object.ours).map(|o| &o.object);
        let left = left.find(|object| !self.is_in_quarantine(&object.external_id)).cloned();
        self.check_messages();
        if let Some(object) = left {
            let home = object.labels.map(|labels| labels.home);
            self.violate(home, format!("{} is left over", object.external_id));
        }
    }
}
