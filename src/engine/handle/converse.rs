//! What is said to an issue's agent, and what is reported and asked of its runs.

use super::super::actors::unfitting;
use super::super::api::{EngineError, IssueKey, SandboxRef};
use super::Engine;
use crate::conversation::{RunEvent, RunReply, SaidWords};
use crate::engine::actors::EventFailure;
use crate::engine::directory::route::Number;
use crate::issue::commit::CommandRefusal;
use crate::issue::event::SayIssue;
use crate::issue::{IssueEvent, Reply};
use crate::types::{AccountName, Cause, HomeId, MessageId};

impl Engine {
    /// Says something to the agent of an issue, whose sandbox is wanted for that. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`EngineError`]; [`EngineError::RunRefused`] if nothing was said.
    pub async fn say(
        &self,
        account: &AccountName,
        issue: &IssueKey,
        words: SaidWords,
        cause: Cause,
    ) -> Result<(HomeId, RunReply), EngineError> {
        let mut attempts = self.parts.actors.retry_limit()?;
        let id = self.message_id();
        loop {
            let mut home = None;
            let attempt = async {
                let route = self.parts.directory.route(account, issue).await?;
                match route.number {
                    Number::Own => {}
                    Number::Elsewhere | Number::Foreign(_) => {
                        return Err(EventFailure::For(EngineError::IssueIdConflict));
                    }
                }
                home = Some(route.home);
                let (words, cause) = (words.clone(), cause.clone());
                let (numbered, claims) = (issue.numbered.clone(), route.claims);
                let event = IssueEvent::Say(SayIssue { id, words, numbered, claims, cause });
                self.parts.actors.ask(route.home, route.activation, event).await
            };
            let attempt = attempt.await;
            if let (Some(answered), Some(home)) = (attempts.judge(attempt)?, home) {
                return Ok((home, of_reply(answered.reply)?));
            }
        }
    }

    /// The same for the issue of a sandbox that is not deleted.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn say_in(
        &self,
        account: &AccountName,
        sandbox: &SandboxRef,
        words: SaidWords,
        cause: Cause,
    ) -> Result<(HomeId, RunReply), EngineError> {
        let meant = self.find(account, sandbox).await?;
        if meant.phase.is_none() {
            return Err(EngineError::Refused(CommandRefusal::SandboxDeleted));
        }
        // By its id the issue is found also if it is handled under its other name by now.
        let issue = IssueKey { id: Some(meant.issue_id), numbered: None };
        self.say(account, &issue, words, cause).await
    }

    /// The id of a message, by which it is known if its first try was stored and had no answer.
    fn message_id(&self) -> MessageId {
        MessageId(self.parts.env.ids.uuid())
    }

    /// Reports or asks something of a home's run. Durable when it returns.
    ///
    /// # Errors
    /// [`EngineError`]; [`EngineError::RunRefused`] if nothing was changed.
    pub async fn run_event(&self, home: HomeId, event: RunEvent) -> Result<RunReply, EngineError> {
        let answered =
            self.parts.actors.apply(home, None, || IssueEvent::Run(event.clone())).await?;
        of_reply(answered.reply)
    }
}

fn of_reply(reply: Reply) -> Result<RunReply, EngineError> {
    match reply {
        Reply::Run(RunReply::Refused(refusal)) => Err(EngineError::RunRefused(refusal)),
        Reply::Run(reply) => Ok(reply),
        Reply::OtherPlace => Err(EngineError::IssueIdConflict),
        Reply::Denied(denial) => Err(EngineError::Denied(denial)),
        reply => Err(unfitting(&reply)),
    }
}
