//! Messages: what was said to the agent, by whom and where.

use crate::types::{AgentName, DeliveryId, MessageId, RunId, Timestamp};

/// One thing that was said to the agent. It is kept in the order in which it was said, and belongs to
/// exactly one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidMessage {
    /// Its id.
    pub id: MessageId,
    /// The run that answers it.
    pub run: RunId,
    /// Where it was said.
    pub source: MessageOrigin,
    /// Who said it: a login on GitHub, or what the caller called itself.
    pub author: String,
    /// What was said.
    pub text: MessageText,
    /// When it was taken in.
    pub at: Timestamp,
}

/// Where a message was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOrigin {
    /// In the issue itself: its title and text.
    Issue,
    /// In the comment with this id.
    Comment(u64),
    /// In a review of the pull request.
    Review(u64),
    /// By a check of the pull request that failed.
    Check(u64),
    /// Through the API, by the command line or the page.
    Api,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageText {
    /// This.
    Own(String),
    /// The words that this delivery brought, which are stored with it.
    OfDelivery(DeliveryId),
}

/// Something that is said to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidWords {
    /// Where.
    pub source: MessageOrigin,
    /// Who.
    pub author: String,
    /// What.
    pub text: MessageText,
    /// The agent that is to answer; `None` for the template's.
    pub agent: Option<AgentName>,
    /// Whether a run in progress is cancelled for it.
    pub interrupts: bool,
}
