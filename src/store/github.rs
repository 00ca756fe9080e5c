//! What the store keeps of effects at GitHub: the outbox of what is said on issues.
//!
//! # States
//! ```text
//!         ┌────────────────────── a newer status ──────────────────────┐
//!         ▼                                                            │
//!  due ──► asked ──► done                                              │
//!   ▲        │  outcome unknown                                        │
//!   │        └────► look ──► done, or due again                        │
//!   └──── held (something must change at GitHub)   gone   given_up ────┘
//! ```
//! *Asked* is durable before the call. What a crash leaves there is looked for.

use async_trait::async_trait;

use super::{CommitError, EffectId, StoreError};
use crate::issue::GithubEffect;
use crate::types::{HomeId, Timestamp};

/// The outbox of effects at GitHub. Rows come into it by [`Write::effects`](super::Write::effects).
#[async_trait]
pub trait GithubOutbox: Send + Sync + 'static {
    /// Effects that are due at `now`, of each home the first one (a reaction before a reply before the
    /// status), the longest due first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`], as for all reads below.
    async fn github_effects(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<GithubRow>, StoreError>;

    /// When the next one is due that is not due at `now`.
    async fn next_github_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;

    /// How many effects are in each state.
    async fn github_counts(&self) -> Result<Vec<(GithubState, u64)>, StoreError>;

    /// How many status comments were edited since then.
    async fn comments_edited_since(&self, since: Timestamp) -> Result<u64, StoreError>;

    /// What is known of one kind of effect of a home, by key.
    async fn github_effects_of(&self, home: HomeId) -> Result<Vec<GithubRow>, StoreError>;

    /// A call is about to begin. Durable when it returns.
    ///
    /// # Errors
    /// [`CommitError`], as for all writes below.
    async fn begin_github(&self, id: EffectId, at: Timestamp) -> Result<(), CommitError>;

    /// A call ended, or none was needed. If a newer version was recorded meanwhile, what is *done* is
    /// due again.
    async fn end_github(&self, id: EffectId, end: GithubEnd) -> Result<(), CommitError>;

    /// Gives up all that is not done of a home: its issue is deleted at GitHub.
    async fn give_up_github(&self, home: HomeId, reason: String) -> Result<(), CommitError>;

    /// Effects that are not done, the oldest first, at most `limit`.
    async fn unfinished_github(&self, limit: usize) -> Result<Vec<GithubRow>, StoreError>;

    /// A person wants an effect tried now: what waits is due, and what was given up begins again. Nothing
    /// happens to one that is done or under way.
    async fn retry_github(&self, number: i64, now: Timestamp) -> Result<(), CommitError>;

    /// After a start: what was asked has an unknown outcome.
    async fn resume_github(&self, now: Timestamp) -> Result<(), CommitError>;
}

/// Where an effect at GitHub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GithubState {
    /// To be done.
    Due,
    /// A call is under way, or was when the server ended.
    Asked,
    /// The outcome of a call is unknown: wait until it has come into effect if it ever does, then look.
    Look,
    /// Done; what is wanted is shown.
    Done,
    /// Something must change at GitHub first.
    Held,
    /// A person deleted the comment, or what it answers.
    Gone,
    /// Not done, for the reason that is recorded.
    GivenUp,
}

impl GithubState {
    /// Every state.
    pub const ALL: [Self; 7] =
        [Self::Due, Self::Asked, Self::Look, Self::Done, Self::Held, Self::Gone, Self::GivenUp];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Asked => "asked",
            Self::Look => "look",
            Self::Done => "done",
            Self::Held => "held",
            Self::Gone => "gone",
            Self::GivenUp => "given_up",
        }
    }

    /// The state that [`Self::as_str`] gives this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// An effect at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubRow {
    /// Which version of which one.
    pub id: EffectId,
    /// Whose.
    pub home: HomeId,
    /// What is wanted.
    pub effect: GithubEffect,
    /// How far it is.
    pub state: GithubState,
    /// When there is something to do; `None` if it waits for something else.
    pub due_at: Option<Timestamp>,
    /// How many tries failed one after the other.
    pub tries: u32,
    /// Since when they fail.
    pub failing_since: Option<Timestamp>,
    /// When the latest writing call began, if its outcome is unknown.
    pub begun_at: Option<Timestamp>,
    /// When the first one of those began.
    pub first_begun_at: Option<Timestamp>,
    /// Why it is as it is, for people.
    pub reason: Option<String>,
    /// What is known to be at GitHub.
    pub shown: ShownComment,
}

/// What is known to be at GitHub: a comment, or a pull request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownComment {
    /// The comment's id, or the pull request's number.
    pub comment: Option<u64>,
    /// The account that wrote it.
    pub author: Option<u64>,
    /// A hash of its text.
    pub hash: Option<String>,
    /// The phase that it shows: another one is edited at once.
    pub phase: Option<String>,
    /// When it was written last.
    pub at: Option<Timestamp>,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubEnd {
    /// Its state from now on. Of [`GithubState::Done`] see [`GithubOutbox::end_github`].
    pub state: GithubState,
    /// When there is something to do; `None` for nothing.
    pub due_at: Option<Timestamp>,
    /// How many tries failed one after the other.
    pub tries: u32,
    /// Since when.
    pub failing_since: Option<Timestamp>,
    /// When the first call with an unknown outcome began; `None` if there is none any more.
    pub first_begun_at: Option<Timestamp>,
    /// Why, for people.
    pub reason: Option<String>,
    /// What releases it, as a word, if it is held.
    pub released_by: Option<&'static str>,
    /// What is at GitHub by now.
    pub shown: ShownComment,
    /// What is to be said because of it; recorded together with the end.
    pub follow_ups: Vec<GithubEffect>,
    /// The time of the end.
    pub at: Timestamp,
}
