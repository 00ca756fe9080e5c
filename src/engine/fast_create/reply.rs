//! The reply to *ensure* in fast mode.
//!
//! The reply leaves once the record is durable and the create is answered, with its step durable too, so
//! that the caller gets the result of the create. If the record takes longer than
//! [`RECORD_TIME_MAX`](super::record::RECORD_TIME_MAX), the reply leaves before. It names no sandbox but
//! says that the create failed and its object was destroyed. Should the record become durable after
//! all, that was a failed try like any other, and the next one follows.

use std::sync::Arc;

use crate::engine::executor::slots::CallId;
use crate::engine::mailbox::{Answered, ReplySender, Unanswered};
use crate::issue::state::Step;
use crate::issue::{Issue, Reply};
use crate::types::{Outcome, Phase, Sandbox};

/// A fast create, and the caller's reply that waits for it.
pub(in crate::engine) struct FastCreate {
    id: CallId,
    waits: Option<(ReplySender, Answered)>,
}

impl FastCreate {
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

    /// The record is durable; this is what its step answered.
    pub fn recorded(&mut self, reply: ReplySender, answered: Answered) {
        self.waits = Some((reply, answered));
    }

    /// The create was answered, and the step that this led to is durable.
    pub fn reply(self, sandbox: Option<Arc<Sandbox>>) {
        if let Some((reply, answered)) = self.waits {
            // If the caller went away, what it asked for is done all the same.
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
    // If it is gone already, as it was.
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
