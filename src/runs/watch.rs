//! How long a run may take and be quiet, and how its process is ended: asked, terminated, killed.

use std::time::Duration;

use crate::agents::Interrupt;
use crate::sandbox::Signal;
use crate::types::Timestamp;

/// How long an agent has after each way of asking it to end.
pub(super) const END_WAIT: Duration = Duration::from_secs(10);

/// How long an agent has to end by itself once its input was closed after its turn.
const TURN_OVER_WAIT: Duration = Duration::from_secs(2);

/// Why a process is being ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndCause {
    /// The conversation wants it.
    Cancelled,
    /// It took too long, or was quiet for too long; for people.
    Limit(String),
    /// Its turn is over, and it does not end by itself.
    TurnOver,
}

/// The end of a process in the making.
pub(super) struct ProcessEnding {
    pub cause: EndCause,
    /// What is sent next.
    next: Option<Signal>,
    /// When.
    pub due: Timestamp,
}

impl ProcessEnding {
    /// Begins with asking the agent in its own way.
    pub fn new(cause: EndCause, interrupt: Interrupt, now: Timestamp) -> Self {
        let (first, due) = match interrupt {
            Interrupt::Sigint => (Signal::Interrupt, now),
            Interrupt::Sigterm => (Signal::Terminate, now),
            // Its dialogue has asked it.
            Interrupt::Dialogue => (Signal::Terminate, now.after(END_WAIT)),
        };
        Self { cause, next: Some(first), due }
    }

    /// Waits first for the agent to end by itself: its turn is over and its input closed.
    pub fn after_turn(now: Timestamp) -> Self {
        let due = now.after(TURN_OVER_WAIT);
        Self { cause: EndCause::TurnOver, next: Some(Signal::Terminate), due }
    }

    /// What is to be sent now, if it is time.
    pub fn due(&mut self, now: Timestamp) -> Option<Signal> {
        if now < self.due {
            return None;
        }
        let signal = self.next?;
        self.due = now.after(END_WAIT);
        self.next = match signal {
            Signal::Interrupt => Some(Signal::Terminate),
            Signal::Terminate => Some(Signal::Kill),
            // A killed process may leave its output open: it is killed again, at no cost.
            Signal::Kill | Signal::Hangup | Signal::Quit | Signal::User1 | Signal::User2 => {
                Some(Signal::Kill)
            }
        };
        Some(signal)
    }
}

/// The bounds of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunBounds {
    pub run_time_max: Duration,
    pub quiet_time_max: Duration,
    pub started_at: Timestamp,
}

impl RunBounds {
    /// Which bound is passed, in words.
    pub fn passed(&self, active_at: Timestamp, now: Timestamp) -> Option<String> {
        if now.since(self.started_at) >= self.run_time_max {
            return Some(format!("it took longer than {} s", self.run_time_max.as_secs()));
        }
        let quiet = self.quiet_time_max;
        (now.since(active_at) >= quiet)
            .then(|| format!("it wrote nothing and asked no model for {} s", quiet.as_secs()))
    }

    /// When the reader of a process has something to do: at these times, and at the next bound unless the
    /// process ends already. A bound that was passed stays passed, so it would wake the reader at once,
    /// again and again.
    pub fn wake(
        &self,
        is_bounded: bool,
        active_at: Timestamp,
        due: impl Iterator<Item = Timestamp>,
    ) -> Option<Timestamp> {
        due.chain(is_bounded.then(|| self.next(active_at))).min()
    }

    /// When the next bound could be passed.
    fn next(&self, active_at: Timestamp) -> Timestamp {
        let run = self.started_at.after(self.run_time_max);
        run.min(active_at.after(self.quiet_time_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_ms(second * 1000)
    }

    #[test]
    fn an_agent_is_asked_then_terminated_then_killed() {
        let mut ending = ProcessEnding::new(EndCause::Cancelled, Interrupt::Sigint, at(0));
        assert_eq!(ending.due(at(0)), Some(Signal::Interrupt));
        assert_eq!(ending.due(at(9)), None);
        assert_eq!(ending.due(at(10)), Some(Signal::Terminate));
        assert_eq!(ending.due(at(20)), Some(Signal::Kill));
        assert_eq!(ending.due(at(30)), Some(Signal::Kill));
    }

    #[test]
    fn one_whose_dialogue_was_asked_has_time_to_end_by_itself() {
        let mut cancelled = ProcessEnding::new(EndCause::Cancelled, Interrupt::Dialogue, at(0));
        assert_eq!((cancelled.due(at(9)), cancelled.due(at(10))), (None, Some(Signal::Terminate)));
        let mut over = ProcessEnding::after_turn(at(0));
        assert_eq!((over.due(at(1)), over.due(at(2))), (None, Some(Signal::Terminate)));
        assert_eq!(over.due(at(12)), Some(Signal::Kill));
    }

    #[test]
    fn a_run_is_bounded_in_time_and_in_silence() {
        let bounds = RunBounds {
            run_time_max: Duration::from_secs(100),
            quiet_time_max: Duration::from_secs(30),
            started_at: at(0),
        };
        assert_eq!(bounds.passed(at(0), at(29)), None);
        assert!(bounds.passed(at(0), at(30)).is_some_and(|why| why.contains("30 s")));
        assert_eq!(bounds.passed(at(80), at(99)), None);
        assert!(bounds.passed(at(99), at(100)).is_some_and(|why| why.contains("100 s")));
        assert_eq!((bounds.next(at(0)), bounds.next(at(90))), (at(30), at(100)));
    }

    #[test]
    fn a_bound_that_was_passed_does_not_wake_the_reader_of_what_ends() {
        let bounds = RunBounds {
            run_time_max: Duration::from_secs(100),
            quiet_time_max: Duration::from_secs(30),
            started_at: at(0),
        };
        let killed_at = at(140);
        assert_eq!(bounds.wake(true, at(0), [].into_iter()), Some(at(30)));
        assert_eq!(bounds.wake(false, at(0), [killed_at].into_iter()), Some(killed_at));
        assert_eq!(bounds.wake(false, at(0), [].into_iter()), None);
    }
}
