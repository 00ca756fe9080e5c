//! What was asked of an issue's sandbox, and when. It decides what the issue comes to, in whatever
//! order the deliveries arrive.
//!
//! Of each kind of act only the latest time is kept, in [`Acts`]. That decides as much as all acts in
//! their order: there is a sandbox if the last trigger is later than the last delete, and the latest
//! trigger, start or stop says whether it runs. So an act that arrives late finds its place, and
//! one that overtook what it refers to is remembered: a trigger that is older than a known stop
//! starts nothing.
//!
//! # Whose clock
//! - An act on GitHub counts as of its time there: a comment's when it was written, any other one
//!   `issue.updated_at`. These are compared with each other, which is one clock.
//! - What a caller does (API, command line, page) counts as of our clock, and always after everything that
//!   was known of the issue then. So it takes effect at once, however wrong either clock is. Only a
//!   delivery that arrives later compares the two clocks: the error is at most their difference.
//! - What claims to be more than [`CLOCK_LEAD_MAX`] ahead of our clock counts as of its receipt. What
//!   was known when our clock was set back by more counts as of then, in the order that it had.
//!
//! # Within one second
//! GitHub's times have a resolution of one second. Milliseconds order what happens in one:
//! commands and triggers as they arrive, behind them what was closed, unlabelled or unassigned. With
//! credentials GitHub is asked two seconds later, and its answer counts ([`Intake`](crate::intake::Intake)).

use std::time::Duration;

use super::state::{Dated, Facts, Issue, StoppedBy};
use crate::types::{Phase, Timestamp, Wanted};

/// How far ahead of our clock a time of GitHub's may be.
pub const CLOCK_LEAD_MAX: Duration = Duration::from_secs(300);

/// The millisecond of a second at which the issue was closed, or the trigger taken away.
const LAST_MS: i64 = 900;

/// The time of something on GitHub, as it counts: one that is too far ahead counts as of its receipt.
pub fn plausible(as_of: Timestamp, received_at: Timestamp) -> Timestamp {
    if as_of > received_at.after(CLOCK_LEAD_MAX) { received_at } else { as_of }
}

/// What can be asked of an issue's sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// To exist and run: a trigger, or a caller's *ensure*.
    Asked,
    /// The same by reopening the issue. It counts only if a sandbox had been asked for before.
    Reopened,
    /// To run, if it exists.
    Started,
    /// To stop, by a person.
    Stopped,
    /// To stop, since its trigger was taken away.
    TakenAway,
    /// To stop, since its issue was closed.
    Closed,
    /// To be deleted, by a person.
    Deleted,
}

/// When each kind of act last happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acts {
    /// When a sandbox was first asked for.
    pub first_asked: Option<Timestamp>,
    /// When it was last asked for.
    pub asked: Option<Timestamp>,
    /// When the issue was last reopened without the trigger label.
    pub reopened: Option<Timestamp>,
    /// When a start was last asked for.
    pub started: Option<Timestamp>,
    /// When a person last stopped it.
    pub stopped: Option<Timestamp>,
    /// When its trigger was last taken away.
    pub taken_away: Option<Timestamp>,
    /// When the issue was last closed.
    pub closed: Option<Timestamp>,
    /// When it was last deleted.
    pub deleted: Option<Timestamp>,
    /// The latest time as of which any delivery showed the issue open.
    pub shown_open: Option<Timestamp>,
    /// The earliest time behind that as of which one showed it closed.
    pub shown_closed: Option<Timestamp>,
}

/// What an issue comes to by all acts that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What its sandbox should be.
    pub wanted: Wanted,
    /// Who stopped it, if it should be stopped: a person, or GitHub.
    pub by: StoppedBy,
}

impl Verdict {
    /// There should be no sandbox.
    pub const NONE: Self = Self { wanted: Wanted::Deleted, by: StoppedBy::Issue };
}

impl Acts {
    /// Takes in an act on GitHub, and returns its place in the order.
    pub fn on_github(&mut self, kind: ActKind, as_of: Timestamp) -> Timestamp {
        let second = whole_second(as_of);
        let last = plus_ms(second, LAST_MS);
        let place = match kind {
            ActKind::TakenAway | ActKind::Closed => last,
            ActKind::Asked
            | ActKind::Reopened
            | ActKind::Started
            | ActKind::Stopped
            | ActKind::Deleted => {
                let tied = self.times().filter(|time| (second..last).contains(time)).max();
                tied.map_or(plus_ms(second, 1), |time| plus_ms(time, 1).min(plus_ms(last, -1)))
            }
        };
        self.record(kind, place);
        place
    }

