//! What people are told of a sandbox's connections that did not come about: each thing once in a
//! while, and not without end, since whoever tries the same again tells nothing new.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sandbox::{EventSender, Notice, ProviderEvent};
use crate::types::SandboxId;

/// Within this span a thing is told once,
const SPAN: Duration = Duration::from_secs(60);

/// and so many different ones.
const TOLD_MAX: usize = 10;

/// What is said in place of all that comes past the bound.
const AND_MORE: &str = "more connections did not come about than are told in a minute";

/// Tells of one sandbox.
#[derive(Debug)]
pub struct Notices {
    sandbox: SandboxId,
    events: EventSender,
    told: Mutex<HashMap<Matter, NoticeTimes>>,
}

/// What a notice is about. Each has a bound of its own, so that much of one hides nothing of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matter {
    /// An address that no sandbox may reach, or that is not public.
    Address,
    /// Anything else.
    Other,
}

impl Notices {
    /// Tells of this sandbox.
    pub fn new(sandbox: SandboxId, events: EventSender) -> Self {
        Self { sandbox, events, told: Mutex::default() }
    }

    /// Tells something, unless it has been or there is too much. What nobody hears is lost: it is
    /// news, and comes again.
    pub fn tell(&self, matter: Matter, text: String) {
        let text = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.entry(matter).or_default().next(text, Instant::now())
        };
        if let Some(text) = text {
            tracing::info!(sandbox.id = %self.sandbox, "a sandbox's network: {text}");
            let notice = Notice { sandbox: self.sandbox.clone(), text };
            self.events.publish(ProviderEvent::Notice(notice));
        }
    }
}

/// What has been told since when.
#[derive(Debug, Default)]
struct NoticeTimes {
    since: Option<Instant>,
    texts: HashSet<String>,
}

impl NoticeTimes {
    /// What is to be told where this is to be.
    fn next(&mut self, text: String, now: Instant) -> Option<String> {
        if self.since.is_none_or(|since| now.duration_since(since) >= SPAN) {
            self.since = Some(now);
            self.texts.clear();
        }
        if self.texts.contains(&text) {
            return None;
        }
        let text = match self.texts.len() {
            ..TOLD_MAX => text,
            TOLD_MAX => AND_MORE.to_owned(),
            _ => return None,
        };
        self.texts.insert(text.clone());
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_told_once_in_a_while_and_not_without_end() {
        let (mut told, begin) = (NoticeTimes::default(), Instant::now());
        let mut at = |secs: u64, n: usize| {
            told.next(format!("refused {n}"), begin + Duration::from_secs(secs))
        };
        assert_eq!(at(0, 0).as_deref(), Some("refused 0"));
        assert_eq!(at(1, 0), None);
        let more: Vec<_> = (1..1_000).filter_map(|n| at(2, n)).collect();
        assert_eq!(more.len(), TOLD_MAX);
        assert_eq!(more[TOLD_MAX - 2], "refused 9");
        assert_eq!(more[TOLD_MAX - 1], AND_MORE);
        assert_eq!(at(59, 2_000), None);
        assert_eq!(at(60, 0).as_deref(), Some("refused 0"));
    }
}
