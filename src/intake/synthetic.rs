//! Deliveries that GitHub did not send: what it says of an issue now, in the form of the delivery
//! that would have said so. They go through the same rules as those of GitHub.

use serde_json::{Value, json};

use crate::github::api::{GitHubAccount, RepositoryTarget};
use crate::types::{DeliveryId, IssueNumber, Timestamp};

/// What such a delivery says.
pub(super) struct SyntheticDelivery<'a> {
    /// The action of the event `issues`.
    pub action: &'a str,
    /// The repository. One whose id is not known makes no delivery.
    pub target: &'a RepositoryTarget,
    /// The issue's global id.
    pub issue_id: u64,
    /// Its number.
    pub number: IssueNumber,
    /// Its title, text and page.
    pub title: &'a str,
    pub body: &'a str,
    pub url: Option<&'a str>,
    /// Whether it is open.
    pub is_open: bool,
    /// The names of its labels.
    pub labels: &'a [String],
    /// The label that was put on or taken off.
    pub label: Option<&'a str>,
    /// The account that was assigned.
    pub assignee: Option<u64>,
    /// Who opened it, and what that account is to the repository.
    pub author: Option<&'a GitHubAccount>,
    pub association: Option<&'a str>,
    /// Who did it.
    pub sender: Option<SyntheticSender<'a>>,
    /// When it happened.
    pub at: Timestamp,
}

/// Who did something.
pub(super) struct SyntheticSender<'a> {
    pub account: GitHubAccount,
    /// `User` or `Bot`.
    pub kind: &'a str,
}

impl SyntheticDelivery<'_> {
    /// Its id: the same for the same act, so that it is applied once.
    pub fn id(&self) -> DeliveryId {
        let (action, issue, at) = (self.action, self.issue_id, self.at.unix_ms());
        DeliveryId::trusted(format!("checked-{action}-{issue}-{at}"))
    }

    /// Its payload; `None` if the repository's id is not known.
    pub fn payload(&self) -> Option<Value> {
        let user = |account: &GitHubAccount, kind: &str| {
            let GitHubAccount { id, login } = account;
            json!({"id": id, "login": login, "type": kind})
        };
        let repository_id = self.target.id?;
        let labels: Vec<Value> = self.labels.iter().map(|name| json!({"name": name})).collect();
        Some(json!({
            "action": self.action,
            "label": self.label.map(|name| json!({"name": name})),
            "assignee": self.assignee.map(|id| json!({"id": id})),
            "issue": {
                "id": self.issue_id,
                "number": self.number.0,
                "title": self.title,
                "body": self.body,
                "html_url": self.url,
                "state": if self.is_open { "open" } else { "closed" },
                "updated_at": self.at.to_string(),
                "labels": labels,
                "user": self.author.map(|author| user(author, "User")),
                "author_association": self.association,
            },
            "repository": {"id": repository_id, "full_name": self.target.name.as_str()},
            "installation": self.target.installation.map(|id| json!({"id": id})),
            "sender": self.sender.as_ref().map(|sender| user(&sender.account, sender.kind)),
        }))
    }
}
