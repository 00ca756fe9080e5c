//! Puts an event through the lifecycle, and hands the commit in that it led to.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tracing::Span;

use super::output::{StepOutput, answer, change, delivery_row, renamed, with_result};
use super::span::span_of;
use super::{ActorParts, IssueActor};
use crate::conversation::RunReply;
use crate::engine::admission::QuotaReservation;
use crate::engine::environment::fresh_ids;
use crate::engine::executor::slots::CallId;
use crate::engine::fast_create::begin::begin;
use crate::engine::fast_create::reply::FastCreate;
use crate::engine::mailbox::{Answered, ReplySender, Unanswered};
use crate::engine::registry::QUEUE_LEN_MAX;
use crate::issue::event::EventMeta;
use crate::issue::step::step;
use crate::issue::{
    Commit, DeliveryResult, Denial, Effect, GithubEffect, Issue, IssueEvent, IssueState,
    ProviderCall, Reply, Step, StepContext, Verb,
};
use crate::sabotage::{Bug, on};
use crate::store::{CommitError, DeliveryRow, NewEffect, Write};
use crate::types::{AccountName, Alias, DeliveryId, Timestamp, Wanted};

/// What came of a delivery that is remembered only by its verdict.
const PROCESSED_BEFORE: &str = "this delivery was processed before";

/// What comes with an event.
struct Incoming {
    /// The names that it claims.
    claims: Vec<Alias>,
    /// The delivery that its commit records.
    delivery: Option<DeliveryRow>,
    /// The slot under the quotas that its sandbox got.
    reservation: Option<QuotaReservation>,
    /// Takes the answer.
    reply: Option<ReplySender>,
}

impl IssueActor {
    /// Puts an event through the lifecycle.
    pub(super) fn event(
        &mut self,
        event: IssueEvent,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        let Some(issue) = &self.issue else {
            return answer(reply, Err(Unanswered::Again));
        };
        let meta = event.meta();
        let _within = span_of(self.home, &meta).entered();
        let claims = meta.claims.to_vec();
        if issue.merged_into.is_some() && meta.follows_names {
            // The caller found this home before its names went to the other one. The answer leaves
            // once that is durable, so that the next look finds the other one.
            let empty = StepOutput::of_no_step(issue, reply);
            let answered = Answered { moved: true, ..empty.answered };
            self.push(StepOutput { claims, answered, ..empty });
            return;
        }
        // Answers and due times are few and must not be lost; callers can come again.
        if self.outbox.len() >= QUEUE_LEN_MAX && reply.is_some() {
            return answer(reply, Err(Unanswered::Overloaded));
        }
        let delivery = delivery_row(&meta, issue);
        if let Some(delivery) = &delivery
            && let Some(output) = self.repeated(&delivery.id)
        {
            if on(Bug::DuplicateBySeen) {
                return answer(reply, Ok(output.answered));
            }
            self.push(StepOutput { reply, ..output });
            return;
        }
        let (denial, reservation) = self.admit(issue, &meta);
        let rules = self.parts.env.rules();
        let context = StepContext {
            now: self.parts.env.now(),
            rules: &rules,
            fresh_id: self.parts.env.ids.sandbox_id(),
            fresh: fresh_ids(self.parts.env.ids.as_ref()),
            jitter_permille: self.parts.env.ids.jitter_permille(),
            unix_ns: self.parts.env.ids.unix_ns(),
            may_fast_create: self.identity_known && self.outbox.is_empty(),
            denial,
        };
        let commit = step(issue, event, &context);
        if let Some((from, to)) = renamed(issue, &commit.issue) {
            self.parts.holds.follow_behind(from, to);
        }
        self.parts.admission.count_step(&commit.issue);
        // Dropped if no sandbox came of the step: the slot is free again.
        let reservation = reservation.filter(|_| commit.issue.state.takes_slot());
        self.take(commit, Incoming { claims, delivery, reservation, reply }, ctx);
    }

