//! One actor for one issue: a queue, the state, and the call to `step`.
//!
//! Handlers never await. Each message is stepped through the lifecycle at once; what the step led
//! to waits in the outbox, in order, until its commit is durable. Only then does the reply, the
//! published change or the provider call leave. No SQL, no HTTP, no shell in here.
//!
//! # The race that had to be closed
//! An actor may end (a panic, a refused commit) while commits of its own are still on their way. A
//! successor that read the state before they land would hold something old for true: it would not
//! know of what they began, and since a version is only a number, its second commit would name just
//! the version that theirs had made, and overwrite it. So whoever ends like that leaves the home
//! *unsettled*, and its successor loads only behind everything that was handed in before.

mod output;
mod span;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use actix::prelude::*;
use dashmap::DashSet;
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tracing::Span;

use crate::issue::event::EventMeta;
use crate::issue::step::step;
use crate::issue::{
    Commit, DeliveryResult, Denial, Issue, IssueEvent, ProviderCall, Reply, StepContext,
};
use crate::sabotage::{Bug, on};
use crate::store::{CommitError, DeliveryRow, Write};
use crate::types::{Alias, Attempt, DeliveryId, HomeId};

use output::{StepOutput, answer, delivery_row, entry_command, names_left, renamed};
use span::span_of;

use super::admission::Admission;
use super::admission::capacity::Capacity;
use super::alarm::Alarm;
use super::api::Change;
use super::busy::Busy;
use super::directory::Directory;
use super::environment::Environment;
use super::executor::Executor;
use super::executor::slots::CallId;
use super::fast_create::record::{PendingRecord, RECORD_TIME_MAX};
use super::fast_create::reply::FastCreate;
use super::holds::Holds;
use super::mailbox::{Activation, ActorMessage, ActorSender, Answered, ReplySender, Unanswered};
use super::publication::Publication;
use super::registry::{Envelope, QUEUE_LEN_MAX, Registry, Ticket};
use super::restart_backoff::RestartBackoff;

/// How many finished deliveries an actor remembers, to answer their repetition without the store.
const RECENT_DELIVERIES_MAX: usize = 128;

/// What actors use of the engine: one of each for the whole server.
pub(super) struct ActorParts {
    pub env: Arc<Environment>,
    pub directory: Arc<Directory>,
    pub executor: Arc<Executor>,
    pub admission: Arc<Admission>,
    pub capacity: Capacity,
    pub holds: Arc<Holds>,
    pub publication: Arc<Publication>,
    pub alarm: Arc<Alarm>,
    pub busy: Busy,
    /// Homes whose first step after the server's start is not durable yet: an actor of one of them
    /// resumes it as after a restart.
    pub restarting: Arc<DashSet<HomeId>>,
    /// Homes whose last actor ended with commits on their way: the next one loads behind those.
    pub unfinished_commits: DashSet<HomeId>,
    /// Homes whose actors end again and again.
    pub restart_backoff: RestartBackoff,
    /// Starts successors.
    pub registry: Weak<Registry>,
}

/// One issue's actor.
pub(super) struct IssueActor {
    parts: Arc<ActorParts>,
    home: HomeId,
    activation: Activation,
    ticket: Ticket,
    messages: Option<mpsc::Receiver<Envelope>>,
    issue: Option<Issue>,
    /// Boxed, since a queue keeps room for several, and an actor that rests has none.
    outbox: VecDeque<Box<StepOutput>>,
    last_output: u64,
    /// Whether what is in memory is known to follow all that was ever stored of the issue.
    identity_known: bool,
    fast_create: Option<FastCreate>,
    recent: VecDeque<(DeliveryId, DeliveryResult)>,
    /// What is in memory is not what is stored: nothing is handled any more.
    ended: bool,
    /// It ended because nobody needed it: nothing is left unfinished.
    passivated: bool,
}

