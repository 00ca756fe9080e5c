//! Order, pace and rests, on a clock that tests move.

use async_trait::async_trait;
use tokio::time::Instant;

use super::*;
use crate::github::api::PaceError;
use crate::sabotage::with;

const ONE: WriterId = WriterId::Installation(1);
const OTHER: WriterId = WriterId::Installation(2);

/// Shows tokio's time, which tests pause.
struct TokioClock(Instant);

#[async_trait]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(1_800_000_000_000).after(self.0.elapsed())
    }

    async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(at.since(self.now())).await;
    }
}

/// Keeps the pace as a store does.
#[derive(Default)]
struct KeptPace(Mutex<HashMap<WriterId, PaceRecord>>);

#[async_trait]
impl WritePace for KeptPace {
    async fn load(&self) -> Result<Vec<PaceRecord>, PaceError> {
        Ok(self.0.lock().expect("not poisoned").values().cloned().collect())
    }

    async fn save(&self, record: PaceRecord) -> Result<(), PaceError> {
        self.0.lock().expect("not poisoned").insert(record.writer, record);
        Ok(())
    }
}

/// A server process: its store outlives it.
struct Process {
    clock: Arc<TokioClock>,
    pace: Arc<KeptPace>,
    queues: WriteQueues,
}

impl Process {
    fn new() -> Self {
        Self::over(Arc::new(TokioClock(Instant::now())), Arc::default())
    }

    fn over(clock: Arc<TokioClock>, pace: Arc<KeptPace>) -> Self {
        let queues = WriteQueues::new(Arc::clone(&clock) as _, Arc::clone(&pace) as _);
        Self { clock, pace, queues }
    }

    fn restarted(self) -> Self {
        Self::over(self.clock, self.pace)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Begins so many writing calls one after the other; returns when each began.
    async fn write(&self, writer: WriterId, count: usize) -> Vec<Timestamp> {
        let mut begun = Vec::new();
        for _ in 0..count {
            let turn = self.queues.turn(writer, WriteUrgency::Progress).await.expect("a turn");
            begun.push(self.now());
            drop(turn);
        }
        begun
    }
}

#[tokio::test(start_paused = true)]
async fn the_most_urgent_is_next_and_of_equals_the_first() {
    use WriteUrgency::{End, FirstComment, Person, Progress};
    let process = Process::new();
    let held = process.queues.turn(ONE, Progress).await.expect("a turn");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, urgency) in
        [Progress, FirstComment, End, Progress, Person, End].into_iter().enumerate()
    {
        let (queues, order) = (process.queues.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let _turn = queues.turn(ONE, urgency).await.expect("a turn");
            order.lock().expect("not poisoned").push((urgency, number));
        }));
        while process.queues.len() <= number {
            tokio::task::yield_now().await;
        }
    }
    // Another identity does not wait for this one.
    drop(process.queues.turn(OTHER, Progress).await.expect("a turn"));
    assert_eq!(process.queues.len(), 6);
    drop(held);
    for task in tasks {
        task.await.expect("it ends well");
    }
    let expected =
        [(Person, 4), (End, 2), (End, 5), (FirstComment, 1), (Progress, 0), (Progress, 3)];
    assert_eq!(*order.lock().expect("not poisoned"), expected);
}

#[tokio::test(start_paused = true)]
async fn one_writes_at_a_time_a_second_apart_and_within_the_limits() {
    let process = Process::new();
    let begun = process.write(ONE, 500).await;
    assert!(begun.windows(2).all(|two| two[1].since(two[0]) >= Duration::from_secs(1)));
    for (most, span) in [(60, Duration::from_secs(60)), (400, Duration::from_secs(3_600))] {
        let is_within = |run: &[Timestamp]| run[most].since(run[0]) >= span;
        assert!(begun.windows(most + 1).all(is_within), "at most {most} in {span:?}");
    }
    // A turn that is held holds up its identity and no other.
    let held = process.queues.turn(ONE, WriteUrgency::Person).await.expect("a turn");
    let second = process.queues.turn(ONE, WriteUrgency::Person);
    assert!(tokio::time::timeout(HOUR, second).await.is_err(), "two at once");
    drop(process.queues.turn(OTHER, WriteUrgency::Progress).await.expect("a turn"));
    drop(held);
    assert_eq!(process.queues.len(), 0, "who gave up does not wait");
}

