//! The write queue's interface: urgency, turns, and what the store keeps of the pace.

use std::fmt;

use async_trait::async_trait;

use crate::types::Timestamp;

/// What is written first when several effects wait for one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WriteUrgency {
    /// A person waits for it: a reaction, a reply.
    Person,
    /// The end of a sandbox, and pull requests.
    End,
    /// The first status comment of an issue.
    FirstComment,
    /// Progress of one that is known.
    Progress,
}

/// An identity as the write queue knows it: an installation of the App, or the token's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WriterId {
    /// An installation, by its id.
    Installation(u64),
    /// The user of the configured token.
    TokenUser,
}

impl fmt::Display for WriterId {
    /// `installation:17` or `token`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installation(id) => write!(f, "installation:{id}"),
            Self::TokenUser => f.write_str("token"),
        }
    }
}

impl WriterId {
    /// Reads the text that it is stored as.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("installation:") {
            Some(id) => id.parse().ok().map(Self::Installation),
            None => (text == "token").then_some(Self::TokenUser),
        }
    }
}

/// The right to one writing call. A drop gives it back.
pub struct WriteTurn {
    _held: Option<Box<dyn Send + Sync>>,
}

impl WriteTurn {
    /// A turn that ends when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }

    /// A turn of a GitHub without a queue, for tests.
    pub const fn unlimited() -> Self {
        Self { _held: None }
    }
}

impl fmt::Debug for WriteTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteTurn")
    }
}

/// What is kept of an identity's pace, so that a restart neither forgets a rest nor a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceRecord {
    /// Whose.
    pub writer: WriterId,
    /// Until when it rests; `None` if it does not.
    pub rests_until: Option<Timestamp>,
    /// How many limits without a time came one after the other. Each doubles the rest.
    pub strikes: u32,
    /// Writes of the last hour: the minute (minutes since 1970) and how many. At most 61 entries.
    pub writes: Vec<(i64, u32)>,
}

/// The pace could not be read or kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PaceError(pub String);

/// The store's side of the write queue.
#[async_trait]
pub trait WritePace: Send + Sync + 'static {
    /// The records of all identities; read once, at the start.
    async fn load(&self) -> Result<Vec<PaceRecord>, PaceError>;

    /// Replaces an identity's record; durable when it returns. Called before each turn is given out
    /// and when a rest begins.
    async fn save(&self, record: PaceRecord) -> Result<(), PaceError>;
}

/// A pace that ends with the process, for programs that write nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnkeptPace;

#[async_trait]
impl WritePace for UnkeptPace {
    async fn load(&self) -> Result<Vec<PaceRecord>, PaceError> {
        Ok(Vec::new())
    }

    async fn save(&self, _record: PaceRecord) -> Result<(), PaceError> {
        Ok(())
    }
}