    /// Takes in what a caller does now. `known` is the latest time as of which GitHub showed the
    /// issue.
    pub fn by_caller(&mut self, kind: ActKind, now: Timestamp, known: Option<Timestamp>) {
        let behind = self.latest().max(known).map(|known| plus_ms(known, 1));
        let place = plus_ms(whole_second(now), 1);
        self.record(kind, behind.map_or(place, |behind| behind.max(place)));
    }

    fn record(&mut self, kind: ActKind, at: Timestamp) {
        let latest = match kind {
            ActKind::Asked => {
                self.first_asked = Some(self.first_asked.map_or(at, |first| first.min(at)));
                &mut self.asked
            }
            ActKind::Reopened => &mut self.reopened,
            ActKind::Started => &mut self.started,
            ActKind::Stopped => &mut self.stopped,
            ActKind::TakenAway => &mut self.taken_away,
            ActKind::Closed => &mut self.closed,
            ActKind::Deleted => &mut self.deleted,
        };
        *latest = (*latest).max(Some(at));
    }

    /// Takes in that a delivery showed the issue open or closed. `known` is what is known by now.
    pub fn shown(&mut self, open: bool, as_of: Timestamp, known: Option<&Dated<bool>>) {
        let as_of = whole_second(as_of);
        if open {
            self.shown_open = self.shown_open.max(Some(as_of));
            if self.shown_closed.is_some_and(|closed| closed <= as_of) {
                let closed = known.filter(|known| !known.value && known.as_of > as_of);
                self.shown_closed = closed.map(|known| whole_second(known.as_of));
            }
        } else if self.shown_open.is_none_or(|open| open < as_of) {
            let earliest = self.shown_closed.map_or(as_of, |closed| closed.min(as_of));
            self.shown_closed = Some(earliest);
        }
    }

    fn times(&self) -> impl Iterator<Item = Timestamp> {
        let Self {
            first_asked,
            asked,
            reopened,
            started,
            stopped,
            taken_away,
            closed,
            deleted,
            shown_open: _,
            shown_closed: _,
        } = *self;
        [first_asked, asked, reopened, started, stopped, taken_away, closed, deleted]
            .into_iter()
            .flatten()
    }

    /// When the latest known act happened.
    pub fn latest(&self) -> Option<Timestamp> {
        self.times().max()
    }

    /// When a sandbox was last asked for, reopening included.
    fn last_asked(&self) -> Option<Timestamp> {
        let counts = |at: &Timestamp| self.first_asked.is_some_and(|first| first < *at);
        self.asked.max(self.reopened.filter(counts))
    }

    /// When the issue was closed. If the delivery that said so is missing, any other one that shows
    /// it closed counts, once it was known to be open.
    pub fn last_closed(&self) -> Option<Timestamp> {
        let is_missing = |open: &Timestamp| self.closed.is_none_or(|closed| closed < *open);
        let open = self.shown_open.filter(is_missing);
        let shown = self.shown_closed.filter(|closed| open.is_some_and(|open| open < *closed));
        self.closed.max(shown)
    }

    /// When a running sandbox was last asked for.
    pub fn last_started(&self) -> Option<Timestamp> {
        self.last_asked().max(self.started)
    }

    /// Whether the latest act of GitHub's took a request back that was made within the same second:
    /// GitHub's times do not say which came last.
    pub fn is_tied(&self) -> bool {
        let taken_back = self.taken_away.max(self.closed);
        let second = taken_back.map(whole_second);
        let asked = [self.asked, self.reopened, self.started].into_iter().max().flatten();
        taken_back == self.latest() && second.is_some() && asked.map(whole_second) == second
    }

    /// Whether a running sandbox was asked for after the issue was closed.
    pub fn started_after_close(&self) -> bool {
        self.last_started() > self.last_closed()
    }

    /// What the issue comes to.
    pub fn verdict(&self) -> Verdict {
        let asked = self.last_asked();
        if asked.is_none() || self.deleted >= asked {
            return Verdict::NONE;
        }
        let start = self.last_started();
        let wanted = if start >= self.stopped.max(self.taken_away).max(self.last_closed()) {
            Wanted::Running
        } else {
            Wanted::Stopped
        };
        let is_by_person = wanted == Wanted::Stopped && self.stopped > start;
        Verdict { wanted, by: if is_by_person { StoppedBy::Person } else { StoppedBy::Issue } }
    }