#[tokio::test(start_paused = true)]
async fn the_limits_are_those_of_all_identities_and_outlive_the_process() {
    let mut process = Process::new();
    let mut begun = Vec::new();
    // A server that is killed after every few calls.
    for round in 0..90 {
        let writer = if round % 2 == 0 { ONE } else { OTHER };
        begun.extend(process.write(writer, 5).await);
        process = process.restarted();
    }
    for (most, span) in [(60, Duration::from_secs(60)), (400, Duration::from_secs(3_600))] {
        let is_within = |run: &[Timestamp]| run[most].since(run[0]) >= span;
        assert!(begun.windows(most + 1).all(is_within), "at most {most} in {span:?}");
    }
    let kept = process.pace.load().await.expect("kept");
    assert!(kept.iter().all(|record| record.writes.len() <= 61), "bounded");
}

#[tokio::test(start_paused = true)]
async fn no_turn_is_given_out_while_the_identity_rests() {
    let process = Process::new();
    let held = process.queues.turn(ONE, WriteUrgency::Progress).await.expect("a turn");
    let queues = process.queues.clone();
    let waiting = tokio::spawn(async move { queues.turn(ONE, WriteUrgency::Person).await });
    while process.queues.len() == 0 {
        tokio::task::yield_now().await;
    }
    let until = process.now().after(Duration::from_secs(300));
    assert_eq!(process.queues.rest(ONE, Some(until)).await, until);
    drop(held);
    let refused = waiting.await.expect("it ends well").expect_err("it rests");
    assert_eq!(refused, GitHubError::Limited { until });
    // A shorter limit does not end a longer one, a restart does not, and others write on.
    let sooner = process.now().after(Duration::from_secs(1));
    assert_eq!(process.queues.rest(ONE, Some(sooner)).await, until);
    let process = process.restarted();
    let refused = process.queues.turn(ONE, WriteUrgency::Person).await.expect_err("it rests");
    assert_eq!(refused, GitHubError::Limited { until });
    process.write(OTHER, 1).await;
    process.clock.sleep_until(until).await;
    process.write(ONE, 1).await;
}

#[tokio::test(start_paused = true)]
async fn limits_without_a_time_double_up_to_their_bound_until_a_call_goes_well() {
    let mut process = Process::new();
    for expected in [60, 120, 240, 480, 900, 900] {
        let until = process.queues.rest(ONE, None).await;
        assert_eq!(until.since(process.now()).as_secs(), expected);
        process.clock.sleep_until(until).await;
        process.write(ONE, 1).await;
        process = process.restarted();
    }
    process.write(ONE, 1).await;
    process.queues.went_well(ONE);
    let until = process.queues.rest(ONE, None).await;
    assert_eq!(until.since(process.now()).as_secs(), 60);
}

/// What breaks the guarantees in a history of calls, limits, pauses and restarts.
async fn broken_in_history(seed: u64) -> Option<String> {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let mut process = Process::new();
    let mut rests = HashMap::new();
    for _ in 0..40 {
        let writer = if below(2) == 0 { ONE } else { OTHER };
        let rests_until: Option<Timestamp> = rests.get(&writer).copied();
        match below(6) {
            0 => {
                let until = process.now().after(Duration::from_secs(below(600)));
                rests.insert(writer, process.queues.rest(writer, Some(until)).await);
            }
            1 => {
                rests.insert(writer, process.queues.rest(writer, None).await);
            }
            2 => process = process.restarted(),
            3 => {
                let until = process.now().after(Duration::from_secs(below(600)));
                process.clock.sleep_until(until).await;
            }
            _ => match process.queues.turn(writer, WriteUrgency::Progress).await {
                Ok(_) => {
                    if let Some(until) = rests_until.filter(|until| process.now() < *until) {
                        return Some(format!("{writer} writes although it rests until {until}"));
                    }
                }
                Err(GitHubError::Limited { until }) if Some(until) == rests_until => {}
                Err(error) => return Some(format!("{writer} is refused: {error}")),
            },
        }
    }
    None
}

/// The first of many seeds whose history breaks a guarantee, and how.
fn broken() -> Option<(u64, String)> {
    (0..300).find_map(|seed| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        Some((seed, runtime.expect("a runtime").block_on(broken_in_history(seed))?))
    })
}

#[test]
fn no_identity_writes_while_it_rests_whatever_happens() {
    assert_eq!(broken(), None);
    let noticed = with(Bug::RestForgotten, broken);
    assert!(noticed.is_some_and(|(_, why)| why.contains("although it rests")), "a bug is noticed");
}
