//! What is said at GitHub, for people: what is not done yet, and another try of it.

use super::Engine;
use crate::engine::EngineError;
use crate::issue::{Effect, GithubEffect};
use crate::store::github::{GithubRow, GithubState};
use crate::store::{NewEffect, Write};
use crate::types::HomeId;

impl Engine {
    /// Has the status comment of a home show what its agent does. It has a pace of its own.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn show_progress(&self, home: HomeId) -> Result<(), EngineError> {
        let is_said = self.parts.env.rules().github.is_some_and(|rules| rules.comments);
        if !is_said || self.parts.env.is_stopping() {
            return Ok(());
        }
        let status = GithubEffect::ShowStatus { version: 0, is_asked: false, can_wait: false };
        let effect = Effect::Github(status);
        let effects = vec![NewEffect { home, effect, due_at: self.parts.env.now() }];
        self.parts.env.store.commit(Write { effects, ..Write::default() }).await?;
        self.say_recorded();
        Ok(())
    }

    /// The effects at GitHub that are not done, the oldest first, at most `limit`; none without
    /// credentials.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn unfinished_github_effects(
        &self,
        limit: usize,
    ) -> Result<Vec<GithubRow>, EngineError> {
        match &self.parts.github {
            Some(github) => Ok(github.outbox.unfinished_github(limit).await?),
            None => Ok(Vec::new()),
        }
    }

    /// How many effects at GitHub are in each state; none without credentials.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn github_effect_counts(&self) -> Result<Vec<(GithubState, u64)>, EngineError> {
        match &self.parts.github {
            Some(github) => Ok(github.outbox.github_counts().await?),
            None => Ok(Vec::new()),
        }
    }

    /// Has an effect at GitHub tried now. Durable when it returns; nothing happens to one that is done
    /// or under way.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn retry_github_effect(&self, number: i64) -> Result<(), EngineError> {
        if self.parts.env.is_stopping() {
            return Err(EngineError::ShuttingDown);
        }
        let Some(github) = &self.parts.github else { return Ok(()) };
        github.outbox.retry_github(number, self.parts.env.now()).await?;
        self.parts.registry.actor_parts().github_recorded.notify_one();
        Ok(())
    }
}
