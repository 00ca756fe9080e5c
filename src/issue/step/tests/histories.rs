//! Every short history of an issue, in every order in which its deliveries can arrive, comes to the
//! same end. The deliveries are GitHub's payloads, read as the webhook endpoint reads them.

mod truth;

use super::StepBench;
use crate::issue::IssueDelivery;
use crate::issue::commit::DeliveryResult;
use crate::issue::event::{CallError, ColdStartEnd, Denial, DenialKind, Done, IssueEvent};
use crate::issue::state::{IssueState, Step, StoppedBy, Verb};
use crate::issue::{Commit, Reply};
use crate::types::ObjectState;
use truth::{Deed, deliveries};

/// How the provider and the holds are while the deliveries arrive.
#[derive(Clone, Copy, Debug)]
struct Day {
    /// The provider answers after each delivery; otherwise it answers nothing before the last.
    is_prompt: bool,
    /// A hold begins before this delivery, and is released after the last.
    held_from: Option<usize>,
}

/// A provider that is quick, and no hold.
const USUAL: Day = Day { is_prompt: true, held_from: None };
/// Slow and quick providers, and holds from each delivery on.
const ALL_DAYS: [Day; 8] = [
    USUAL,
    Day { is_prompt: true, held_from: Some(0) },
    Day { is_prompt: true, held_from: Some(1) },
    Day { is_prompt: true, held_from: Some(2) },
    Day { is_prompt: false, held_from: None },
    Day { is_prompt: false, held_from: Some(0) },
    Day { is_prompt: false, held_from: Some(1) },
    Day { is_prompt: false, held_from: Some(2) },
];

/// What an issue comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistoryEnd {
    Absent,
    Stopped(StoppedBy),
    Running,
}

/// One issue on such a day.
struct Diary {
    bench: StepBench,
    is_prompt: bool,
    has_object: bool,
}

impl Diary {
    fn new(is_prompt: bool) -> Self {
        let mut bench = StepBench::new(true);
        bench.now = truth::at(3600);
        Self { bench, is_prompt, has_object: false }
    }

    fn arrives(&mut self, issue_delivery: IssueDelivery) -> DeliveryResult {
        let commit = self.bench.apply(IssueEvent::Delivery {
            issue_delivery,
            claims: vec![],
            takes: vec![],
            place_elsewhere: false,
        });
        if self.is_prompt {
            self.settle();
        }
        delivered(commit)
    }

    fn hold(&mut self) {
        self.bench.denial = Some(Denial { kind: DenialKind::Held, reason: "held".into() });
    }

    fn release(&mut self) {
        if self.bench.denial.take().is_some() && self.bench.issue.pending_start.is_some() {
            self.bench.apply(IssueEvent::Granted);
        }
    }

    /// The provider does what it is asked until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..20 {
            let verb = match self.bench.issue.state.step() {
                None => return,
                Some(Step::Waiting { .. }) => {
                    self.bench.due();
                    continue;
                }
                Some(Step::Asked { verb, .. }) => verb.clone(),
            };
            let ours = |object| self.bench.ours(object);
            let answer = match verb {
                Verb::Look if self.has_object => Ok(Done::Found(vec![ours(ObjectState::Stopped)])),
                Verb::Look => Ok(Done::Found(vec![])),
                Verb::Create | Verb::Start => Ok(Done::Up(ours(ObjectState::Running))),
                Verb::ColdStart { .. } => Ok(Done::ColdStarted(ColdStartEnd::NotNeeded)),
                Verb::Stop => Ok(Done::Down),
                Verb::Delete { .. } => Err(CallError::Absent),
            };
            self.has_object = match verb {
                Verb::Create => true,
                Verb::Delete { .. } => false,
                Verb::Look | Verb::Start | Verb::ColdStart { .. } | Verb::Stop => self.has_object,
            };
            self.bench.answer(answer);
        }
        panic!("it never settles: {:?}", self.bench.issue.state);
    }

    fn end(&self) -> HistoryEnd {
        let issue = &self.bench.issue;
        assert!(issue.pending_start.is_none(), "nothing forbids it");
        match &issue.state {
            IssueState::Absent => HistoryEnd::Absent,
            IssueState::Running { .. } => HistoryEnd::Running,
            IssueState::Stopped { by, .. } => HistoryEnd::Stopped(*by),
            state => panic!("it is not settled: {state:?}"),
        }
    }

    /// When the sandbox is deleted since its issue was closed, if it is.
    fn is_deleted_later(&self) -> bool {
        self.bench.issue.delete_due.is_some()
    }
}

