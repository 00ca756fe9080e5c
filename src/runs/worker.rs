//! Carries out what each durable change orders for a home's runs: one task for each home, one order at a
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashSet;
use tokio::sync::{mpsc, watch};

use super::RunParts;
use crate::conversation::{Run, RunEnd, RunEvent, RunOrder, RunOrderKind, SaidMessage};
use crate::engine::{Change, EngineError, Publisher, SandboxRef, Work};
use crate::issue::Issue;
use crate::store::StoreError;
use crate::types::{AccountName, Cause, HomeId, SandboxId};

/// What a change of an issue means for its runs.
#[derive(Debug)]
pub struct RunChange {
    home: HomeId,
    account: AccountName,
    is_deleted: bool,
    messages: Vec<SaidMessage>,
    runs: Vec<Run>,
    order: Option<RunOrder>,
}

/// Passes the engine's changes on, and to the worker of runs what they mean for those.
pub struct RunPublisher {
    next: Arc<dyn Publisher>,
    /// Unbounded, because publishing must not block; its receiver hands on at once.
    changes: mpsc::UnboundedSender<RunChange>,
    /// The homes that have an order.
    ordered: DashSet<HomeId>,
}

impl RunPublisher {
    /// A publisher before this one, and what the worker reads.
    pub fn new(next: Arc<dyn Publisher>) -> (Self, mpsc::UnboundedReceiver<RunChange>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        (Self { next, changes, ordered: DashSet::new() }, receiver)
    }

    fn concerns_runs(&self, change: &Change) -> bool {
        match &change.order {
            Some(_) => {
                self.ordered.insert(change.home);
                true
            }
            // The order that there was is withdrawn.
            None if self.ordered.remove(&change.home).is_some() => true,
            None => change.is_deleted || !change.messages.is_empty() || !change.runs.is_empty(),
        }
    }
}

impl Publisher for RunPublisher {
    fn publish(&self, change: Arc<Change>) {
        if self.concerns_runs(&change) {
            let change = RunChange {
                home: change.home,
                account: change.account.clone(),
                is_deleted: change.is_deleted,
                messages: change.messages.clone(),
                runs: change.runs.clone(),
                order: change.order.clone(),
            };
            // An error means that the server ends.
            drop(self.changes.send(change));
        }
        self.next.publish(change);
    }
}

/// Where a home's task reports that it ended, and by what it hears that the server ends.
struct HomeTasks {
    tasks: mpsc::UnboundedSender<(HomeId, AccountName)>,
    server_ended: watch::Receiver<bool>,
}

/// Carries out orders for runs.
#[derive(Clone)]
pub struct RunWorker {
    pub(super) parts: Arc<RunParts>,
}

