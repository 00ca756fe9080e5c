//! What the store keeps of deliveries, and what their lists are asked.

use std::time::Duration;

use crate::issue::{FanOut, Instruction, InstructionExcerpt};
use crate::types::{AccountName, DeliveryId, HomeId, IssueId, TimelineEntry, Timestamp};

/// How often a pending delivery may fail before it is set aside.
pub const PENDING_TRIES_MAX: u32 = 3;

/// How long a delivery is kept at least. GitHub redelivers for three days, and a GUID that was
/// forgotten would be carried out again.
pub const DELIVERIES_KEPT_MIN: Duration = Duration::from_secs(3 * 24 * 3600);

/// What is kept of a delivery. Of its body, an [`Instruction`] alone is kept, and never a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Its GUID.
    pub id: DeliveryId,
    /// The account that it belongs to.
    pub account: AccountName,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Whether the server read it from GitHub because it had not arrived.
    pub recovered: bool,
    /// GitHub's event, such as `issues`.
    pub event: String,
    /// Its action, such as `labeled`; empty if it has none.
    pub action: String,
    /// The home it led to, if it led to one.
    pub home: Option<HomeId>,
    /// Whether it had an effect or was ignored.
    pub applied: bool,
    /// What came of it, in words.
    pub reason: String,
    /// How far it is.
    pub state: DeliveryState,
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// All that it leads to is durable.
    Done,
    /// It is durable and still to be applied to one issue after the other.
    Pending,
    /// It was tried [`PENDING_TRIES_MAX`] times; its reason is the last error.
    SetAside,
}

/// A delivery that is still to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// What is to be applied, and to which issues.
    pub fan_out: FanOut,
    /// How many tries failed.
    pub tries: u32,
    /// The last home, in their order, that it is applied to; `None` before the first.
    pub done_to: Option<HomeId>,
}

/// Which deliveries to list. Every given part must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Of this account.
    pub account: Option<AccountName>,
    /// That led to this home.
    pub home: Option<HomeId>,
    /// That had an effect, or had none.
    pub applied: Option<bool>,
    /// Of this event of GitHub's.
    pub event: Option<String>,
    /// With this action of the event.
    pub action: Option<String>,
    /// In this state.
    pub state: Option<DeliveryState>,
    /// That this server sent to itself as a sample, or did not.
    pub sample: Option<bool>,
}

/// A delivery as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryListRow {
    /// The delivery.
    pub row: DeliveryRow,
    /// The first id of the issue it led to.
    pub issue_id: Option<IssueId>,
    /// The name of that issue's newest sandbox, also of a deleted one.
    pub sandbox_name: Option<String>,
    /// The words that it brought for the agent.
    pub instruction: Option<Instruction>,
    /// The cursor of a page that begins behind this row.
    pub cursor: String,
}

/// An entry of a timeline as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineListRow {
    /// The entry.
    pub entry: TimelineEntry,
    /// What its delivery brought for the agent. It is read where the delivery stored it.
    pub instruction: Option<InstructionExcerpt>,
}

/// What a person asked for in words. It is kept until the issue is deleted on GitHub, and belongs to
/// the home that stays when two homes turn out to be one issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionRow {
    /// Its place in the order in which the home's instructions were stored.
    pub number: i64,
    /// The delivery that brought it.
    pub delivery: DeliveryId,
    /// What was asked.
    pub instruction: Instruction,
}
