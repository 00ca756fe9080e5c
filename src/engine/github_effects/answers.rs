//! What becomes of an effect by GitHub's answer.
//!
//! | answer | then |
//! |---|---|
//! | limited | due again when the write queue's rest is over; no try is spent |
//! | locked | held until the delivery `unlocked` |
//! | suspended, a permission lacks, uninstalled, repository not found | held, an hour at a time, for a week |
//! | archived, refused, exists already | given up |
//! | a 403 that is not known | held until a person retries it |
//! | credentials refused | each minute; no try is spent |
//! | deleted | all effects of the home are given up |
//! | moved, unreachable | again after 2, 4, … 300 s, for a day |
//! | unknown | the same; what may still come into effect is waited for, and a comment that was to be created is looked for |

use std::time::Duration;

use crate::github::api::{GitHubError, ReleasedBy};
use crate::issue::GithubEffect;
use crate::store::github::{GithubEnd, GithubRow, GithubState};
use crate::store::{CommitError, StoreError};
use crate::types::Timestamp;

use super::{GithubWorker, LANDED_AFTER, STORE_PAUSE};

/// The pause after the first failed try; doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_secs(2);
/// The longest pause between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// How long something is tried that fails by itself.
const TRIED_FOR: Duration = Duration::from_secs(86_400);
/// The pause while something must change at GitHub.
const HELD_PAUSE: Duration = Duration::from_secs(3600);
/// How long is waited for that.
const HELD_FOR: Duration = Duration::from_secs(7 * 86_400);
/// The pause while GitHub does not accept our credentials.
const CREDENTIALS_PAUSE: Duration = Duration::from_secs(60);

/// Why a try did not end.
pub(super) enum AttemptError {
    /// By GitHub's answer.
    GitHub(GitHubError),
    /// By GitHub's answer to a writing call that began then. If that is unknown, the call may still come
    /// into effect, so none is made after it until [`LANDED_AFTER`].
    Writing(GitHubError, Timestamp),
    /// By what GitHub does not show yet.
    Hidden(String),
    /// By the store.
    Store(String),
}

impl From<GitHubError> for AttemptError {
    fn from(error: GitHubError) -> Self {
        Self::GitHub(error)
    }
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<CommitError> for AttemptError {
    fn from(error: CommitError) -> Self {
        Self::Store(error.to_string())
    }
}

/// The end of a try, if nothing changed by it.
pub(super) fn unchanged(row: &GithubRow, at: Timestamp) -> GithubEnd {
    GithubEnd {
        state: if row.first_begun_at.is_some() { GithubState::Look } else { GithubState::Due },
        due_at: Some(at),
        tries: row.tries,
        failing_since: row.failing_since,
        first_begun_at: row.first_begun_at,
        reason: None,
        released_by: None,
        shown: row.shown.clone(),
        follow_ups: Vec::new(),
        at,
    }
}

/// The end of an effect that is over in this way.
pub(super) fn over(row: &GithubRow, at: Timestamp, state: GithubState, reason: &str) -> GithubEnd {
    let reason = (!reason.is_empty()).then(|| reason.to_owned());
    // What a call may have done is looked for if the effect begins again.
    let first_begun_at = row.first_begun_at.filter(|_| state == GithubState::GivenUp);
    let (tries, failing_since) = (0, None);
    GithubEnd {
        state,
        due_at: None,
        tries,
        failing_since,
        first_begun_at,
        reason,
        ..unchanged(row, at)
    }
}

impl GithubWorker {
    /// What becomes of an effect whose try failed.
    pub(super) async fn answered(&self, row: &GithubRow, error: AttemptError) -> GithubEnd {
        let now = self.env.now();
        let (error, begun_at) = match error {
            AttemptError::Store(why) => {
                let due_at = Some(now.after(STORE_PAUSE));
                return GithubEnd { due_at, reason: Some(why), ..unchanged(row, now) };
            }
            AttemptError::Hidden(why) => return failed(row, now, None, &why),
            AttemptError::GitHub(error) => (error, None),
            AttemptError::Writing(error, begun_at) => (error, Some(begun_at)),
        };
        let words = error.to_string();
        let later = |due_at| GithubEnd {
            due_at: Some(due_at),
            reason: Some(words.clone()),
            ..unchanged(row, now)
        };
        match error {
            GitHubError::Limited { until } => later(until),
            GitHubError::Unauthorized(_) => later(now.after(CREDENTIALS_PAUSE)),
            GitHubError::Gone(_) => self.issue_gone(row, &words).await,
            GitHubError::NotFound(_) if is_reaction_to_comment(row) => {
                over(row, now, GithubState::Gone, "the comment was deleted")
            }
            GitHubError::NotFound(_) if row.shown.comment.is_none() => {
                held(row, now, ReleasedBy::Installed, &words)
            }
            GitHubError::Held { reason, .. } => held(row, now, reason.released_by(), &words),
            GitHubError::AlreadyExists(_) | GitHubError::Refused { .. } => {
                over(row, now, GithubState::GivenUp, &words)
            }
            GitHubError::NotFound(_)
            | GitHubError::Moved { .. }
            | GitHubError::Unreachable(_)
            | GitHubError::Unknown(_) => {
                let is_unknown = !error.had_no_effect();
                failed(row, now, begun_at.filter(|_| is_unknown), &words)
            }
        }
    }

