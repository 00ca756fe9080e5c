//! What happens to one issue on GitHub, and the deliveries that GitHub would send about it.
//!
//! A [`Story`] is GitHub's side of the truth: each act changes the issue, moves its time on, and
//! yields what is delivered, which shows the issue as it is after the act. A test decides in which
//! order, how often and under which GUIDs that arrives.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::time::Duration;

use issuebox::clock::{Clock, SystemClock};
use issuebox::types::Timestamp;
use serde_json::{Value, json};

/// The trigger label, as it is configured by default.
pub const TRIGGER: &str = "agent";

/// A delivery without its GUID.
#[derive(Clone, Debug)]
pub struct StoryDelivery {
    pub event: &'static str,
    pub body: String,
}

/// One issue as GitHub knows it. The repository's owner does everything.
#[derive(Clone, Debug)]
pub struct Story {
    pub id: u64,
    pub title: String,
    is_open: bool,
    labels: Vec<String>,
    updated_at: Timestamp,
}

impl Story {
    /// An issue that has just been opened; nothing was delivered yet. All of its story is in the
    /// past, so that whatever a person does while a test runs comes after it.
    pub fn of(id: u64) -> Self {
        let now = SystemClock.now().unix_ms() / 1000 * 1000;
        Self {
            id,
            title: format!("Issue {id}"),
            is_open: true,
            labels: Vec::new(),
            updated_at: Timestamp::from_unix_ms(now).before(Duration::from_secs(3600)),
        }
    }

    /// Opening it with labels: one `opened` and a `labeled` for each, all of one second, each of
    /// them listing all labels.
    pub fn opened_with(&mut self, labels: &[&str]) -> Vec<StoryDelivery> {
        self.labels = labels.iter().map(|&label| label.to_owned()).collect();
        let opened = self.issues("opened", &json!({}));
        let labeled = |label: &&str| self.issues("labeled", &json!({"label": named(label)}));
        std::iter::once(opened).chain(labels.iter().map(labeled)).collect()
    }

    pub fn labeled(&mut self, label: &str) -> StoryDelivery {
        self.pass();
        self.labels.push(label.to_owned());
        self.issues("labeled", &json!({"label": named(label)}))
    }

    pub fn unlabeled(&mut self, label: &str) -> StoryDelivery {
        self.pass();
        self.labels.retain(|of| of != label);
        self.issues("unlabeled", &json!({"label": named(label)}))
    }

    pub fn closed(&mut self) -> StoryDelivery {
        self.pass();
        self.is_open = false;
        self.issues("closed", &json!({}))
    }

    pub fn reopened(&mut self) -> StoryDelivery {
        self.pass();
        self.is_open = true;
        self.issues("reopened", &json!({}))
    }

    pub fn edited(&mut self, title: &str) -> StoryDelivery {
        self.pass();
        let from = std::mem::replace(&mut self.title, title.to_owned());
        self.issues("edited", &json!({"changes": {"title": {"from": from}}}))
    }

    pub fn deleted(&mut self) -> StoryDelivery {
        self.pass();
        self.issues("deleted", &json!({}))
    }

    /// A comment; it leaves the issue's time as it is, so several fall into one second.
    pub fn commented(&self, comment: u64, text: &str) -> StoryDelivery {
        let comment = json!({
            "id": comment, "body": text, "user": owner(), "author_association": "OWNER",
            "created_at": self.updated_at.to_string(), "updated_at": self.updated_at.to_string(),
        });
        let body = self.payload("created", &json!({"comment": comment}));
        StoryDelivery { event: "issue_comment", body: body.to_string() }
    }

    /// Ten seconds go by.
    pub fn pass(&mut self) {
        self.updated_at = self.updated_at.after(Duration::from_secs(10));
    }

    fn issues(&self, action: &str, more: &Value) -> StoryDelivery {
        StoryDelivery { event: "issues", body: self.payload(action, more).to_string() }
    }

    fn payload(&self, action: &str, more: &Value) -> Value {
        let labels: Vec<Value> = self.labels.iter().map(|label| named(label)).collect();
        let mut payload = json!({
            "action": action,
            "issue": {
                "id": self.id, "number": self.number(), "title": self.title,
                "state": if self.is_open { "open" } else { "closed" }, "labels": labels,
                "user": owner(), "author_association": "OWNER", "body": "",
                "html_url": format!("https://github.example/octo/hello/issues/{}", self.number()),
                "updated_at": self.updated_at.to_string(),
            },
            "repository": {"id": 9, "full_name": "octo/hello", "owner": owner()},
            "sender": owner(),
        });
        let parts = payload.as_object_mut().expect("an object");
        parts.extend(more.as_object().expect("an object").clone());
        payload
    }

    fn number(&self) -> u64 {
        self.id % 1_000_000 + 1
    }
}

fn owner() -> Value {
    json!({"id": 7, "login": "octo", "type": "User"})
}

fn named(label: &str) -> Value {
    json!({"id": label.len(), "name": label})
}
