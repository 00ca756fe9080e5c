//! Who works in a sandbox, and which issue is meant.

use std::collections::BTreeMap;

use super::{CONVERSATION, SandboxError, SandboxServices};
use crate::engine::IssueKey;
use crate::types::{
    AccountName, AgentName, Cause, IssueId, IssueNumber, META_VALUE_MAX, Repository, SandboxMeta,
};

/// Longest name of a caller, in bytes.
const CALLER_LEN_MAX: usize = 128;

/// Who works in a sandbox, and for which conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxContext {
    /// Whose sandbox it is.
    pub account: AccountName,
    /// Who calls, for the timeline and the log.
    pub caller: String,
    /// The caller's conversation that the sandbox belongs to; everything works without one.
    pub conversation: Option<ConversationId>,
    /// The agent that answers messages; `None` for the one of the sandbox's template.
    pub agent: Option<AgentName>,
}

/// The caller's id of a conversation: a text of the caller's choice, kept with the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationId(String);

impl ConversationId {
    /// Takes an id.
    ///
    /// # Errors
    /// [`SandboxError::Invalid`] if it is empty, longer than 512 bytes, or has control characters.
    pub fn parse(text: &str) -> Result<Self, SandboxError> {
        let wrong = match text {
            "" => "is empty",
            _ if text.len() > META_VALUE_MAX => "is longer than 512 bytes",
            _ if text.chars().any(char::is_control) => "has a control character",
            _ => return Ok(Self(text.to_owned())),
        };
        Err(SandboxError::invalid("conversation", wrong))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One call: its id and its cause.
pub(super) struct SandboxCall {
    pub id: String,
    pub cause: Cause,
}

impl SandboxContext {
    /// A caller in an account, without a conversation.
    pub fn new(account: AccountName, caller: impl Into<String>) -> Self {
        Self { account, caller: caller.into(), conversation: None, agent: None }
    }

    /// The same for a conversation.
    #[must_use]
    pub fn with_conversation(self, conversation: ConversationId) -> Self {
        Self { conversation: Some(conversation), ..self }
    }

    /// The same whose messages this agent answers.
    #[must_use]
    pub fn with_agent(self, agent: AgentName) -> Self {
        Self { agent: Some(agent), ..self }
    }

    /// Checks that the caller has a name.
    pub(super) fn check(&self) -> Result<(), SandboxError> {
        let wrong = match self.caller.trim() {
            "" => "is empty",
            name if name.len() > CALLER_LEN_MAX => "is longer than 128 bytes",
            name if name.chars().any(char::is_control) => "has a control character",
            _ => return Ok(()),
        };
        Err(SandboxError::invalid("caller", wrong))
    }

    /// Begins a call of this caller.
    pub(super) fn begin(&self, services: &SandboxServices) -> Result<SandboxCall, SandboxError> {
        self.check()?;
        let id = services.ids.uuid().to_string();
        let cause = Cause::Caller { name: self.caller.clone(), request_id: id.clone() };
        Ok(SandboxCall { id, cause })
    }

    /// What is noted with a sandbox that is made for it.
    pub(super) fn meta(&self) -> Result<SandboxMeta, SandboxError> {
        let entry = |id: &ConversationId| (CONVERSATION.to_owned(), id.0.clone());
        let entries: BTreeMap<_, _> = self.conversation.iter().map(entry).collect();
        SandboxMeta::new(entries).map_err(|wrong| SandboxError::invalid("conversation", wrong))
    }
}

/// An issue: by its id, or by repository and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueRef(IssueKey);

impl IssueRef {
    /// By its id: GitHub's, or one that a caller chose.
    ///
    /// # Errors
    /// [`SandboxError::Invalid`] for what is no id.
    pub fn id(id: &str) -> Result<Self, SandboxError> {
        let id = IssueId::parse(id);
        let id = id.map_err(|wrong| SandboxError::invalid("issue id", wrong.to_string()))?;
        Ok(Self(IssueKey { id: Some(id), numbered: None }))
    }

    /// By repository, `owner/name`, and number. The server must have heard of it by a delivery.
    ///
    /// # Errors
    /// [`SandboxError::Invalid`] for what is no repository, or for the number 0.
    pub fn number(repository: &str, number: u64) -> Result<Self, SandboxError> {
        let repository = Repository::parse(repository);
        let repository =
            repository.map_err(|wrong| SandboxError::invalid("repository", wrong.to_string()))?;
        if number == 0 {
            return Err(SandboxError::invalid("issue number", "is 0"));
        }
        Ok(Self(IssueKey { id: None, numbered: Some((repository, IssueNumber(number))) }))
    }

    pub(super) fn into_key(self) -> IssueKey {
        self.0
    }
}
