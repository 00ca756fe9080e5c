//! What the agent of a run asks people, and what they answer.
//!
//! A run has one question at a time: an agent that asks several at once has them asked one after the
//! other. The answer is durable before the agent is given it, and comes to its worker with the run's
//! order.

use super::step::{ConversationStep, RunRefusal, RunReply, not_in_progress};
use crate::types::{AgentQuestion, QuestionAnswer, RunId, RunState};

/// How many answers of a run are remembered: the newest.
const ANSWERS_MAX: usize = 20;

/// The questions of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQuestions {
    /// The one that waits for a person's answer.
    pub open: Option<AgentQuestion>,
    /// Those that people answered, oldest first; at most 20.
    pub answered: Vec<QuestionAnswer>,
}

/// What a person answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonAnswer {
    /// The id of the question.
    pub question: String,
    /// The id of the option that is chosen.
    pub option: String,
    /// Who answers, as the caller calls itself.
    pub by: String,
}

impl ConversationStep {
    /// The agent of this attempt asks a person.
    pub(super) fn asks(&mut self, id: RunId, attempt: u32, question: AgentQuestion) -> RunReply {
        let now = self.now;
        let Some(run) = self.of_attempt(id, attempt) else { return not_in_progress() };
        if run.state != RunState::Running {
            return not_in_progress();
        }
        run.enter(RunState::WaitingForPerson, question.text.clone(), now);
        run.questions.open = Some(question);
        self.is(id)
    }

    /// A person answers.
    pub(super) fn answer(&mut self, id: RunId, answer: &PersonAnswer) -> RunReply {
        let now = self.now;
        let run = self.conversation.run.as_mut().filter(|run| run.id == id);
        let Some(run) = run else { return not_in_progress() };
        let known = run.questions.answered.iter().find(|it| it.question == answer.question);
        if let Some(QuestionAnswer { option, by, .. }) = known {
            let words = format!("{by} answered {:?} already ({})", option.name, option.id);
            return RunReply::Refused(RunRefusal::Answered(words));
        }
        let asked = run.questions.open.as_ref().filter(|asked| asked.id == answer.question);
        let option = asked.and_then(|asked| {
            asked.options.iter().find(|option| option.id == answer.option).cloned()
        });
        let Some(option) = option else {
            return RunReply::Refused(RunRefusal::NotAsked(answer.question.clone()));
        };
        run.enter(RunState::Running, "", now);
        let (question, by) = (answer.question.clone(), answer.by.clone());
        if run.questions.answered.len() >= ANSWERS_MAX {
            run.questions.answered.remove(0);
        }
        run.questions.answered.push(QuestionAnswer { question, option, by, at: now });
        self.is(id)
    }
}
