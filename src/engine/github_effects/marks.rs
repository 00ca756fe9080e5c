//! Marks that show whether a sandbox is at work: a commit status, and a label.

use crate::github::api::{CommitState, RepositoryTarget, StatusEntry, WriteUrgency};
use crate::issue::Issue;
use crate::store::checkout::CheckoutRow;
use crate::store::github::{GithubEnd, GithubRow, GithubState, ShownComment};
use crate::types::{HomeId, Phase, SandboxId};

use super::GithubWorker;
use super::answers::{AttemptError, over, unchanged};
use super::attempt::known_hash;
use super::look::hash;
use super::place::SaidWhere;

/// Which of a commit's statuses is ours.
const CONTEXT: &str = "issuebox";

impl GithubWorker {
    /// Sets the status of the last commit that a sandbox pushed, if it pushed one: there, also after the
    /// issue was transferred.
    pub(super) async fn set_commit_status(
        &self,
        row: &GithubRow,
        issue: &Issue,
        sandbox: &SandboxId,
    ) -> Result<GithubEnd, AttemptError> {
        let done = |hash| self.marked(row, hash);
        let checkout = self.parts.checkouts.checkout(sandbox).await?;
        let Some(checkout @ CheckoutRow { tip: Some(tip), .. }) = &checkout else {
            return Ok(done(row.shown.hash.clone()));
        };
        let repository = RepositoryTarget::of_checkout(checkout, &issue.facts);
        let is_this = issue.state.record().is_some_and(|record| record.id == *sandbox);
        let (state, description) = match issue.state.phase().filter(|_| is_this) {
            Some(Phase::Failed) => (CommitState::Failure, "The sandbox failed."),
            Some(phase) if phase.is_at_work() => (CommitState::Pending, "The sandbox is at work."),
            Some(_) | None => (CommitState::Success, "The sandbox stopped."),
        };
        let wanted = hash(&format!("{tip} {}", state.as_str()));
        if known_hash(row) == Some(&*wanted) {
            return Ok(done(Some(wanted)));
        }
        let url = self.parts.context.usual().public_url.as_ref();
        let status = StatusEntry {
            state,
            context: CONTEXT.to_owned(),
            description: description.to_owned(),
            target_url: url.map(|url| format!("{url}/sandboxes/{sandbox}")),
        };
        let api = &self.parts.api;
        let turn = api.turn(&repository, WriteUrgency::Progress).await?;
        let call = self.begin(row).await?;
        let set = api.set_status(turn, &repository, tip, &status).await;
        set.map_err(|error| call.failed(error))?;
        Ok(done(Some(wanted)))
    }

    /// Puts the label on or takes it off, whatever this home did before: after a transfer, the issue's
    /// other home may have changed it. What is known to be on is kept, so that a label of another name
    /// is taken off after the configuration changed. `survivor` is the home of the issue by now: if its
    /// own home gave way to it, the label shows whether that one is at work.
    pub(super) async fn set_working_label(
        &self,
        row: &GithubRow,
        place: &SaidWhere,
        survivor: &Issue,
    ) -> Result<GithubEnd, AttemptError> {
        let (api, repository) = (&self.parts.api, &place.repository);
        let label = &self.parts.working_label;
        let is_own = survivor.home == row.home;
        let is_at_work = survivor.state.phase().is_some_and(Phase::is_at_work);
        let former = row.shown.hash.as_ref().filter(|known| *known != label);
        let changes = former.map(|former| (former, false)).into_iter();
        for (name, is_on) in changes.chain((!label.is_empty()).then_some((label, is_at_work))) {
            let turn = api.turn(repository, WriteUrgency::Progress).await?;
            // While it waited for its turn the home that stays may have begun to work, or have stopped.
            if !is_own && self.is_at_work(survivor.home).await? != is_at_work {
                return Ok(unchanged(row, self.env.now()));
            }
            let call = self.begin(row).await?;
            let changed = if is_on {
                api.add_label(turn, repository, place.number, name).await
            } else {
                api.remove_label(turn, repository, place.number, name).await
            };
            changed.map_err(|error| call.failed(error))?;
        }
        let is_on = is_own && is_at_work && !label.is_empty();
        Ok(self.marked(row, is_on.then(|| label.clone())))
    }

    async fn is_at_work(&self, home: HomeId) -> Result<bool, AttemptError> {
        let issue = self.env.store.load(home).await?;
        let phase = issue.and_then(|issue| issue.state.phase());
        Ok(phase.is_some_and(Phase::is_at_work))
    }

    fn marked(&self, row: &GithubRow, hash: Option<String>) -> GithubEnd {
        let now = self.env.now();
        let shown = ShownComment { hash, at: Some(now), ..ShownComment::default() };
        GithubEnd { shown, ..over(row, now, GithubState::Done, "") }
    }
}
