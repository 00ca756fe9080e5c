//! What happens to an issue on GitHub, second by second, and what GitHub's payloads say of it.

use serde_json::{Value, json};

pub use crate::github::policy::TriggerPolicy as Policy;
use crate::github::webhook::{Interpreted, interpret};
use crate::issue::IssueDelivery;
use crate::types::{DeliveryId, RepositoryPattern, Timestamp};

/// The bot's account.
const BOT: u64 = 9;
/// The first second of all histories.
const BEGIN: i64 = 1_800_000_000;

/// Something that a person who may trigger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Opens,
    Labels,
    Unlabels,
    Assigns,
    Unassigns,
    Closes,
    Reopens,
    Edits,
    Chats,
    /// Comments with a command for work.
    Works,
    Starts,
    Stops,
    Retries,
    Deletes,
}

impl Deed {
    pub const ALL: &'static [Self] = &[
        Self::Opens,
        Self::Labels,
        Self::Unlabels,
        Self::Assigns,
        Self::Unassigns,
        Self::Closes,
        Self::Reopens,
        Self::Edits,
        Self::Chats,
        Self::Works,
        Self::Starts,
        Self::Stops,
        Self::Retries,
        Self::Deletes,
    ];

    /// The comment that it is, if it is one.
    const fn comment(self) -> Option<&'static str> {
        match self {
            Self::Chats => Some("I agree"),
            Self::Works => Some("/issuebox fix it"),
            Self::Starts => Some("/issuebox start"),
            Self::Stops => Some("/issuebox stop"),
            Self::Retries => Some("/issuebox retry"),
            Self::Deletes => Some("/issuebox delete"),
            Self::Opens
            | Self::Labels
            | Self::Unlabels
            | Self::Assigns
            | Self::Unassigns
            | Self::Closes
            | Self::Reopens
            | Self::Edits => None,
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Opens => "opened",
            Self::Labels => "labeled",
            Self::Unlabels => "unlabeled",
            Self::Assigns => "assigned",
            Self::Unassigns => "unassigned",
            Self::Closes => "closed",
            Self::Reopens => "reopened",
            Self::Edits => "edited",
            Self::Chats
            | Self::Works
            | Self::Starts
            | Self::Stops
            | Self::Retries
            | Self::Deletes => "created",
        }
    }
}

/// An issue as it truly is.
#[derive(Clone, Copy)]
struct SimpleIssue {
    open: bool,
    labelled: bool,
    assigned: bool,
}

impl SimpleIssue {
    const NEW: Self = Self { open: true, labelled: false, assigned: false };

    /// The issue after a deed; `None` if that cannot happen to it.
    fn after(self, deed: Deed, is_first: bool) -> Option<Self> {
        let is_possible = match deed {
            Deed::Opens => is_first,
            Deed::Labels => !self.labelled,
            Deed::Unlabels => self.labelled,
            Deed::Assigns => !self.assigned,
            Deed::Unassigns => self.assigned,
            Deed::Closes => self.open,
            Deed::Reopens => !self.open,
            Deed::Edits
            | Deed::Chats
            | Deed::Works
            | Deed::Starts
            | Deed::Stops
            | Deed::Retries
            | Deed::Deletes => true,
        };
        let after = match deed {
            Deed::Labels => Self { labelled: true, ..self },
            Deed::Unlabels => Self { labelled: false, ..self },
            Deed::Assigns => Self { assigned: true, ..self },
            Deed::Unassigns => Self { assigned: false, ..self },
            Deed::Closes => Self { open: false, ..self },
            Deed::Reopens => Self { open: true, ..self },
            Deed::Opens
            | Deed::Edits
            | Deed::Chats
            | Deed::Works
            | Deed::Starts
            | Deed::Stops
            | Deed::Retries
            | Deed::Deletes => self,
        };
        is_possible.then_some(after)
    }
}

/// Every history of so many deeds that can happen.
pub fn histories(deeds: &[Deed], len: usize) -> Vec<Vec<Deed>> {
    let mut all = vec![(vec![], SimpleIssue::NEW)];
    for at in 0..len {
        let longer = |(history, issue): &(Vec<Deed>, SimpleIssue)| {
            let next = |deed: &Deed| {
                let after = issue.after(*deed, at == 0)?;
                Some((history.iter().copied().chain([*deed]).collect::<Vec<_>>(), after))
            };
            deeds.iter().filter_map(next).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter().map(|(history, _)| history).collect()
}

/// A point in time, in seconds since all histories begin.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_ms((BEGIN + second) * 1000)
}

/// Everything triggers that can.
pub fn policy() -> Policy {
    Policy {
        label: "agent".into(),
        command: "/issuebox".into(),
        opened: true,
        permission: None,
        associations: vec!["OWNER".into()],
        bots: vec![],
        assignee: BOT,
        unlabel_stops: true,
        refuses_hidden: false,
        follow_up: crate::types::FollowUpMode::default(),
        on_ci_failure: crate::types::CiFailureMode::default(),
        bot_user_id: BOT.into(),
        repositories: vec![RepositoryPattern::parse("*").expect("a pattern")],
    }
}

/// What the deliveries of a history say, one minute apart; without those that have no effect.
pub fn deliveries(history: &[Deed], policy: &Policy) -> Vec<IssueDelivery> {
    let mut issue = SimpleIssue::NEW;
    let mut all = Vec::new();
    for (index, deed) in history.iter().enumerate() {
        issue = issue.after(*deed, index == 0).expect("it can happen");
        let second = 60 * i64::try_from(index).expect("a short history");
        all.extend(delivery(*deed, second, issue, policy));
    }
    all
}

fn delivery(deed: Deed, second: i64, issue: SimpleIssue, policy: &Policy) -> Option<IssueDelivery> {
    let event = if deed.comment().is_some() { "issue_comment" } else { "issues" };
    let guid = DeliveryId::trusted(format!("{second}"));
    let body = payload(deed, second, issue).to_string();
    let policies = policy.clone().into();
    match interpret(&policies, guid, at(3600), event, body.as_bytes()).expect("well formed") {
        Interpreted::Issue(issue_delivery) => Some(*issue_delivery),
        Interpreted::Ignored { .. } => None,
        Interpreted::IfPermitted(delivery) => panic!("GitHub cannot be asked: {delivery:?}"),
        Interpreted::OnPull(delivery) => panic!("it is about an issue: {delivery:?}"),
        Interpreted::FanOut(fan_out) => panic!("it concerns one issue: {fan_out:?}"),
    }
}

fn payload(deed: Deed, second: i64, issue: SimpleIssue) -> Value {
    let person = json!({"id": 5, "login": "mona", "type": "User"});
    let when = at(second).to_string();
    let labels = if issue.labelled { json!([{"name": "agent"}]) } else { json!([]) };
    let mut payload = json!({
        "action": deed.action(),
        "issue": {
            "id": 1, "number": 1, "title": "It loops", "body": "",
            "state": if issue.open { "open" } else { "closed" },
            "updated_at": when, "author_association": "OWNER", "user": person, "labels": labels,
        },
        "repository": {"id": 7, "full_name": "octo/hello"},
        "label": {"name": "agent"},
        "assignee": {"id": BOT},
        "sender": person,
    });
    if let Some(text) = deed.comment() {
        payload["comment"] = json!({
            "id": second + 1, "body": text, "created_at": when, "updated_at": when,
            "author_association": "OWNER", "user": person,
        });
    }
    payload
}
