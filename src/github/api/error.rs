//! How a call to GitHub fails, and what releases what is held.

use crate::types::{IssueNumber, Timestamp};

/// Why a call did not do what was asked.
///
/// | GitHub's answer | error |
/// |---|---|
/// | 403 or 429 with `Retry-After`, or nothing remaining of the limit | [`Limited`](Self::Limited) |
/// | 429, or 403 that speaks of a secondary limit | [`Limited`](Self::Limited): 60 s, doubled to 15 min |
/// | 403 because of a lock, an archive, a suspension, a permission | [`Held`](Self::Held) |
/// | any other 403 | [`Held`](Self::Held), by [`HeldReason::Other`] |
/// | 401, also with a new token | [`Unauthorized`](Self::Unauthorized) |
/// | 301, 307, 308 of a renamed repository | none: asked again by id |
/// | 301, 307, 308 of a transferred issue | [`Moved`](Self::Moved) |
/// | 404 | [`NotFound`](Self::NotFound) |
/// | 404 for a token, and for the installation too | [`Held`](Self::Held), by [`HeldReason::Uninstalled`] |
/// | 410 | [`Gone`](Self::Gone) |
/// | 422 because it is there already | [`AlreadyExists`](Self::AlreadyExists) |
/// | any other 4xx | [`Refused`](Self::Refused) |
/// | 5xx, a time-out, a cut-off answer | [`Unknown`](Self::Unknown) |
/// | no connection | [`Unreachable`](Self::Unreachable) |
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitHubError {
    /// The issue was deleted.
    #[error("GitHub says that it is gone: {0}")]
    Gone(String),
    /// It does not exist, or we may not see it.
    #[error("GitHub does not know it, or does not show it to us: {0}")]
    NotFound(String),
    /// The issue is in another repository now.
    #[error("it moved to repository {repository_id}")]
    Moved {
        /// The repository's id.
        repository_id: u64,
        /// The issue's number there, where the redirect names it.
        number: Option<IssueNumber>,
    },
    /// It is refused until something changes at GitHub; a repetition alone is pointless.
    #[error("held until {}: {words}", .reason.released_by())]
    Held {
        /// Why.
        reason: HeldReason,
        /// GitHub's words.
        words: String,
    },
    /// The identity's calls rest until then. The call was not carried out.
    #[error("GitHub's limit is reached; calls rest until {until}")]
    Limited {
        /// By our clock.
        until: Timestamp,
    },
    /// The credentials are not accepted. The call was not carried out.
    #[error("GitHub does not accept the credentials: {0}")]
    Unauthorized(String),
    /// What is to be created exists.
    #[error("it exists already: {0}")]
    AlreadyExists(String),
    /// GitHub will not do it. It was not carried out.
    #[error("GitHub refused it ({status}): {words}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// GitHub's words.
        words: String,
    },
    /// GitHub may have done it or not: look before it is repeated.
    #[error("the outcome at GitHub is unknown: {0}")]
    Unknown(String),
    /// GitHub was not reached. The call was not carried out.
    #[error("cannot reach GitHub: {0}")]
    Unreachable(String),
}

impl GitHubError {
    /// Whether the call certainly had no effect at GitHub.
    pub const fn had_no_effect(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// The word for metrics and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Gone(_) => "gone",
            Self::NotFound(_) => "not_found",
            Self::Moved { .. } => "moved",
            Self::Held { .. } => "held",
            Self::Limited { .. } => "limited",
            Self::Unauthorized(_) => "unauthorized",
            Self::AlreadyExists(_) => "already_exists",
            Self::Refused { .. } => "refused",
            Self::Unknown(_) => "unknown",
            Self::Unreachable(_) => "unreachable",
        }
    }
}

/// Why GitHub refuses something for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// The issue is locked.
    Locked,
    /// The repository is archived: read-only.
    Archived,
    /// The installation is suspended.
    Suspended,
    /// We lack a permission; its name where GitHub named it, such as `issues=write`.
    Permission(Option<String>),
    /// The App is not installed there any more.
    Uninstalled,
    /// GitHub gave a reason that we do not know.
    Other,
}

impl HeldReason {
    /// What releases it.
    pub const fn released_by(&self) -> ReleasedBy {
        match self {
            Self::Locked => ReleasedBy::Unlocked,
            Self::Archived => ReleasedBy::Nothing,
            Self::Suspended => ReleasedBy::Unsuspended,
            Self::Permission(_) => ReleasedBy::PermissionGranted,
            Self::Uninstalled => ReleasedBy::Installed,
            Self::Other => ReleasedBy::Person,
        }
    }

    /// The word under which it is stored.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Archived => "archived",
            Self::Suspended => "suspended",
            Self::Permission(_) => "permission",
            Self::Uninstalled => "uninstalled",
            Self::Other => "other",
        }
    }
}

/// What releases a held effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleasedBy {
    /// The issue is unlocked.
    Unlocked,
    /// The installation is unsuspended.
    Unsuspended,
    /// The permission is granted.
    PermissionGranted,
    /// The App is installed again.
    Installed,
    /// A person has a look and asks for another try.
    Person,
    /// Nothing: give it up.
    Nothing,
}

impl std::fmt::Display for ReleasedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unlocked => "the issue is unlocked",
            Self::Unsuspended => "the installation is unsuspended",
            Self::PermissionGranted => "the permission is granted",
            Self::Installed => "the App is installed again",
            Self::Person => "a person retries it",
            Self::Nothing => "never: the repository is archived",
        })
    }
}
