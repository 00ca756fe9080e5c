//! The ring of events: every change of a sandbox in commit order, encoded once, at the first read.
//!
//! Subscribers read from the ring by position and have no queue of their own, so a slow one costs
//! only its connection. A subscriber that falls behind the ring gets a `gap` event and lists again.
//!
//! # Guarantees
//! - A cursor that is taken before a list is read misses no change that the list does not show.
//! - Cursors of another server run are recognised: the ring is in memory, so a stream cannot be
//!   resumed across a restart.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::watch;

use crate::engine::Change;
use crate::issue::InstructionExcerpt;
use crate::types::{AccountName, Phase, TimelineEntry, Timestamp};

use super::instruction::InstructionBody;
use super::wire;

/// How many events are kept: some minutes of a busy server, about 5 MB.
pub const RING_LEN: usize = 4_096;

/// The last events, for subscribers to read at their own pace.
#[derive(Debug)]
pub struct EventRing {
    run: String,
    kept: Mutex<KeptEvents>,
    len_max: usize,
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct KeptEvents {
    events: VecDeque<Arc<Event>>,
    /// The number of the first event in `events`.
    first: u64,
}

/// One event: a timeline row of a change, or the change itself if it has no row.
#[derive(Debug)]
pub struct Event {
    change: Arc<Change>,
    row: Option<usize>,
    data: OnceLock<String>,
}

impl Event {
    /// The account of its sandbox.
    pub fn account(&self) -> &AccountName {
        &self.change.account
    }

    /// Its `data`, one line of JSON.
    pub fn data(&self) -> &str {
        self.data.get_or_init(|| {
            let change = &self.change;
            let row = self.row.and_then(|row| change.timeline.get(row));
            let sandbox = match row {
                Some(row) => change.sandbox_of(row),
                None => change.sandbox.as_deref(),
            };
            let Some(sandbox) = sandbox else { return String::new() };
            let json = wire::sandbox_json(sandbox);
            match row {
                Some(row) => encode(&json, Some(row.at), row, change.instruction.clone()),
                None => {
                    let phase = sandbox.phase;
                    let (generation, reason) = (sandbox.generation, sandbox.reason.clone());
                    let (at, cause) = (sandbox.phase_since, "update".to_owned());
                    let row =
                        TimelineEntry { at, generation, from: phase, to: phase, reason, cause };
                    encode(&json, None, &row, None)
                }
            }
        })
    }
}

/// The position of a subscriber: the number of its next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(u64);

impl Position {
    /// After `count` more events.
    pub fn after(self, count: usize) -> Self {
        Self(self.0 + count as u64)
    }
}

/// The result of a read.
#[derive(Clone, Debug)]
pub enum Read {
    /// The next events; empty if the subscriber is up to date.
    Events(Vec<Arc<Event>>),
    /// The next events are no longer in the ring.
    Gap,
}

impl EventRing {
    /// An empty ring of `len_max` events. `run` names this server run, in letters and digits.
    pub fn new(run: impl Into<String>, len_max: usize) -> Self {
        Self {
            run: run.into(),
            kept: Mutex::default(),
            len_max: len_max.max(1),
            next: watch::Sender::new(0),
        }
    }

    /// Adds one durable step: each timeline row that concerns a sandbox. A step without rows is one
    /// event if it `is_news`, that is, if the sandbox looks different. Activation at the start and
    /// changes of counters are no news.
    pub fn push(&self, change: &Arc<Change>, is_news: impl FnOnce() -> bool) {
        let concerns = |row: &usize| change.sandbox_of(&change.timeline[*row]).is_some();
        let mut rows: Vec<_> = (0..change.timeline.len()).filter(concerns).map(Some).collect();
        if rows.is_empty() && change.sandbox.is_some() && is_news() {
            rows.push(None);
        }
        if rows.is_empty() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            if kept.events.len() == self.len_max {
                kept.events.pop_front();
                kept.first += 1;
            }
            let (change, data) = (Arc::clone(change), OnceLock::new());
            kept.events.push_back(Arc::new(Event { change, row, data }));
        }
        // Under the lock, so that the number only grows.
        self.next.send_replace(kept.first + kept.events.len() as u64);
    }

    /// The position after the newest event.
    pub fn now(&self) -> Position {
        Position(*self.next.borrow())
    }

    /// The cursor of a position.
    pub fn cursor(&self, position: Position) -> String {
        format!("{}-{}", self.run, position.0)
    }

    /// Parses a cursor; `None` if it belongs to another run or is malformed.
    pub fn parse(&self, cursor: &str) -> Option<Position> {
        let number = cursor.strip_prefix(&self.run)?.strip_prefix('-')?.parse().ok()?;
        (number <= self.now().0).then_some(Position(number))
    }

    /// At most `limit` events after `position`.
    pub fn read(&self, position: Position, limit: usize) -> Read {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(skip) = position.0.checked_sub(kept.first) else { return Read::Gap };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Read::Events(kept.events.iter().skip(skip).take(limit).cloned().collect())
    }

