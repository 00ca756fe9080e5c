//! Webhooks: deliveries are signed and sent, or counted as failed while the receiver's door is closed,
//! and stay in the log for three days, as at GitHub.

use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, Mac};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::Sha256;

use super::ModelShared;
use super::state::ModelState;

/// How long GitHub keeps a delivery.
const RETENTION: SignedDuration = SignedDuration::from_hours(72);
/// How long GitHub waits for the receiver.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDoor {
    /// Nothing listens: each fails with 502.
    Closed,
    /// Something in between answers with this status, and the receiver never sees the delivery.
    Swallows(u16),
    /// They are sent to this address.
    Open(String),
}

/// Which hook a delivery belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookSource {
    App,
    /// A repository and its hook.
    Repository(u64, u64),
}

/// A hook of a repository.
#[derive(Clone, Debug)]
pub(super) struct HookRecord {
    pub url: String,
    pub events: Vec<String>,
    pub created: Timestamp,
}

/// One delivery.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRecord {
    pub id: u64,
    pub guid: String,
    source: HookSource,
    event: String,
    installation: Option<u64>,
    repository: Option<u64>,
    payload: Value,
    at: Timestamp,
    redelivery: bool,
    /// Whether the log does not have the payload any more.
    pub forgotten: bool,
    /// The receiver's status and what GitHub says of it; `None` until it was sent.
    result: Option<(u16, String)>,
}

impl DeliveryRecord {
    /// The receiver's status, 0 until it was sent.
    pub fn status_code(&self) -> u16 {
        self.result.as_ref().map_or(0, |(code, _)| *code)
    }

    /// Its entry in the log; `full` with what was sent.
    pub fn show(&self, full: bool) -> Value {
        let (code, words) = self.result.clone().unwrap_or_default();
        let mut shown = json!({
            "id": self.id, "guid": self.guid, "delivered_at": self.at.to_string(),
            "redelivery": self.redelivery, "duration": 0.03, "status": words, "status_code": code,
            "event": self.event, "action": self.payload["action"],
            "installation_id": self.installation, "repository_id": self.repository,
            "throttled_at": null,
        });
        if full {
            let headers = json!({"X-GitHub-Delivery": self.guid, "X-GitHub-Event": self.event});
            shown["url"] = json!("");
            let payload = if self.forgotten { &Value::Null } else { &self.payload };
            shown["request"] = json!({"headers": headers, "payload": payload});
            shown["response"] = json!({"headers": {}, "payload": null});
        }
        shown
    }
}

impl ModelState {
    /// Delivers an event of a repository to the App, if it is installed there, and to the
    /// repository's hooks. `more` is what this event has beside repository and sender.
    pub fn deliver(&mut self, event: &str, action: &str, repository: u64, actor: u64, more: Value) {
        let mut payload = more;
        payload["action"] = json!(action);
        payload["repository"] = self.show_repository(repository, false);
        payload["sender"] = self.show_user(actor);
        let guid = new_guid();
        let installation = self.installation_of(repository).filter(|id| {
            let is_suspended = self.installations[id].suspended.is_some();
            !is_suspended && self.app.events.iter().any(|known| known == event)
        });
        if let Some(id) = installation {
            let mut payload = payload.clone();
            payload["installation"] = json!({"id": id, "node_id": format!("IN_{id}")});
            self.enqueue(&guid, HookSource::App, event, Some(id), Some(repository), payload);
        }
        let hooks = self.repositories[&repository].hooks.iter();
        let subscribed =
            hooks.filter(|(_, hook)| hook.events.iter().any(|e| e == event || e == "*"));
        let ids: Vec<u64> = subscribed.map(|(id, _)| *id).collect();
        for id in ids {
            let source = HookSource::Repository(repository, id);
            self.enqueue(&guid, source, event, None, Some(repository), payload.clone());
        }
    }

    /// Delivers an event of an installation to the App.
    pub fn deliver_installation(&mut self, action: &str, id: u64, more: Value) {
        let mut payload = more;
        payload["action"] = json!(action);
        payload["installation"] = self.show_installation(id);
        payload["sender"] = self.show_user(self.installations[&id].account);
        let guid = new_guid();
        self.enqueue(&guid, HookSource::App, "installation", Some(id), None, payload);
    }

