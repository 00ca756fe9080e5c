//! Verification before work begins: the issue of a sandbox that is up or comes up is compared with what
//! GitHub says.
//!
//! | GitHub says | then |
//! |---|---|
//! | open, with the label or the assignee that it had | work begins |
//! | closed, label or assignee gone, deleted, transferred | as if that had been delivered now |
//! | who asked may not trigger any more | the trigger is withdrawn: the sandbox stops |
//! | edited since by a person who may not trigger | work begins; the timeline and the status say so |
//! | the words for the agent have hidden parts | the same, or no work begins (`github.hidden`) |
//! | nothing | it is asked again; the sandbox is up and its work waits |

use std::time::Duration;

use crate::engine::EngineError;
use crate::github::api::{GitHubError, RepositoryTarget, VerifiedIssue};
use crate::github::policy::{SAMPLE_REPOSITORY_ID, TriggerPolicy};
use crate::issue::Facts;
use crate::types::{AccountName, HomeId, Phase, SandboxId};

use super::IssueVerifier;
use super::edits::LatestWords;
use super::hidden;
use super::news::{self, TakenBack};

/// The longest pause before GitHub is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How many answers in a row may bring something new, before there is a pause.
const NEWS_MAX: usize = 5;
/// How many labels and assignees an answer has at most: what is not among so many may still be there.
const LABELS_MAX: usize = 100;
const ASSIGNEES_MAX: usize = 20;
/// The resolution of GitHub's times.
const A_SECOND: Duration = Duration::from_secs(1);

/// What an answer of GitHub's comes to.
enum WorkVerdict {
    /// Work may begin.
    Begin,
    /// No work begins in this sandbox now, for this reason.
    Not(&'static str),
    /// Something was news here and was taken in: look at what the issue has come to.
    TakenIn,
}

/// Why an issue could not be verified.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnverifiedIssue {
    #[error("{0}")]
    GitHub(#[from] GitHubError),
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("the repository has another id at GitHub than here")]
    OtherRepository,
    #[error("what GitHub says of it does not become what is known here")]
    Restless,
}

