//! The port to GitHub's API: what may be asked and done there, and how that can fail.
//!
//! # Guarantees
//! - A call that writes takes a [`WriteTurn`]: the write queue of its identity gives one out at a
//!   time, in the order of [`WriteUrgency`] and at GitHub's pace. What must be durable before the
//!   call is recorded between the turn and the call.
//! - No call is repeated after an unknown outcome: [`GitHubError::Unknown`] says that GitHub may
//!   have done it, and the caller looks. A call that was renamed away is asked again by id.
//! - No credential is part of an answer, an error or a log line.

mod error;
mod figures;
mod git_token;
mod requests;
mod values;
mod verification;
mod write;

pub use error::{GitHubError, HeldReason, ReleasedBy};
pub use figures::{GitHubFigures, RequestCount};
pub use git_token::{GitAccess, GitTokens};
pub use requests::{
    CommitState, Conditional, DeliverySource, NewPull, PullEdit, Reaction, ReactionTarget,
    RepositoryTarget, StatusEntry,
};
pub use values::{
    DeliveryLogPage, GitHubAccount, GitHubComment, GitHubFile, GitHubHook, GitHubIdentity,
    GitHubIssue, GitHubPull, GitHubRepository, IdentityKind, Installation, LoggedDelivery,
    LoginPermission, PageCursor, PullState, ReviewComment, StoredDelivery,
};
pub use verification::{VERIFICATION_QUERY, VerifiedAct, VerifiedComment, VerifiedIssue};
pub use write::{PaceError, PaceRecord, UnkeptPace, WritePace, WriteTurn, WriteUrgency, WriterId};

use async_trait::async_trait;

use crate::types::{IssueNumber, Timestamp};

/// What is written at GitHub under one identity, and the reads that show whether it was written.
///
/// Every method fails with [`GitHubError`]; the table there says which answer of GitHub becomes which
/// error.
#[async_trait]
pub trait GitHubWriter: Send + Sync + 'static {
    /// Who we are; asked once and then remembered until the credentials change.
    async fn identity(&self) -> Result<GitHubIdentity, GitHubError>;

    /// GitHub's clock, as its last answers had it; ours before the first answer.
    fn github_now(&self) -> Timestamp;

    /// Waits for this identity's turn to write.
    ///
    /// # Errors
    /// [`GitHubError::Limited`] at once while the queue rests, and for all who wait when a rest
    /// begins.
    async fn turn(
        &self,
        target: &RepositoryTarget,
        urgency: WriteUrgency,
    ) -> Result<WriteTurn, GitHubError>;

    // Reads that a write is preceded by.

    /// One page of an issue's comments that were changed since then, oldest first.
    async fn comments_since(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        since: Timestamp,
        page: &PageCursor,
    ) -> Result<(Vec<GitHubComment>, Option<PageCursor>), GitHubError>;

    /// One comment.
    async fn comment(
        &self,
        target: &RepositoryTarget,
        id: u64,
        known: Option<&str>,
    ) -> Result<Conditional<GitHubComment>, GitHubError>;

    /// The pull requests of a branch of this repository, in every state, newest first.
    async fn pulls_of(
        &self,
        target: &RepositoryTarget,
        branch: &str,
    ) -> Result<Vec<GitHubPull>, GitHubError>;

    // Writes: each takes a turn, which ends with the call.

    /// Writes a comment on an issue.
    async fn create_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        body: &str,
    ) -> Result<GitHubComment, GitHubError>;

    /// Replaces a comment's text.
    async fn edit_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        id: u64,
        body: &str,
    ) -> Result<GitHubComment, GitHubError>;

    /// Reacts to an issue or comment. Harmless when repeated.
    async fn react(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        to: ReactionTarget,
        with: Reaction,
    ) -> Result<(), GitHubError>;

    /// Adds a label to an issue. Harmless when repeated.
    async fn add_label(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        label: &str,
    ) -> Result<(), GitHubError>;

    /// Removes a label from an issue; one that is not there is fine.
    async fn remove_label(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        label: &str,
    ) -> Result<(), GitHubError>;

    /// Opens a pull request. [`GitHubError::AlreadyExists`] where the branch has one.
    async fn create_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        pull: &NewPull,
    ) -> Result<GitHubPull, GitHubError>;

    /// Changes a pull request's title or text.
    async fn edit_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        edit: &PullEdit,
    ) -> Result<GitHubPull, GitHubError>;

    /// Sets a commit's status of one context. Harmless when repeated.
    async fn set_status(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        commit: &str,
        status: &StatusEntry,
    ) -> Result<(), GitHubError>;
}

