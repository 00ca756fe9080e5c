//! What an issue's agent does now and what it said last, out of its runs.

use crate::github::messages::{AgentAnswer, AgentShown};
use crate::issue::Issue;
use crate::types::{HomeId, RunState};

use super::GithubWorker;
use super::answers::AttemptError;

/// How many of the newest runs are looked at for the agent's last words.
const RUNS_READ_MAX: usize = 50;

impl GithubWorker {
    /// What is known of the agent of an issue.
    pub(super) async fn agent_of(&self, issue: &Issue) -> Result<AgentShown, AttemptError> {
        let run = issue.conversation.as_ref().and_then(|conversation| conversation.run.as_ref());
        let going = run.filter(|run| run.state == RunState::Running);
        let doing = going.and_then(|run| self.parts.live.doing(run.id));
        Ok(AgentShown {
            works: going.map(|run| (run.agent.clone(), run.since)),
            doing: doing.unwrap_or_default(),
            answer: self.answer_of(issue.home).await?,
        })
    }

    /// The last words of the last run that succeeded.
    pub(super) async fn answer_of(
        &self,
        home: HomeId,
    ) -> Result<Option<AgentAnswer>, AttemptError> {
        let runs = self.parts.runs.runs_of(home, RUNS_READ_MAX).await?;
        let has_words =
            |state: RunState, words: &str| state == RunState::Succeeded && !words.trim().is_empty();
        let last = runs.into_iter().rev().find(|row| has_words(row.run.state, &row.run.summary));
        Ok(last.map(|row| AgentAnswer {
            run: row.run.id,
            at: row.run.since,
            words: row.run.summary,
        }))
    }
}
