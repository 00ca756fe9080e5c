//! The reply to *ensure* in fast mode: it leaves once both are there, the record durable and the
//! create answered. So that whoever asked gets what came of the create, its step is durable too.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::issue::state::Step;
use crate::issue::{Issue, Reply};
use crate::types::{Outcome, Phase, Sandbox};

use super::actor::{Answered, Unanswered};
use super::executor::CallId;

type ReplyTo = oneshot::Sender<Result<Answered, Unanswered>>;

/// A create that was asked for beside its record, and who waits for both.
pub(super) struct Hurried {
    id: CallId,
    waits: Option<(ReplyTo, Answered)>,
}

impl Hurried {
    /// A create that has just been asked for.
    pub fn new(id: CallId) -> Self {
        Self { id, waits: None }
    }

    /// Whether the create is still what the issue waits for.
    pub fn is_asked(&self, issue: &Issue) -> bool {
        let record = issue.state.record();
        let is_it = record.is_some_and(|record| {
            record.id == self.id.sandbox && record.attempt == self.id.attempt
        });
        is_it && matches!(issue.state.step(), Some(Step::Asked { .. }))
    }

    /// The record is durable; this is what its step said.
    pub fn recorded(&mut self, reply: ReplyTo, answered: Answered) {
        self.waits = Some((reply, answered));
    }

    /// The create was answered, and the step that this led to is durable.
    pub fn settled(self, sandbox: Option<Arc<Sandbox>>) {
        if let Some((reply, answered)) = self.waits {
            // A caller that went away: what it asked for is done all the same.
            drop(reply.send(Ok(with(answered, sandbox))));
        }
    }

    /// The actor ends before that.
    pub fn ended(self) {
        if let Some((reply, _)) = self.waits {
            drop(reply.send(Err(Unanswered::Again)));
        }
    }
}

/// The answer with the sandbox as it became.
fn with(mut answered: Answered, sandbox: Option<Arc<Sandbox>>) -> Answered {
    // Where it is gone already, as it was.
    let Some(sandbox) = sandbox else { return answered };
    if let (Reply::Ensured { outcome, reason, .. }, Some(Phase::Failed), Some(failure)) =
        (&mut answered.reply, sandbox.phase, &sandbox.failure)
    {
        *outcome = Outcome::Failed;
        reason.clone_from(&failure.message);
    }
    answered.sandbox = Some(sandbox);
    answered
}
