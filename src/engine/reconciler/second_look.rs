//! The second look: the sweep reads each home that a list nominates, looks for its objects again, and
//! sends the observation to its actor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use super::super::executor::Lease;
use super::compare::{Finding, KnownHome, Ours, compare};
use super::drift::Drifted;
use super::items::Outlook;
use super::read::read;
use super::sides::{Home, Sides, SweepParts};
use crate::issue::IssueEvent;
use crate::issue::event::ListedObject;
use crate::sabotage::{Bug, on};
use crate::sandbox::{Lifecycle, ObjectKey};
use crate::types::{ProviderName, SandboxId};

/// How long a second look at a home may take, and how long its actor may take to answer.
pub(super) const LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// How many homes are looked at a second time at once.
const LOOKS_MAX: usize = 8;
/// After so many second looks that failed, the rest is left to the next sweep: a provider in
/// trouble is not asked for a thousand homes more.
const FAILURES_MAX: usize = 16;

/// Looks at the nominated homes a second time, a few at once, and sends their actors what it saw.
pub(super) async fn confirm_all(
    parts: &SweepParts,
    name: &ProviderName,
    sides: &Sides,
    nominated: &[&Home],
) -> Vec<Drifted> {
    let failures = AtomicUsize::new(0);
    let mut waiting = nominated.iter();
    let mut looks = FuturesOrdered::new();
    let mut left = Vec::new();
    loop {
        while looks.len() < LOOKS_MAX
            && let Some(home) = waiting.next()
        {
            looks.push_back(confirm(parts, name, sides, home, &failures));
        }
        match looks.next().await {
            Some(drifted) => left.extend(drifted),
            None => return left,
        }
    }
}

/// Looks at one home a second time and sends its actor what it saw. Returns what disagrees then.
async fn confirm(
    parts: &SweepParts,
    name: &ProviderName,
    sides: &Sides,
    home: &Home,
    failures: &AtomicUsize,
) -> Vec<Drifted> {
    let give_up = |why: &str| sides.items(name, home, &Outlook::Failed(why.to_owned()));
    if parts.env.is_stopping() {
        return give_up("the server is shutting down");
    }
    if failures.load(Ordering::Relaxed) >= FAILURES_MAX {
        return give_up("too many second looks failed");
    }
    let Some(slot) = parts.executor.lease(home.known.home) else {
        return give_up("a call to the provider is under way");
    };
    let late = parts.env.clock.sleep_until(parts.env.now().after(LOOK_TIME_MAX));
    let looked = tokio::select! {
        biased;
        looked = look_and_send(parts, name, sides, home, slot) => looked,
        () = late => Err("it took too long".to_owned()),
    };
    // The others have their turn.
    tokio::task::yield_now().await;
    match looked {
        Ok(left) => sides.items(name, &left, &Outlook::Decided),
        Err(why) => {
            failures.fetch_add(1, Ordering::Relaxed);
            let home = home.known.home.0;
            tracing::warn!(home, provider = %name, %why, "failed to look at an issue again; the next sweep retries");
            give_up(&why)
        }
    }
}

/// The second look, and the home as it is after its actor decided.
async fn look_and_send(
    parts: &SweepParts,
    name: &ProviderName,
    sides: &Sides,
    first: &Home,
    slot: Lease,
) -> Result<Home, String> {
    let home = first.known.home;
    let provider = parts.providers.get(name).ok_or("it is not configured")?;
    // Read first, then look: what is seen is newer than what is known.
    let stored = parts.env.store.load(home).await.map_err(|error| error.to_string())?;
    let seed = stored.is_none().then(|| (first.known.account.clone(), first.known.issue.clone()));
    let known = stored.as_ref().map_or_else(|| first.known.clone(), KnownHome::of);
    let asked_at = parts.env.now();
    let objects = if on(Bug::StaleList) {
        first.objects.clone()
    } else {
        find(parts, provider.as_ref(), name, &known, &first.objects).await?
    };
    // What the actor decides may need the slot.
    drop(slot);
    let ids: Vec<SandboxId> = objects.iter().map(|object| object.labels.sandbox.clone()).collect();
    let mut deleted = parts.env.store.deleted(&ids).await.map_err(|error| error.to_string())?;
    deleted.extend(ids.into_iter().filter(|id| sides.deleted.contains(id)));
    let is_deleted = |id: &SandboxId| deleted.contains(id);
    let findings = compare(name, &known, &objects, is_deleted);
    if findings.is_empty() && !known.has_open_stop(name) {
        return Ok(Home { known, objects, findings });
    }
    if findings.contains(&Finding::Lost) && !first.findings.contains(&Finding::Lost) {
        // Gone since the list was read: it was not counted, and could be one of too many.
        return Ok(Home { known, objects, findings });
    }
    let swept = |object: &Ours| ListedObject {
        seen: object.seen(),
        known_deleted: deleted.contains(&object.labels.sandbox),
        first_seen_at: sides.first_seen(object),
    };
    let observation = known.observation(name, asked_at, objects.iter().map(swept).collect());
    let applied =
        parts.actors.apply(home, seed, || IssueEvent::Observed(observation.clone())).await;
    applied.map_err(|error| error.to_string())?;
    let known = read(parts, home).await.map_err(|_| "the store failed")?.unwrap_or(known);
    let findings = compare(name, &known, &objects, is_deleted);
    Ok(Home { known, objects, findings })
}

/// All of a home's objects now.
pub(super) async fn find(
    parts: &SweepParts,
    provider: &dyn Lifecycle,
    name: &ProviderName,
    known: &KnownHome,
    listed: &[Ours],
) -> Result<Vec<Ours>, String> {
    let instance = parts.env.store.instance();
    let recorded = known.at(name).map(|recorded| &recorded.name);
    let Some(object_name) = recorded.or_else(|| listed.first().map(|object| &object.name)) else {
        return Ok(Vec::new());
    };
    let confirmed = parts.identities.confirm(name).await;
    confirmed.map_err(|why| why.describe(name))?;
    let home = known.home;
    let key = ObjectKey { name: object_name.clone(), instance: instance.clone(), home };
    let found = provider.find(key).await.map_err(|error| error.to_string())?;
    let ours = found.into_iter().filter_map(|object| Ours::of(object, &instance));
    Ok(ours.filter(|object| object.labels.home == home).collect())
}