    /// How many subscribers there are.
    pub fn subscriber_count(&self) -> usize {
        self.next.receiver_count()
    }

    /// Notices new events: read first, then wait, then read again.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }
}

/// `at` is `None` for a change without a timeline entry, whose time is not recorded.
fn encode(
    sandbox: &str,
    at: Option<Timestamp>,
    row: &TimelineEntry,
    instruction: Option<InstructionExcerpt>,
) -> String {
    format!(
        r#"{{"sandbox":{sandbox},"at":{},"generation":{},"from":{},"to":{},"reason":{},"cause":{},"instruction":{}}}"#,
        wire::to_json(&at.map(|at| at.to_string())),
        row.generation,
        wire::to_json(&row.from.map(Phase::as_str)),
        wire::to_json(&row.to.map(Phase::as_str)),
        wire::to_json(&row.reason),
        wire::to_json(&row.cause),
        wire::to_json(&instruction.map(InstructionBody::from)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::sample;
    use super::*;
    use crate::types::{Generation, HomeId, Sandbox};

    fn row(generation: u32, from: Option<Phase>, to: Option<Phase>) -> TimelineEntry {
        TimelineEntry {
            at: Timestamp::from_unix_ms(0),
            generation: Generation(generation),
            from,
            to,
            reason: "because".into(),
            cause: "delivery x".into(),
        }
    }

    fn push(ring: &EventRing, timeline: Vec<TimelineEntry>, ended: Option<Sandbox>) {
        let sandbox = Sandbox { generation: Generation(2), ..sample("5") };
        let change = Change {
            sandbox: Some(Arc::new(sandbox)),
            ended: ended.map(Arc::new),
            timeline,
            ..Change::bare(HomeId(1), 1)
        };
        ring.push(&Arc::new(change), || true);
    }

    fn events(ring: &EventRing, position: Position) -> Vec<serde_json::Value> {
        match ring.read(position, 100) {
            Read::Events(events) => events
                .iter()
                .map(|event| serde_json::from_str(event.data()).expect("JSON"))
                .collect(),
            Read::Gap => panic!("no gap was expected"),
        }
    }

    #[test]
    fn an_event_shows_the_sandbox_of_its_own_generation() {
        let ring = EventRing::new("run", 10);
        let start = ring.now();
        let ended = Sandbox { phase: None, ..sample("5") };
        let timeline =
            vec![row(1, Some(Phase::Deleting), None), row(2, None, Some(Phase::Creating))];
        push(&ring, timeline, Some(ended));
        let seen = events(&ring, start);
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0]["sandbox"]["generation"], 1);
        assert_eq!(seen[0]["from"], "deleting");
        assert_eq!(seen[0]["to"], serde_json::Value::Null);
        assert_eq!(seen[1]["sandbox"]["generation"], 2);
        assert_eq!(seen[1]["cause"], "delivery x");
        assert_eq!(
            (&seen[1]["generation"], &seen[1]["at"]),
            (&2.into(), &"1970-01-01T00:00:00.000Z".into())
        );
    }

    #[test]
    fn a_change_without_a_timeline_is_still_an_event() {
        let ring = EventRing::new("run", 10);
        push(&ring, Vec::new(), None);
        assert_eq!(events(&ring, Position(0))[0]["to"], "running");
    }

    #[test]
    fn activation_is_no_event() {
        let ring = EventRing::new("run", 10);
        let sandbox = sample("5");
        let change = Change { sandbox: Some(Arc::new(sandbox)), ..Change::bare(HomeId(1), 1) };
        ring.push(&Arc::new(change), || false);
        assert_eq!(ring.now(), Position(0));
    }

    #[test]
    fn a_subscriber_behind_the_ring_gets_a_gap() {
        let ring = EventRing::new("run", 3);
        let start = ring.now();
        for _ in 0..3 {
            push(&ring, Vec::new(), None);
        }
        assert_eq!(events(&ring, start).len(), 3);
        push(&ring, Vec::new(), None);
        assert!(matches!(ring.read(start, 10), Read::Gap));
        assert_eq!(events(&ring, start.after(1)).len(), 3);
    }

    #[test]
    fn cursors_of_another_run_are_not_understood() {
        let ring = EventRing::new("run", 3);
        push(&ring, Vec::new(), None);
        let cursor = ring.cursor(ring.now());
        assert_eq!(ring.parse(&cursor), Some(ring.now()));
        assert_eq!(EventRing::new("other", 3).parse(&cursor), None);
        for bad in ["", "run", "run-", "run-x", "run-99", "run--1"] {
            assert_eq!(ring.parse(bad), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn subscribers_are_woken_by_a_push() {
        let ring = EventRing::new("run", 3);
        let mut news = ring.subscribe();
        push(&ring, Vec::new(), None);
        news.changed().await.expect("the ring lives");
        assert_eq!(events(&ring, Position(0)).len(), 1);
    }
}
