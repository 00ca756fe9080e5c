//! The conversation within the lifecycle: what is said, what becomes of runs, and what both mean for
//! the sandbox.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::conversation::{
    Around, Conversation, ConversationStep, IssueWords, MessageOrigin, MessageText, Run, RunEvent,
    RunRefusal, RunReply, SaidWords, SandboxStanding, SayAsk,
};
use crate::issue::commit::{DeliveryResult, Reply};
use crate::issue::event::{DeliveryEffect, DenialKind, IssueDelivery, SandboxAsk, SayIssue};
use crate::issue::instruction::{Instruction, InstructionSource};
use crate::issue::state::{Goal, Issue, IssueState, StoppedBy};
use crate::types::{AgentName, RunState, Template, WhileRunning};

use super::transition::Transition;

/// Why a run that waits starts the sandbox.
const NEEDED: &str = "a run of the agent needs it";

impl Transition<'_> {
    /// A caller says something to the agent. The issue's sandbox is wanted for that, unless a person
    /// stopped it.
    pub fn say(&mut self, ask: SayIssue) {
        self.cause = ask.cause.to_string();
        if self.is_elsewhere(ask.numbered.as_ref()) {
            self.reply = Reply::OtherPlace;
            return;
        }
        let said = self.said_to_agent(SayAsk { id: Some(ask.id), ..SayAsk::of(ask.words) });
        if matches!(said, RunReply::Said(..)) {
            self.aliases = ask.claims;
            self.learn_from_caller(ask.numbered.as_ref(), None);
            let is_stopped_by_person =
                matches!(&self.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. });
            if !is_stopped_by_person {
                self.ensured_here();
                self.grant_or_wait("a message to the agent asked for it");
                self.issue.delete_due = None;
            }
            self.touch();
        }
        self.reply = Reply::Run(said);
    }

    /// What a trigger brought is said to the agent, if there is one.
    pub fn say_words(&mut self, delivery: &IssueDelivery, result: &mut DeliveryResult) {
        let Some(instruction) = self.instruction.as_ref() else { return };
        let DeliveryEffect::Trigger(_) = delivery.effect else { return };
        if self.agent().is_none() {
            return;
        }
        let (source, issue_words) = match instruction.source {
            InstructionSource::Issue => (MessageOrigin::Issue, Some(words_of(instruction))),
            source => (origin_of(source), None),
        };
        let by = instruction.sender.as_ref().or(instruction.author.as_ref());
        let author = by.map(|user| user.login.clone()).unwrap_or_default();
        let text = MessageText::OfDelivery(delivery.delivery.clone());
        let words = SaidWords { source, author, text, agent: None, interrupts: false };
        match self.said_to_agent(SayAsk { issue_words, ..SayAsk::of(words) }) {
            RunReply::Refused(RunRefusal::QueueFull) => {
                result.reason.push_str("; too many messages wait for the agent already");
            }
            RunReply::Said(..)
            | RunReply::Heard
            | RunReply::Begun(..)
            | RunReply::Is(_)
            | RunReply::Refused(_) => {}
        }
    }

    /// A review, a comment without a command or a failed check is said to the agent. It takes no place
    /// in the order of people's acts, so that a stop from before it that arrives later still counts.
    pub fn follow_up(&mut self, delivery: &mut IssueDelivery) -> DeliveryResult {
        let result = |applied, reason: String| DeliveryResult { applied, reason };
        let ignored = |reason: &str| result(false, reason.to_owned());
        let Some(instruction) = delivery.instruction.take() else {
            return ignored("it has no words for the agent");
        };
        if self.issue.state.record().is_none() {
            return ignored("the issue has no sandbox and this is no trigger");
        }
        let DeliveryEffect::FollowUp { failed_commit } = &delivery.effect else {
            return ignored("it is nothing that is said to the agent");
        };
        let source = origin_of(instruction.source);
        if self.agent().is_none() {
            let is_activity =
                matches!(source, MessageOrigin::Comment(_) | MessageOrigin::Review(_));
            let reason = "the sandbox has no agent to which it could be said";
            return match is_activity {
                true => result(true, format!("counts as activity; {reason}")),
                false => ignored(reason),
            };
        }
        if let SandboxStanding::Over(reason) = standing(&self.issue) {
            return ignored(&format!("nothing is said to the agent: {reason}"));
        }
        let by = instruction.author.as_ref().or(instruction.sender.as_ref());
        let words = SaidWords {
            source,
            author: by.map(|user| user.login.clone()).unwrap_or_default(),
            text: MessageText::OfDelivery(delivery.delivery.clone()),
            agent: None,
            interrupts: false,
        };
        let failed_commit = failed_commit.clone();
        let ask = SayAsk { is_follow_up: true, failed_commit, ..SayAsk::of(words) };
        match self.said_to_agent(ask) {
            RunReply::Said(..) => {
                let what = match instruction.source {
                    InstructionSource::Review { pull, .. } => format!("a review of #{pull}"),
                    InstructionSource::Check(_) => {
                        format!(
                            "the check {} failed, which",
                            instruction.title.as_deref().unwrap_or("?")
                        )
                    }
                    InstructionSource::Issue
                    | InstructionSource::Comment(_)
                    | InstructionSource::PlainComment(_) => "a comment".to_owned(),
                };
                self.instruction = Some(instruction);
                result(true, format!("{what} is a message to the agent"))
            }
            RunReply::Heard => ignored("it was said to the agent before"),
            RunReply::Refused(refusal) => ignored(&refusal.to_string()),
            RunReply::Begun(..) | RunReply::Is(_) => ignored("nothing came of it"),
        }
    }

    fn said_to_agent(&mut self, mut ask: SayAsk) -> RunReply {
        if self.issue.facts.deleted {
            return RunReply::Refused(RunRefusal::IssueDeleted);
        }
        let agent = self.issue.state.record().and_then(|it| it.template.workload.agent.as_ref());
        ask.words.interrupts |=
            agent.is_some_and(|agent| agent.while_running == WhileRunning::Interrupt);
        self.converse(|step, around, _| step.say(ask, around.agent.as_ref()))
    }

    /// What the worker of runs reports, or people ask of a run.
    pub fn run_event(&mut self, event: RunEvent) {
        let counts = matches!(event, RunEvent::Begin(..) | RunEvent::Retry(_));
        let reply = self.converse(|step, around, held| step.run_event(event, around, held));
        if counts && !matches!(reply, RunReply::Refused(_)) {
            self.touch();
        }
        self.reply = Reply::Run(reply);
    }

    /// The time of a run's next try may have come.
    pub fn run_due(&mut self) {
        if self.issue.conversation.is_some() {
            self.converse(|step, _, _| step.due());
        }
    }

    /// Lets the runs follow what became of the sandbox, and starts it if one needs it.
    pub fn follow_by_runs(&mut self) {
        if self.issue.conversation.is_none() {
            return;
        }
        if self.converse(|step, around, _| step.follow(around)) {
            match self.context.denial {
                Some(_) => self.pending_start(NEEDED, None),
                None => {
                    self.want_running(SandboxAsk::default(), NEEDED);
                }
            }
            self.converse(|step, around, _| step.follow(around));
        }
    }

    /// Has the runs that changed since `before` recorded, and what people should know of them put on the
    /// timeline.
    pub fn record_runs(&mut self, before: &Issue) {
        let was = runs(before.conversation.as_deref());
        let is = runs(self.issue.conversation.as_deref());
        let changed = is.into_iter().filter(|run| !was.contains(run)).cloned();
        self.said.runs.extend(changed.collect::<Vec<_>>());
        for run in self.said.runs.clone() {
            let known = was.iter().find(|known| known.id == run.id).map(|known| known.state);
            if let Some(reason) = news_of(&run).filter(|_| known != Some(run.state)) {
                self.record_entry(reason);
            }
            if run.state == RunState::Succeeded && known != Some(RunState::Succeeded) {
                self.show_answer(&run);
            }
        }
    }

    /// What was said on an issue that GitHub deleted goes with it, once no run is in progress.
    pub fn forget_deleted(&mut self) {
        let conversation = self.issue.conversation.as_ref();
        if self.issue.facts.deleted && conversation.is_some_and(|one| !one.is_at_work()) {
            self.issue.conversation = None;
        }
    }

    /// Does something with the conversation, and keeps what came of it.
    fn converse<T>(
        &mut self,
        act: impl FnOnce(&mut ConversationStep, &Around, Option<&str>) -> T,
    ) -> T {
        let around = self.around();
        let denial = self.context.denial.as_ref();
        let held = denial.filter(|denial| denial.kind == DenialKind::Held);
        let before = self.issue.conversation.take().map(|boxed| *boxed).unwrap_or_default();
        let mut step = ConversationStep::new(before, self.context.now, self.context.fresh);
        let result = act(&mut step, &around, held.map(|denial| denial.reason.as_str()));
        self.said.messages.append(&mut step.messages);
        self.said.runs.append(&mut step.former);
        let is_empty = step.conversation == Conversation::default();
        self.issue.conversation = (!is_empty).then(|| Box::new(step.conversation));
        result
    }

    /// The agent that answers, if there is one.
    fn agent(&self) -> Option<AgentName> {
        self.around().agent
    }

    fn around(&self) -> Around {
        let repository = self.issue.facts.repository.as_ref();
        around(&self.issue, &self.context.rules.template_for(repository))
    }
}