    /// Why no sandbox may be created or started for this issue now: a hold, a quota, or no capacity
    /// at the provider. If nothing denies it, with the slot that the issue may have got for it.
    fn admit(
        &self,
        issue: &Issue,
        event: &EventMeta<'_>,
    ) -> (Option<Denial>, Option<QuotaReservation>) {
        match self.parts.admission.admit(issue, event) {
            Ok(reservation) => (self.parts.capacity.denial(issue, event), reservation),
            Err(denial) => (Some(denial), None),
        }
    }

    /// Takes a commit: memory changes now, the store gets it now, everything else waits for it.
    fn take(&mut self, mut commit: Commit, incoming: Incoming, ctx: &mut Context<Self>) {
        let Incoming { claims, delivery, mut reservation, mut reply } = incoming;
        reservation.iter_mut().for_each(QuotaReservation::handed_in);
        let records_effects = !commit.effects.is_empty() || commit.is_unlocked;
        // A home that was never stored stays so when its orphans are cleaned up.
        let is_stored = commit.issue.version > 0;
        let stores_issue = commit.changed || delivery.is_some() || (records_effects && is_stored);
        let stores = stores_issue || records_effects;
        if stores_issue && !commit.changed {
            // Also what changes nothing follows the state it was judged on: if a commit before it is
            // refused, it is refused too, and judged again.
            commit.issue.version += 1;
        }
        let delivery = delivery.map(|row| with_result(row, &commit.reply));
        let sandbox = commit.issue.sandbox().map(Arc::new);
        let change = commit.changed.then(|| change(&commit, sandbox.clone()));
        let reply_of_step = std::mem::replace(&mut commit.reply, Reply::Nothing);
        let answered = Answered { reply: reply_of_step, duplicate: false, moved: false, sandbox };
        let mut call = commit.call.take();
        let fast_call = if commit.is_fast_create && stores { call.take() } else { None };
        let ends_fast_create =
            self.fast_create.as_ref().is_some_and(|create| !create.is_asked(&commit.issue));
        if let (Some(call), Reply::Ensured { .. }, None) =
            (&fast_call, &answered.reply, &self.fast_create)
        {
            self.fast_create = Some(FastCreate::new(CallId::of(call)));
        }
        let begins_run = matches!(answered.reply, Reply::Run(RunReply::Begun(..)));
        if on(Bug::ReplyBeforeCommit) || begins_run && on(Bug::RunBeforeRecord) {
            answer(reply.take(), Ok(answered.clone()));
        }
        if let Some(call) = call.take_if(|_| on(Bug::CallBeforeCommit)) {
            self.parts.executor.submit(self.home, call);
        }
        let names = claims.clone();
        let number = self.push(StepOutput {
            number: 0,
            durable: !stores,
            delivery: delivery.as_ref().map(|row| row.id.clone()),
            account: commit.issue.account.clone(),
            claims,
            stores_claims: stores,
            reply,
            answered,
            change,
            call,
            withdrawn: useless_call(&commit.issue),
            records_effects,
            due: commit.issue.due_at(),
            is_fast_create: fast_call.is_some(),
            ends_fast_create,
            reservation,
            span: Span::current(),
        });
        self.issue = Some(commit.issue.clone());
        if stores {
            if self.is_contested(&commit.issue.account, &names, fast_call.is_some()) {
                return self.committed(number, Err(CommitError::AliasTaken), ctx);
            }
            let write = write(commit, delivery, stores_issue, self.parts.env.now());
            match fast_call {
                None => self.hand_in(number, write, ctx),
                Some(call) => self.fast_create(number, write, call, names, ctx),
            }
        }
    }

    /// Whether a name that a commit claims is another home's by now, though that is not durable: of a
    /// create in fast mode any of them, else one for which another create is being made. The names of a
    /// create are held from here on.
    fn is_contested(&self, account: &AccountName, names: &[Alias], is_fast_create: bool) -> bool {
        let directory = &self.parts.directory;
        match is_fast_create {
            true => !directory.hold(account, self.home, names),
            false => directory.is_held_elsewhere(account, self.home, names),
        }
    }

