//! Bounds what one trouble can write into the log: of equal warnings and errors the first ones come at
//! once, further ones are counted, and the count is written every 30 seconds.
//!
//! A full disk or a client that sends nonsense repeats one line thousands of times a minute, perhaps
//! onto that disk. Lines are equal if they come from one place in the code with one message; their
//! fields may differ. Lines about the life of a sandbox ([`LIFE`]) are each of their own and all
//! written.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The target of lines about the life of a sandbox.
pub const LIFE: &str = "issuebox::life";
/// The target of counts.
const COUNTS: &str = "issuebox::log";
/// Within this span
const SPAN: Duration = Duration::from_secs(30);
/// this many equal lines are written,
const LINES_MAX: u32 = 10;
/// and at most this many different ones are counted apart; further ones count by their place alone.
const KINDS_MAX: usize = 1_000;
/// Longest message that is kept to name what was left out, in characters.
const MESSAGE_LEN_MAX: usize = 200;

/// Counts equal lines. Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct FloodGate {
    kinds: Arc<Mutex<Kinds>>,
}

#[derive(Default)]
struct Kinds {
    seen: HashMap<(Identifier, u64), LineCount>,
    /// Whether a thread waits to write the counts.
    is_counting: bool,
}

/// The lines of one kind within the current span.
struct LineCount {
    since: Instant,
    written: u32,
    left_out: u64,
    is_error: bool,
    message: String,
}

/// What was left out of one kind.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    message: String,
    count: u64,
    is_error: bool,
}

impl Kinds {
    /// Whether a line is written.
    fn admit(&mut self, place: Identifier, is_error: bool, message: &str, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let mut kind = (place.clone(), hasher.finish());
        if !self.seen.contains_key(&kind) && self.seen.len() >= KINDS_MAX {
            self.seen.retain(|_, count| count.left_out > 0 || now < count.since + SPAN);
            if self.seen.len() >= KINDS_MAX {
                kind = (place, 0);
            }
        }
        let count = self.seen.entry(kind).or_insert_with(|| LineCount {
            since: now,
            written: 0,
            left_out: 0,
            is_error,
            message: message.chars().take(MESSAGE_LEN_MAX).collect(),
        });
        if now >= count.since + SPAN {
            (count.since, count.written) = (now, 0);
        }
        if count.written < LINES_MAX {
            count.written += 1;
            return true;
        }
        count.left_out += 1;
        false
    }

    /// What was left out since it was last asked.
    fn take(&mut self) -> Vec<LeftOut> {
        let left_out = |count: &mut LineCount| LeftOut {
            message: count.message.clone(),
            count: std::mem::take(&mut count.left_out),
            is_error: count.is_error,
        };
        self.seen.values_mut().filter(|count| count.left_out > 0).map(left_out).collect()
    }
}

impl FloodGate {
    /// Writes the counts now.
    pub fn write_counts(&self) {
        let left_out = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).take();
        write(left_out);
    }

    /// Writes the counts after each span, until none is left.
    fn count(&self) {
        loop {
            std::thread::sleep(SPAN);
            let left_out = {
                let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
                let left_out = kinds.take();
                kinds.is_counting = !left_out.is_empty();
                left_out
            };
            if left_out.is_empty() {
                return;
            }
            write(left_out);
        }
    }
}

/// Outside of the lock, since each count is a line itself.
fn write(left_out: Vec<LeftOut>) {
    for LeftOut { message, count, is_error } in left_out {
        if is_error {
            tracing::error!(target: COUNTS, count, line = message, "equal lines were left out of the log");
        } else {
            tracing::warn!(target: COUNTS, count, line = message, "equal lines were left out of the log");
        }
    }
}

impl FloodGate {
    /// Whether the line of this event is written.
    fn admits(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        // A less severe level is greater.
        if *metadata.level() > Level::WARN || [LIFE, COUNTS].contains(&metadata.target()) {
            return true;
        }
        let mut message = Message::default();
        event.record(&mut message);
        let is_error = *metadata.level() == Level::ERROR;
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let place = metadata.callsite();
        let is_written = kinds.admit(place, is_error, &message.0, Instant::now());
        if !is_written && !kinds.is_counting {
            let gate = self.clone();
            let thread = std::thread::Builder::new().name("issuebox-log".into());
            // Without a thread the counts are written at the end.
            kinds.is_counting = thread.spawn(move || gate.count()).is_ok();
        }
        is_written
    }
}

/// A format that writes nothing for a line that is left out. It is no filter: a filter that decides by
/// the event's values fails an assertion of tracing-subscriber 0.3.23 in debug builds.
pub(super) struct Gated<F> {
    pub format: F,
    pub gate: FloodGate,
}

impl<S, N, F> FormatEvent<S, N> for Gated<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        if self.gate.admits(event) {
            self.format.format_event(context, writer, event)
        } else {
            Ok(())
        }
    }
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").expect("writing to a string cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite as _;

    use super::*;

    fn place() -> Identifier {
        tracing::callsite! { name: "here", kind: tracing::metadata::Kind::EVENT, fields: message }
            .metadata()
            .callsite()
    }

    #[test]
    fn of_equal_lines_the_first_are_written_and_the_rest_counted() {
        let (mut kinds, begin) = (Kinds::default(), Instant::now());
        let mut written = |secs: u64, message: &str, lines: u32| {
            let now = begin + Duration::from_secs(secs);
            (0..lines).filter(|_| kinds.admit(place(), true, message, now)).count()
        };
        assert_eq!(written(0, "full", 1_000), 10);
        assert_eq!(written(29, "full", 1_000), 0);
        assert_eq!(written(29, "other", 3), 3, "another message is another line");
        assert_eq!(written(30, "full", 1_000), 10, "a new span");
        let full = LeftOut { message: "full".into(), count: 2_980, is_error: true };
        assert_eq!(kinds.take(), [full]);
        assert_eq!(kinds.take(), [], "each is counted once");
    }

    #[test]
    fn many_different_lines_of_one_place_are_bounded_too() {
        let (mut kinds, begin) = (Kinds::default(), Instant::now());
        let written = (0..5_000).filter(|n| kinds.admit(place(), false, &n.to_string(), begin));
        assert_eq!(written.count(), KINDS_MAX + LINES_MAX as usize);
        assert!(kinds.seen.len() <= KINDS_MAX + 1);
        let later = begin + SPAN;
        assert!(kinds.admit(place(), false, "new", later));
        assert_eq!(kinds.seen.len(), 2, "what is over is forgotten, not what is to be counted");
    }
}
