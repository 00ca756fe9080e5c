//! The port to what was said to agents, and to their runs.

use async_trait::async_trait;

use super::{Page, PageAsk, StoreError};
use crate::conversation::{Run, SaidMessage};
use crate::issue::Instruction;
use crate::types::{AccountName, HomeId, MessageId, RunId, RunState};

/// A message as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Its place in the order in which the home's messages were stored.
    pub number: i64,
    /// The message. Its text is that of its delivery, if that is kept.
    pub message: SaidMessage,
    /// The words of its delivery, if it came by one: with title and author.
    pub instruction: Option<Instruction>,
}

/// A run as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its home.
    pub home: HomeId,
    /// The run.
    pub run: Run,
}

/// Which runs are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Those of this home alone.
    pub home: Option<HomeId>,
    /// Those in one of these states alone, if any are given.
    pub states: Vec<RunState>,
}

/// Reads what agents said last.
#[async_trait]
pub trait LastAnswers: Send + Sync + 'static {
    /// The last run of a home that succeeded with words of its agent.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn last_answer(&self, home: HomeId) -> Result<Option<RunRow>, StoreError>;
}

/// Messages and runs. They are written with the steps of their issues
/// ([`Write::said`](super::Write::said)); those of an issue that is deleted on GitHub are
/// removed with it.
#[async_trait]
pub trait ConversationStore: LastAnswers {
    /// Messages of a home whose number is greater than `after`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`], as for all below.
    async fn messages(
        &self,
        home: HomeId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<MessageRow>, StoreError>;

    /// The newest messages of a home, at most `limit`, oldest first.
    async fn newest_messages(
        &self,
        home: HomeId,
        limit: usize,
    ) -> Result<Vec<MessageRow>, StoreError>;

    /// The messages that a run answers, oldest first.
    async fn messages_of(&self, run: RunId) -> Result<Vec<MessageRow>, StoreError>;

    /// A message by its id.
    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError>;

    /// The runs of a home, oldest first, at most the newest `limit`.
    async fn runs_of(&self, home: HomeId, limit: usize) -> Result<Vec<RunRow>, StoreError>;

    /// A run by its id.
    async fn run(&self, account: &AccountName, id: RunId) -> Result<Option<RunRow>, StoreError>;

    /// The runs of an account that a filter lets through, newest first.
    async fn runs(
        &self,
        account: &AccountName,
        filter: &RunFilter,
        page: &PageAsk,
    ) -> Result<Page<RunRow>, StoreError>;
}
