//! What is done to each issue while servers are killed, and what must come of it.
//!
//! An issue's script is a list of stages. Within a stage everything is fired at once, in an order
//! of chance, doubled, and under several GUIDs; the next stage begins when all of the last one was
//! acknowledged. What a script comes to does not depend on the order within a stage: that is the
//! promise under test.

use crate::chance::Chance;
use crate::story::{Story, StoryDelivery, TRIGGER};

/// The first issue's id.
const FIRST: u64 = 7_000_000_000;

/// One thing to do, until it is acknowledged.
#[derive(Clone, Debug)]
pub enum Act {
    /// A delivery; sent again under the same GUID until it is answered.
    Deliver {
        guid: String,
        sent: StoryDelivery,
    },
    /// Ensure over the API.
    Ensure,
    Stop,
    Start,
    Delete,
}

/// What an issue must come to in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// One sandbox, running.
    Running,
    /// One sandbox, stopped.
    Stopped,
    /// What was asked for was over before it began, or stopped: at most one sandbox, not running.
    Down,
    /// No sandbox.
    Gone,
}

/// Everything that is done to one issue.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it is, for people.
    pub what: &'static str,
    pub issue: u64,
    pub stages: Vec<Vec<Act>>,
    pub end: End,
    /// The newest title on GitHub, if a delivery had one.
    pub title: Option<String>,
}

/// What a script is, what it comes to, and its stages.
type Plot = (&'static str, End, Vec<Vec<Act>>);

/// Every kind of script; an issue's number picks one.
const PLOTS: [fn(&mut Story, &mut Writer<'_>) -> Plot; 12] = [
    opened_with_labels,
    closed_before_it_is_opened,
    labelled_again,
    unlabelled,
    reopened,
    ten_comments,
    stopped_by_a_comment,
    deleted_by_a_comment,
    deleted_on_github,
    called_over_the_api,
    deleted_before_late_triggers,
    deleted_and_ensured_again,
];

/// How many kinds of scripts there are.
pub const KINDS: u64 = PLOTS.len() as u64;

impl Script {
    /// The script of the issue with this number.
    pub fn of(number: u64, chance: &mut Chance) -> Self {
        let mut story = Story::of(FIRST + number);
        let mut write = Writer { issue: story.id, sent: 0, chance };
        let kind = usize::try_from(number % KINDS).expect("small");
        let (what, end, stages) = PLOTS[kind](&mut story, &mut write);
        // Only the first kind edits its title.
        let title = (kind == 0).then(|| story.title.clone());
        Self { what, issue: story.id, stages, end, title }
    }
}

fn opened_with_labels(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let mut sent = story.opened_with(&["bug", "p1", TRIGGER, "ui", "slow", "later"]);
    sent.push(story.edited("A better title"));
    sent.push(story.edited("The best title"));
    let mut all = write.deliveries(sent);
    all.extend([Act::Ensure, Act::Ensure]);
    ("opened with six labels, edited, ensured", End::Running, vec![all])
}

fn closed_before_it_is_opened(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let mut sent = vec![story.closed()];
    let mut before = Story::of(story.id);
    sent.extend(before.opened_with(&[TRIGGER]));
    ("closed before it is opened", End::Down, vec![write.deliveries(sent)])
}

fn labelled_again(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let sent = vec![story.labeled(TRIGGER), story.unlabeled(TRIGGER), story.labeled(TRIGGER)];
    ("labelled again", End::Running, vec![write.deliveries(sent)])
}

fn unlabelled(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let sent = vec![story.labeled(TRIGGER), story.unlabeled(TRIGGER)];
    ("unlabelled", End::Down, vec![write.deliveries(sent)])
}

fn reopened(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let mut sent = story.opened_with(&[TRIGGER]);
    sent.extend([story.closed(), story.reopened()]);
    ("reopened", End::Running, vec![write.deliveries(sent)])
}

fn ten_comments(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let comments = (0..10).map(|n| story.commented(story.id * 100 + n, "/issuebox go on"));
    let sent = comments.collect();
    ("ten comments in a second", End::Running, vec![write.deliveries(sent)])
}

fn stopped_by_a_comment(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let first = write.deliveries(vec![story.labeled(TRIGGER)]);
    let late = write.deliveries(vec![story.labeled(TRIGGER)]);
    story.pass();
    let stop = story.commented(story.id * 100, "Enough.\n\n/issuebox stop");
    let stop = write.deliveries(vec![stop]);
    ("stopped by a comment", End::Stopped, vec![first, stop, late])
}

fn deleted_by_a_comment(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let first = write.deliveries(vec![story.labeled(TRIGGER)]);
    let late = write.deliveries(vec![story.labeled(TRIGGER)]);
    story.pass();
    let delete = story.commented(story.id * 100, "/issuebox delete");
    let delete = write.deliveries(vec![delete]);
    ("deleted by a comment", End::Gone, vec![first, delete, late])
}

fn deleted_on_github(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let mut sent = story.opened_with(&[TRIGGER, "bug"]);
    sent.push(story.deleted());
    ("deleted on GitHub", End::Gone, vec![write.deliveries(sent)])
}

fn called_over_the_api(_: &mut Story, write: &mut Writer<'_>) -> Plot {
    let (end, stages) = write.calls();
    ("called over the API", end, stages)
}

fn deleted_before_late_triggers(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let mut first = write.deliveries(vec![story.labeled(TRIGGER)]);
    first.push(Act::Ensure);
    let late = write.deliveries(vec![story.labeled(TRIGGER)]);
    let stages = vec![first, vec![Act::Delete, Act::Delete], late];
    ("deleted over the API before late triggers", End::Gone, stages)
}

fn deleted_and_ensured_again(story: &mut Story, write: &mut Writer<'_>) -> Plot {
    let first = write.deliveries(vec![story.labeled(TRIGGER)]);
    let stages = vec![first, vec![Act::Delete], vec![Act::Ensure, Act::Ensure]];
    ("deleted and ensured again", End::Running, stages)
}

struct Writer<'a> {
    issue: u64,
    sent: u64,
    chance: &'a mut Chance,
}

impl Writer<'_> {
    /// Deliveries of these, some of them under two GUIDs as several hooks send them, each of them
    /// twice, in an order of chance.
    fn deliveries(&mut self, all: Vec<StoryDelivery>) -> Vec<Act> {
        let mut acts = Vec::new();
        for sent in all {
            for _ in 0..=self.chance.below(2) {
                let guid = format!("{}-{}", self.issue, self.sent);
                self.sent += 1;
                let act = Act::Deliver { guid, sent: sent.clone() };
                acts.extend([act.clone(), act]);
            }
        }
        self.chance.shuffle(&mut acts);
        acts
    }

    /// A few calls, one after the other, and what they come to.
    fn calls(&mut self) -> (End, Vec<Vec<Act>>) {
        let mut stages = vec![vec![Act::Ensure, Act::Ensure]];
        let (mut end, mut was_deleted) = (End::Running, false);
        for _ in 0..1 + self.chance.below(4) {
            let (act, next) = match self.chance.below(4) {
                // By name, the sandbox that is being deleted and the next one are the same.
                0 if was_deleted => (Act::Stop, if end == End::Gone { end } else { End::Down }),
                0 => (Act::Stop, End::Stopped),
                1 => (Act::Delete, End::Gone),
                2 if !was_deleted => (Act::Start, End::Running),
                _ => (Act::Ensure, End::Running),
            };
            was_deleted |= next == End::Gone;
            end = next;
            stages.push(vec![act; if self.chance.one_in(2) { 1 } else { 2 }]);
        }
        (end, stages)
    }
}