/// Where a message was said whose words were written there.
const fn origin_of(source: InstructionSource) -> MessageOrigin {
    match source {
        InstructionSource::Issue => MessageOrigin::Issue,
        InstructionSource::Comment(id) | InstructionSource::PlainComment(id) => {
            MessageOrigin::Comment(id)
        }
        InstructionSource::Review { id, .. } => MessageOrigin::Review(id),
        InstructionSource::Check(id) => MessageOrigin::Check(id),
    }
}

/// The runs that a conversation has in its state.
fn runs(conversation: Option<&Conversation>) -> Vec<&Run> {
    let runs = conversation.map(|one| one.run.iter().chain(&one.next));
    runs.into_iter().flatten().collect()
}

/// What the timeline says of a run in its state; nothing of one that waits.
fn news_of(run: &Run) -> Option<String> {
    let agent = &run.agent;
    let because = |what: &str| match run.reason.as_str() {
        "" => format!("the agent {agent} {what}"),
        reason => format!("the agent {agent} {what}: {reason}"),
    };
    match run.state {
        RunState::Queued | RunState::Cancelling => None,
        // Its question is shown beside, made safe.
        RunState::WaitingForPerson => {
            Some(format!("the agent {agent} waits for a person's answer"))
        }
        RunState::Running if run.attempt > 1 || !run.questions.answered.is_empty() => {
            Some(format!("the agent {agent} goes on"))
        }
        RunState::Running => Some(format!("the agent {agent} works")),
        RunState::Interrupted => Some(because("was interrupted")),
        RunState::Succeeded => Some(format!("the agent {agent} has finished")),
        RunState::Failed => Some(because("failed")),
        RunState::OverBudget => Some(because("stopped")),
        RunState::Cancelled => Some(because("was stopped")),
    }
}