/// Starts an actor where actors live.
pub(super) fn start(
    parts: &Arc<ActorParts>,
    home: HomeId,
    activation: Activation,
    ticket: Ticket,
    messages: mpsc::Receiver<Envelope>,
) {
    let parts = Arc::clone(parts);
    let spawner = Arc::clone(&parts.env.spawner);
    let start = move || {
        let actor = IssueActor {
            parts,
            home,
            activation,
            ticket,
            messages: Some(messages),
            issue: None,
            outbox: VecDeque::new(),
            last_output: 0,
            identity_known: false,
            fast_create: None,
            recent: VecDeque::new(),
            ended: false,
            passivated: false,
        };
        actor.start();
    };
    spawner.actor(Box::new(start));
}

impl Actor for IssueActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let seed = self.activation.seed.take();
        let unfinished_commits =
            self.parts.unfinished_commits.contains(&self.home) && !on(Bug::LoadWithoutWaiting);
        if self.activation.brand_new && !unfinished_commits {
            self.identity_known = self.activation.identity_known;
            self.issue = seed.map(|(account, id)| Issue::new(self.home, account, id));
            self.listen(ctx);
            return;
        }
        let parts = Arc::clone(&self.parts);
        let home = self.home;
        let load = async move {
            if unfinished_commits {
                parts.env.store.check().await?;
                parts.unfinished_commits.remove(&home);
            }
            parts.env.store.load(home).await
        };
        // Nothing is handled before the state is there.
        ctx.wait(load.into_actor(self).map(move |loaded, actor, ctx| match loaded {
            Ok(Some(issue)) => {
                actor.issue = Some(issue);
                actor.identity_known = true;
                actor.listen(ctx);
                actor.activated(ctx);
            }
            Ok(None) => {
                actor.parts.admission.leave(actor.home);
                match seed {
                    Some((account, id)) => {
                        actor.issue = Some(Issue::new(actor.home, account, id));
                        actor.listen(ctx);
                    }
                    // Nothing of it was ever stored: its first commit was refused. Whoever speaks
                    // next begins it anew.
                    None => {
                        actor.ended = true;
                        actor.passivated = true;
                        actor.ticket.leave();
                        ctx.stop();
                    }
                }
            }
            Err(error) => {
                tracing::error!(home = actor.home.0, %error, "an issue could not be loaded");
                actor.ended = true;
                ctx.stop();
            }
        }));
    }
}

impl StreamHandler<Envelope> for IssueActor {
    fn handle(&mut self, envelope: Envelope, ctx: &mut Self::Context) {
        if self.ended {
            // Dropped unanswered: the sender tries once more, with a successor.
            return;
        }
        let Envelope { message, pending, span } = envelope;
        let _within = span.entered();
        match message {
            ActorMessage::Event { event, reply, held } => {
                self.event(*event, reply, ctx);
                drop(held);
            }
            // What was due may have been done by a step that is not durable yet, so the store still
            // says so. It comes again; outputs that change nothing must not pile up behind a store
            // that is slow.
            ActorMessage::Due if !self.outbox.is_empty() => {}
            ActorMessage::Due => {
                let in_flight = self.in_flight();
                let busy = self.parts.busy.is_busy(self.home);
                self.event(IssueEvent::Due { in_flight, busy }, None, ctx);
            }
            // Being there is all that was asked.
            ActorMessage::Wake => {}
            ActorMessage::Flush(reply) => match &self.issue {
                None => answer(Some(reply), Err(Unanswered::Again)),
                Some(issue) => {
                    let output = StepOutput::of_nothing(issue, Some(reply));
                    self.push(output);
                }
            },
            ActorMessage::Passivate => {
                drop(pending);
                let is_idle = self.outbox.is_empty() && self.fast_create.is_none();
                if is_idle && self.ticket.passivate() {
                    self.ended = true;
                    self.passivated = true;
                    ctx.stop();
                }
            }
        }
    }
}

impl IssueActor {
    fn listen(&mut self, ctx: &mut Context<Self>) {
        let messages = self.messages.take().expect("an actor starts once");
        ctx.add_stream(ReceiverStream::new(messages));
    }

    /// Publishes what is durable, so that no look-up stays behind a commit whose actor ended, and
    /// takes up what is unfinished.
    fn activated(&mut self, ctx: &mut Context<Self>) {
        let Some(issue) = &self.issue else { return };
        self.parts.publication.publish(Change::as_it_is(issue));
        let in_flight = self.in_flight();
        let after_restart = self.parts.restarting.contains(&self.home);
        self.event(IssueEvent::Activated { in_flight, after_restart }, None, ctx);
    }

