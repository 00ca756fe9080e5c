//! One sweep of one provider: read the records, list the objects, compare, look a second time, tell
//! the actors.
//!
//! The order is what makes it safe. Each home that the list nominates is read anew, and only *then*
//! looked for; so what is told is newer than the state it is told about, and the actor takes it only
//! where that state is still its own ([`Observation`](crate::issue::event::Observation)). A list that is stale,
//! partial or wrong can nominate too many, never decide.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashSet;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use crate::issue::IssueEvent;
use crate::issue::event::SweptObject;
use crate::sabotage::{Bug, on};
use crate::sandbox::{ObjectKey, SandboxProvider};
use crate::store::Orphan;
use crate::types::{ExternalId, HomeId, InstanceId, ProviderName, SandboxId, Timestamp};

use super::super::actors::Actors;
use super::super::environment::Environment;
use super::super::executor::{Executor, Lease};
use super::super::identity::Identities;
use super::super::providers::Providers;
use super::compare::{Dated, Finding, OrphanKind, Ours, SweepTally, compare};
use super::drift::{Drift, Drifted, SweepResult, Swept};
use super::items::{self, NotMade, Outlook};

/// How many records are read at once.
const PAGE_LEN: usize = 1_000;
/// How many ids the store is asked about at once.
const IDS_LEN: usize = 500;
/// How long a provider's list may take.
const LIST_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a second look at a home may take, and how long its actor may take to answer.
pub(super) const LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// How many homes are looked at a second time at once.
const LOOKS_MAX: usize = 8;
/// After so many second looks that failed, the rest is left to the next sweep: a provider in
/// trouble is not asked for a thousand homes more.
const FAILURES_MAX: usize = 16;

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

/// What a sweep led to.
pub(super) struct Outcome {
    pub swept: Swept,
    /// When something that was seen is due before the next sweep's time.
    pub again_at: Option<Timestamp>,
}

/// What both sides say, read once for a sweep.
struct Sides {
    /// Each home that has a record or an object at this provider.
    homes: BTreeMap<HomeId, Home>,
    /// Which of the objects' sandboxes are deleted, as far as the store knows.
    deleted: HashSet<SandboxId>,
    /// When the objects without a record were first seen.
    first_seen: HashMap<ExternalId, Timestamp>,
    /// When the list had been read.
    at: Timestamp,
    tally: SweepTally,
    again_at: Option<Timestamp>,
}

struct Home {
    known: Dated,
    objects: Vec<Ours>,
    findings: Vec<Finding>,
}

/// Sweeps one provider.
pub(super) async fn sweep(parts: &SweepParts, drift: &Drift, name: &ProviderName) -> Outcome {
    let swept = match look(parts, name).await {
        Ok(sides) => return act(parts, drift, name, sides).await,
        Err(why) => Swept {
            result: SweepResult::NotMade,
            at: parts.env.now(),
            compared: None,
            found: vec![items::not_made(name, why, parts.env.now())],
        },
    };
    Outcome { swept, again_at: None }
}

/// Reads both sides and compares them.
async fn look(parts: &SweepParts, name: &ProviderName) -> Result<Sides, NotMade> {
    parts.identities.ask(name).await?;
    let provider = parts.providers.get(name);
    let provider = provider.ok_or_else(|| NotMade::Unreachable("it is not configured".into()))?;
    let mut homes = records(parts, name).await?;
    let records = homes.len();
    // Somebody may have found out meanwhile that it is somebody else.
    parts.identities.confirm(name).await?;
    let listed = list(parts, provider.as_ref()).await?;
    let at = parts.env.now();
    let ids: Vec<SandboxId> = listed.iter().map(|object| object.labels.sandbox.clone()).collect();
    let objects = listed.len();
    for object in listed {
        let home = object.labels.home;
        if let Some(there) = homes.get_mut(&home) {
            there.objects.push(object);
        } else {
            let known =
                read(parts, home).await?.unwrap_or_else(|| Dated::unheard_of(&object.labels));
            homes.insert(home, Home { known, objects: vec![object], findings: Vec::new() });
        }
    }
    reserve(parts, &homes).await;
    let mut deleted = HashSet::new();
    for ids in ids.chunks(IDS_LEN) {
        deleted.extend(parts.env.store.deleted(ids).await.map_err(unread)?);
    }
    let is_deleted = |id: &SandboxId| deleted.contains(id);
    for (home, there) in &mut homes {
        // Not taken up yet after the start: what its objects are like is no news to it.
        if !parts.restarting.contains(home) {
            there.findings = compare(name, &there.known, &there.objects, is_deleted);
        }
    }
    let first_seen = orphans(parts, name, &homes, at).await?;
    let mut sides = Sides {
        tally: SweepTally { records, objects, ..SweepTally::default() },
        homes,
        deleted,
        first_seen,
        at,
        again_at: None,
    };
    sides.count();
    if sides.tally.lost > 0 {
        // What answered the list may not be what said who it is.
        parts.identities.ask(name).await?;
    }
    Ok(sides)
}