    /// The sandbox is deleted for another reason than an act: nothing that is known by now
    /// asks for another one.
    pub fn spend(&mut self) {
        self.deleted = self.latest().map(|latest| latest.max(behind_second(latest)));
    }

    /// Takes in what is known under another name of the same issue.
    pub fn join(&mut self, other: &Self) {
        let first = [self.first_asked, other.first_asked].into_iter().flatten().min();
        let open = self.shown_open.max(other.shown_open);
        let closed = [self.shown_closed, other.shown_closed].into_iter().flatten();
        let closed = closed.filter(|closed| open.is_none_or(|open| open < *closed)).min();
        *self = Self {
            first_asked: first,
            asked: self.asked.max(other.asked),
            reopened: self.reopened.max(other.reopened),
            started: self.started.max(other.started),
            stopped: self.stopped.max(other.stopped),
            taken_away: self.taken_away.max(other.taken_away),
            closed: self.closed.max(other.closed),
            deleted: self.deleted.max(other.deleted),
            shown_open: open,
            shown_closed: closed,
        };
    }

    /// Acts that are later than `now`, by a clock that was wrong, move back with all before them.
    fn move_back(&mut self, now: Timestamp) {
        let Some(latest) = self.latest() else { return };
        if latest <= now.after(CLOCK_LEAD_MAX) {
            return;
        }
        let by = latest.since(now);
        let Self {
            first_asked,
            asked,
            reopened,
            started,
            stopped,
            taken_away,
            closed,
            deleted,
            shown_open,
            shown_closed,
        } = self;
        let acts = [first_asked, asked, reopened, started, stopped, taken_away, closed, deleted];
        for time in acts.into_iter().chain([shown_open, shown_closed]) {
            *time = time.map(|time| time.before(by));
        }
    }

    /// The acts of an issue whose row is older than acts: only when a person last stopped or deleted
    /// its sandbox was kept.
    pub fn of_older_row(issue: &Issue, ended_by_person_at: Option<Timestamp>) -> Self {
        let mut acts = Self::default();
        if issue.generation.0 == 0 && issue.pending_start.is_none() {
            acts.deleted = ended_by_person_at;
            return acts;
        }
        let ended = ended_by_person_at.map(whole_second);
        let begin = Timestamp::from_unix_ms(0);
        let is_live = issue.state.phase().is_some_and(|phase| phase != Phase::Deleting);
        let asked = match ended {
            Some(ended) if issue.is_asked_for() => plus_ms(ended, 1),
            Some(_) | None => begin,
        };
        (acts.first_asked, acts.asked) = (Some(begin), Some(asked));
        if is_live || issue.is_asked_for() {
            acts.stopped = ended;
        } else {
            acts.deleted = ended.or(Some(begin));
        }
        acts
    }
}

impl Facts {
    /// The latest time as of which anything is known of the issue.
    pub fn latest_news(&self) -> Option<Timestamp> {
        let flags = [&self.open, &self.labelled, &self.assigned];
        let flags = flags.into_iter().flatten().map(|known| known.as_of);
        let title = self.title.as_ref().map(|known| known.as_of);
        flags.chain(title).chain(self.named_as_of()).max()
    }

    /// As of when it is known under the name of its repository and its number.
    pub fn named_as_of(&self) -> Option<Timestamp> {
        self.placed_as_of.max(self.renamed_as_of)
    }

    /// What is known as of a time that cannot have come yet was known by a wrong clock. (Where the
    /// issue is never becomes older; its names find it whatever they are.)
    pub fn not_beyond(&mut self, now: Timestamp) {
        self.acts.move_back(now);
        let flags = [&mut self.open, &mut self.labelled, &mut self.assigned];
        for known in flags.into_iter().flatten() {
            known.as_of = plausible(known.as_of, now);
        }
        if let Some(title) = &mut self.title {
            title.as_of = plausible(title.as_of, now);
        }
    }
}

/// Behind everything on GitHub of the second in which a time is.
fn behind_second(time: Timestamp) -> Timestamp {
    plus_ms(whole_second(time), LAST_MS + 1)
}

/// The second in which a time is.
fn whole_second(time: Timestamp) -> Timestamp {
    plus_ms(time, -time.unix_ms().rem_euclid(1000))
}

/// The time as of which a fact is known that this very act changed, so that it counts more than what
/// another delivery of the same second shows; and what was taken away counts last.
pub fn of_change(as_of: Timestamp, value: bool) -> Timestamp {
    plus_ms(whole_second(as_of), if value { 1 } else { LAST_MS })
}

fn plus_ms(time: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(time.unix_ms().saturating_add(ms))
}
