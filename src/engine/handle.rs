//! The typed methods that callers use. They find the home, speak to its actor, and where that had
//! to end just then, once to its successor.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::issue::commit::CommandRefusal;
use crate::issue::event::{CommandAsk, EnsureAsk};
use crate::issue::{Command, IssueDelivery, IssueEvent, Reply};
use crate::sabotage::{Bug, on};
use crate::sandbox::{Egress, Lifecycle, Target};
use crate::store::{CommitError, DeliveryRow, Write};
use crate::types::{
    AccountName, Alias, Cause, HomeId, IssueId, Phase, ProviderName, Sandbox, SandboxId, Template,
    TemplateName,
};

use super::actor::{Activation, ActorMessage, Answered, Unanswered};
use super::api::{
    Commanded, Delivered, DeliveredStatus, EngineError, EnsureIssue, Ensured, Figures, IssueKey,
    SandboxRef, WaitFor, Waited, Work,
};
use super::core::Core;
use super::directory::{Number, Route, store_failed};
use super::registry::SendError;
use super::wait;

/// What the log says where a call was tried once more and its actor had to end again.
pub(super) const ENDED_TWICE: &str = "the issue's actor ended twice";

/// The engine, cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(super) core: Arc<Core>,
    pub(super) templates: Arc<HashMap<TemplateName, Template>>,
}