impl RunWorker {
    /// A worker. It does nothing until it runs.
    pub fn new(parts: RunParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// Carries out orders until the server ends.
    pub async fn run(
        self,
        mut changes: mpsc::UnboundedReceiver<RunChange>,
        mut ended: watch::Receiver<bool>,
    ) {
        let mut homes: HashMap<HomeId, watch::Sender<Option<RunOrder>>> = HashMap::new();
        let (tasks, mut ended_tasks) = mpsc::unbounded_channel();
        let tasks = HomeTasks { tasks, server_ended: ended.clone() };
        let removal = self.clone().remove_deleted();
        tokio::pin!(removal);
        loop {
            let change = tokio::select! {
                biased;
                _ = ended.wait_for(|ended| *ended) => return,
                change = changes.recv() => change,
                Some((home, account)) = ended_tasks.recv() => {
                    self.again(&mut homes, &tasks, home, account);
                    continue;
                }
                () = &mut removal => return,
            };
            let Some(change) = change else { return };
            let RunChange { home, account, is_deleted, messages, runs, order } = change;
            match is_deleted && order.is_none() {
                true => self.forget(home),
                false => self.parts.journals.record(home, &messages, &runs).await,
            }
            match homes.get(&home) {
                Some(orders) => drop(orders.send_replace(order)),
                None if order.is_some() => {
                    let (orders, receiver) = watch::channel(order);
                    homes.insert(home, orders);
                    self.spawn(&tasks, home, account, receiver);
                }
                None => {}
            }
        }
    }

    /// A home's task ended. If an order came meanwhile, another one begins.
    fn again(
        &self,
        homes: &mut HashMap<HomeId, watch::Sender<Option<RunOrder>>>,
        tasks: &HomeTasks,
        home: HomeId,
        account: AccountName,
    ) {
        let Some(orders) = homes.get(&home) else { return };
        if orders.borrow().is_none() {
            homes.remove(&home);
            return;
        }
        let receiver = orders.subscribe();
        self.spawn(tasks, home, account, receiver);
    }

    fn spawn(
        &self,
        tasks: &HomeTasks,
        home: HomeId,
        account: AccountName,
        orders: watch::Receiver<Option<RunOrder>>,
    ) {
        let worker = self.clone();
        let mut server_ended = tasks.server_ended.clone();
        let tasks = tasks.tasks.clone();
        (self.parts.spawn)(Box::pin(async move {
            tokio::select! {
                biased;
                _ = server_ended.wait_for(|ended| *ended) => return,
                () = worker.carry_out(home, &account, orders) => {}
            }
            // An error means that the worker ended.
            drop(tasks.send((home, account)));
        }));
    }

    /// Carries out a home's orders until there is none.
    async fn carry_out(
        &self,
        home: HomeId,
        account: &AccountName,
        mut orders: watch::Receiver<Option<RunOrder>>,
    ) {
        loop {
            let order = orders.borrow_and_update().clone();
            let Some(order) = order else { return };
            let is_carried_out = match order.kind {
                RunOrderKind::Begin(_) => {
                    let mut others = orders.clone();
                    let begun = tokio::select! {
                        biased;
                        begun = self.begin(home, account, &order) => begun,
                        () = other_order(&mut others, &order) => None,
                    };
                    match begun {
                        Some(begun) => {
                            self.execute(home, account, begun, &mut orders).await;
                            true
                        }
                        None => false,
                    }
                }
                // An earlier server started it.
                RunOrderKind::Follow(attempt) | RunOrderKind::End(attempt) => {
                    self.take_over(home, account, (order.run, attempt), &mut orders).await;
                    true
                }
            };
            let is_new = orders.borrow().as_ref() != Some(&order);
            if (!is_new || !is_carried_out) && orders.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reports something of a run; again and again, until it is durable or nothing can be any more.
    pub(super) async fn report(&self, home: HomeId, event: RunEvent) {
        let RunParts { engine, clock, .. } = self.parts.as_ref();
        let mut pause = REPORT_PAUSE;
        loop {
            match engine.run_event(home, event.clone()).await {
                Ok(_) | Err(EngineError::RunRefused(_) | EngineError::ShuttingDown) => return,
                Err(error) => {
                    tracing::warn!(home = home.0, ?event, %error, "cannot record what became of a run; trying again");
                }
            }
            clock.sleep_until(clock.now().after(pause)).await;
            pause = (pause * 2).min(REPORT_PAUSE_MAX);
        }
    }

    /// An issue as it is recorded. A store that cannot be read now decides nothing of a process that may work
    /// on: it is read again.
    pub(super) async fn load(&self, home: HomeId) -> Result<Option<Issue>, RunEnd> {
        loop {
            match self.parts.store.load(home).await {
                Ok(issue) => return Ok(issue),
                Err(error @ StoreError::Damaged { .. }) => {
                    return Err(RunEnd::Failed(error.to_string()));
                }
                Err(error) => {
                    tracing::warn!(home = home.0, %error, "cannot read the issue of a run; trying again");
                    self.pause().await;
                }
            }
        }
    }

    /// Work in the sandbox of a run. Why it cannot be had now decides nothing either, unless the sandbox is
    /// not up: its change of phase decides about the run.
    pub(super) async fn work(
        &self,
        account: &AccountName,
        sandbox: &SandboxId,
    ) -> Result<Work, RunEnd> {
        let id = SandboxRef::Id(sandbox.clone());
        loop {
            let cause = Cause::Service("agent");
            match self.parts.engine.work(account, &id, false, cause, Duration::ZERO).await {
                Ok(work) => return Ok(work),
                Err(
                    EngineError::StoreFailed(_)
                    | EngineError::Overloaded
                    | EngineError::ActorEnded
                    | EngineError::ProviderBusy(_)
                    | EngineError::CreateBeingUndone,
                ) => self.pause().await,
                Err(_) => return Err(RunEnd::Lost),
            }
        }
    }
}

/// The first pause before a report is made again; it doubles.
const REPORT_PAUSE: Duration = Duration::from_millis(200);
/// The longest one.
const REPORT_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Returns when the order to begin a run was withdrawn or is for another run or sandbox.
async fn other_order(orders: &mut watch::Receiver<Option<RunOrder>>, order: &RunOrder) {
    let is_other = |now: &Option<RunOrder>| {
        now.as_ref().is_none_or(|now| now.run != order.run || now.sandbox != order.sandbox)
    };
    // An error means that the worker ends, and this with it.
    let _ = orders.wait_for(is_other).await;
}
