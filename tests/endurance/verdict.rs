//! Checks of the outcome, counted from the records, the provider's files and the database.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use issuebox::store::Store;
use issuebox::store::sqlite::SqliteStore;
use issuebox::types::DeliveryId;
use serde_json::{Value, json};

use crate::plan::{End, Script};
use crate::process::{Object, Place, Server, WAIT, send, until_within};
use crate::story::StoryDelivery;

/// How many requests are under way at once where there are many to make.
const AT_ONCE: usize = 12;

/// What is done about sandboxes that have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// They are retried, as a person at the dashboard would.
    Retried,
    /// There must be none.
    Never,
}

/// How long everything may take to come to rest. After an outage the provider is tried again after
/// up to 20 s, what waits for it comes back after up to 20 s more, and then has its turns.
const REST_WITHIN: Duration = Duration::from_secs(180);

/// Waits until nothing is under way any more.
pub async fn quiet(server: &Server, failed: Failed) {
    let is_quiet = || async {
        let system = server.get("/v1/system").await.json();
        let count = |phase: &str| system["data"]["sandboxes"][phase].as_u64().expect("a number");
        if count("failed") > 0 {
            let all = list(server, "phase=failed").await;
            assert_eq!(failed, Failed::Retried, "{all:?}");
            for failed in all.values() {
                let id = failed["id"].as_str().expect("an id");
                server.post(&format!("/v1/sandboxes/{id}/retry"), &json!({})).await;
            }
        }
        ["creating", "starting", "stopping", "deleting", "failed"].iter().all(|p| count(p) == 0)
    };
    until_within(REST_WITHIN, "everything comes to rest", is_quiet).await;
}

/// Waits until a sweep that began after this finds nothing that records and providers disagree
/// on. An object of fast mode whose record was lost is removed a minute after it was first seen.
pub async fn no_drift(server: &Server) {
    let sweeps = || async {
        let drift = server.get("/v1/system/drift").await.json();
        let done = drift["sweeps"][0]["done"].as_u64().expect("a number");
        (done, drift["total"].as_u64().expect("a number"))
    };
    let (before, _) = sweeps().await;
    let is_over = || async {
        let (done, items) = sweeps().await;
        // The one that is under way now may have begun before.
        done > before + 1 && items == 0
    };
    until_within(2 * WAIT, "there is no drift", is_over).await;
}

/// Every sandbox of a list, all pages of it, by its issue.
pub async fn list(server: &Server, query: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/sandboxes?limit=200&{query}{cursor}")).await.json();
        for sandbox in page["data"].as_array().expect("a list") {
            let issue = sandbox["issueId"].as_str().expect("an id").to_owned();
            let other = all.insert(issue, sandbox.clone());
            assert!(other.is_none(), "an issue has two sandboxes: {other:?} and {sandbox}");
        }
        let Some(next) = page["nextCursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

/// Checks each script's end, and that every object is some sandbox's. Returns how many there are.
pub async fn each_has_come_to_its_end(place: &Place, server: &Server, scripts: &[Script]) -> usize {
    let mut live = list(server, "").await;
    let objects = place.objects();
    let count = objects.len();
    let mut there: BTreeMap<String, Vec<Object>> = BTreeMap::new();
    for object in objects {
        there.entry(object.issue.clone()).or_default().push(object);
    }
    let mut wrong = Vec::new();
    for script in scripts {
        let issue = script.issue.to_string();
        let (sandbox, objects) = (live.remove(&issue), there.remove(&issue).unwrap_or_default());
        if let Err(why) = fits(script, sandbox.as_ref(), &objects) {
            let events = server.get(&format!("/v1/issues/{issue}/events")).await.text;
            wrong.push(format!("{issue} ({}): {why}\n  {events}", script.what));
        }
    }
    wrong.extend(live.into_iter().map(|of| format!("a sandbox that was not requested: {of:?}")));
    wrong.extend(there.into_iter().map(|of| format!("an object that was not requested: {of:?}")));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    count
}

/// Whether an issue's sandbox and objects are what its script comes to.
fn fits(script: &Script, sandbox: Option<&Value>, objects: &[Object]) -> Result<(), String> {
    let Some(sandbox) = sandbox else {
        return match script.end {
            _ if !objects.is_empty() => Err(format!("left without a record: {objects:?}")),
            End::Gone | End::Down => Ok(()),
            End::Running | End::Stopped => Err("it is lost".to_owned()),
        };
    };
    let [object] = objects else { return Err(format!("{sandbox} has the objects {objects:?}")) };
    let text = |key: &str| sandbox[key].as_str().unwrap_or_default();
    let is_its = object.sandbox == text("id") && object.external_id == text("externalId");
    let phase = match script.end {
        End::Running => "running",
        End::Stopped | End::Down => "stopped",
        End::Gone => return Err(format!("it is there although it was deleted: {sandbox}")),
    };
    if !is_its || text("phase") != phase || object.state != phase || text("wanted") != phase {
        return Err(format!("it should be {phase}: {sandbox} with {object:?}"));
    }
    match &script.title {
        Some(title) if text("issueTitle") != title => Err(format!("not {title:?}: {sandbox}")),
        Some(_) | None => Ok(()),
    }
}

/// Sends everything that was acknowledged once more: all of it must be known.
pub async fn all_are_known(server: &Server, acknowledged: &BTreeMap<String, StoryDelivery>) {
    let check = |(guid, sent): (&String, &StoryDelivery)| {
        let request = server.delivery(sent.event, guid, sent.body.clone());
        let guid = guid.clone();
        async move {
            let answer = send(request).await;
            let status = &answer.json()["status"];
            assert_eq!((answer.status, status), (200, &json!("duplicate")), "{guid}");
        }
    };
    let checks = futures_util::stream::iter(acknowledged).map(check);
    checks.buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Checks in the database of a server that has ended that each delivery is there with what came
/// of it.
pub async fn each_has_a_result(data: &Path, acknowledged: &BTreeMap<String, StoryDelivery>) {
    let store = SqliteStore::open(data).expect("no server has it open");
    for guid in acknowledged.keys() {
        let id = DeliveryId::parse(guid).expect("a valid id");
        let row = store.delivery(&id).await.expect("readable");
        let row = row.unwrap_or_else(|| panic!("{guid} was acknowledged and is lost"));
        assert!(!row.reason.is_empty() && (row.home.is_some() || !row.applied), "{row:?}");
    }
}