    /// Why no sandbox may be created or started for this issue now: a hold, a quota, or no capacity
    /// at the provider. [`Admission::confirm`] must follow.
    fn denial(&self, issue: &Issue, event: &EventMeta<'_>) -> Option<Denial> {
        let denial = self.parts.admission.denial(issue, event);
        denial.or_else(|| self.parts.capacity.denial(issue, event))
    }

    /// The latest attempt of the issue's sandbox that the executor has.
    fn in_flight(&self) -> Option<Attempt> {
        let record = self.issue.as_ref()?.state.record()?;
        self.parts.executor.in_flight(self.home, &record.id)
    }

    fn event(&mut self, event: IssueEvent, reply: Option<ReplySender>, ctx: &mut Context<Self>) {
        let Some(issue) = &self.issue else {
            return answer(reply, Err(Unanswered::Again));
        };
        let meta = event.meta();
        let _within = span_of(self.home, &meta).entered();
        let claims = meta.claims.to_vec();
        if issue.merged_into.is_some() && meta.follows_names {
            // Whoever asked found this home before its names went to the other one. Told once that
            // is durable, so that the other one is found next.
            let nothing = StepOutput::of_nothing(issue, reply);
            let answered = Answered { moved: true, ..nothing.answered };
            self.push(StepOutput { durable_aliases: claims, answered, ..nothing });
            return;
        }
        // Answers and due times are few and must not be lost; callers can come again.
        if self.outbox.len() >= QUEUE_LEN_MAX && reply.is_some() {
            return answer(reply, Err(Unanswered::Overloaded));
        }
        let delivery = delivery_row(&meta, self.home);
        if let Some(delivery) = &delivery
            && let Some(output) = self.repeated(&delivery.id)
        {
            if on(Bug::DuplicateBySeen) {
                return answer(reply, Ok(output.answered));
            }
            self.push(StepOutput { reply, ..output });
            return;
        }
        let context = StepContext {
            now: self.parts.env.now(),
            rules: &self.parts.env.rules,
            fresh_id: self.parts.env.ids.sandbox_id(),
            jitter_permille: self.parts.env.ids.jitter_permille(),
            unix_ns: self.parts.env.ids.unix_ns(),
            may_fast_create: self.identity_known && self.outbox.is_empty(),
            denial: self.denial(issue, &meta),
        };
        let commit = step(issue, event, &context);
        if let Some((from, to)) = renamed(issue, &commit.issue) {
            self.parts.holds.follow_behind(from, to);
        }
        self.parts.admission.confirm(&commit.issue);
        self.take(commit, claims, delivery, reply, ctx);
    }

