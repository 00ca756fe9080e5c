//! A sample delivery, signed with the server's secret and sent to the server over HTTP, so that it
//! meets the same obstacles as a real one.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::github::policy::SAMPLE_REPOSITORY_ID;
use crate::github::webhook::sign;
use crate::http::Shared;
use crate::http::auth::reachable;
use crate::types::{DeliveryId, Repository};

/// The sample repository.
pub const REPOSITORY: &str = "issuebox/sample";
/// The sample issue's number.
pub const NUMBER: u64 = 1;
/// The sample issue's id: larger than GitHub's ids, and exact as a JSON number.
const ISSUE_ID: u64 = 9_000_000_000_000_001;
/// The timeout for an answer: GitHub's own.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Sends a ping and a trigger, and returns when both are answered.
///
/// # Errors
/// The reason, if the server did not answer.
pub async fn send(shared: &Shared, address: SocketAddr) -> Result<(), String> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(TIME_MAX)
        .build()
        .map_err(|error| error.to_string())?;
    let url = format!("http://{}/webhooks/github", reachable(address));
    let secrets = shared.edge.webhook_secrets.in_force();
    let secret = secrets.first().ok_or("there is no webhook secret")?;
    let now = shared.edge.clock.now().to_string();
    let repository = Repository::trusted(REPOSITORY);
    let triggers = shared.edge.intake.triggers().of(&repository);
    for (event, payload) in [("ping", ping()), ("issues", trigger(&triggers.label, &now))] {
        let body = payload.to_string();
        let call = client
            .post(&url)
            .header("content-type", "application/json")
            .header("x-github-event", event)
            .header(
                "x-github-delivery",
                format!("{}{}", DeliveryId::SAMPLE_PREFIX, shared.edge.ids.sandbox_id()),
            )
            .header("x-hub-signature-256", sign(secret, body.as_bytes()))
            .body(body);
        // The list of deliveries shows the result.
        call.send().await.map_err(|error| error.without_url().to_string())?;
    }
    Ok(())
}

fn ping() -> Value {
    json!({"zen": "One sandbox per issue.", "hook_id": 1, "hook": {"type": "Repository"}})
}

/// The issue is labeled with the trigger label, or opened if there is none.
fn trigger(label: &str, now: &str) -> Value {
    let octocat = json!({"id": 583_231, "login": "octocat", "type": "User"});
    let label = Some(label).filter(|label| !label.is_empty()).map(|name| json!({"name": name}));
    json!({
        "action": if label.is_some() { "labeled" } else { "opened" },
        "label": label,
        "issue": {
            "id": ISSUE_ID, "number": NUMBER, "title": "A sample issue", "state": "open",
            "labels": label.iter().collect::<Vec<_>>(),
            "html_url": format!("https://github.com/{REPOSITORY}/issues/{NUMBER}"),
            "user": octocat, "author_association": "OWNER",
            "created_at": now, "updated_at": now,
        },
        "repository": {"id": SAMPLE_REPOSITORY_ID, "name": "sample", "full_name": REPOSITORY,
            "owner": {"id": 9_000_000_000_000_003_u64, "login": "issuebox"}},
        "sender": octocat,
    })
}
