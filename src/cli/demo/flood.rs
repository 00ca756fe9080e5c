//! The demo's deliveries: all in parallel, out of order, each several times.
//!
//! The order of sending is fixed, so every run sends the same.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future;
use serde_json::Value;

use crate::github::fixtures::{self, Fixture};
use crate::github::webhook::sign;
use crate::types::Secret;

use super::field;

/// GUIDs per delivery: as if a hook of the repository and one of the organisation sent it.
const GUIDS: usize = 2;
/// Sends per GUID: a redelivery keeps its GUID.
const SENDS: usize = 2;
/// Distance between neighbours in the order of sending; a prime, so that every index is used once.
const STRIDE: usize = 37;

/// One delivery to send.
struct SignedDelivery {
    fixture: Fixture,
    guid: String,
    signature: String,
}

/// All deliveries, in the order in which they are sent.
pub(super) struct Flood(Vec<SignedDelivery>);

impl Flood {
    /// Prepares them, signed.
    pub fn new(secret: &Secret) -> Self {
        let mut in_order = Vec::new();
        for fixture in fixtures::ALL {
            let signature = sign(secret, fixture.body.as_bytes());
            for _ in 0..GUIDS {
                let guid = uuid::Uuid::now_v7().to_string();
                in_order.extend((0..SENDS).map(|_| SignedDelivery {
                    fixture: *fixture,
                    guid: guid.clone(),
                    signature: signature.clone(),
                }));
            }
        }
        let len = in_order.len();
        let mut places: Vec<Option<SignedDelivery>> = in_order.into_iter().map(Some).collect();
        let spread = (0..len).filter_map(|at| places[at * STRIDE % len].take()).collect();
        Self(spread)
    }

    pub fn describe(&self) -> String {
        format!(
            "{} deliveries, each under {GUIDS} GUIDs and each GUID {SENDS} times: {} in parallel, \
             out of order",
            fixtures::ALL.len(),
            self.0.len()
        )
    }

    /// Sends them all at once.
    pub async fn send(&self, server: &str) -> anyhow::Result<Answers> {
        let http =
            reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        let began = Instant::now();
        let sent = self.0.iter().map(|delivery| {
            let request = http
                .post(format!("{server}/webhooks/github"))
                .header("Content-Type", "application/json")
                .header("X-GitHub-Event", delivery.fixture.event())
                .header("X-GitHub-Delivery", &delivery.guid)
                .header("X-Hub-Signature-256", &delivery.signature)
                .body(delivery.fixture.body);
            async move { request.send().await?.json::<Value>().await }
        });
        let answered: Result<Vec<Value>, _> = future::join_all(sent).await.into_iter().collect();
        let answered = answered.context("a delivery was not answered")?;
        let mut answers =
            Answers { took: began.elapsed(), statuses: BTreeMap::new(), issues: BTreeMap::new() };
        for (delivery, answer) in self.0.iter().zip(&answered) {
            answers.count(delivery.fixture, answer);
        }
        Ok(answers)
    }
}

/// The server's answers.
pub(super) struct Answers {
    took: Duration,
    statuses: BTreeMap<String, usize>,
    /// The issues that deliveries were about, by id.
    pub issues: BTreeMap<String, Concerned>,
}

/// An issue that deliveries were about.
pub(super) struct Concerned {
    /// Its display name, `owner/repo#number`.
    pub name: String,
    /// How many deliveries.
    pub deliveries: usize,
    /// Why the last ignored one was ignored.
    pub ignored: Option<String>,
}

impl Answers {
    fn count(&mut self, fixture: Fixture, answer: &Value) {
        let status = answer["status"].as_str().unwrap_or("refused");
        *self.statuses.entry(status.to_owned()).or_default() += 1;
        let Ok(payload) = serde_json::from_str::<Value>(fixture.body) else { return };
        let (Some(id), Some(number), Some(repository)) = (
            field(&payload, "/issue/id"),
            field(&payload, "/issue/number"),
            field(&payload, "/repository/full_name").and_then(Value::as_str),
        ) else {
            return;
        };
        let concerned = self.issues.entry(id.to_string()).or_insert_with(|| Concerned {
            name: format!("{repository}#{number}"),
            deliveries: 0,
            ignored: None,
        });
        concerned.deliveries += 1;
        if status == "ignored" {
            concerned.ignored = answer["reason"].as_str().map(str::to_owned);
        }
    }

    /// Whether every answer was a success.
    pub fn all_taken(&self) -> bool {
        !self.statuses.contains_key("refused")
    }

    pub fn describe(&self) -> String {
        let words: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
        format!("All answered after {} ms: {}", self.took.as_millis(), words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delivery_is_sent_as_often_as_described() {
        let flood = Flood::new(&Secret::new("s"));
        assert_eq!(flood.0.len(), fixtures::ALL.len() * GUIDS * SENDS);
        let mut guids: BTreeMap<&str, usize> = BTreeMap::new();
        for delivery in &flood.0 {
            *guids.entry(&delivery.guid).or_default() += 1;
        }
        assert_eq!(guids.len(), fixtures::ALL.len() * GUIDS);
        assert!(guids.values().all(|count| *count == SENDS));
    }
}