impl Engine {
    /// Gives the issue's one sandbox, or records a new one. Durable when it returns; in fast mode
    /// the provider has answered by then, too.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn ensure(
        &self,
        account: &AccountName,
        ask: EnsureIssue,
    ) -> Result<Ensured, EngineError> {
        let template = match &ask.template {
            None => None,
            Some(name) => Some(
                self.templates
                    .get(name)
                    .cloned()
                    .ok_or_else(|| EngineError::TemplateUnknown(name.clone()))?,
            ),
        };
        let mut attempts = RetryLimit::begin(&self.core)?;
        let answered = loop {
            let attempt = async {
                let place = self.place(account, &ask.issue).await?;
                match place.number {
                    Number::Own => {}
                    Number::Elsewhere | Number::Foreign(_) => {
                        return Err(EventFailure::For(EngineError::IssueIdConflict));
                    }
                }
                let event = IssueEvent::Ensure(EnsureAsk {
                    template: template.clone(),
                    mode: ask.mode,
                    title: ask.title.clone(),
                    numbered: ask.issue.numbered.clone(),
                    claims: place.claims,
                    cause: ask.cause.clone(),
                });
                self.ask(place.home, place.activation, event).await
            };
            if let Some(answered) = attempts.judge(attempt.await)? {
                break answered;
            }
        };
        match (answered.reply, answered.sandbox) {
            (Reply::Ensured { outcome, reason, mismatch }, Some(sandbox)) => {
                let sandbox = Arc::unwrap_or_clone(sandbox);
                Ok(Ensured { outcome, reason, mismatch, sandbox })
            }
            (Reply::OtherPlace, _) => Err(EngineError::IssueIdConflict),
            (Reply::Denied(denial), _) => Err(EngineError::Denied(denial)),
            (reply, _) => Err(unfitting(&reply)),
        }
    }

    /// Commands one sandbox. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn command(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
        command: Command,
        cause: Cause,
    ) -> Result<Commanded, EngineError> {
        let mut meant = self.find(account, sandbox).await?;
        let mut attempts = RetryLimit::begin(&self.core)?;
        let answered = loop {
            let attempt = async {
                let event = IssueEvent::Command(CommandAsk {
                    sandbox: meant.id.clone(),
                    command,
                    cause: cause.clone(),
                });
                self.ask(meant.home, Activation::default(), event).await
            };
            let Some(answered) = attempts.judge(attempt.await)? else { continue };
            // A name means the newest: where that one was gone before the command reached it, the
            // next one may have begun, and it is the one that is meant.
            if let (Reply::AlreadyAbsent | Reply::Refused(CommandRefusal::SandboxDeleted), true) =
                (&answered.reply, matches!(sandbox, SandboxRef::Name(_)))
            {
                let newest = self.find(account, sandbox).await?;
                if newest.id != meant.id {
                    meant = newest;
                    continue;
                }
            }
            break answered;
        };
        match (answered.reply, answered.sandbox) {
            (Reply::Accepted, Some(sandbox)) => {
                let sandbox = Arc::unwrap_or_clone(sandbox);
                Ok(Commanded { sandbox, absent: false })
            }
            (Reply::AlreadyAbsent, _) => {
                let sandbox = self.by_id(account, &meant.id).await?;
                Ok(Commanded { sandbox, absent: true })
            }
            (Reply::Refused(refusal), _) => Err(EngineError::Refused(refusal)),
            (Reply::Denied(denial), _) => Err(EngineError::Denied(denial)),
            (reply, _) => Err(unfitting(&reply)),
        }
    }

    /// Takes in a delivery about an issue. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn deliver(
        &self,
        account: &AccountName,
        issue_delivery: IssueDelivery,
    ) -> Result<Delivered, EngineError> {
        let key = IssueKey {
            id: Some(issue_delivery.news.issue_id.clone()),
            numbered: Some((issue_delivery.news.repository.clone(), issue_delivery.news.number)),
        };
        let directory = &self.core.directory;
        let (names, known) =
            directory.look(&self.core, account, &key, Some(&issue_delivery.delivery)).await?;
        if let Some(row) = known {
            return Ok(duplicate(Some(issue_delivery.news.issue_id), &row));
        }
        let repository_id = Some(issue_delivery.news.repository_id);
        let mut looked = Some(names);
        let mut attempts = RetryLimit::begin(&self.core)?;
        let answered = loop {
            if issue_delivery.formerly.is_some() && !on(Bug::TransferRekeys) {
                break self.merge(account, &issue_delivery).await?;
            }
            let names = match looked.take() {
                Some(names) => names,
                None => directory.look(&self.core, account, &key, None).await?.0,
            };
            let place = directory.place(&self.core, account, &key, repository_id, names)?;
            let (takes, place_elsewhere) = match place.number {
                Number::Own => (Vec::new(), false),
                Number::Elsewhere => break self.merge(account, &issue_delivery).await?,
                Number::Foreign(other) => self.takes(&issue_delivery.news, other).await?,
            };
            let issue_delivery = issue_delivery.clone();
            let event = IssueEvent::Delivery {
                issue_delivery,
                claims: place.claims,
                takes,
                place_elsewhere,
            };
            let attempt = self.ask(place.home, place.activation, event).await;
            if let Some(answered) = attempts.judge(attempt)? {
                break answered;
            }
        };
        match answered.reply {
            Reply::Delivered(result) => {
                let status = match (answered.duplicate, result.applied) {
                    (true, _) => DeliveredStatus::Duplicate,
                    (false, true) => DeliveredStatus::Accepted,
                    (false, false) => DeliveredStatus::Ignored,
                };
                let issue_id = Some(issue_delivery.news.issue_id);
                Ok(Delivered { status, issue_id, reason: result.reason })
            }
            reply => Err(unfitting(&reply)),
        }
    }

    /// Records a delivery that has no effect, with its reason. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn record_ignored(&self, row: DeliveryRow) -> Result<Delivered, EngineError> {
        if self.core.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let reason = row.reason.clone();
        let write = Write {
            issue: None,
            aliases: Vec::new(),
            taken_over: Vec::new(),
            names_go_to: None,
            ended: None,
            timeline: Vec::new(),
            delivery: Some(row.clone()),
        };
        match self.core.store.commit(write).await {
            Ok(()) => Ok(Delivered { status: DeliveredStatus::Ignored, issue_id: None, reason }),
            Err(CommitError::DuplicateDelivery) => Ok(duplicate(None, &row)),
            Err(CommitError::Overloaded) => Err(EngineError::Overloaded),
            Err(
                error @ (CommitError::AliasTaken | CommitError::Fenced | CommitError::Failed(_)),
            ) => Err(EngineError::StoreFailed(error.to_string())),
        }
    }

    /// Follows an issue until something holds or the time is up.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn wait(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
        until: WaitFor,
        at_most: Duration,
    ) -> Result<Waited, EngineError> {
        let meant = self.find(account, sandbox).await?;
        wait::follow(&self.core, meant.home, Some(&meant.id), until, at_most).await
    }

    /// Gives a running sandbox to work in, and waits for it up to `at_most`. With `start` it is
    /// started where it is stopped and no person stopped it. Counts as activity.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn work(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
        start: bool,
        cause: Cause,
        at_most: Duration,
    ) -> Result<Work, EngineError> {
        let meant = self.find(account, sandbox).await?;
        let mut attempts = RetryLimit::begin(&self.core)?;
        let answered = loop {
            let attempt = async {
                let sandbox = meant.id.clone();
                let event = IssueEvent::Worked { sandbox, start, cause: cause.clone() };
                self.ask(meant.home, Activation::default(), event).await
            };
            if let Some(answered) = attempts.judge(attempt.await)? {
                break answered;
            }
        };
        let now = match (answered.reply, answered.sandbox) {
            (Reply::Accepted, Some(sandbox)) => Arc::unwrap_or_clone(sandbox),
            (Reply::Refused(refusal), _) => return Err(EngineError::Refused(refusal)),
            (Reply::Denied(denial), _) => return Err(EngineError::Denied(denial)),
            (reply, _) => return Err(unfitting(&reply)),
        };
        let sandbox = if now.phase == Some(Phase::Running) {
            now
        } else {
            let until = WaitFor::Settled;
            let waited =
                wait::follow(&self.core, meant.home, Some(&meant.id), until, at_most).await?;
            waited.sandbox.ok_or(EngineError::SandboxNotFound)?
        };
        if sandbox.id != meant.id || sandbox.phase.is_none() {
            return Err(EngineError::Refused(CommandRefusal::SandboxDeleted));
        }
        match (sandbox.phase, sandbox.external_id.clone()) {
            (Some(Phase::Running), Some(external_id)) => {
                if self.core.executor.provider(&sandbox.provider).is_none() {
                    return Err(EngineError::ProviderUnknown);
                }
                let target = Target { external_id, expected: sandbox.id.clone() };
                let at_work = Arc::new(self.core.busy.begin(meant.home));
                Ok(Work { target, sandbox, at_work })
            }
            _ => Err(EngineError::NotRunning(Box::new(sandbox))),
        }
    }

    /// The configured providers, by name.
    pub fn providers(&self) -> Vec<(ProviderName, Arc<dyn Lifecycle>)> {
        self.core.executor.providers()
    }

    /// The templates of the configuration, by name.
    pub fn templates(&self) -> Vec<Template> {
        let mut all: Vec<_> = self.templates.values().cloned().collect();
        all.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        all
    }

    /// What can be measured of it as it is now.
    pub fn figures(&self) -> Figures {
        let executor = &self.core.executor;
        let mut egress = Egress::default();
        let of_each = executor.providers().into_iter().filter_map(|(_, one)| one.egress());
        of_each.for_each(|one| egress += one);
        Figures {
            egress,
            cleanups: executor.cleanup_counts(),
            breakers: executor.breakers(),
            sweeps: self.core.reconciler.drift.sweeps(),
        }
    }

    /// The home of an issue, also of one that is just becoming durable.
    async fn home(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, EngineError> {
        self.core.directory.find(&self.core, account, alias).await
    }

    async fn find(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
    ) -> Result<Sandbox, EngineError> {
        match sandbox {
            SandboxRef::Id(id) => self.by_id(account, id).await,
            SandboxRef::Name(name) => {
                let id = IssueId::from_sandbox_name(name).ok_or(EngineError::SandboxNotFound)?;
                let home = self.home(account, &Alias::Issue(id)).await?;
                let home = home.ok_or(EngineError::SandboxNotFound)?;
                let newest = self.core.store.newest_sandbox(home).await.map_err(store_failed)?;
                newest.ok_or(EngineError::SandboxNotFound)
            }
        }
    }

    async fn by_id(&self, account: &AccountName, id: &SandboxId) -> Result<Sandbox, EngineError> {
        let found = self.core.store.sandbox(account, id).await.map_err(store_failed)?;
        found.ok_or(EngineError::SandboxNotFound)
    }

    async fn place(&self, account: &AccountName, key: &IssueKey) -> Result<Route, EngineError> {
        let directory = &self.core.directory;
        let (names, _) = directory.look(&self.core, account, key, None).await?;
        directory.place(&self.core, account, key, None, names)
    }

    /// Tells a home's actor something, and waits until what it led to is durable. `seed` is what
    /// the home is built from where the store does not have it.
    pub(super) async fn tell(
        &self,
        home: HomeId,
        seed: Option<(AccountName, IssueId)>,
        event: impl Fn() -> IssueEvent,
    ) -> Result<Answered, EngineError> {
        let mut attempts = RetryLimit::begin(&self.core)?;
        loop {
            let activation =
                Activation { seed: seed.clone(), brand_new: false, identity_known: false };
            if let Some(answered) = attempts.judge(self.ask(home, activation, event()).await)? {
                return Ok(answered);
            }
        }
    }

    /// Tells the issue something that belongs to whichever home has its names.
    pub(super) async fn ask(
        &self,
        home: HomeId,
        activation: Activation,
        event: IssueEvent,
    ) -> Result<Answered, EventFailure> {
        let answered = self.ask_home(home, activation, event).await?;
        // Its names are another home's by now: whoever looks again finds that one.
        if answered.moved { Err(EventFailure::Again) } else { Ok(answered) }
    }

    /// Tells one home something.
    pub(super) async fn ask_home(
        &self,
        home: HomeId,
        activation: Activation,
        event: IssueEvent,
    ) -> Result<Answered, EventFailure> {
        let event = Box::new(event);
        let message = |reply| ActorMessage::Event { event, reply: Some(reply), held: None };
        self.send(home, activation, message).await
    }

    /// Waits until everything that one home was told before is durable, or was refused.
    pub(super) async fn flush(
        &self,
        home: HomeId,
        activation: Activation,
    ) -> Result<(), EventFailure> {
        self.send(home, activation, ActorMessage::Flush).await.map(|_answered| ())
    }

    async fn send(
        &self,
        home: HomeId,
        activation: Activation,
        message: impl FnOnce(oneshot::Sender<Result<Answered, Unanswered>>) -> ActorMessage,
    ) -> Result<Answered, EventFailure> {
        let (reply, answer) = oneshot::channel();
        let message = message(reply);
        let activation = match self.core.registry.try_send(&self.core, home, activation, message) {
            Ok(activation) => activation,
            Err(SendError::Full) => return Err(EventFailure::For(EngineError::Overloaded)),
            Err(SendError::Closed) => return Err(EventFailure::Again),
        };
        match answer.await {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(Unanswered::Overloaded)) => Err(EventFailure::For(EngineError::Overloaded)),
            Ok(Err(Unanswered::Failed(why))) => {
                Err(EventFailure::For(EngineError::StoreFailed(why)))
            }
            Ok(Err(Unanswered::RecordTooSlow)) => {
                Err(EventFailure::For(EngineError::RecordTooSlow))
            }
            // Told so, or ended without a word: a new actor may do better.
            Ok(Err(Unanswered::Again)) => Err(EventFailure::Again),
            Err(_) => {
                self.core.registry.give_up(home, activation);
                Err(EventFailure::Again)
            }
        }
    }
}

