//! Commands to one sandbox, and work in it.

use std::sync::Arc;
use std::time::Duration;

use super::super::actors::unfitting;
use super::super::api::{Commanded, EngineError, SandboxRef, WaitFor, Work};
use super::super::mailbox::Activation;
use super::Engine;
use crate::issue::commit::CommandRefusal;
use crate::issue::event::CommandAsk;
use crate::issue::{Command, IssueEvent, Reply};
use crate::sandbox::Target;
use crate::types::{AccountName, Cause, MetaChange, Phase, Sandbox};

impl Engine {
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
        let mut attempts = self.parts.actors.retry_limit()?;
        let answered = loop {
            let attempt = async {
                let event = IssueEvent::Command(CommandAsk {
                    sandbox: meant.id.clone(),
                    command,
                    cause: cause.clone(),
                });
                self.parts.actors.ask(meant.home, Activation::default(), event).await
            };
            let Some(answered) = attempts.judge(attempt.await)? else { continue };
            // A name means the newest sandbox: if that was gone before the command reached it, the
            // next one may have begun, and the command is for that one.
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

    /// Changes what is noted with a sandbox that is not deleted. Durable when it returns; starts
    /// nothing.
    ///
    /// # Errors
    /// [`EngineError`]; refused with [`CommandRefusal::BadMeta`] if it would go beyond its bounds.
    pub async fn set_meta(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
        change: MetaChange,
        cause: Cause,
    ) -> Result<Sandbox, EngineError> {
        let meant = self.find(account, sandbox).await?;
        let event = || IssueEvent::SetMeta {
            sandbox: meant.id.clone(),
            change: change.clone(),
            cause: cause.clone(),
        };
        let answered = self.parts.actors.apply(meant.home, None, event).await?;
        match (answered.reply, answered.sandbox) {
            (Reply::Accepted, Some(sandbox)) => Ok(Arc::unwrap_or_clone(sandbox)),
            (Reply::Refused(refusal), _) => Err(EngineError::Refused(refusal)),
            (reply, _) => Err(unfitting(&reply)),
        }
    }

    /// Gives a running sandbox to work in, and waits for it up to `at_most`. With `start` it is
    /// started if it is stopped and no person stopped it. Counts as activity.
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
        let mut attempts = self.parts.actors.retry_limit()?;
        let answered = loop {
            let attempt = async {
                let sandbox = meant.id.clone();
                let event = IssueEvent::Worked { sandbox, start, cause: cause.clone() };
                self.parts.actors.ask(meant.home, Activation::default(), event).await
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
                self.parts.waits.follow(meant.home, Some(&meant.id), until, at_most).await?;
            waited.sandbox.ok_or(EngineError::SandboxNotFound)?
        };
        if sandbox.id != meant.id || sandbox.phase.is_none() {
            return Err(EngineError::Refused(CommandRefusal::SandboxDeleted));
        }
        match (sandbox.phase, sandbox.external_id.clone()) {
            (Some(Phase::Running), Some(external_id)) => {
                if self.parts.providers.get(&sandbox.provider).is_none() {
                    return Err(EngineError::ProviderUnknown);
                }
                let target = Target { external_id, expected: sandbox.id.clone() };
                let at_work = Arc::new(self.parts.registry.actor_parts().busy.begin(meant.home));
                Ok(Work { target, sandbox, at_work })
            }
            _ => Err(EngineError::NotRunning(Box::new(sandbox))),
        }
    }
}