impl From<crate::store::StoreError> for UnverifiedIssue {
    fn from(error: crate::store::StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl IssueVerifier {
    /// Whether work may begin in a sandbox that came up. Waits until GitHub says so; `note` is given what
    /// people should know meanwhile.
    pub async fn before_work(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
        note: impl Fn(String) + Send + Sync,
    ) -> bool {
        let mut pause = Duration::from_secs(1);
        loop {
            match self.verify(home, sandbox).await {
                Ok(WorkVerdict::Begin) => return true,
                Ok(WorkVerdict::Not(reason)) => {
                    note(format!("no work begins: {reason}"));
                    return false;
                }
                Ok(WorkVerdict::TakenIn) => {}
                Err(error) => {
                    tracing::warn!(sandbox.id = %sandbox, %error,
                        "cannot verify an issue at GitHub; its sandbox waits, asking again");
                    note(format!(
                        "checkout and agent wait for GitHub's answer about the issue: {error}"
                    ));
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
            self.clock.sleep_until(self.clock.now().after(pause)).await;
        }
    }

    /// Asks until an answer brings nothing new.
    async fn verify(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
    ) -> Result<WorkVerdict, UnverifiedIssue> {
        for _ in 0..NEWS_MAX {
            match self.verify_once(home, sandbox).await? {
                WorkVerdict::TakenIn => {}
                verdict @ (WorkVerdict::Begin | WorkVerdict::Not(_)) => return Ok(verdict),
            }
        }
        Err(UnverifiedIssue::Restless)
    }

    async fn verify_once(
        &self,
        home: HomeId,
        sandbox: &SandboxId,
    ) -> Result<WorkVerdict, UnverifiedIssue> {
        let Some(issue) = self.store.load(home).await? else {
            return Ok(WorkVerdict::Not("the issue has no record"));
        };
        let is_its = issue.state.record().is_some_and(|record| record.id == *sandbox);
        let is_up_or_coming = match issue.state.phase() {
            Some(Phase::Creating | Phase::Starting | Phase::Running) => true,
            Some(Phase::Stopping | Phase::Stopped | Phase::Failed | Phase::Deleting) | None => {
                false
            }
        };
        if !is_its || !is_up_or_coming {
            return Ok(WorkVerdict::Not("the sandbox does not run any more"));
        }
        let (account, facts) = (&issue.account, &issue.facts);
        let (Some(target), Some(number)) = (RepositoryTarget::of(facts), facts.number) else {
            return Ok(WorkVerdict::Begin);
        };
        if facts.repository_id == Some(SAMPLE_REPOSITORY_ID) {
            return Ok(WorkVerdict::Begin);
        }
        let verified = match self.api.verify(&target, number, "").await {
            Ok(verified) => verified,
            Err(GitHubError::Gone(_)) => {
                self.deleted(account, &target, number, facts)
                    .await
                    .map_err(UnverifiedIssue::from)?;
                return Ok(WorkVerdict::Not("the issue is deleted on GitHub"));
            }
            Err(GitHubError::Moved { .. }) => {
                let found = self.find(&target, number, Some(facts)).await?;
                let delivery = news::of_found(&found, Some(facts), self.clock.now());
                self.engine.deliver(account, delivery).await?;
                return Ok(WorkVerdict::TakenIn);
            }
            Err(error) => return Err(error.into()),
        };
        if facts.repository_id.is_some_and(|known| known != verified.repository_id) {
            return Err(UnverifiedIssue::OtherRepository);
        }
        self.compare(account, &target, home, facts, &verified).await
    }

    /// Takes in what contradicts what is known.
    async fn compare(
        &self,
        account: &AccountName,
        target: &RepositoryTarget,
        home: HomeId,
        facts: &Facts,
        verified: &VerifiedIssue,
    ) -> Result<WorkVerdict, UnverifiedIssue> {
        let (now, triggers) = (self.clock.now(), self.triggers.of(&target.name));
        if let Some(taken_back) = taken_back(triggers, facts, verified) {
            let label = &triggers.label;
            let delivery = news::of_verified(taken_back, label, target, facts, verified, now);
            self.engine.deliver(account, delivery).await?;
            return Ok(WorkVerdict::TakenIn);
        }
        if !verified.is_open {
            return Ok(WorkVerdict::Not("the issue is closed on GitHub"));
        }
        let words = self.latest_words(home).await?;
        if self.has_lost_permission(target, &words, facts).await? {
            let withdrawn = TakenBack::Permission;
            let label = &triggers.label;
            let delivery = news::of_verified(withdrawn, label, target, facts, verified, now);
            self.engine.deliver(account, delivery).await?;
            return Ok(WorkVerdict::TakenIn);
        }
        let hidden = hidden::note(&words, triggers.refuses_hidden);
        let is_refused = hidden.is_some() && triggers.refuses_hidden;
        let edited = self.edited_since(target, words.text.as_ref(), verified).await?;
        for note in edited.into_iter().chain(hidden) {
            let delivery = news::of_note(note, target, verified, now);
            self.engine.deliver(account, delivery).await?;
        }
        Ok(if is_refused { WorkVerdict::Not(hidden::REFUSED) } else { WorkVerdict::Begin })
    }

    /// Whether who caused the latest trigger may not trigger any more. What a caller asked for since is a
    /// trigger of its own.
    async fn has_lost_permission(
        &self,
        target: &RepositoryTarget,
        words: &LatestWords,
        facts: &Facts,
    ) -> Result<bool, GitHubError> {
        let permission = self.triggers.of(&target.name).permission;
        let (Some((sender, as_of)), Some(_)) = (&words.asked, permission) else {
            return Ok(false);
        };
        let acts = &facts.acts;
        let is_latest = acts.last_started().is_some_and(|asked| {
            let is_newer = |gone| *as_of <= gone && gone < asked;
            asked.since(*as_of) < A_SECOND && !acts.taken_away.is_some_and(is_newer)
        });
        Ok(is_latest && !self.may_trigger(target, sender).await?)
    }
}

/// What GitHub says was taken back, if it is not known here.
fn taken_back(
    triggers: &TriggerPolicy,
    facts: &Facts,
    verified: &VerifiedIssue,
) -> Option<TakenBack> {
    let is = |known: &Option<crate::issue::Dated<bool>>, value: bool| {
        known.as_ref().is_some_and(|known| known.value == value)
    };
    // Without a trigger label there is none that could have been taken off.
    let has_label = triggers.label.is_empty()
        || verified.labels.len() >= LABELS_MAX
        || verified.labels.iter().any(|label| triggers.is_trigger_label(label));
    let is_assigned = verified.assignees.len() >= ASSIGNEES_MAX
        || verified.assignees.contains(&triggers.assignee);
    if !verified.is_open && !is(&facts.open, false) {
        Some(TakenBack::Closed)
    } else if triggers.unlabel_stops && is(&facts.labelled, true) && !has_label {
        Some(TakenBack::Label)
    } else if triggers.assignee != 0 && is(&facts.assigned, true) && !is_assigned {
        Some(TakenBack::Assignee(triggers.assignee))
    } else {
        None
    }
}