fn delivered(commit: Commit) -> DeliveryResult {
    match commit.reply {
        Reply::Delivered(result) => result,
        other => panic!("a delivery is answered, got {other:?}"),
    }
}

/// What the deliveries lead to if they arrive in this order.
fn live(arriving: &[&IssueDelivery], day: Day) -> Diary {
    let mut diary = Diary::new(day.is_prompt);
    for (at, issue_delivery) in arriving.iter().enumerate() {
        if day.held_from == Some(at) {
            diary.hold();
        }
        diary.arrives((*issue_delivery).clone());
    }
    diary.settle();
    diary.release();
    diary.settle();
    diary
}

/// A sandbox that was never made, since its trigger was outdated when it arrived, is as good as one
/// that was made and stopped.
fn is_same(in_order: &Diary, other: &Diary) -> bool {
    match (in_order.end(), other.end()) {
        (HistoryEnd::Stopped(_), HistoryEnd::Absent) => true,
        (HistoryEnd::Absent, HistoryEnd::Absent) => true,
        (one, another) => one == another && in_order.is_deleted_later() == other.is_deleted_later(),
    }
}

/// Every order of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    let shorter = orders(count - 1);
    let insert = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, count - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..count).map(move |at| insert(order, at))).collect()
}

/// Lives each history in each order on such days. Says how many histories and other orders there are, and
/// fails for those that end otherwise than in GitHub's order.
fn all_end_the_same(
    deeds: &[Deed],
    len: usize,
    policy: &truth::Policy,
    days: &[Day],
) -> (usize, usize) {
    let (mut histories, mut other_orders, mut wrong) = (0, 0, Vec::new());
    let orders = orders(len);
    for history in truth::histories(deeds, len) {
        let sent = deliveries(&history, policy);
        if sent.len() < len {
            continue;
        }
        histories += 1;
        let right = live(&sent.iter().collect::<Vec<_>>(), USUAL);
        for order in &orders {
            other_orders += usize::from(!order.is_sorted());
            let arriving: Vec<_> = order.iter().map(|at| &sent[*at]).collect();
            for day in days {
                let other = live(&arriving, *day);
                if !is_same(&right, &other) {
                    let (right, other) = (right.end(), other.end());
                    wrong.push(format!("{history:?} as {order:?}: {right:?}, {other:?} ({day:?})"));
                }
            }
        }
    }
    let shown = wrong.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} lives end otherwise:\n{shown}", wrong.len());
    (histories, other_orders)
}

#[test]
fn every_history_of_two_or_three_acts_ends_the_same_in_every_order_of_arrival() {
    let policy = truth::policy();
    let (two, one_other) = all_end_the_same(Deed::ALL, 2, &policy, &ALL_DAYS);
    let (three, five_others) = all_end_the_same(Deed::ALL, 3, &policy, &ALL_DAYS);
    assert_eq!((one_other, five_others), (two, 5 * three));
    assert!(two > 100 && three > 1_000, "{two}, {three}");
}

#[test]
fn it_ends_the_same_if_taking_the_label_off_stops_nothing() {
    let policy = truth::Policy { unlabel_stops: false, ..truth::policy() };
    let deeds = [Deed::Labels, Deed::Unlabels, Deed::Closes, Deed::Reopens, Deed::Stops];
    all_end_the_same(&deeds, 3, &policy, &ALL_DAYS);
}

#[test]
fn histories_of_four_acts_end_the_same_too() {
    let deeds = [
        Deed::Labels,
        Deed::Unlabels,
        Deed::Closes,
        Deed::Reopens,
        Deed::Works,
        Deed::Starts,
        Deed::Stops,
        Deed::Deletes,
    ];
    all_end_the_same(&deeds, 4, &truth::policy(), &[USUAL]);
}
