//! People who talk to agents: they say something through the API and on GitHub, cancel and retry runs, and stop
//! sandboxes by a comment.

use super::driver::{SimServer, account, cause};
use super::world::WorldState;
use crate::conversation::{RunEvent, RunReply, SaidWords};
use crate::engine::{EngineError, SandboxRef};
use crate::issue::event::DeliveryEffect;
use crate::issue::instruction::InstructionSource;
use crate::issue::{Command, Instruction};
use crate::types::{HomeId, RunId};

impl SimServer {
    /// A person says something to an agent, or asks something of its run.
    pub fn talk(&self) {
        let (what, callers) = self.with(|inner| (inner.chance.below(20), inner.weather.callers));
        match what {
            0..7 if callers => self.say(),
            7..9 if callers => self.say_in(),
            9..11 => self.ask_of_run(|run| RunEvent::Cancel(run, "a person cancelled it".into())),
            11..14 => self.ask_of_run(RunEvent::Retry),
            _ => {
                for delivery in self.with(WorldState::comments_on_issue) {
                    self.deliver(delivery);
                }
            }
        }
    }

    fn words(&self) -> SaidWords {
        self.with(|inner| {
            let interrupts = inner.chance.permille(200);
            let words = SaidWords::of_caller("mona".into(), inner.fresh_words());
            SaidWords { interrupts, ..words }
        })
    }

    fn say(&self) {
        let (engine, words) = (self.engine.clone(), self.words());
        let issue = self.with(|inner| {
            let number = inner.chance.between(1, inner.weather.issues);
            let by_word = !inner.weather.scope_events;
            inner.github.key(&mut inner.chance, number, by_word)
        });
        let ask = async move { engine.say(&account(), &issue, words, cause()).await };
        self.client(ask, WorldState::check_taken_in);
    }

    fn say_in(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let (engine, words) = (self.engine.clone(), self.words());
        let meant = SandboxRef::Id(sandbox.id);
        let ask = async move { engine.say_in(&sandbox.account, &meant, words, cause()).await };
        self.client(ask, WorldState::check_taken_in);
    }

    fn ask_of_run(&self, event: impl FnOnce(Option<RunId>) -> RunEvent) {
        let asked = self.with(|inner| {
            let run = |issue: &crate::issue::Issue| {
                let conversation = issue.conversation.as_ref()?;
                Some((issue.home, conversation.next.as_ref().or(conversation.run.as_ref())?.id))
            };
            let all: Vec<(HomeId, RunId)> = inner.rows.issues.values().filter_map(run).collect();
            if all.is_empty() {
                return None;
            }
            let (home, run) = *inner.chance.pick(&all);
            Some((home, inner.chance.permille(500).then_some(run)))
        });
        let Some((home, run)) = asked else { return };
        let (engine, event) = (self.engine.clone(), event(run));
        self.with(|inner| inner.note(Some(home), || format!("a person asks: {event:?}")));
        let ask = async move { engine.run_event(home, event).await };
        self.client(ask, |_, _| {});
    }
}

impl WorldState {
    /// Words that were not said before.
    fn fresh_words(&mut self) -> String {
        format!("words {} end", self.fresh())
    }

    /// What a delivery brings for an agent.
    pub fn words_of(
        &mut self,
        effect: &DeliveryEffect,
        comment: Option<u64>,
    ) -> Option<Instruction> {
        self.weather.runs.as_ref()?;
        let source = match (effect, comment) {
            (DeliveryEffect::Trigger(_), None) => InstructionSource::Issue,
            (DeliveryEffect::Trigger(_), Some(id)) => InstructionSource::Comment(id),
            (DeliveryEffect::FollowUp { .. }, Some(id)) => InstructionSource::PlainComment(id),
            _ => return None,
        };
        let (text, as_of) = (self.fresh_words(), self.now());
        Some(Instruction { source, author: None, sender: None, as_of, title: None, text })
    }

    /// A person comments: a follow-up, or a command to stop.
    fn comments_on_issue(&mut self) -> Vec<usize> {
        let at =
            usize::try_from(self.chance.below(self.github.issues.len() as u64)).expect("an index");
        if self.github.issues[at].deleted {
            return Vec::new();
        }
        let effect = match self.chance.below(4) {
            // Where only GitHub speaks, what its own acts come to is compared, and this is none of them.
            0 if self.weather.callers => DeliveryEffect::Command(Command::Stop),
            _ => DeliveryEffect::FollowUp { failed_commit: None },
        };
        let (news, comment) = (self.news(at), self.fresh());
        vec![self.report(&news, "created", effect, Some(comment))]
    }

    /// A caller got the answer that its message was taken in: it is durable, and for that run.
    fn check_taken_in(&mut self, answer: &Result<(HomeId, RunReply), EngineError>) {
        let Ok((home, RunReply::Said(id, run))) = answer else { return };
        let deleted = self.rows.issues.get(home).is_some_and(|issue| issue.facts.deleted);
        let all = &self.stored.talk.messages;
        let stored = all.iter().find(|(_, row)| row.message.id == *id);
        if !deleted && stored.is_none_or(|(_, row)| row.message.run != run.id) {
            self.violate(Some(*home), format!("message {id} was taken in and is not stored"));
        }
    }
}