    fn hand_in(&self, number: u64, write: Write, ctx: &mut Context<Self>) {
        let durable = self.parts.env.store.commit(write).into_actor(self);
        ctx.spawn(durable.map(move |result, actor, ctx| actor.committed(number, result, ctx)));
    }

    /// Hands a create's record in, and asks the provider at the same time.
    fn fast_create(
        &self,
        number: u64,
        write: Write,
        call: ProviderCall,
        names: Vec<Alias>,
        ctx: &mut Context<Self>,
    ) {
        let ActorParts { env, executor, .. } = self.parts.as_ref();
        let (end, too_slow) = begin(env, executor, self.home, write, call, names);
        ctx.spawn(too_slow.into_actor(self).map(move |too_slow, actor, _| {
            // The sender is dropped if the record was in time.
            if too_slow.is_ok() {
                actor.record_too_slow(number);
            }
        }));
        let durable = end.into_actor(self);
        ctx.spawn(durable.map(move |result, actor, ctx| actor.committed(number, result, ctx)));
    }

    /// Answers that a create failed, though its record may become durable after all.
    fn record_too_slow(&mut self, number: u64) {
        let output = self.outbox.iter_mut().find(|output| output.number == number);
        if let Some(output) = output.filter(|output| !output.durable) {
            answer(output.reply.take(), Err(Unanswered::RecordTooSlow));
        }
    }

    /// The answer to a delivery that this actor has had already: it leaves once the first one's
    /// commit is durable.
    fn repeated(&self, id: &DeliveryId) -> Option<StepOutput> {
        let issue = self.issue.as_ref()?;
        let waiting = self.outbox.iter().find(|output| output.delivery.as_ref() == Some(id));
        let reply = match waiting {
            Some(output) => output.answered.reply.clone(),
            None => {
                let applied = self.recent.applied(id)?;
                Reply::Delivered(DeliveryResult { applied, reason: PROCESSED_BEFORE.into() })
            }
        };
        let empty = StepOutput::of_no_step(issue, None);
        let answered = Answered { reply, duplicate: true, ..empty.answered };
        Some(StepOutput { answered, ..empty })
    }
}

/// A call under way of a sandbox that is not to run any more: its create, or its cold start.
fn useless_call(issue: &Issue) -> Option<CallId> {
    let (record, step) = (issue.state.record()?, issue.state.step()?);
    let Step::Asked { verb, .. } = step else { return None };
    let is_deleted = matches!(issue.state, IssueState::Deleting { .. });
    let is_useless = match verb {
        Verb::Create => is_deleted,
        Verb::ColdStart { .. } => issue.state.wanted() != Wanted::Running || is_deleted,
        Verb::Look | Verb::Start | Verb::Stop | Verb::Delete { .. } => false,
    };
    is_useless.then(|| CallId { sandbox: record.id.clone(), attempt: record.attempt })
}

/// How long a status comment waits if the next change is expected soon.
const STATUS_WAIT: Duration = Duration::from_secs(3);

/// What the store is given of a commit. Its effects are due now, or as soon as they do not wait.
fn write(
    commit: Commit,
    delivery: Option<DeliveryRow>,
    stores_issue: bool,
    now: Timestamp,
) -> Write {
    let Commit { issue, aliases, taken_over, names_go_to, ended, timeline, .. } = commit;
    let Commit { instruction, said, effects, is_unlocked, .. } = commit;
    let home = issue.home;
    let effects = effects.into_iter().map(|effect| {
        let waits =
            matches!(effect, Effect::Github(GithubEffect::ShowStatus { can_wait: true, .. }));
        let due_at = if waits { now.after(STATUS_WAIT) } else { now };
        NewEffect { home, effect, due_at }
    });
    Write {
        issue: stores_issue.then_some(issue),
        aliases,
        taken_over,
        names_go_to,
        ended,
        timeline,
        delivery,
        instruction,
        said,
        effects: effects.collect(),
        unlocked: is_unlocked.then_some(home),
    }
}
