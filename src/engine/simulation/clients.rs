//! The server's clients: GitHub's deliveries, programs and people. What they are answered is
//! held against what is durable.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{SimServer, account, cause};
use super::github::DeliveryContent;
use super::world::WorldState;
use crate::engine::mailbox::{ActorMessage, ActorSender};
use crate::engine::{EngineError, EnsureIssue, SandboxRef, WaitFor};
use crate::issue::event::{CallAnswer, CallError, Done, Observation};
use crate::issue::{Command, IssueEvent};
use crate::types::{
    AccountName, Attempt, HomeId, Mode, Outcome, Phase, Sandbox, SandboxMeta, TemplateName,
};

/// The one that waits for a change.
struct ChangeWait(Rc<Cell<bool>>);

impl ChangeWait {
    fn alone(is_waiting: &Rc<Cell<bool>>) -> Option<Self> {
        (!is_waiting.replace(true)).then(|| Self(Rc::clone(is_waiting)))
    }
}

impl Drop for ChangeWait {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl SimServer {
    /// A client speaks, and its answer is judged, unless the server is dead by then.
    pub fn client<T: 'static>(
        &self,
        ask: impl Future<Output = Result<T, EngineError>> + 'static,
        judge: impl FnOnce(&mut WorldState, &Result<T, EngineError>) + 'static,
    ) {
        let life = Arc::clone(&self.life);
        let began = self.with(|inner| inner.elapsed_ms());
        let patience = self.with(|inner| {
            let goes_away = !inner.weather.calm && inner.chance.permille(50);
            goes_away.then(|| Duration::from_millis(inner.chance.between(1, 200)))
        });
        self.life.spawn(async move {
            let patience = patience.unwrap_or(Duration::from_secs(86_400));
            let Ok(answer) = tokio::time::timeout(patience, ask).await else { return };
            if !life.step() {
                return;
            }
            life.world().with(|inner| {
                if let Err(error) = &answer
                    && !inner.excuses(began, error)
                {
                    let (who, now) = (std::any::type_name::<T>(), inner.elapsed_ms());
                    let what = format!("a caller of {who} waited for {} ms", now - began);
                    inner.violate(None, format!("{what} and was refused for nothing: {error}"));
                }
                if let Err(EngineError::Denied(denial)) = &answer {
                    inner.count_denial(&denial.reason);
                }
                judge(inner, &answer);
            });
        });
    }

    pub fn deliver(&self, delivery: usize) {
        let engine = self.engine.clone();
        let (id, what) = self.with(|inner| {
            let guid = inner.github.deliveries[delivery].guid().clone();
            (guid, inner.arrives(delivery))
        });
        let life = Arc::clone(&self.life);
        let ask = async move {
            life.pause().await;
            match what {
                DeliveryContent::Issue(issue_delivery) => {
                    engine.deliver(&account(), *issue_delivery).await
                }
                DeliveryContent::ScopeEvent(fan_out) => engine.deliver_scope_event(*fan_out).await,
            }
        };
        self.client(ask, move |inner, answer| {
            inner.note(None, || format!("{id} is answered: {answer:?}"));
            if answer.is_ok() {
                inner.acknowledged(delivery);
            }
        });
    }

    pub fn ensure(&self, number: Option<u64>) {
        let account = self.with(WorldState::any_account);
        self.ensure_in(account, number);
    }

