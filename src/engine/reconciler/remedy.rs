//! Carries out what people decide about drift when no rule can. The actor does it, after a fresh look.

use crate::issue::commit::CommandRefusal;
use crate::issue::event::{AdoptAsk, Command, CommandAsk};
use crate::issue::{IssueEvent, Reply};
use crate::types::{Cause, ProviderName, Template};

use super::super::actors::unfitting;
use super::super::api::EngineError;
use super::super::mailbox::Answered;
use super::Reconciler;
use super::compare::{KnownHome, Ours};
use super::drift::{Drifted, Subject};
use super::second_look::{LOOK_TIME_MAX, find};
use super::sides::SweepParts;
use super::view::{DriftItem, Remedy};

impl Reconciler {
    /// Carries out a remedy of the drift item with this id, and returns the item. Durable when it
    /// returns; the removal of an object goes on after that.
    ///
    /// # Errors
    /// [`EngineError`]; refused with [`CommandRefusal::ObservationOutdated`] if there is no such
    /// item, it does not have this remedy, or it has changed since it was listed.
    pub async fn remedy(
        &self,
        id: &str,
        remedy: Remedy,
        cause: Cause,
    ) -> Result<DriftItem, EngineError> {
        let SweepParts { env, identities, actors, .. } = &self.parts;
        if env.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let drift = &self.drift;
        let Drifted { item, subject } = drift.find(id).ok_or_else(outdated)?;
        if !item.remedies.contains(&remedy) {
            return Err(outdated());
        }
        let provider = &item.provider;
        match (subject, remedy) {
            (Subject::Object(object), Remedy::Adopt) => {
                self.adopt_object(provider, &object, &cause).await?;
            }
            (Subject::Object(object), Remedy::Remove) => {
                self.remove_object(provider, &object, &cause).await?;
            }
            (Subject::Record(home, sandbox), Remedy::Remove) => {
                let event = || IssueEvent::Discard {
                    provider: provider.clone(),
                    object: None,
                    lost: Some(sandbox.clone()),
                    cause: cause.clone(),
                };
                accepted(actors.apply(home, None, event).await?)?;
            }
            (Subject::Failed(home, sandbox), remedy) => {
                let command = match remedy {
                    Remedy::Adopt => Command::Retry,
                    Remedy::Remove => Command::Delete,
                };
                let ask = CommandAsk { sandbox, command, cause: cause.clone() };
                let event = || IssueEvent::Command(ask.clone());
                accepted(actors.apply(home, None, event).await?)?;
            }
            (Subject::Identity(seen), Remedy::Adopt) => {
                let kept = identities.keep(provider, seen).await;
                kept.map_err(|_| {
                    EngineError::StoreFailed("the provider's identity could not be stored".into())
                })?;
            }
            (Subject::Mass(too_much), Remedy::Adopt | Remedy::Remove) => {
                drift.believe(provider, too_much);
            }
            (Subject::Record(..), Remedy::Adopt)
            | (Subject::Identity(_), Remedy::Remove)
            | (Subject::Nothing, Remedy::Adopt | Remedy::Remove) => return Err(outdated()),
        }
        drift.resolve(id);
        tracing::info!(item = %id, remedy = remedy.as_str(), %cause, "carried out a remedy of drift");
        self.sweep_soon(provider);
        Ok(item)
    }

    async fn adopt_object(
        &self,
        provider: &ProviderName,
        shown: &Ours,
        cause: &Cause,
    ) -> Result<(), EngineError> {
        let object = self.look_again(provider, shown).await?;
        let template = self.template_for(provider);
        let labels = &object.labels;
        // If it were another home's, it would be a second sandbox of that issue.
        let claims = self.directory.claims_for(&labels.account, &labels.issue, labels.home).await?;
        let seed = Some((labels.account.clone(), labels.issue.clone()));
        let event = || {
            IssueEvent::Adopt(AdoptAsk {
                object: object.seen(),
                name: object.name.clone(),
                template: template.clone(),
                claims: claims.clone(),
                cause: cause.clone(),
            })
        };
        accepted(self.parts.actors.apply(labels.home, seed, event).await?)
    }

    async fn remove_object(
        &self,
        provider: &ProviderName,
        shown: &Ours,
        cause: &Cause,
    ) -> Result<(), EngineError> {
        let object = self.look_again(provider, shown).await?;
        let labels = &object.labels;
        let seed = Some((labels.account.clone(), labels.issue.clone()));
        let event = || IssueEvent::Discard {
            provider: provider.clone(),
            object: Some(object.seen()),
            lost: None,
            cause: cause.clone(),
        };
        accepted(self.parts.actors.apply(labels.home, seed, event).await?)
    }

    /// The object as it is now: what was shown may be a sweep old.
    async fn look_again(&self, name: &ProviderName, shown: &Ours) -> Result<Ours, EngineError> {
        let SweepParts { env, providers, executor, .. } = &self.parts;
        let provider = providers.get(name).ok_or(EngineError::ProviderUnknown)?;
        let busy = || EngineError::ProviderBusy(name.clone());
        let _slot = executor.lease(shown.labels.home).ok_or_else(busy)?;
        let known = KnownHome::unknown(&shown.labels);
        let shown_alone = std::slice::from_ref(shown);
        let found = find(&self.parts, provider.as_ref(), name, &known, shown_alone);
        let late = env.clock.sleep_until(env.now().after(LOOK_TIME_MAX));
        let found = tokio::select! {
            biased;
            found = found => found,
            () = late => Err("the provider did not answer in time".to_owned()),
        };
        let found = found.map_err(|why| EngineError::ProviderFailed(name.clone(), why))?;
        let same = |object: &Ours| {
            object.external_id == shown.external_id && object.labels.sandbox == shown.labels.sandbox
        };
        found.into_iter().find(same).ok_or_else(outdated)
    }

    /// The template that an adopted object counts as made from: the real one is unknown.
    fn template_for(&self, provider: &ProviderName) -> Template {
        let (rules, templates) = (self.parts.env.rules(), self.parts.env.templates());
        let default = &rules.default_template;
        let fitting = templates.values().filter(|template| template.provider == *provider);
        let first = fitting.min_by(|a, b| a.name.cmp(&b.name));
        match first {
            Some(first) if default.provider != *provider => first.clone(),
            Some(_) | None => Template { provider: provider.clone(), ..default.clone() },
        }
    }
}

fn outdated() -> EngineError {
    EngineError::Refused(CommandRefusal::ObservationOutdated)
}

fn accepted(answered: Answered) -> Result<(), EngineError> {
    match answered.reply {
        Reply::Accepted => Ok(()),
        Reply::Refused(refusal) => Err(EngineError::Refused(refusal)),
        Reply::Denied(denial) => Err(EngineError::Denied(denial)),
        reply @ (Reply::Nothing
        | Reply::Ensured { .. }
        | Reply::OtherPlace
        | Reply::AlreadyAbsent
        | Reply::Merged { .. }
        | Reply::Delivered(_)
        | Reply::Run(_)) => Err(unfitting(&reply)),
    }
}
