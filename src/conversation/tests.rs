//! Conversations by tables, and by properties over random lives.

mod properties;
mod questions;
mod tables;

use super::*;
use crate::types::{
    AgentName, AgentQuestion, AnswerOption, MessageId, RunId, RunState, SandboxId, SessionId,
    Timestamp,
};
use uuid::Uuid;

/// One conversation under test, with the runs and messages that were ever recorded of it.
struct ConversationBench {
    conversation: Conversation,
    around: Around,
    now: Timestamp,
    fresh: u128,
    /// What was said, by its id.
    said: Vec<SaidMessage>,
    /// Runs that ended and left the conversation.
    former: Vec<Run>,
}

/// A sandbox with this number, and whether runs can go on in it.
fn around(sandbox: u32, standing: SandboxStanding) -> Around {
    Around {
        sandbox: Some(SandboxId::trusted(format!("s{sandbox}"))),
        is_down: matches!(
            standing,
            SandboxStanding::Down | SandboxStanding::StoppedByPerson | SandboxStanding::Over(_)
        ),
        standing,
        agent: Some(AgentName::trusted("claude-code")),
    }
}

impl ConversationBench {
    /// Nothing was said, and the sandbox is up.
    fn new() -> Self {
        Self {
            conversation: Conversation::default(),
            around: around(1, SandboxStanding::Up),
            now: Timestamp::from_unix_ms(1_800_000_000_000),
            fresh: 0,
            said: Vec::new(),
            former: Vec::new(),
        }
    }

    fn id(&mut self) -> Uuid {
        self.fresh += 1;
        Uuid::from_u128(self.fresh)
    }

    /// Does something, and then lets the runs follow the sandbox. Returns whether one needs it.
    fn step<T>(&mut self, act: impl FnOnce(&mut ConversationStep, &Around) -> T) -> (T, bool) {
        let fresh = FreshIds {
            message: MessageId(self.id()),
            run: RunId(self.id()),
            session: SessionId(self.id()),
        };
        let mut step = ConversationStep::new(self.conversation.clone(), self.now, fresh);
        let result = act(&mut step, &self.around);
        let needs = step.follow(&self.around);
        self.conversation = step.conversation;
        self.said.append(&mut step.messages);
        self.former.append(&mut step.former);
        (result, needs)
    }

    fn say(&mut self) -> RunReply {
        self.say_this(SaidWords::of_caller("mona".into(), "hello".into()), None)
    }

    fn say_this(&mut self, words: SaidWords, issue_words: Option<IssueWords>) -> RunReply {
        let ask = SayAsk { issue_words, ..SayAsk::of(words) };
        self.step(|step, around| step.say(ask, around.agent.as_ref())).0
    }

    /// A follow-up on GitHub: of a commit, if it is a failed check.
    fn follow_up(&mut self, source: MessageOrigin, failed_commit: Option<&str>) -> RunReply {
        let words = SaidWords { source, ..SaidWords::of_caller("mona".into(), "more".into()) };
        let failed_commit = failed_commit.map(str::to_owned);
        let ask = SayAsk { is_follow_up: true, failed_commit, ..SayAsk::of(words) };
        self.step(|step, around| step.say(ask, around.agent.as_ref())).0
    }

    fn event(&mut self, event: RunEvent) -> RunReply {
        self.step(|step, around| step.run_event(event, around, None)).0
    }

    /// The sandbox is on its way to be like this, and not known to be down yet.
    fn goes(&mut self, sandbox: u32, standing: SandboxStanding) {
        self.around = Around { is_down: false, ..around(sandbox, standing) };
        self.step(|_, _| ());
    }

    /// The sandbox is like this from now on.
    fn stands(&mut self, sandbox: u32, standing: SandboxStanding) -> bool {
        self.around = around(sandbox, standing);
        self.step(|_, _| ()).1
    }

    fn run(&self) -> &Run {
        self.conversation.run.as_ref().expect("a run")
    }

    fn begin(&mut self) -> RunReply {
        let (id, messages) = (self.run().id, self.run().messages);
        self.event(RunEvent::Begin(id, messages))
    }

    fn end(&mut self, end: RunEnd) -> RunReply {
        let (id, attempt) = (self.run().id, self.run().attempt);
        self.event(RunEvent::Ended(id, attempt, end))
    }

    /// A run that goes on.
    fn running() -> Self {
        let mut bench = Self::new();
        bench.say();
        bench.begin();
        assert_eq!(bench.run().state, RunState::Running);
        bench
    }
}