    fn enqueue(
        &mut self,
        guid: &str,
        source: HookSource,
        event: &str,
        installation: Option<u64>,
        repository: Option<u64>,
        payload: Value,
    ) {
        let delivery = DeliveryRecord {
            id: self.next_id(),
            guid: guid.to_owned(),
            source,
            event: event.to_owned(),
            installation,
            repository,
            payload,
            at: self.now(),
            redelivery: false,
            forgotten: false,
            result: None,
        };
        self.push_delivery(delivery);
    }

    fn push_delivery(&mut self, mut delivery: DeliveryRecord) {
        delivery.result = match &self.door {
            HookDoor::Closed => Some((502, "failed to connect to host".to_owned())),
            HookDoor::Swallows(status) => Some((*status, words_of(*status))),
            HookDoor::Open(_) => None,
        };
        self.deliveries.push(delivery);
        self.wake.notify_one();
    }

    /// Sends a delivery again under its GUID.
    pub fn send_again(&mut self, mut delivery: DeliveryRecord) {
        delivery.id = self.next_id();
        delivery.at = self.now();
        delivery.redelivery = true;
        delivery.forgotten = false;
        self.push_delivery(delivery);
    }

    /// What the log of a hook shows, oldest first.
    pub fn delivery_log(&self, source: HookSource) -> Vec<&DeliveryRecord> {
        let now = self.now();
        let is_shown = |delivery: &&DeliveryRecord| {
            let is_kept = now.duration_since(delivery.at) < RETENTION;
            delivery.source == source && is_kept && delivery.result.is_some()
        };
        self.deliveries.iter().filter(is_shown).collect()
    }
}

fn new_guid() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn words_of(status: u16) -> String {
    if status < 300 { "OK".to_owned() } else { format!("Invalid HTTP Response: {status}") }
}

/// `X-Hub-Signature-256` of a body.
fn signature(secret: &str, body: &str) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length is valid");
    mac.update(body.as_bytes());
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// Sends what is due, one after the other, until the model ends.
pub(super) async fn send_deliveries(shared: Arc<ModelShared>) {
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build();
    let client = client.expect("a plain client can be built");
    let wake = shared.state().wake.clone();
    loop {
        let next = {
            let state = shared.state();
            let due = state.deliveries.iter().find(|delivery| delivery.result.is_none()).cloned();
            due.map(|due| (due, state.app.secret.clone(), state.app.id, state.door.clone()))
        };
        let Some((due, secret, app, door)) = next else {
            wake.notified().await;
            continue;
        };
        let result = match door {
            HookDoor::Open(url) => {
                let body = due.payload.to_string();
                let (hook, target, kind) = match due.source {
                    HookSource::App => (app, app, "integration"),
                    HookSource::Repository(repository, hook) => (hook, repository, "repository"),
                };
                let sent = client
                    .post(url)
                    .header("content-type", "application/json")
                    .header("user-agent", "GitHub-Hookshot/model")
                    .header("x-github-event", &due.event)
                    .header("x-github-delivery", &due.guid)
                    .header("x-github-hook-id", hook)
                    .header("x-github-hook-installation-target-id", target)
                    .header("x-github-hook-installation-target-type", kind)
                    .header("x-hub-signature-256", signature(&secret, &body))
                    .body(body)
                    .send()
                    .await;
                match sent {
                    Ok(answer) => (answer.status().as_u16(), words_of(answer.status().as_u16())),
                    Err(error) if error.is_timeout() => (504, "timed out".to_owned()),
                    Err(_) => (502, "failed to connect to host".to_owned()),
                }
            }
            HookDoor::Swallows(status) => (status, words_of(status)),
            HookDoor::Closed => (502, "failed to connect to host".to_owned()),
        };
        let mut state = shared.state();
        if let Some(sent) = state.deliveries.iter_mut().find(|delivery| delivery.id == due.id) {
            sent.result = Some(result);
        }
        drop(state);
        shared.changed();
    }
}

/// How many deliveries are not sent yet.
pub(super) fn pending(state: &ModelState) -> usize {
    state.deliveries.iter().filter(|delivery| delivery.result.is_none()).count()
}

/// The GUIDs of everything that was delivered or should have been, each once.
pub(super) fn guids(state: &ModelState) -> Vec<String> {
    let mut guids: Vec<String> =
        state.deliveries.iter().map(|delivery| delivery.guid.clone()).collect();
    guids.dedup();
    guids
}