    fn ensure_in(&self, account: AccountName, number: Option<u64>) {
        let engine = self.engine.clone();
        let ask = self.with(|inner| {
            let any = inner.chance.between(1, inner.weather.issues);
            let number = number.unwrap_or(any);
            let template = inner.chance.permille(200).then(|| TemplateName::trusted("other"));
            let words = !inner.weather.scope_events;
            let issue = inner.github.key(&mut inner.chance, number, words);
            inner.note(None, || format!("ensure {issue:?}"));
            let mode = inner.chance.permille(inner.weather.fast).then_some(Mode::Fast);
            let retry = inner.chance.permille(300);
            EnsureIssue {
                issue,
                template,
                provider: None,
                agent_id: None,
                meta: SandboxMeta::default(),
                mode,
                title: None,
                retry,
                cause: cause(),
            }
        });
        let ask = async move { engine.ensure(&account, ask).await };
        self.client(ask, |inner, answer| {
            inner.note(None, || match answer {
                Ok(ensured) => format!("ensured: {} {}", ensured.outcome, ensured.sandbox.id),
                Err(error) => format!("ensure failed: {error}"),
            });
            if let Ok(ensured) = answer {
                inner.check_given(&ensured.sandbox);
                if ensured.outcome == Outcome::Created
                    && ensured.sandbox.mode == Mode::Strong
                    && ensured.sandbox.phase != Some(Phase::Creating)
                {
                    inner.violate(Some(ensured.sandbox.home), "created and not being created");
                }
            }
        });
    }

    /// A sandbox that a caller may mean: mostly one that lives.
    pub fn any_sandbox(&self) -> Option<Sandbox> {
        self.with(|inner| {
            let live = inner.rows.issues.values().filter_map(crate::issue::Issue::sandbox);
            let mut all: Vec<_> = live.collect();
            if inner.chance.permille(150) {
                all.extend(inner.rows.history.iter().cloned());
            }
            (!all.is_empty()).then(|| inner.chance.pick(&all).clone())
        })
    }

    pub fn command(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let command = self.with(|inner| {
            *inner.chance.pick(&[
                Command::Stop,
                Command::Start,
                Command::Retry,
                Command::Delete,
                Command::Delete,
            ])
        });
        self.give_command(sandbox, command);
    }

    /// A person gives a record up, mostly of a sandbox that is still being made, and asks for the
    /// next one.
    pub fn force(&self) {
        let Some(any) = self.any_sandbox() else { return };
        let (sandbox, number) = self.with(|inner| {
            let being_made = inner.rows.issues.values().filter_map(crate::issue::Issue::sandbox);
            let mut being_made = being_made.filter(|it| it.phase == Some(Phase::Creating));
            let sandbox = being_made.next().unwrap_or(any);
            let number = inner.github.issue_of(&sandbox.issue_id);
            (sandbox, number)
        });
        self.give_command(sandbox, Command::ForceDelete);
        (0..3).for_each(|_| self.ensure(number));
    }

    /// A sandbox is stopped and asked for again. Soon after that its server dies, or a provider is away.
    pub fn absence(&self) {
        let running = self.with(|inner| {
            let live = inner.rows.issues.values().filter_map(crate::issue::Issue::sandbox);
            let all: Vec<_> = live.filter(|it| it.phase == Some(Phase::Running)).collect();
            (!all.is_empty() && inner.weather.callers).then(|| inner.chance.pick(&all).clone())
        });
        if let Some(sandbox) = running {
            let number = self.with(|inner| inner.github.issue_of(&sandbox.issue_id));
            let account = sandbox.account.clone();
            self.give_command(sandbox, Command::Stop);
            self.ensure_in(account, number);
        }
        self.with(|inner| match inner.chance.permille(500) {
            true => inner.crash_in = Some(inner.chance.below(150)),
            false => inner.absence(),
        });
    }

    fn give_command(&self, sandbox: Sandbox, command: Command) {
        let engine = self.engine.clone();
        self.with(|inner| {
            inner.note(Some(sandbox.home), || format!("command {command:?} {}", sandbox.id));
            inner.ledger.commanded.insert(sandbox.home);
            if command == Command::ForceDelete {
                inner.ledger.forced.insert(sandbox.id.clone());
            }
        });
        let meant = SandboxRef::Id(sandbox.id.clone());
        let of = sandbox.account.clone();
        let ask = async move { engine.command(&of, &meant, command, cause()).await };
        self.client(ask, move |inner, answer| {
            inner.note(Some(sandbox.home), || match answer {
                Ok(commanded) => format!("commanded: {:?}", commanded.sandbox.phase),
                Err(error) => format!("command failed: {error:?}"),
            });
            if let Ok(commanded) = answer
                && matches!(command, Command::Delete | Command::ForceDelete)
            {
                inner.check_deleted(&commanded.sandbox);
            }
        });
    }

