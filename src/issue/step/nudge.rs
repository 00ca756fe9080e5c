//! What GitHub's deliveries lead to. What the payload says decides, not the order of arrival: each
//! fact has a watermark, and older news never overwrites newer knowledge of that fact.

use crate::issue::commit::{DeliveryResult, Reply};
use crate::issue::event::{Effect, News, Nudge, TriggerKind};
use crate::issue::state::{IssueState, Known, StoppedBy};
use crate::types::{Alias, Cause, Timestamp};

use super::draft::Draft;

impl Draft<'_> {
    /// Takes in a delivery: what it says first, then what it may do.
    pub fn nudge(&mut self, nudge: Nudge, claims: Vec<Alias>, place_elsewhere: bool) {
        self.cause = Cause::Delivery(nudge.delivery.clone()).to_string();
        let facts_before = self.issue.facts.clone();
        self.aliases = claims;
        self.learn(&nudge.news, place_elsewhere);
        let learned = self.issue.facts != facts_before;
        let result = match nudge.effect {
            Effect::Trigger(kind) => self.trigger(kind, nudge.news.as_of),
            Effect::Stop(why) => self.stop_by_issue(why, &nudge),
            Effect::Delete => {
                self.issue.facts.deleted = true;
                self.delete("the issue was deleted on GitHub");
                applied("the issue is deleted; its sandbox goes with it")
            }
            Effect::Update if learned => applied("what is known of the issue was updated"),
            Effect::Update => ignored("it says nothing newer than what is known"),
            Effect::Activity if self.issue.state.record().is_some() => {
                applied("counts as activity")
            }
            Effect::Activity => ignored("the issue has no sandbox and this is no trigger"),
            Effect::Command(_) | Effect::Status => ignored("not available yet"),
        };
        let mut result = result;
        if result.applied {
            self.touch();
        }
        if place_elsewhere {
            result.reason.push_str("; its repository and number belong to another issue here");
        }
        self.reply = Reply::Delivered(result);
    }

    fn learn(&mut self, news: &News, place_elsewhere: bool) {
        let facts = &mut self.issue.facts;
        let as_of = news.as_of;
        if facts.title.as_ref().is_none_or(|known| known.as_of <= as_of) {
            if !news.title.is_empty() {
                facts.title = Some(Known { value: news.title.clone(), as_of });
            }
            facts.repository_id = Some(news.repository_id);
            if news.url.is_some() {
                facts.url.clone_from(&news.url);
            }
            if !place_elsewhere {
                // The newest place is the one to be found under: a repository may be renamed.
                facts.repository = Some(news.repository.clone());
                facts.number = Some(news.number);
            }
        }
        if let Some(open) = news.open {
            // Equal times that contradict each other: closed wins.
            let wins = |known: &Known<bool>| known.as_of < as_of || (known.as_of == as_of && !open);
            if facts.open.as_ref().is_none_or(wins) {
                facts.open = Some(Known { value: open, as_of });
            }
        }
        for (fact, news) in
            [(&mut facts.labelled, news.labelled), (&mut facts.assigned, news.assigned)]
        {
            if let Some(value) = news
                && fact.as_ref().is_none_or(|known| known.as_of <= as_of)
            {
                *fact = Some(Known { value, as_of });
            }
        }
    }

    fn trigger(&mut self, kind: TriggerKind, as_of: Timestamp) -> DeliveryResult {
        let facts = &self.issue.facts;
        let says = |known: &Option<Known<bool>>, value: bool| {
            known.as_ref().is_some_and(|known| known.value == value)
        };
        let had_sandbox = self.issue.generation.0 > 0;
        if facts.deleted {
            return ignored("the issue is deleted");
        }
        if says(&facts.open, false) {
            return ignored("the issue is closed");
        }
        if kind == TriggerKind::Label && says(&facts.labelled, false) {
            return ignored("the trigger label was taken off since");
        }
        if kind == TriggerKind::Assigned && says(&facts.assigned, false) {
            return ignored("the bot was unassigned since");
        }
        if kind == TriggerKind::Reopened && !had_sandbox && !says(&facts.labelled, true) {
            return ignored("it had no sandbox and does not carry the trigger label");
        }
        // GitHub's times have a resolution of one second: within the same one, the trigger counts.
        let later = |ended: Timestamp| ended.unix_ms() / 1000 > as_of.unix_ms() / 1000;
        if facts.ended_by_person_at.is_some_and(later) {
            return ignored("a person stopped or deleted it later");
        }
        let (_, reason) = self.want_running(None, kind.describe());
        applied(format!("{}: {reason}", kind.describe()))
    }

    fn stop_by_issue(&mut self, why: &'static str, nudge: &Nudge) -> DeliveryResult {
        let facts = &self.issue.facts;
        let newer_says_otherwise = match nudge.action.as_str() {
            "closed" => facts.open.as_ref().is_some_and(|known| known.value),
            "unlabeled" => facts.labelled.as_ref().is_some_and(|known| known.value),
            "unassigned" => facts.assigned.as_ref().is_some_and(|known| known.value),
            _ => false,
        };
        if newer_says_otherwise {
            return ignored("newer knowledge says otherwise");
        }
        if let IssueState::Absent = self.issue.state {
            return applied(format!("{why}; there is no sandbox to stop"));
        }
        self.want_stopped(StoppedBy::Issue, why);
        applied(format!("{why}; its sandbox is stopped"))
    }
}

fn applied(reason: impl Into<String>) -> DeliveryResult {
    DeliveryResult { applied: true, reason: reason.into() }
}

fn ignored(reason: impl Into<String>) -> DeliveryResult {
    DeliveryResult { applied: false, reason: reason.into() }
}