#[cfg(test)]
impl Engine {
    /// The engine's inside, for tests.
    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// The same, to be shared with a thread.
    pub(super) fn core_arc(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }

    /// *Ensure* without the retry; whether it was answered.
    pub(super) async fn ask_once(&self, account: &AccountName, ask: EnsureIssue) -> bool {
        let Ok(place) = self.place(account, &ask.issue).await else { return false };
        let event = IssueEvent::Ensure(EnsureAsk {
            template: None,
            mode: None,
            title: None,
            numbered: None,
            claims: place.claims,
            cause: ask.cause,
        });
        self.ask(place.home, place.activation, event).await.is_ok()
    }
}

/// Something is tried once, and once more where the actor had to end under it.
pub(super) struct RetryLimit {
    left: u32,
}

impl RetryLimit {
    pub fn begin(core: &Core) -> Result<Self, EngineError> {
        if core.is_stopping() { Err(EngineError::ShuttingDown) } else { Ok(Self { left: 2 }) }
    }

    /// The answer, or `None` where it is to be tried again.
    pub fn judge(
        &mut self,
        attempt: Result<Answered, EventFailure>,
    ) -> Result<Option<Answered>, EngineError> {
        self.left -= 1;
        match attempt {
            Ok(answered) => Ok(Some(answered)),
            Err(EventFailure::For(error)) => Err(error),
            Err(EventFailure::Again) if self.left > 0 => Ok(None),
            Err(EventFailure::Again) => Err(EngineError::StoreFailed(ENDED_TWICE.into())),
        }
    }
}

/// How one attempt failed.
pub(super) enum EventFailure {
    /// A new actor may do better.
    Again,
    /// For this reason.
    For(EngineError),
}

impl From<EngineError> for EventFailure {
    fn from(error: EngineError) -> Self {
        Self::For(error)
    }
}

pub(super) fn duplicate(issue_id: Option<IssueId>, row: &DeliveryRow) -> Delivered {
    let reason = format!("this delivery was processed before: {}", row.reason);
    Delivered { status: DeliveredStatus::Duplicate, issue_id, reason }
}

/// An answer that does not belong to what was asked: a fault of ours, told as such.
pub(super) fn unfitting(reply: &Reply) -> EngineError {
    EngineError::StoreFailed(format!("the actor's answer does not fit: {reply:?}"))
}
