//! What an issue's agent does now and what it said last, out of its runs.

use crate::conversation::Run;
use crate::github::messages::{AgentAnswer, AgentAsks, AgentShown};
use crate::issue::Issue;
use crate::types::{HomeId, RunState};

use super::GithubWorker;
use super::answers::AttemptError;

impl GithubWorker {
    /// What is known of the agent of an issue.
    pub(super) async fn agent_of(&self, issue: &Issue) -> Result<AgentShown, AttemptError> {
        let run = issue.conversation.as_ref().and_then(|conversation| conversation.run.as_ref());
        let going =
            run.filter(|run| matches!(run.state, RunState::Running | RunState::WaitingForPerson));
        let doing = going.and_then(|run| self.parts.live.doing(run.id));
        Ok(AgentShown {
            works: going.map(|run| (run.agent.clone(), run.since)),
            doing: doing.unwrap_or_default(),
            asks: going.and_then(|run| self.question_of(issue, run)),
            answer: self.answer_of(issue.home).await?,
        })
    }

    /// What the agent of a run asks a person, and where that is answered.
    fn question_of(&self, issue: &Issue, run: &Run) -> Option<AgentAsks> {
        let question = run.questions.open.clone()?;
        let url = self.parts.context.usual().public_url.as_ref();
        let page = url.zip(issue.state.record());
        let page = page.map(|(url, record)| format!("{url}/sandboxes/{}/conversation", record.id));
        Some(AgentAsks { run: run.id, since: run.since, question, page })
    }

    /// The last words of the last run that succeeded.
    pub(super) async fn answer_of(
        &self,
        home: HomeId,
    ) -> Result<Option<AgentAnswer>, AttemptError> {
        let last = self.parts.runs.last_answer(home).await?;
        Ok(last.map(|row| AgentAnswer {
            run: row.run.id,
            at: row.run.since,
            words: row.run.summary,
        }))
    }
}
