//! GitHub as the server writes there: a client whose calls go on in the world when it is dropped. The
//! write queue is the real one.

use std::sync::Arc;

use async_trait::async_trait;

use super::said::{OWN, SimWrite, SimWriteResult, SimWritten};
use super::store::SimStore;
use super::time::SimClock;
use super::world::{ServerLife, WorldState};
use crate::engine::tests::outbox::WriteQueues;
use crate::github::api::*;
use crate::types::{IssueNumber, Timestamp};

/// How many comments are on a page.
const PAGE: usize = 2;

/// The only identity that writes.
const WRITER: WriterId = WriterId::TokenUser;

/// A client of the world's GitHub.
pub struct SimGitHubWriter {
    life: Arc<ServerLife>,
    queues: WriteQueues,
}

/// Reports to the world when the client goes away: answered, or given up.
struct OpenWrite<'a> {
    life: &'a ServerLife,
    number: u64,
}

impl Drop for OpenWrite<'_> {
    fn drop(&mut self) {
        if self.life.is_alive() {
            self.life.world().with(|inner| inner.close_write(self.number));
        }
    }
}

impl SimGitHubWriter {
    pub fn new(life: &Arc<ServerLife>, pace: &Arc<SimStore>) -> Self {
        let clock = Arc::new(SimClock(Arc::clone(life)));
        let queues = WriteQueues::new(clock, Arc::clone(pace) as _);
        Self { life: Arc::clone(life), queues }
    }

    async fn write(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        write: SimWrite,
    ) -> SimWriteResult {
        if !self.life.step() {
            return std::future::pending().await;
        }
        let (number, answer) = self.life.world().with(|inner| inner.begin_write(target, write));
        let open = OpenWrite { life: &self.life, number };
        let Ok(written) = answer.await else { return std::future::pending().await };
        drop(open);
        match &written {
            Err(GitHubError::Limited { until }) => {
                self.queues.rest(WRITER, Some(*until)).await;
            }
            Ok(_) => self.queues.went_well(WRITER),
            Err(_) => {}
        }
        drop(turn);
        written
    }

    async fn write_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        write: SimWrite,
    ) -> Result<GitHubComment, GitHubError> {
        match self.write(turn, target, write).await? {
            SimWritten::Comment(comment) => Ok(comment),
            SimWritten::Pull(_) | SimWritten::Nothing => unreachable!("the answer fits its call"),
        }
    }

    async fn write_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        write: SimWrite,
    ) -> Result<GitHubPull, GitHubError> {
        match self.write(turn, target, write).await? {
            SimWritten::Pull(pull) => Ok(pull),
            SimWritten::Comment(_) | SimWritten::Nothing => {
                unreachable!("the answer fits its call")
            }
        }
    }

    async fn read<T>(
        &self,
        read: impl FnOnce(&mut WorldState) -> Result<T, GitHubError>,
    ) -> Result<T, GitHubError> {
        self.life.pause().await;
        if !self.life.step() {
            return std::future::pending().await;
        }
        let found = self.life.world().with(read);
        self.life.pause().await;
        found
    }
}

#[async_trait]
impl GitHubWriter for SimGitHubWriter {
    async fn identity(&self) -> Result<GitHubIdentity, GitHubError> {
        Ok(GitHubIdentity {
            kind: IdentityKind::Token,
            user_id: OWN,
            login: "box".into(),
            slug: "box".into(),
            token_expires_at: None,
        })
    }

    fn github_now(&self) -> Timestamp {
        self.life.world().now()
    }

    async fn turn(
        &self,
        _: &RepositoryTarget,
        urgency: WriteUrgency,
    ) -> Result<WriteTurn, GitHubError> {
        self.queues.turn(WRITER, urgency).await
    }

    async fn comments_since(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        since: Timestamp,
        page: &PageCursor,
    ) -> Result<(Vec<GitHubComment>, Option<PageCursor>), GitHubError> {
        let from: usize = page.0.as_deref().map_or(0, |at| at.parse().expect("ours"));
        let mut found = self.read(|inner| inner.read_comments(target, number, since)).await?;
        let next = (found.len() > from + PAGE).then(|| PageCursor(Some((from + PAGE).to_string())));
        found.drain(..from.min(found.len()));
        found.truncate(PAGE);
        Ok((found, next))
    }

    async fn comment(
        &self,
        target: &RepositoryTarget,
        id: u64,
        _: Option<&str>,
    ) -> Result<Conditional<GitHubComment>, GitHubError> {
        let value = self.read(|inner| inner.read_comment(target, id)).await?;
        Ok(Conditional::Changed { value, etag: None })
    }

    async fn pulls_of(
        &self,
        target: &RepositoryTarget,
        branch: &str,
    ) -> Result<Vec<GitHubPull>, GitHubError> {
        self.read(|inner| inner.read_pulls(target, branch)).await
    }

    async fn create_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        body: &str,
    ) -> Result<GitHubComment, GitHubError> {
        let body = body.to_owned();
        self.write_comment(turn, target, SimWrite::Comment { number, body }).await
    }

    async fn edit_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        id: u64,
        body: &str,
    ) -> Result<GitHubComment, GitHubError> {
        let body = body.to_owned();
        self.write_comment(turn, target, SimWrite::EditComment { id, body }).await
    }

    async fn react(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        to: ReactionTarget,
        _: Reaction,
    ) -> Result<(), GitHubError> {
        self.write(turn, target, SimWrite::React { to }).await.map(drop)
    }

    async fn add_label(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        _: &str,
    ) -> Result<(), GitHubError> {
        self.write(turn, target, SimWrite::Label { number, is_on: true }).await.map(drop)
    }

    async fn remove_label(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        _: &str,
    ) -> Result<(), GitHubError> {
        self.write(turn, target, SimWrite::Label { number, is_on: false }).await.map(drop)
    }

    async fn create_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        pull: &NewPull,
    ) -> Result<GitHubPull, GitHubError> {
        self.write_pull(turn, target, SimWrite::OpenPull(pull.clone())).await
    }

    async fn edit_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        edit: &PullEdit,
    ) -> Result<GitHubPull, GitHubError> {
        let body = edit.body.clone();
        self.write_pull(turn, target, SimWrite::EditPull { number, body }).await
    }

    async fn set_status(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        commit: &str,
        status: &StatusEntry,
    ) -> Result<(), GitHubError> {
        let (commit, state) = (commit.to_owned(), status.state);
        self.write(turn, target, SimWrite::Status { commit, state }).await.map(drop)
    }
}