/// An issue's sandbox, as far as runs are concerned. `default` is the template that a new one gets.
pub fn around(issue: &Issue, default: &Template) -> Around {
    let record = issue.state.record();
    let pending = issue.pending_start.as_ref().and_then(|pending| pending.plan.as_ref());
    let pending = pending.map(|plan| &plan.template);
    let template = record.map(|record| &record.template).or(pending).unwrap_or(default);
    Around {
        sandbox: record.map(|record| record.id.clone()),
        standing: standing(issue),
        is_down: matches!(issue.state, IssueState::Absent | IssueState::Stopped { .. }),
        agent: template.workload.agent.as_ref().map(|agent| agent.name.clone()),
    }
}

fn standing(issue: &Issue) -> SandboxStanding {
    if issue.merged_into.is_some() {
        return SandboxStanding::Over("the issue is handled under its other name".to_owned());
    }
    if let Some(pending) = &issue.pending_start {
        return SandboxStanding::Coming(format!(
            "the sandbox waits until it may be started: {}",
            pending.why
        ));
    }
    let reason = || issue.state.record().map(|record| record.reason.clone()).unwrap_or_default();
    let coming = |what: &str| SandboxStanding::Coming(format!("the sandbox is being {what}"));
    match &issue.state {
        IssueState::Absent => SandboxStanding::Over("the sandbox was deleted".to_owned()),
        IssueState::Running { .. } => SandboxStanding::Up,
        IssueState::Creating { goal, .. } => down_or(*goal, reason, coming("created")),
        IssueState::Starting { goal, .. } => down_or(*goal, reason, coming("started")),
        IssueState::Stopping { goal: Goal::Running, .. } => coming("started again"),
        IssueState::Stopping { by, goal: Goal::Stopped(_), .. } => down(*by, reason),
        IssueState::Stopped { by, .. } => down(*by, reason),
        IssueState::Failed { goal, failure, .. } => {
            let failed =
                SandboxStanding::Failed(format!("the sandbox failed: {}", failure.message));
            down_or(*goal, reason, failed)
        }
        IssueState::Deleting { next, .. } => match next {
            Some(_) => coming("deleted and created again"),
            None => SandboxStanding::Over("the sandbox is deleted".to_owned()),
        },
    }
}

fn down_or(
    goal: Goal,
    reason: impl FnOnce() -> String,
    else_this: SandboxStanding,
) -> SandboxStanding {
    match goal {
        Goal::Running => else_this,
        Goal::Stopped(by) => down(by, reason),
    }
}

/// A sandbox that is down, or goes down, by this.
fn down(by: StoppedBy, reason: impl FnOnce() -> String) -> SandboxStanding {
    match by {
        StoppedBy::Person => SandboxStanding::StoppedByPerson,
        StoppedBy::Issue => SandboxStanding::Over(reason()),
        StoppedBy::Restart
        | StoppedBy::Provider
        | StoppedBy::Idle
        | StoppedBy::Limit
        | StoppedBy::Host => SandboxStanding::Down,
    }
}

/// Which words of the issue's own text these are.
fn words_of(instruction: &Instruction) -> IssueWords {
    let mut digest = DefaultHasher::new();
    (&instruction.title, &instruction.text).hash(&mut digest);
    IssueWords { as_of: instruction.as_of, digest: digest.finish() }
}
