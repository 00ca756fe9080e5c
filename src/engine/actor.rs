//! One actor for one issue: a queue, the state, and the call to `step`.
//!
//! Handlers never await. Each message is stepped through the lifecycle at once (`step`). What the step
//! led to waits in the outbox, in order, until its commit is durable (`outbox`). Only then does the
//! reply, the published change or the provider call leave. No SQL, no HTTP, no shell in here.
//!
//! # The race that had to be closed
//! An actor may end (a panic, a refused commit) while commits of its own are still on their way. A
//! successor that read the state before they land would work with an old state: it would not know what
//! they began. A version is only a number, so its second commit would name just the version that
//! theirs had made, and overwrite it. So an actor that ends like that records the home in
//! [`ActorParts::unfinished_commits`], and its successor loads only behind everything that was handed
//! in before.

mod outbox;
mod output;
mod recent;
mod span;
mod step;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use actix::prelude::*;
use dashmap::DashSet;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::issue::{Issue, IssueEvent};
use crate::sabotage::{Bug, on};
use crate::types::{Attempt, HomeId};

use output::{StepOutput, answer};
use recent::RecentDeliveries;

use super::admission::Admission;
use super::admission::capacity::CapacityUse;
use super::alarm::Alarm;
use super::api::Change;
use super::busy::Busy;
use super::directory::Directory;
use super::environment::Environment;
use super::executor::Executor;
use super::fast_create::reply::FastCreate;
use super::holds::Holds;
use super::mailbox::{Activation, ActorMessage, Unanswered};
use super::publication::Publication;
use super::registry::{Envelope, Registry, Ticket};
use super::restart_backoff::RestartBackoff;

/// What actors use of the engine: one of each for the whole server.
pub(super) struct ActorParts {
    pub env: Arc<Environment>,
    pub directory: Arc<Directory>,
    pub executor: Arc<Executor>,
    pub admission: Arc<Admission>,
    pub capacity: CapacityUse,
    pub holds: Arc<Holds>,
    pub publication: Arc<Publication>,
    pub alarm: Arc<Alarm>,
    /// Wakes the worker that carries out effects.
    pub effects_recorded: Arc<Notify>,
    /// Wakes the worker that says things on issues.
    pub github_recorded: Arc<Notify>,
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
    messages: Option<mpsc::Receiver<Box<Envelope>>>,
    issue: Option<Issue>,
    /// Boxed, since a queue keeps room for several, and an actor that rests has none.
    outbox: VecDeque<Box<StepOutput>>,
    last_output: u64,
    /// Whether what is in memory is known to follow all that was ever stored of the issue.
    identity_known: bool,
    fast_create: Option<FastCreate>,
    recent: RecentDeliveries,
    /// What is in memory is not what is stored: nothing is handled any more.
    ended: bool,
    /// It ended because it was idle: nothing is left unfinished.
    passivated: bool,
}

/// Starts an actor on the actors' thread.
pub(super) fn start(
    parts: &Arc<ActorParts>,
    home: HomeId,
    activation: Activation,
    ticket: Ticket,
    messages: mpsc::Receiver<Box<Envelope>>,
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
            recent: RecentDeliveries::default(),
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
        // No message is handled before the state is loaded.
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
                    // Nothing of it was ever stored: its first commit was refused. The next message
                    // starts a new actor.
                    None => {
                        actor.ended = true;
                        actor.passivated = true;
                        actor.ticket.leave();
                        ctx.stop();
                    }
                }
            }
            Err(error) => {
                tracing::error!(home = actor.home.0, %error, "failed to load an issue from the store; its caller gets an error");
                actor.ended = true;
                ctx.stop();
            }
        }));
    }
}

impl StreamHandler<Box<Envelope>> for IssueActor {
    fn handle(&mut self, envelope: Box<Envelope>, ctx: &mut Self::Context) {
        if self.ended {
            // Dropped without an answer: the sender retries once, with a successor.
            return;
        }
        let Envelope { message, pending, span } = *envelope;
        let _within = span.entered();
        match message {
            ActorMessage::Event { event, reply, held } => {
                self.event(*event, reply, ctx);
                drop(held);
            }
            // What was due may have been done by a step that is not durable yet, which the store
            // does not show. It becomes due again; outputs that change nothing must not pile up
            // behind a slow store.
            ActorMessage::Due if !self.outbox.is_empty() => {}
            ActorMessage::Due => {
                let in_flight = self.in_flight();
                let busy = self.parts.busy.is_busy(self.home);
                self.event(IssueEvent::Due { in_flight, busy }, None, ctx);
            }
            // The actor is started, which is all that a wake asks.
            ActorMessage::Wake => {}
            ActorMessage::Flush(reply) => match &self.issue {
                None => answer(Some(reply), Err(Unanswered::Again)),
                Some(issue) => {
                    let output = StepOutput::of_no_step(issue, Some(reply));
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
    /// resumes what is unfinished.
    fn activated(&mut self, ctx: &mut Context<Self>) {
        let Some(issue) = &self.issue else { return };
        self.parts.publication.publish(Change::as_it_is(issue));
        let in_flight = self.in_flight();
        let after_restart = self.parts.restarting.contains(&self.home);
        self.event(IssueEvent::Activated { in_flight, after_restart }, None, ctx);
    }

    /// The latest attempt of the issue's sandbox that the executor has.
    fn in_flight(&self) -> Option<Attempt> {
        let record = self.issue.as_ref()?.state.record()?;
        self.parts.executor.in_flight(self.home, &record.id)
    }
}