    /// The issue is deleted at GitHub: nothing more is said there.
    async fn issue_gone(&self, row: &GithubRow, words: &str) -> GithubEnd {
        if let Err(error) = self.parts.outbox.give_up_github(row.home, words.to_owned()).await {
            tracing::warn!(home = row.home.0, %error, "failed to give up what is said on a deleted issue");
        }
        over(row, self.env.now(), GithubState::GivenUp, words)
    }
}

const fn is_reaction_to_comment(row: &GithubRow) -> bool {
    use crate::issue::ReactTo::Comment;
    matches!(row.effect, GithubEffect::React { to: Comment(_), .. })
}

/// It is tried again later, for a day. `begun_at` is when a call began that may still come into effect.
fn failed(row: &GithubRow, now: Timestamp, begun_at: Option<Timestamp>, words: &str) -> GithubEnd {
    let failing_since = row.failing_since.unwrap_or(now);
    if now.since(failing_since) >= TRIED_FOR {
        return over(row, now, GithubState::GivenUp, &format!("tried for a day: {words}"));
    }
    let backoff = BACKOFF_FIRST.saturating_mul(1 << row.tries.min(16)).min(BACKOFF_MAX);
    let landed = begun_at.map(|begun_at| begun_at.after(LANDED_AFTER));
    let end = unchanged(row, now);
    GithubEnd {
        state: if begun_at.is_some() { GithubState::Look } else { end.state },
        due_at: Some(now.after(backoff)).max(landed),
        tries: row.tries + 1,
        failing_since: Some(failing_since),
        first_begun_at: row.first_begun_at.or(begun_at),
        reason: Some(words.to_owned()),
        ..end
    }
}

/// Something must change at GitHub first.
fn held(row: &GithubRow, now: Timestamp, by: ReleasedBy, words: &str) -> GithubEnd {
    let failing_since = row.failing_since.unwrap_or(now);
    let is_over = now.since(failing_since) >= HELD_FOR;
    let end = unchanged(row, now);
    let (word, due_at) = match by {
        ReleasedBy::Nothing => return over(row, now, GithubState::GivenUp, words),
        // An unlock that GitHub reports while a refused call is still open finds nothing held: the
        // effect is tried by itself, too.
        ReleasedBy::Unlocked => ("unlocked", (!is_over).then_some(HELD_PAUSE)),
        ReleasedBy::Person => ("person", None),
        ReleasedBy::Unsuspended | ReleasedBy::PermissionGranted | ReleasedBy::Installed
            if is_over =>
        {
            return over(row, now, GithubState::GivenUp, &format!("waited for a week: {words}"));
        }
        ReleasedBy::Unsuspended => ("unsuspended", Some(HELD_PAUSE)),
        ReleasedBy::PermissionGranted => ("permission_granted", Some(HELD_PAUSE)),
        ReleasedBy::Installed => ("installed", Some(HELD_PAUSE)),
    };
    GithubEnd {
        state: GithubState::Held,
        due_at: due_at.map(|pause| now.after(pause)),
        failing_since: Some(failing_since),
        reason: Some(words.to_owned()),
        released_by: Some(word),
        ..end
    }
}
