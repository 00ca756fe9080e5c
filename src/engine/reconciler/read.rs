//! Reads both sides of a sweep and compares them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::compare::{Finding, KnownHome, OrphanKind, Ours, SweepTally, compare};
use super::items::NotMade;
use super::records::Records;
use super::sides::{Home, Sides, SweepParts};
use crate::sandbox::Lifecycle;
use crate::store::{Orphan, StoreError};
use crate::types::{ExternalId, HomeId, InstanceId, ProviderName, SandboxId, Timestamp};

/// How many records are read at once.
const PAGE_LEN: usize = 1_000;
/// How many ids the store is asked about at once.
const IDS_LEN: usize = 500;
/// How long a provider's list may take.
const LIST_TIME_MAX: Duration = Duration::from_secs(60);

/// Reads both sides and compares them.
pub(super) async fn look(parts: &SweepParts, name: &ProviderName) -> Result<Sides, NotMade> {
    parts.identities.ask(name).await?;
    let provider = parts.providers.get(name);
    let provider = provider.ok_or_else(|| NotMade::Unreachable("it is not configured".into()))?;
    let known = records(parts, name).await?;
    let records = known.len();
    // A call may have found out meanwhile that it has another identity.
    parts.identities.confirm(name).await?;
    let listed = list(parts, provider.as_ref()).await?;
    let at = parts.env.now();
    let objects = listed.len();
    let mut deleted = HashSet::new();
    for some in listed.chunks(IDS_LEN) {
        let ids: Vec<SandboxId> = some.iter().map(|one| one.labels.sandbox.clone()).collect();
        deleted.extend(parts.env.store.deleted(&ids).await.map_err(unread)?);
    }
    let (homes, unreadable) = disagreeing(parts, name, known, listed, &deleted).await?;
    reserve(parts, &homes).await;
    let first_seen = orphans(parts, name, &homes, unreadable, at).await?;
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

/// The homes with a live sandbox of this provider, in their order, page by page.
async fn records(parts: &SweepParts, name: &ProviderName) -> Result<Records, NotMade> {
    let mut known = Records::new(name.clone());
    let mut after = None;
    loop {
        let page = parts.env.store.live(after, PAGE_LEN).await.map_err(unread)?;
        let Some(last) = page.last() else { return Ok(known) };
        after = Some(last.home);
        page.iter().for_each(|issue| known.add(&KnownHome::of(issue)));
        tokio::task::yield_now().await;
    }
}

/// Goes through both sides home by home, and keeps only the homes about which they disagree, of which an
/// object is listed that no record names, or which a late stop may have taken down: of a hundred thousand
/// it is a few. Also says which objects belong to a home that cannot be read. Both sides are in the order
/// of the homes.
async fn disagreeing(
    parts: &SweepParts,
    name: &ProviderName,
    known: Records,
    listed: Vec<Ours>,
    deleted: &HashSet<SandboxId>,
) -> Result<(BTreeMap<HomeId, Home>, HashSet<ExternalId>), NotMade> {
    let (mut homes, mut unreadable) = (BTreeMap::new(), HashSet::new());
    let (mut known, mut listed) = (known.into_iter().peekable(), listed.into_iter().peekable());
    loop {
        let next = [known.peek().map(|known| known.home), listed.peek().map(|one| one.labels.home)];
        let Some(home) = next.into_iter().flatten().min() else { return Ok((homes, unreadable)) };
        let recorded = known.next_if(|known| known.home == home);
        let objects: Vec<Ours> =
            std::iter::from_fn(|| listed.next_if(|one| one.labels.home == home)).collect();
        let known = match (recorded, objects.first()) {
            (Some(recorded), _) => recorded,
            (None, Some(object)) => match parts.env.store.load(home).await {
                // Nothing is said of an object whose record cannot be read, least of all that there is
                // none. The store has noted the damage.
                Err(StoreError::Damaged { .. }) => {
                    unreadable.extend(objects.into_iter().map(|object| object.external_id));
                    continue;
                }
                stored => {
                    let stored = stored.map_err(unread)?.as_ref().map(KnownHome::of);
                    stored.unwrap_or_else(|| KnownHome::unknown(&object.labels))
                }
            },
            (None, None) => continue,
        };
        let findings = if parts.restarting.contains(&home) {
            // Not resumed yet after the start: it looks at its objects by itself.
            Vec::new()
        } else {
            compare(name, &known, &objects, |id| deleted.contains(id))
        };
        let recorded = known.at(name).and_then(|recorded| recorded.external_id.as_ref());
        let are_named = objects.iter().all(|object| Some(&object.external_id) == recorded);
        if !findings.is_empty() || !are_named || known.has_open_stop(name) {
            homes.insert(home, Home { known, objects, findings });
        }
    }
}

/// The provider's objects of this installation, in the order of their homes.
async fn list(parts: &SweepParts, provider: &dyn Lifecycle) -> Result<Vec<Ours>, NotMade> {
    let instance: InstanceId = parts.env.store.instance();
    let late = parts.env.clock.sleep_until(parts.env.now().after(LIST_TIME_MAX));
    let listed = tokio::select! {
        biased;
        listed = provider.list(instance.clone()) => listed,
        () = late => return Err(NotMade::Unreachable("its list did not arrive in time".into())),
    };
    let listed = listed.map_err(|error| NotMade::Unreachable(error.to_string()))?;
    let ours = |object| Ours::of(object, &instance);
    let mut ours: Vec<Ours> = listed.into_iter().filter_map(ours).collect();
    // A stable sort: a home's objects stay in the provider's order.
    ours.sort_by_key(|object| object.labels.home);
    Ok(ours)
}

/// A home as the store has it now.
pub(super) async fn read(parts: &SweepParts, home: HomeId) -> Result<Option<KnownHome>, NotMade> {
    let stored = parts.env.store.load(home).await.map_err(unread)?;
    Ok(stored.as_ref().map(KnownHome::of))
}

/// Homes whose number this store has not given (it may be a restored backup) are never given to
/// another issue.
async fn reserve(parts: &SweepParts, homes: &BTreeMap<HomeId, Home>) {
    // A stored home that an object names has had a generation.
    let unknown = homes.values().filter(|home| home.known.generation.0 == 0);
    let Some(highest) = unknown.map(|home| home.known.home).max() else { return };
    if let Err(error) = parts.env.store.reserve_homes(highest).await {
        // An object may carry any number, also one that no home can have.
        tracing::warn!(home = highest.0, %error, "an object's labels name a home id that this store never gave, as after an older backup was restored; failed to keep the id from being given to a new issue, the next sweep tries again");
    }
}

/// Keeps which objects are without a record, and since when, also across restarts.
async fn orphans(
    parts: &SweepParts,
    name: &ProviderName,
    homes: &BTreeMap<HomeId, Home>,
    unreadable: HashSet<ExternalId>,
    at: Timestamp,
) -> Result<HashMap<ExternalId, Timestamp>, NotMade> {
    let stored = parts.env.store.orphans().await.map_err(unread)?;
    let mut first_seen: HashMap<ExternalId, Timestamp> = (stored.into_iter())
        .filter(|orphan| orphan.provider == *name)
        .map(|orphan| (orphan.external_id, orphan.first_seen_at))
        .collect();
    let mut new = Vec::new();
    // An object whose record cannot be read keeps what is known of it.
    let mut still = unreadable;
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
    tracing::error!(%error, "the store failed during a sweep; the next sweep retries");
    NotMade::Unreachable("the server's own store failed during the sweep; see the log".into())
}
