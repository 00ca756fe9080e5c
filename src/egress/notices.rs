//! Notices to people about a sandbox's failed connections. Equal notices are sent once a minute, and the
//! number of different ones is bounded.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sandbox::{EventSender, Notice, ProviderEvent};
use crate::types::SandboxId;

/// Within this span equal notices are sent once,
const SPAN: Duration = Duration::from_secs(60);

/// and at most this many different ones.
const NOTICES_MAX: usize = 10;

/// Sent instead of the notices beyond the bound.
const AND_MORE: &str = "more connections failed than are reported in a minute";

/// Sends the notices of one sandbox.
#[derive(Debug)]
pub struct Notices {
    sandbox: SandboxId,
    events: EventSender,
    sent: Mutex<HashMap<NoticeKind, RecentNotices>>,
}

/// The kind of a notice. Each kind has its own bound, so that many of one kind hide none of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// An address that no sandbox may reach, or that is not public.
    Address,
    /// Anything else.
    Other,
}

impl Notices {
    /// A sender for this sandbox.
    pub fn new(sandbox: SandboxId, events: EventSender) -> Self {
        Self { sandbox, events, sent: Mutex::default() }
    }

    /// Sends a notice, unless an equal one was just sent or there are too many. If the queue is full it is
    /// dropped; the sandbox will probably cause it again.
    pub fn send(&self, kind: NoticeKind, text: String) {
        let text = {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.entry(kind).or_default().next(text, Instant::now())
        };
        if let Some(text) = text {
            tracing::info!(sandbox.id = %self.sandbox, "network notice: {text}");
            let notice = Notice { sandbox: self.sandbox.clone(), text };
            self.events.publish(ProviderEvent::Notice(notice));
        }
    }
}

/// The notices sent within the current span.
#[derive(Debug, Default)]
struct RecentNotices {
    since: Option<Instant>,
    texts: HashSet<String>,
}

impl RecentNotices {
    /// The notice to send, if any.
    fn next(&mut self, text: String, now: Instant) -> Option<String> {
        if self.since.is_none_or(|since| now.duration_since(since) >= SPAN) {
            self.since = Some(now);
            self.texts.clear();
        }
        if self.texts.contains(&text) {
            return None;
        }
        let text = match self.texts.len() {
            ..NOTICES_MAX => text,
            NOTICES_MAX => AND_MORE.to_owned(),
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
    fn equal_notices_are_sent_once_a_minute_and_the_number_is_bounded() {
        let (mut recent, begin) = (RecentNotices::default(), Instant::now());
        let mut at = |secs: u64, n: usize| {
            recent.next(format!("refused {n}"), begin + Duration::from_secs(secs))
        };
        assert_eq!(at(0, 0).as_deref(), Some("refused 0"));
        assert_eq!(at(1, 0), None);
        let more: Vec<_> = (1..1_000).filter_map(|n| at(2, n)).collect();
        assert_eq!(more.len(), NOTICES_MAX);
        assert_eq!(more[NOTICES_MAX - 2], "refused 9");
        assert_eq!(more[NOTICES_MAX - 1], AND_MORE);
        assert_eq!(at(59, 2_000), None);
        assert_eq!(at(60, 0).as_deref(), Some("refused 0"));
    }
}
