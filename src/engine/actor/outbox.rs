//! What waits for its commit, in order, and leaves once that is durable.

use std::sync::Arc;

use actix::prelude::*;

use super::IssueActor;
use super::output::{StepOutput, answer, is_not_stored, names_left};
use crate::engine::admission::QuotaReservation;
use crate::engine::mailbox::{ActorMessage, ActorSender, Unanswered};
use crate::issue::Reply;
#[cfg(test)]
use crate::sabotage::{Bug, on};
use crate::store::CommitError;

impl IssueActor {
    /// Puts an output at the end, under the next number, which is returned.
    pub(super) fn push(&mut self, output: StepOutput) -> u64 {
        self.last_output += 1;
        self.outbox.push_back(Box::new(StepOutput { number: self.last_output, ..output }));
        self.flush();
        self.last_output
    }

    /// A commit is durable, or was refused.
    pub(super) fn committed(
        &mut self,
        number: u64,
        result: Result<(), CommitError>,
        ctx: &mut Context<Self>,
    ) {
        match result {
            Ok(()) => {
                if let Some(output) = self.outbox.iter_mut().find(|o| o.number == number) {
                    output.durable = true;
                }
                self.identity_known = true;
                self.parts.restart_backoff.reset(self.home);
                self.flush();
            }
            Err(error) => self.refused(number, error, ctx),
        }
    }

    /// Lets everything leave whose commit, and every one before it, is durable.
    fn flush(&mut self) {
        while let Some(output) = self.outbox.pop_front_if(|output| output.durable) {
            self.leave(*output);
        }
        if let Some(issue) = self.issue.as_ref().filter(|_| self.outbox.is_empty()) {
            if issue.state.takes_slot() {
                self.parts.admission.count(issue);
            } else {
                self.parts.admission.leave(self.home);
            }
        }
    }

    /// Publishes what a durable step changed, makes its calls, and answers.
    fn leave(&mut self, output: StepOutput) {
        self.decide_claims(&output);
        output.reservation.into_iter().for_each(QuotaReservation::keep);
        if let Some(change) = output.change {
            self.parts.publication.publish(change);
        }
        if let (Some(id), Reply::Delivered(result), false) =
            (output.delivery, &output.answered.reply, output.answered.duplicate)
        {
            self.recent.push(id, result.applied);
        }
        // The first step after the restart is durable now, or there was nothing to store.
        if !self.parts.restarting.is_empty() {
            self.parts.restarting.remove(&self.home);
        }
        let _within = output.span.entered();
        if let Some(call) = output.call {
            self.parts.executor.submit(self.home, call);
        }
        if let Some(id) = &output.withdrawn {
            self.parts.executor.withdraw(self.home, id);
        }
        if output.records_effects {
            self.parts.effects_recorded.notify_one();
            self.parts.github_recorded.notify_one();
        }
        if let Some(due) = output.due {
            self.parts.alarm.set(due);
        }
        if output.ends_fast_create
            && let Some(fast_create) = self.fast_create.take()
        {
            fast_create.reply(output.answered.sandbox.clone());
        }
        match (&mut self.fast_create, output.reply) {
            (Some(fast_create), Some(reply)) if output.is_fast_create => {
                fast_create.recorded(reply, output.answered);
            }
            (_, reply) => answer(reply, Ok(output.answered)),
        }
    }

    /// The names that a step claims are the home's for good now, or free again if it stored nothing,
    /// as when a caller was denied. Then another home can get them: one that was never stored is not
    /// known any more to be the only one of its issue.
    fn decide_claims(&mut self, output: &StepOutput) {
        let (parts, account, claims) = (&self.parts, &output.account, &output.claims);
        if output.stores_claims || claims.is_empty() {
            return parts.directory.confirm(account, self.home, claims);
        }
        parts.directory.abandon(parts.env.now(), account, self.home, claims);
        self.identity_known &= self.issue.as_ref().is_some_and(|issue| issue.version > 0);
    }

    /// A commit was refused: what is in memory is not what is stored. All waiting callers are
    /// answered and the actor ends; the next message builds it again from the store.
    fn refused(&mut self, number: u64, error: CommitError, ctx: &mut Context<Self>) {
        self.ended = true;
        // Before a caller hears that it may retry.
        self.parts.unfinished_commits.insert(self.home);
        self.ticket.leave();
        if let Some(fast_create) = self.fast_create.take() {
            fast_create.ended();
        }
        let now = self.parts.env.now();
        for output in self.outbox.drain(..) {
            let mut output = *output;
            let directory = &self.parts.directory;
            directory.abandon(now, &output.account, self.home, &output.claims);
            if output.number == number && is_not_stored(&error) {
                // Gives the slot back at once.
                output.reservation = None;
            }
            output.reservation.take().into_iter().for_each(QuotaReservation::keep);
            let result = match &error {
                _ if output.number != number => Err(Unanswered::Again),
                CommitError::DuplicateDelivery => {
                    output.answered.duplicate = true;
                    Ok(output.answered)
                }
                CommitError::AliasTaken | CommitError::Fenced => Err(Unanswered::Again),
                CommitError::Overloaded => Err(Unanswered::Overloaded),
                CommitError::Failed(why) => Err(Unanswered::Failed(why.clone())),
                CommitError::Damaged { .. } => Err(Unanswered::Failed(error.to_string())),
            };
            answer(output.reply, result);
        }
        match error {
            CommitError::DuplicateDelivery | CommitError::AliasTaken | CommitError::Fenced => {
                tracing::debug!(home = self.home.0, %error, "an actor restarts because its commit was refused");
            }
            CommitError::Overloaded | CommitError::Damaged { .. } | CommitError::Failed(_) => {
                tracing::error!(home = self.home.0, %error, "failed to store a decision about an issue: nothing of it was sent, its caller gets an error, and the issue's actor restarts");
            }
        }
        ctx.stop();
    }
}

impl Drop for IssueActor {
    /// An actor that ends by a panic or a refused commit leaves things unfinished: commits on
    /// their way whose provider calls are not made, answers in its queue. A successor resumes them
    /// soon, instead of at the due time.
    fn drop(&mut self) {
        if self.outbox.iter().any(|output| !output.durable) {
            self.parts.unfinished_commits.insert(self.home);
        }
        #[cfg(test)]
        if on(Bug::SlotFreedWithActor) {
            self.parts.executor.free(self.home);
        }
        let (parts, home) = (Arc::clone(&self.parts), self.home);
        let claimed = names_left(std::mem::take(&mut self.outbox));
        if self.passivated || parts.env.is_stopping() {
            parts.restart_backoff.reset(home);
            return;
        }
        let pause = parts.restart_backoff.pause(home);
        let spawner = Arc::clone(&parts.env.spawner);
        spawner.io(Box::pin(async move {
            let env = &parts.env;
            if !claimed.is_empty() {
                // Behind the writes that are on their way: only then their names are decided.
                drop(env.store.check().await);
                for (account, names) in &claimed {
                    parts.directory.abandon(env.now(), account, home, names);
                }
            }
            env.clock.sleep_until(env.now().after(pause)).await;
            if let Some(registry) = parts.registry.upgrade() {
                registry.send(home, &|| ActorMessage::Wake).await;
            }
        }));
    }
}