    /// Takes a commit: memory changes now, the store is told now, everything else waits for it.
    fn take(
        &mut self,
        commit: Commit,
        claims: Vec<Alias>,
        delivery: Option<DeliveryRow>,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        let Commit { mut issue, changed, aliases, taken_over, names_go_to, .. } = commit;
        let Commit { ended, timeline, reply: said, mut call, is_fast_create, cleanup, .. } = commit;
        let stores = changed || delivery.is_some();
        if stores && !changed {
            // Also a delivery that changes nothing follows the state it was judged on: where a
            // commit before it is refused, it is refused too, and judged again.
            issue.version += 1;
        }
        let sandbox = issue.sandbox().map(Arc::new);
        let moved = false;
        let answered = Answered { reply: said, duplicate: false, moved, sandbox: sandbox.clone() };
        let delivery = delivery.map(|row| match &answered.reply {
            Reply::Delivered(result) => {
                DeliveryRow { applied: result.applied, reason: result.reason.clone(), ..row }
            }
            Reply::Nothing
            | Reply::Ensured { .. }
            | Reply::OtherPlace
            | Reply::Accepted
            | Reply::AlreadyAbsent
            | Reply::Denied(_)
            | Reply::Merged { .. }
            | Reply::Refused(_) => row,
        });
        let new_ids = aliases.iter().filter_map(|alias| match alias {
            Alias::Issue(id) => Some(id.clone()),
            Alias::Numbered(..) => None,
        });
        let change = changed.then(|| Change {
            home: self.home,
            account: issue.account.clone(),
            version: issue.version,
            aliases: new_ids.collect(),
            names_go_to: issue.merged_into,
            placed_as_of: issue.facts.placed_as_of,
            sandbox,
            ended: ended.clone().map(Arc::new),
            entry_command: entry_command(&issue, &timeline),
            timeline: timeline.clone(),
        });
        let ends_fast_create =
            self.fast_create.as_ref().is_some_and(|create| !create.is_asked(&issue));
        let is_fast_create = if is_fast_create && stores { call.take() } else { None };
        if let (Some(call), Reply::Ensured { .. }, None) =
            (&is_fast_create, &answered.reply, &self.fast_create)
        {
            self.fast_create = Some(FastCreate::new(CallId::of(call)));
        }
        let names = if is_fast_create.is_some() { claims.clone() } else { Vec::new() };
        let mut reply = reply;
        if on(Bug::ReplyBeforeCommit) {
            answer(reply.take(), Ok(answered.clone()));
        }
        if let Some(call) = call.take_if(|_| on(Bug::CallBeforeCommit)) {
            self.parts.executor.submit(self.home, call);
        }
        let number = self.push(StepOutput {
            number: 0,
            durable: !stores,
            delivery: delivery.as_ref().map(|row| row.id.clone()),
            account: issue.account.clone(),
            durable_aliases: claims,
            reply,
            answered,
            change,
            call,
            cleanup,
            due: issue.due_at(),
            is_fast_create: is_fast_create.is_some(),
            ends_fast_create,
            span: Span::current(),
        });
        if stores {
            let stored = Some(issue.clone());
            let write = Write {
                issue: stored,
                aliases,
                taken_over,
                names_go_to,
                ended,
                timeline,
                delivery,
            };
            match is_fast_create {
                None => self.hand_in(number, write, ctx),
                Some(call) => self.fast_create(number, write, call, names, ctx),
            }
        }
        self.issue = Some(issue);
    }

    fn hand_in(&self, number: u64, write: Write, ctx: &mut Context<Self>) {
        let durable = self.parts.env.store.commit(write).into_actor(self);
        ctx.spawn(durable.map(move |result, actor, ctx| actor.committed(number, result, ctx)));
    }