/// What can be asked of GitHub and done there, under one identity: all of [`GitHubWriter`], and the
/// reads that nothing is written by.
///
/// Every method fails with [`GitHubError`]; the table at [`GitHubError`] says which answer of GitHub
/// becomes which error.
#[async_trait]
pub trait GitHubApi: GitHubWriter {
    /// What was counted since the start.
    fn figures(&self) -> GitHubFigures;

    // Reads for what a person or an effect waits for.

    /// An issue by its number. A transferred one is [`GitHubError::Moved`], a deleted one
    /// [`GitHubError::Gone`].
    async fn issue(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        known: Option<&str>,
    ) -> Result<Conditional<GitHubIssue>, GitHubError>;

    /// What a login may do in a repository. [`GitHubError::NotFound`] is no user.
    async fn permission(
        &self,
        target: &RepositoryTarget,
        login: &str,
    ) -> Result<LoginPermission, GitHubError>;

    /// Whether a login is a member of an organisation, publicly or not. With an App this needs the
    /// permission `members: read`.
    async fn is_member(&self, organization: &str, login: &str) -> Result<bool, GitHubError>;

    /// One page of the remarks of a review, oldest first.
    async fn review_comments(
        &self,
        target: &RepositoryTarget,
        pull: IssueNumber,
        review: u64,
        page: &PageCursor,
    ) -> Result<(Vec<ReviewComment>, Option<PageCursor>), GitHubError>;

    /// The commit at a branch's tip; `None` if there is no such branch.
    async fn branch_tip(
        &self,
        target: &RepositoryTarget,
        branch: &str,
    ) -> Result<Option<String>, GitHubError>;

    /// A file as a commit has it; `None` if it has none at that path.
    async fn file(
        &self,
        target: &RepositoryTarget,
        path: &str,
        commit: &str,
    ) -> Result<Option<GitHubFile>, GitHubError>;

    /// How an issue is, with the facts that decide whether work may begin. `base` is the branch
    /// whose tip is wanted; empty for the default branch.
    async fn verify(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        base: &str,
    ) -> Result<VerifiedIssue, GitHubError>;

    /// A repository, also by a former name.
    async fn repository(&self, target: &RepositoryTarget) -> Result<GitHubRepository, GitHubError>;

    /// A repository by its id; `near` is one of the same owner.
    async fn repository_by_id(
        &self,
        near: &RepositoryTarget,
        id: u64,
    ) -> Result<GitHubRepository, GitHubError>;

    /// The App's installation on a repository; [`GitHubError::NotFound`] if there is none, and with
    /// a token.
    async fn installation_of(&self, target: &RepositoryTarget)
    -> Result<Installation, GitHubError>;

    /// One page of the App's installations; none with a token.
    async fn installations(
        &self,
        page: &PageCursor,
    ) -> Result<(Vec<Installation>, Option<PageCursor>), GitHubError>;

    // Reads in the background: refused as Limited below a fifth of the hourly limit.

    /// One page of the repositories of an installation of the App.
    async fn installation_repositories(
        &self,
        installation: u64,
        page: &PageCursor,
    ) -> Result<(Vec<GitHubRepository>, Option<PageCursor>), GitHubError> {
        let _nothing = (installation, page);
        Ok((Vec::new(), None))
    }

    /// One page of the open issues with a label.
    async fn labelled_issues(
        &self,
        target: &RepositoryTarget,
        label: &str,
        page: &PageCursor,
        known: Option<&str>,
    ) -> Result<Conditional<(Vec<GitHubIssue>, Option<PageCursor>)>, GitHubError>;

    /// A page of the delivery log, newest first.
    async fn delivery_log(
        &self,
        source: &DeliverySource,
        page: &PageCursor,
    ) -> Result<DeliveryLogPage, GitHubError>;

    /// A delivery with its payload.
    async fn delivery(
        &self,
        source: &DeliverySource,
        id: u64,
    ) -> Result<StoredDelivery, GitHubError>;

    /// Has GitHub send a delivery once more.
    async fn redeliver(&self, source: &DeliverySource, id: u64) -> Result<(), GitHubError>;

    /// The webhooks of a repository.
    async fn hooks(&self, target: &RepositoryTarget) -> Result<Vec<GitHubHook>, GitHubError>;
}