    pub fn work(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let Some(waiting) = ChangeWait::alone(&self.is_waiting) else { return };
        let engine = self.engine.clone();
        let meant = SandboxRef::Id(sandbox.id.clone());
        let ask = async move {
            let _waiting = waiting;
            engine.work(&sandbox.account, &meant, true, cause(), Duration::from_secs(20)).await
        };
        self.client(ask, |inner, answer| {
            if let Ok(work) = answer {
                inner.check_given(&work.sandbox);
            }
        });
    }

    pub fn wait(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let Some(waiting) = ChangeWait::alone(&self.is_waiting) else { return };
        let engine = self.engine.clone();
        let until = self.with(|inner| {
            *inner.chance.pick(&[WaitFor::Settled, WaitFor::Absent, WaitFor::Phase(Phase::Running)])
        });
        let meant = SandboxRef::Name(sandbox.name.clone());
        let ask = async move {
            let _waiting = waiting;
            engine.wait(&sandbox.account, &meant, until, Duration::from_secs(60)).await
        };
        self.client(ask, |_, _| {});
    }

    /// An answer comes once more, long after its call.
    pub fn stale_answer(&self) {
        let stale = self.with(|inner| {
            let stale = |issue: &crate::issue::Issue| {
                let record = issue.state.record()?;
                let older = record.attempt.0.checked_sub(1).filter(|older| *older > 0)?;
                Some((issue.home, record.id.clone(), older))
            };
            let all: Vec<_> = inner.rows.issues.values().filter_map(stale).collect();
            if all.is_empty() {
                return None;
            }
            let (home, sandbox, newest) = inner.chance.pick(&all).clone();
            let attempt = Attempt(u32::try_from(inner.chance.below(newest.into())).ok()? + 1);
            let result = match inner.chance.below(5) {
                0 => Ok(Done::Found(Vec::new())),
                1 => Ok(Done::Down),
                2 => Ok(Done::Removing),
                3 => Err(CallError::Absent),
                _ => Err(CallError::Broken("long ago".into())),
            };
            inner.note(Some(home), || format!("a stale answer to attempt {}", attempt.0));
            Some((home, CallAnswer { sandbox, attempt, result }))
        });
        let Some((home, answer)) = stale else { return };
        self.send(home, IssueEvent::Answered(answer));
    }

    /// A sweep sends late what it saw before the last call: nothing, since that call made it or
    /// has brought it up.
    pub fn stale_observation(&self) {
        let stale = self.with(|inner| {
            let stale = |issue: &crate::issue::Issue| {
                let record = issue.state.record()?;
                let attempt = Attempt(record.attempt.0.checked_sub(1)?);
                let observation = Observation {
                    provider: record.template.provider.clone(),
                    generation: issue.generation,
                    attempt,
                    phase: issue.state.phase(),
                    by_event: false,
                    asked_at: record.phase_since,
                    objects: Vec::new(),
                };
                Some((issue.home, observation))
            };
            let all: Vec<_> = inner.rows.issues.values().filter_map(stale).collect();
            if all.is_empty() {
                return None;
            }
            let (home, observation) = inner.chance.pick(&all).clone();
            inner.note(Some(home), || {
                format!("a stale observation, before attempt {}", observation.attempt.0)
            });
            Some((home, observation))
        });
        let Some((home, observation)) = stale else { return };
        self.send(home, IssueEvent::Observed(observation));
    }

    fn send(&self, home: HomeId, event: IssueEvent) {
        let parts = std::sync::Arc::clone(&self.engine.parts);
        self.life.spawn(async move {
            let message =
                || ActorMessage::Event { event: Box::new(event.clone()), reply: None, held: None };
            parts.registry.send(home, &message).await;
        });
    }
}
