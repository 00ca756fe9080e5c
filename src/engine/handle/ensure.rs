//! *Ensure*: gives an issue its one sandbox.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::actors::{EventFailure, unfitting};
use super::super::api::{EngineError, EnsureIssue, Ensured};
use super::super::directory::route::Number;
use super::Engine;
use crate::issue::event::{EnsureAsk, SandboxAsk};
use crate::issue::{IssueEvent, Reply};
use crate::types::{AccountName, ProviderName, Template, TemplateName};

impl Engine {
    fn template(&self, name: &TemplateName) -> Result<Template, EngineError> {
        self.parts.env.templates().get(name).cloned().ok_or_else(|| {
            let known = self.templates().into_iter().map(|template| template.name).collect();
            EngineError::TemplateUnknown { name: name.clone(), known }
        })
    }

    /// The default template of a provider: the one with the provider's name, else `default`, else the
    /// first by name, of those that have this provider.
    fn template_of(&self, provider: &ProviderName) -> Result<Template, EngineError> {
        let default = self.default_template().name;
        let rank = |template: &Template| match &template.name {
            name if name.as_str() == provider.as_str() => 0,
            name if *name == default => 1,
            _ => 2,
        };
        let of_it = self.templates().into_iter().filter(|one| one.provider == *provider);
        // Of the last rank the first by name: they are sorted.
        of_it.min_by_key(rank).ok_or_else(|| {
            let known: BTreeSet<_> =
                self.templates().into_iter().map(|template| template.provider).collect();
            let known = known.into_iter().collect();
            EngineError::NoTemplateOf { name: provider.clone(), known }
        })
    }

    /// The template that a caller means by its name, by its provider, or by both.
    fn template_meant(&self, ask: &EnsureIssue) -> Result<Option<Template>, EngineError> {
        match (&ask.template, &ask.provider) {
            (None, None) => Ok(None),
            (None, Some(provider)) => self.template_of(provider).map(Some),
            (Some(name), None) => self.template(name).map(Some),
            (Some(name), Some(provider)) => {
                let template = self.template(name)?;
                match template.provider == *provider {
                    true => Ok(Some(template)),
                    false => Err(EngineError::OtherProvider {
                        template: template.name,
                        provider: template.provider,
                    }),
                }
            }
        }
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
        let sandbox = SandboxAsk {
            template: self.template_meant(&ask)?,
            mode: ask.mode,
            agent_id: ask.agent_id.clone(),
            meta: ask.meta.clone(),
            by_provider: ask.template.is_none() && ask.provider.is_some(),
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
                    sandbox: sandbox.clone(),
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
            sandbox: SandboxAsk::default(),
            title: None,
            numbered: None,
            claims: route.claims,
            retry: false,
            cause: ask.cause,
        });
        self.parts.actors.ask(route.home, route.activation, event).await.is_ok()
    }
}
