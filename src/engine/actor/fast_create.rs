//! *Ensure* in fast mode: the record is handed in and the provider asked beside it.
//!
//! The reply leaves once both are there, the record durable and the create answered. So that whoever
//! asked gets what came of the create, its step is durable too. Only where the record takes longer
//! than [`RECORD_TIME_MAX`] the reply leaves before: it tells no sandbox, but that the create failed
//! and its object was destroyed. Should the record become durable after all, that was a failed try
//! like any other, and the next one follows.

use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::engine::executor::CallId;
use crate::engine::executor::fast_create::{PendingRecord, RECORD_TIME_MAX};
use crate::issue::state::Step;
use crate::issue::{Issue, ProviderCall, Reply};
use crate::store::Write;
use crate::types::{Alias, Outcome, Phase, Sandbox};

use super::output::answer;
use super::{Answered, IssueActor, Unanswered};

type ReplyTo = oneshot::Sender<Result<Answered, Unanswered>>;

/// A create that was asked for beside its record, and who waits for both.
pub(super) struct FastCreate {
    id: CallId,
    waits: Option<(ReplyTo, Answered)>,
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

    /// The record is durable; this is what its step said.
    pub fn recorded(&mut self, reply: ReplyTo, answered: Answered) {
        self.waits = Some((reply, answered));
    }

    /// The create was answered, and the step that this led to is durable.
    pub fn reply(self, sandbox: Option<Arc<Sandbox>>) {
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

impl IssueActor {
    /// Hands a create's record in, and asks the provider beside it.
    pub(super) fn fast_create(
        &self,
        number: u64,
        write: Write,
        call: ProviderCall,
        names: Vec<Alias>,
        ctx: &mut Context<Self>,
    ) {
        let end = self.core.store.commit(write).shared();
        let by = self.core.now().after(RECORD_TIME_MAX);
        let account = call.account.clone();
        self.core.directory.hold(&account, self.home, &names);
        let (too_slow, told) = oneshot::channel();
        let record = PendingRecord { end: end.clone(), by, account, names, too_slow };
        self.core.executor.submit_fast_create(&self.core, self.home, call, record);
        ctx.spawn(told.into_actor(self).map(move |told, actor, _| {
            // Dropped without a word where the record was in time.
            if told.is_ok() {
                actor.record_too_slow(number);
            }
        }));
        let durable = end.into_actor(self);
        ctx.spawn(durable.map(move |result, actor, ctx| actor.committed(number, result, ctx)));
    }

    /// Tells whoever waits for a create that it came to nothing, though its record may become
    /// durable after all.
    fn record_too_slow(&mut self, number: u64) {
        let output = self.outbox.iter_mut().find(|output| output.number == number);
        if let Some(output) = output.filter(|output| !output.durable) {
            answer(output.reply.take(), Err(Unanswered::RecordTooSlow));
        }
    }
}