impl Sides {
    fn count(&mut self) {
        for finding in self.homes.values().flat_map(|home| &home.findings) {
            match finding {
                Finding::Lost => self.tally.lost += 1,
                Finding::Down(_) | Finding::Up => {}
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

    fn first_seen(&self, object: &Ours) -> Timestamp {
        self.first_seen.get(&object.external_id).copied().unwrap_or(self.at)
    }

    /// A home's findings as items.
    fn items(&self, name: &ProviderName, home: &Home, outlook: &Outlook) -> Vec<Drifted> {
        let item = |finding: &Finding| {
            let first_seen_at = match finding {
                Finding::Orphan(object, _) => self.first_seen(object),
                Finding::Lost | Finding::Down(_) | Finding::Up => self.at,
            };
            items::of_home(name, &home.known, finding, first_seen_at, outlook)
        };
        home.findings.iter().map(item).collect()
    }
}

/// Tells the actors what was found, unless it is too much to be believed.
async fn act(parts: &SweepParts, drift: &Drift, name: &ProviderName, sides: Sides) -> Outcome {
    let doubted = drift.doubted(name, sides.tally.too_much());
    let compared = Some((sides.tally.records, sides.tally.objects));
    let nominated: Vec<&Home> =
        sides.homes.values().filter(|home| !home.findings.is_empty()).collect();
    let (result, found) = if doubted.is_empty() {
        (SweepResult::Done, confirm_all(parts, name, &sides, &nominated).await)
    } else {
        let masses = doubted.iter().map(|what| items::of_mass(name, *what, &sides.tally, sides.at));
        let held_back =
            nominated.iter().flat_map(|home| sides.items(name, home, &Outlook::HeldBack));
        (SweepResult::HeldBack, masses.chain(held_back).collect())
    };
    let at = parts.env.now();
    let again_at = sides.again_at;
    Outcome { swept: Swept { result, at, compared, found }, again_at }
}

/// Looks at the nominated homes a second time, a few at once, and tells their actors.
async fn confirm_all(
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

/// Looks at one home a second time and tells its actor. Returns what disagrees after that.
async fn confirm(
    parts: &SweepParts,
    name: &ProviderName,
    sides: &Sides,
    home: &Home,
    failures: &AtomicUsize,
) -> Vec<Drifted> {
    let give_up = |why: &str| sides.items(name, home, &Outlook::NotTold(why.to_owned()));
    if parts.env.is_stopping() {
        return give_up("the server is ending");
    }
    if failures.load(Ordering::Relaxed) >= FAILURES_MAX {
        return give_up("too many second looks failed");
    }
    let Some(slot) = parts.executor.lease(home.known.home) else {
        return give_up("a call to the provider is under way");
    };
    let late = parts.env.clock.sleep_until(parts.env.now().after(LOOK_TIME_MAX));
    let told = tokio::select! {
        biased;
        told = look_and_tell(parts, name, sides, home, slot) => told,
        () = late => Err("it took too long".to_owned()),
    };
    // The others have their turn.
    tokio::task::yield_now().await;
    match told {
        Ok(left) => sides.items(name, &left, &Outlook::Told),
        Err(why) => {
            failures.fetch_add(1, Ordering::Relaxed);
            let home = home.known.home.0;
            tracing::warn!(home, provider = %name, %why, "a sweep left an issue to the next one");
            give_up(&why)
        }
    }
}

/// The second look and what comes of it: the home as it is after its actor was told.
async fn look_and_tell(
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
    let known = stored.as_ref().map_or_else(|| first.known.clone(), Dated::of);
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
    if findings.is_empty() {
        return Ok(Home { known, objects, findings });
    }
    if findings.contains(&Finding::Lost) && !first.findings.contains(&Finding::Lost) {
        // Gone since the list was read: it was not counted, and could be one of too many.
        return Ok(Home { known, objects, findings });
    }
    let swept = |object: &Ours| SweptObject {
        seen: object.seen(),
        known_deleted: deleted.contains(&object.labels.sandbox),
        first_seen_at: sides.first_seen(object),
    };
    let observation = known.observation(name, objects.iter().map(swept).collect());
    let told = parts.actors.apply(home, seed, || IssueEvent::Observed(observation.clone())).await;
    told.map_err(|error| error.to_string())?;
    let known = read(parts, home).await.map_err(|_| "the store failed")?.unwrap_or(known);
    let findings = compare(name, &known, &objects, is_deleted);
    Ok(Home { known, objects, findings })
}

/// All of a home's objects now.
pub(super) async fn find(
    parts: &SweepParts,
    provider: &dyn SandboxProvider,
    name: &ProviderName,
    known: &Dated,
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

/// The homes with a live sandbox of this provider, page by page.
async fn records(
    parts: &SweepParts,
    name: &ProviderName,
) -> Result<BTreeMap<HomeId, Home>, NotMade> {
    let mut homes = BTreeMap::new();
    let mut after = None;
    loop {
        let page = parts.env.store.live(after, PAGE_LEN).await.map_err(unread)?;
        let Some(last) = page.last() else { return Ok(homes) };
        after = Some(last.home);
        let known = page.iter().map(Dated::of).filter(|known| known.at(name).is_some());
        homes.extend(
            known.map(|known| {
                (known.home, Home { known, objects: Vec::new(), findings: Vec::new() })
            }),
        );
        tokio::task::yield_now().await;
    }
}

/// The provider's objects of this installation.
async fn list(parts: &SweepParts, provider: &dyn SandboxProvider) -> Result<Vec<Ours>, NotMade> {
    let instance: InstanceId = parts.env.store.instance();
    let late = parts.env.clock.sleep_until(parts.env.now().after(LIST_TIME_MAX));
    let listed = tokio::select! {
        biased;
        listed = provider.list(instance.clone()) => listed,
        () = late => return Err(NotMade::Unreachable("its list did not come in time".into())),
    };
    let listed = listed.map_err(|error| NotMade::Unreachable(error.to_string()))?;
    Ok(listed.into_iter().filter_map(|object| Ours::of(object, &instance)).collect())
}

async fn read(parts: &SweepParts, home: HomeId) -> Result<Option<Dated>, NotMade> {
    let stored = parts.env.store.load(home).await.map_err(unread)?;
    Ok(stored.as_ref().map(Dated::of))
}

/// Homes whose number this store has not given (it may be a restored backup) are never given to
/// another issue.
async fn reserve(parts: &SweepParts, homes: &BTreeMap<HomeId, Home>) {
    // A stored home that an object names has had a generation.
    let unheard_of = homes.values().filter(|home| home.known.generation.0 == 0);
    let Some(highest) = unheard_of.map(|home| home.known.home).max() else { return };
    if let Err(error) = parts.env.store.reserve_homes(highest).await {
        // An object may carry any number, also one that no home can have.
        tracing::warn!(home = highest.0, %error, "the number that an object carries is not reserved");
    }
}

/// Keeps which objects are without a record, and since when, also across restarts.
async fn orphans(
    parts: &SweepParts,
    name: &ProviderName,
    homes: &BTreeMap<HomeId, Home>,
    at: Timestamp,
) -> Result<HashMap<ExternalId, Timestamp>, NotMade> {
    let stored = parts.env.store.orphans().await.map_err(unread)?;
    let mut first_seen: HashMap<ExternalId, Timestamp> = (stored.into_iter())
        .filter(|orphan| orphan.provider == *name)
        .map(|orphan| (orphan.external_id, orphan.first_seen_at))
        .collect();
    let mut new = Vec::new();
    let mut still = HashSet::new();
    for finding in homes.values().flat_map(|home| &home.findings) {
        let Finding::Orphan(object, kind) = finding else { continue };
        if *kind == OrphanKind::Deleted {
            continue;
        }
        still.insert(object.external_id.clone());
        if !first_seen.contains_key(&object.external_id) {
            first_seen.insert(object.external_id.clone(), at);
            new.push(orphan(name, object, at));
        }
    }
    // A home whose call is under way says nothing about its objects now.
    for home in homes.values().filter(|home| home.findings.is_empty()) {
        let recorded = home.known.at(name).and_then(|recorded| recorded.external_id.as_ref());
        let others = home.objects.iter().map(|object| &object.external_id);
        still.extend(others.filter(|id| Some(*id) != recorded).cloned());
    }
    let mut over: Vec<_> = first_seen
        .keys()
        .filter(|id| !still.contains(*id))
        .map(|id| (name.clone(), id.clone()))
        .collect();
    over.sort();
    if !new.is_empty() {
        parts.env.store.put_orphans(new).await.map_err(unread)?;
    }
    if !over.is_empty() {
        parts.env.store.remove_orphans(&over).await.map_err(unread)?;
    }
    Ok(first_seen)
}

fn orphan(name: &ProviderName, object: &Ours, at: Timestamp) -> Orphan {
    let Ours { external_id, name: object_name, labels, .. } = object.clone();
    Orphan {
        provider: name.clone(),
        external_id,
        object_name,
        sandbox: labels.sandbox,
        home: labels.home,
        issue: labels.issue,
        generation: labels.generation,
        mode: labels.mode,
        first_seen_at: at,
    }
}

fn unread(error: impl std::fmt::Display) -> NotMade {
    tracing::error!(%error, "a sweep could not use the store");
    NotMade::Unreachable("our own store failed under the sweep; see the log".into())
}
