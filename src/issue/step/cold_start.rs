//! The cold start: the steps that a template has run in a sandbox that is up for the first time, or with
//! an empty or a stale workspace, before anything else works in it.
//!
//! It is a call like those to the provider: one at a time, recorded before it is made, with an attempt
//! that its answer names. The phase lasts until it has ended. After a restart the provider is looked at,
//! and what did not succeed before runs again.

use std::sync::Arc;
use std::time::Duration;

use crate::issue::event::{CallError, ColdStartEnd, Done};
use crate::issue::state::{Goal, IssueState, Record, StoppedBy, Verb};
use crate::types::{
    Cause, ExternalId, Failure, FailureCode, Phase, ProviderStep, RepositoryFile, SandboxId,
    Template,
};

use super::answer::unexpected;
use super::transition::Transition;

/// How long the verification of the issue and the checkout may take before the first step.
pub const PREPARATION_TIME_MAX: Duration = Duration::from_secs(1_800);
/// For what is between the steps.
const SLACK: Duration = Duration::from_secs(30);

/// A sandbox that is up at its provider while it is being created or started.
pub(super) struct CameUp {
    /// *Creating* or *starting*.
    pub from: Phase,
    pub record: Record,
    pub external_id: ExternalId,
    pub goal: Goal,
    pub tries_left: u32,
}

/// How long the cold start of a sandbox of this template may take; zero if it has none.
pub fn cold_start_time_max(template: &Template) -> Duration {
    if !has_cold_start(template) {
        return Duration::ZERO;
    }
    let setup = match template.workload.repository_file() {
        Some(_) => RepositoryFile::SETUP_TIME_MAX,
        None => Duration::ZERO,
    };
    PREPARATION_TIME_MAX + template.workload.hooks.cold_start_time_max() + setup + SLACK
}

/// Whether sandboxes of this template have a cold start. The repository's file may have commands for it.
pub(super) fn has_cold_start(template: &Template) -> bool {
    let workload = &template.workload;
    !workload.hooks.on_cold_start.is_empty() || workload.repository_file().is_some()
}

/// How a cold start ended.
///
/// # Errors
/// What happened is unknown, so that the provider is looked at.
pub(super) fn cold_start_end(result: Result<Done, CallError>) -> Result<ColdStartEnd, CallError> {
    match result {
        Ok(Done::ColdStarted(end)) => Ok(end),
        Ok(Done::Found(_) | Done::Up(_) | Done::Down | Done::Removing) => Err(unexpected()),
        Err(trouble) => Err(trouble),
    }
}

impl Transition<'_> {
    /// A sandbox is up at its provider: its cold start comes before anything else in it.
    pub fn came_up(&mut self, came_up: CameUp, how: &str) {
        let CameUp { from, record, external_id, goal, .. } = came_up;
        if goal != Goal::Running || !has_cold_start(&record.template) {
            return self.up(from, record, external_id, goal, how);
        }
        let is_needed = record.needs_cold_start;
        self.ask_cold_start(CameUp { from, record, external_id, goal, ..came_up });
        if is_needed {
            self.record_entry(format!("{how}; its cold start begins"));
        }
    }

    fn ask_cold_start(&mut self, came_up: CameUp) {
        let CameUp { from, mut record, external_id, goal, tries_left } = came_up;
        let verb = Verb::ColdStart { external_id: external_id.clone() };
        "its cold start runs".clone_into(&mut record.reason);
        let step = self.ask(&mut record, Some(&external_id), verb, tries_left);
        // The phase lasts as long as this, and has all of its time for what may follow.
        record.deadline = self
            .deadline_of(from, &record)
            .map(|end| end.after(cold_start_time_max(&record.template)));
        self.keep(match from {
            Phase::Starting => IssueState::Starting { record, external_id, goal, step },
            Phase::Creating
            | Phase::Running
            | Phase::Stopping
            | Phase::Stopped
            | Phase::Failed
            | Phase::Deleting => IssueState::Creating { record, goal, step, giving_up: None },
        });
    }

    /// The cold start ended.
    pub fn cold_started(&mut self, came_up: CameUp, end: ColdStartEnd) {
        match end {
            ColdStartEnd::Succeeded => {
                let CameUp { from, mut record, external_id, goal, .. } = came_up;
                record.needs_cold_start = false;
                self.up(from, record, external_id, goal, "it is up; its cold start succeeded");
            }
            ColdStartEnd::SucceededWith(file) => {
                let mut came_up = came_up;
                let workload = Arc::make_mut(&mut came_up.record.template.workload);
                if let Some(git) = &mut workload.git {
                    git.repository_file = Some(file);
                }
                self.cold_started(came_up, ColdStartEnd::Succeeded);
            }
            ColdStartEnd::NotNeeded => {
                let CameUp { from, record, external_id, goal, .. } = came_up;
                self.up(from, record, external_id, goal, "it is up again");
            }
            ColdStartEnd::Withheld(why) => {
                let CameUp { from, record, external_id, goal, .. } = came_up;
                let by = match goal {
                    Goal::Running => StoppedBy::Issue,
                    Goal::Stopped(by) => by,
                };
                let reason = format!("its cold start did not begin: {why}");
                self.stop(Some(from), record, external_id, by, reason);
            }
            ColdStartEnd::Withdrawn => self.came_up(came_up, "it is up"),
            ColdStartEnd::Failed(message) => self.cold_start_failed(came_up, message),
        }
    }

    /// A create that fails so leaves nothing. What was there before keeps its workspace, which may hold
    /// work: a retry goes on with it.
    fn cold_start_failed(&mut self, came_up: CameUp, message: String) {
        let CameUp { from, mut record, external_id, goal, .. } = came_up;
        let failure = Failure {
            code: FailureCode::HookFailed,
            step: ProviderStep::ColdStart,
            message,
            retryable: true,
        };
        if from == Phase::Starting {
            record.needs_cold_start = true;
            return self.fail(from, record, Some(external_id), goal, failure);
        }
        self.give_up(record, goal, failure);
        let state = self.take_state();
        self.enter(
            Some(from),
            state,
            "the cold start failed; deleting what was created".to_owned(),
        );
    }

    /// Something happened in a sandbox that the timeline should show.
    pub fn noted(&mut self, sandbox: &SandboxId, what: String, cause: &Cause) {
        if self.issue.state.record().map(|record| &record.id) != Some(sandbox) {
            return;
        }
        self.cause = cause.to_string();
        self.record_entry(what);
    }
}