    /// Hands a create's record in, and asks the provider beside it.
    fn fast_create(
        &self,
        number: u64,
        write: Write,
        call: ProviderCall,
        names: Vec<Alias>,
        ctx: &mut Context<Self>,
    ) {
        let end = self.parts.env.store.commit(write).shared();
        let by = self.parts.env.now().after(RECORD_TIME_MAX);
        let account = call.account.clone();
        self.parts.directory.hold(&account, self.home, &names);
        let (too_slow, told) = oneshot::channel();
        let record = PendingRecord { end: end.clone(), by, account, names, too_slow };
        self.parts.executor.submit_fast_create(self.home, call, record);
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
    /// Puts an output at the end, under the next number, which is returned.
    fn push(&mut self, output: StepOutput) -> u64 {
        self.last_output += 1;
        self.outbox.push_back(Box::new(StepOutput { number: self.last_output, ..output }));
        self.flush();
        self.last_output
    }

    fn committed(&mut self, number: u64, result: Result<(), CommitError>, ctx: &mut Context<Self>) {
        match result {
            Ok(()) => {
                if let Some(output) = self.outbox.iter_mut().find(|o| o.number == number) {
                    output.durable = true;
                }
                self.identity_known = true;
                self.parts.restart_backoff.rests(self.home);
                self.flush();
            }
            Err(error) => self.refused(number, error, ctx),
        }
    }

    /// Lets everything leave whose commit, and every one before it, is durable.
    fn flush(&mut self) {
        while let Some(output) = self.outbox.pop_front_if(|output| output.durable) {
            let output = *output;
            self.parts.directory.confirm(&output.account, self.home, &output.durable_aliases);
            if let Some(change) = output.change {
                self.parts.publication.publish(change);
            }
            if let (Some(id), Reply::Delivered(result), false) =
                (output.delivery, &output.answered.reply, output.answered.duplicate)
            {
                if self.recent.len() == RECENT_DELIVERIES_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back((id, result.clone()));
            }
            // The first step after the restart is durable now, or there was nothing to it.
            if !self.parts.restarting.is_empty() {
                self.parts.restarting.remove(&self.home);
            }
            let _within = output.span.entered();
            if let Some(call) = output.call {
                self.parts.executor.submit(self.home, call);
            }
            if let Some(cleanup) = output.cleanup
                && !self.parts.executor.clean(self.home, cleanup)
            {
                tracing::debug!(home = self.home.0, "a stray object is put away another time");
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
        let has_none = self.issue.as_ref().is_some_and(|issue| issue.state.phase().is_none());
        if has_none && self.outbox.is_empty() {
            self.parts.admission.leave(self.home);
        }
    }

    /// A commit was refused: what is in memory is not what is stored. Everyone who waits is told,
    /// and the actor ends; the next message builds it again from the store.
    fn refused(&mut self, number: u64, error: CommitError, ctx: &mut Context<Self>) {
        self.ended = true;
        // Before anybody is told to try again.
        self.parts.unfinished_commits.insert(self.home);
        self.ticket.leave();
        if let Some(fast_create) = self.fast_create.take() {
            fast_create.ended();
        }
        let now = self.parts.env.now();
        for output in self.outbox.drain(..) {
            let mut output = *output;
            let directory = &self.parts.directory;
            directory.abandon(now, &output.account, self.home, &output.durable_aliases);
            let told = match &error {
                _ if output.number != number => Err(Unanswered::Again),
                CommitError::DuplicateDelivery => {
                    output.answered.duplicate = true;
                    Ok(output.answered)
                }
                CommitError::AliasTaken | CommitError::Fenced => Err(Unanswered::Again),
                CommitError::Overloaded => Err(Unanswered::Overloaded),
                CommitError::Failed(why) => Err(Unanswered::Failed(why.clone())),
            };
            answer(output.reply, told);
        }
        match error {
            CommitError::DuplicateDelivery | CommitError::AliasTaken | CommitError::Fenced => {
                tracing::debug!(home = self.home.0, %error, "an issue is built again");
            }
            CommitError::Overloaded | CommitError::Failed(_) => {
                tracing::error!(home = self.home.0, %error, "an issue's step was not stored");
            }
        }
        ctx.stop();
    }

    /// The answer to a delivery that this actor has had already: it leaves once the first one's
    /// commit is durable.
    fn repeated(&self, id: &DeliveryId) -> Option<StepOutput> {
        let issue = self.issue.as_ref()?;
        let waiting = self.outbox.iter().find(|output| output.delivery.as_ref() == Some(id));
        let (reply, duplicate) = match waiting {
            Some(output) => (output.answered.reply.clone(), false),
            None => {
                let (_, result) = self.recent.iter().find(|(recent, _)| recent == id)?;
                (Reply::Delivered(result.clone()), true)
            }
        };
        let nothing = StepOutput::of_nothing(issue, None);
        let answered = Answered { reply, duplicate, ..nothing.answered };
        Some(StepOutput { answered, ..nothing })
    }
}

impl Drop for IssueActor {
    /// An actor that ends by a panic or a refused commit leaves things unfinished: commits on
    /// their way whose provider calls nobody would make, answers in its queue. A successor takes
    /// them up soon, instead of at the due time.
    fn drop(&mut self) {
        if self.outbox.iter().any(|output| !output.durable) {
            self.parts.unfinished_commits.insert(self.home);
        }
        #[cfg(test)]
        if on(Bug::SlotFreedWithActor) {
            self.parts.executor.free(self.home);
        }
        let (parts, home) = (Arc::clone(&self.parts), self.home);
        if self.passivated || parts.env.is_stopping() {
            parts.restart_backoff.rests(home);
            return;
        }
        let pause = parts.restart_backoff.pause(home);
        let claimed = names_left(std::mem::take(&mut self.outbox));
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
