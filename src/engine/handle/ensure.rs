//! *Ensure*: gives an issue its one sandbox.

use std::sync::Arc;

use super::super::actors::{EventFailure, unfitting};
use super::super::api::{EngineError, EnsureIssue, Ensured};
use super::super::directory::route::Number;
use super::Engine;
use crate::issue::event::EnsureAsk;
use crate::issue::{IssueEvent, Reply};
use crate::types::{AccountName, TemplateName};

impl Engine {
    fn template_unknown(&self, name: &TemplateName) -> EngineError {
        let known: Vec<String> = self.templates().iter().map(|one| one.name.to_string()).collect();
        EngineError::TemplateUnknown { name: name.clone(), known: known.join(", ") }
    }

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
            Some(name) => {
                let template = self.parts.templates.get(name).cloned();
                Some(template.ok_or_else(|| self.template_unknown(name))?)
            }
        };
        let mut attempts = self.parts.actors.retry_limit()?;
        let answered = loop {
            let attempt = async {
                let route = self.parts.directory.route(account, &ask.issue).await?;
                match route.number {
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
                    claims: route.claims,
                    retry: ask.retry,
                    cause: ask.cause.clone(),
                });
                self.parts.actors.ask(route.home, route.activation, event).await
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
}

#[cfg(test)]
impl Engine {
    /// *Ensure* without the retry; whether it was answered.
    pub(in crate::engine) async fn ask_once(
        &self,
        account: &AccountName,
        ask: EnsureIssue,
    ) -> bool {
        let Ok(route) = self.parts.directory.route(account, &ask.issue).await else { return false };
        let event = IssueEvent::Ensure(EnsureAsk {
            template: None,
            mode: None,
            title: None,
            numbered: None,
            claims: route.claims,
            retry: false,
            cause: ask.cause,
        });
        self.parts.actors.ask(route.home, route.activation, event).await.is_ok()
    }
}
