//! The world: everything that a crash of the server does not touch, and the queue of what is
//! going to happen in it.
//!
//! A [`ServerLife`] is one server process. All that the engine does to the world goes through it, and
//! once it is over the world ignores it: dropping a dead engine runs `Drop` although SIGKILL would
//! not, and what that does must have no effect.

use std::collections::{BTreeMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::agents::SimAgents;
use super::chance::Chance;
use super::checks::Ledger;
use super::counts::{Counts, Happening};
use super::github::SimGitHub;
use super::hooks::HookBook;
use super::objects::SimCall;
use super::outbox::StoredSaid;
use super::provider::Cloud;
use super::said::SimSaid;
use super::scope_event::SimFanOuts;
use super::store::SimWriter;
use super::time::BEGIN;
use super::weather::Weather;
use crate::engine::tests::rows::TestRows;
use crate::types::{ExternalId, HomeId, Timestamp};

/// How many lines of the trace are kept.
const TRACE_LEN_MAX: usize = 20_000;
/// How many steps a history may have; a usual one has a few thousand.
const STEPS_MAX: u64 = 500_000;

/// Something that is going to happen in the world.
pub enum SimEffect {
    /// The store begins a group of writes.
    Begin,
    /// The group lands.
    Land,
    /// A writer gets the result of its write.
    Reply(u64),
    /// A provider without enforced names checks whether the name is free.
    Check(u64),
    /// A provider call takes effect.
    Apply(u64),
    /// A provider call is answered.
    Answer(u64),
    /// An object whose removal was begun is gone.
    Vanish(usize, ExternalId),
    /// By now the answer of this call must have been taken.
    Taken(u64),
    /// Phases must not last for ever.
    CheckPhases,
    /// A writing call at GitHub takes effect.
    WriteLands(u64),
    /// A writing call at GitHub is answered.
    WriteAnswered(u64),
    /// An agent's process does what it does next; it may have changed its mind since.
    AgentActs(u64, u64),
}

/// What went wrong first.
#[derive(Clone, Debug)]
pub struct Violation {
    pub home: Option<HomeId>,
    pub what: String,
}

struct TraceLine {
    at_ms: u64,
    home: Option<HomeId>,
    what: String,
}

/// All that is in the world.
pub struct WorldState {
    pub chance: Chance,
    pub weather: Weather,
    pub rows: TestRows,
    pub writer: SimWriter,
    pub clouds: Vec<Cloud>,
    pub calls: BTreeMap<u64, SimCall>,
    pub github: SimGitHub,
    pub said: SimSaid,
    pub stored: StoredSaid,
    pub fan_outs: SimFanOuts,
    pub agents: SimAgents,
    pub hooks: HookBook,
    pub ledger: Ledger,
    pub counts: Counts,
    /// How many things happen yet before it becomes calm.
    pub actions_left: u64,
    /// The life that the world listens to, if there is one.
    pub alive: Option<u64>,
    lives: u64,
    /// When the last of them began, in milliseconds of the history.
    life_began_ms: u64,
    steps: u64,
    /// Since when no fault strikes any more, in milliseconds of the history.
    pub calm_since_ms: Option<u64>,
    /// How long the next pause is, if something goes on for so long.
    pub waits_ms: Option<u64>,
    /// After so many more steps the server is killed.
    pub crash_in: Option<u64>,
    /// Until when the store fails every write, in milliseconds of the history.
    pub store_down_until_ms: u64,
    /// After so many more occasions an actor panics.
    pub panic_in: Option<u64>,
    pub violation: Option<Violation>,
    offset_ms: i64,
    /// The latest that the wall clock showed before it stepped back.
    latest: Timestamp,
    started: Instant,
    queue: BTreeMap<(u64, u64), SimEffect>,
    numbers: u64,
    trace: Option<VecDeque<TraceLine>>,
    changed: Arc<Notify>,
    over: Arc<Notify>,
    stirred: Arc<Notify>,
    jumped: Arc<Notify>,
}

/// The world, shared.
pub struct World {
    inner: Mutex<WorldState>,
    changed: Arc<Notify>,
    over: Arc<Notify>,
    stirred: Arc<Notify>,
    jumped: Arc<Notify>,
}

impl World {
    /// Begins a history. Needs a runtime whose time is paused.
    pub fn new(seed: u64, traced: bool) -> Arc<Self> {
        let mut chance = Chance::new(seed);
        let weather = Weather::new(seed, &mut chance);
        let [changed, over, stirred, jumped] = std::array::from_fn(|_| Arc::new(Notify::new()));
        let inner = WorldState {
            rows: TestRows::default(),
            writer: SimWriter::default(),
            clouds: weather.providers.iter().map(Cloud::new).collect(),
            calls: BTreeMap::new(),
            github: SimGitHub::new(weather.issues),
            said: SimSaid::default(),
            stored: StoredSaid::new(),
            fan_outs: SimFanOuts::new(),
            agents: SimAgents::default(),
            hooks: HookBook::default(),
            ledger: Ledger::default(),
            counts: Counts::default(),
            calm_since_ms: None,
            waits_ms: None,
            actions_left: weather.actions,
            alive: None,
            lives: 0,
            life_began_ms: 0,
            steps: 0,
            crash_in: None,
            store_down_until_ms: 0,
            panic_in: None,
            violation: None,
            offset_ms: 0,
            latest: BEGIN,
            started: Instant::now(),
            queue: BTreeMap::new(),
            numbers: 0,
            trace: traced.then(VecDeque::new),
            changed: Arc::clone(&changed),
            over: Arc::clone(&over),
            stirred: Arc::clone(&stirred),
            jumped: Arc::clone(&jumped),
            chance,
            weather,
        };
        Arc::new(Self { inner: Mutex::new(inner), changed, over, stirred, jumped })
    }

    fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.inner.lock().expect("no panic happens in here")
    }

    /// Looks at the world or changes it.
    pub fn with<T>(&self, f: impl FnOnce(&mut WorldState) -> T) -> T {
        f(&mut self.lock())
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.lock().now()
    }

    /// Notified at every step of the wall clock. (A `watch` would wake its receivers in an order
    /// that is not ours to choose.)
    pub fn jumped(&self) -> Arc<Notify> {
        Arc::clone(&self.jumped)
    }

    /// A number that was never given.
    pub fn fresh(&self) -> u64 {
        self.lock().fresh()
    }

    /// A server process begins.
    pub fn begin_life(self: &Arc<Self>) -> Arc<ServerLife> {
        let number = self.with(|inner| {
            inner.lives += 1;
            inner.alive = Some(inner.lives);
            inner.life_began_ms = inner.elapsed_ms();
            inner.note(None, || "the server begins".into());
            inner.disturb("a server began");
            inner.lives
        });
        Arc::new(ServerLife { world: Arc::clone(self), number })
    }

    /// Returns once the life that was begun last is over.
    pub async fn over(&self) {
        while self.with(|inner| inner.alive.is_some()) {
            self.over.notified().await;
        }
    }

    /// Returns when something happens at which a message may be about to reach an idle actor.
    pub async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// Lets things happen when their time has come, until the promise is broken.
    pub async fn turn(self: Arc<Self>) {
        loop {
            let next = self.with(|inner| {
                let next = inner.queue.keys().next().map(|(at_ms, _)| *at_ms);
                next.map(|at_ms| inner.started + Duration::from_millis(at_ms))
            });
            let far = Instant::now() + Duration::from_secs(86_400);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(next.unwrap_or(far)) => {}
                () = self.changed.notified() => continue,
            }
            let is_over = self.with(|inner| {
                inner.happen();
                inner.violation.is_some()
            });
            // Nothing happens any more: what is due would be due for ever, and time would stand still.
            if is_over {
                return;
            }
        }
    }
}

impl WorldState {
    /// How long the history has lasted, in milliseconds; steps of the wall clock do not count.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.elapsed_ms()).unwrap_or(i64::MAX);
        Timestamp::from_unix_ms(BEGIN.unix_ms() + elapsed + self.offset_ms)
    }

    /// The latest that the wall clock has shown.
    pub fn latest(&self) -> Timestamp {
        self.latest.max(self.now())
    }

    pub fn fresh(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Something happens so many milliseconds from now.
    pub fn after(&mut self, pause_ms: u64, effect: SimEffect) {
        let at_ms = self.elapsed_ms() + pause_ms;
        let number = self.fresh();
        self.queue.insert((at_ms, number), effect);
        self.changed.notify_one();
    }

    /// Whether anything but looking at the phases is going to happen.
    pub fn is_quiet(&self) -> bool {
        self.queue.values().all(|effect| matches!(effect, SimEffect::CheckPhases))
    }

    fn happen(&mut self) {
        let now = self.elapsed_ms();
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= now
            && self.violation.is_none()
        {
            let effect = entry.remove();
            self.take_effect(effect);
        }
    }

    fn take_effect(&mut self, effect: SimEffect) {
        let seen_by_server = !matches!(effect, SimEffect::Taken(_) | SimEffect::CheckPhases);
        match effect {
            SimEffect::Begin => self.begin_group(),
            SimEffect::Land => self.land_group(),
            SimEffect::Reply(number) => self.reply(number),
            SimEffect::Check(call) => self.check_name(call),
            SimEffect::Apply(call) => self.apply_call(call),
            SimEffect::Answer(call) => self.answer_call(call),
            SimEffect::Vanish(cloud, id) => self.vanish(cloud, &id),
            SimEffect::Taken(call) => self.must_be_taken(call),
            SimEffect::CheckPhases => self.check_phases(),
            SimEffect::WriteLands(call) => self.write_lands(call),
            SimEffect::WriteAnswered(call) => self.write_answered(call),
            SimEffect::AgentActs(process, plan) => self.agent_acts(process, plan),
        }
        self.end_agents_of_what_is_down();
        if seen_by_server {
            self.step();
        }
    }

    /// One more step of the server or of the world; a crash may be due.
    pub fn step(&mut self) {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            self.violate(None, "it goes on without end");
        }
        if let Some(left) = self.crash_in {
            self.crash_in = left.checked_sub(1);
            if left == 0 {
                self.count(Happening::Crash);
                self.kill("killed");
            }
        }
    }

    /// The server process is gone, here and now.
    pub fn kill(&mut self, how: &str) {
        if self.alive.take().is_none() {
            return;
        }
        self.note(None, || format!("the server is {how}"));
        self.crash_in = None;
        self.panic_in = None;
        self.queue.retain(|_, effect| match effect {
            SimEffect::Begin | SimEffect::Land | SimEffect::Reply(_) | SimEffect::Taken(..) => {
                false
            }
            SimEffect::Check(_)
            | SimEffect::Apply(_)
            | SimEffect::Answer(_)
            | SimEffect::Vanish(..)
            | SimEffect::WriteLands(_)
            | SimEffect::WriteAnswered(_)
            | SimEffect::AgentActs(..)
            | SimEffect::CheckPhases => true,
        });
        self.crash_writer();
        self.crash_calls();
        self.crash_writes();
        self.crash_runs();
        self.crash_hooks();
        self.over.notify_one();
    }

    /// A message is about to reach an actor.
    pub fn stir(&mut self) {
        if self.chance.permille(500) {
            self.stirred.notify_one();
        }
    }

    /// The effects of calls, taken out of the queue if `which` says so.
    pub fn take_calls(&mut self, which: impl Fn(&WorldState, u64) -> bool) -> Vec<SimEffect> {
        let of_call = |effect: &SimEffect| match effect {
            SimEffect::Check(call) | SimEffect::Apply(call) => Some(*call),
            SimEffect::Begin
            | SimEffect::Land
            | SimEffect::Reply(_)
            | SimEffect::Answer(_)
            | SimEffect::Vanish(..)
            | SimEffect::Taken(..)
            | SimEffect::WriteLands(_)
            | SimEffect::WriteAnswered(_)
            | SimEffect::AgentActs(..)
            | SimEffect::CheckPhases => None,
        };
        let calls = self.queue.iter().filter_map(|(key, effect)| Some((*key, of_call(effect)?)));
        let keys: Vec<_> =
            calls.filter(|(_, call)| which(self, *call)).map(|(key, _)| key).collect();
        keys.iter().filter_map(|key| self.queue.remove(key)).collect()
    }

    /// Writing calls at GitHub that take effect until then on the server's clock do so now.
    fn land_writes(&mut self, now: Timestamp) {
        let is_due = |effect: &SimEffect| match effect {
            SimEffect::WriteLands(call) => self.must_land_until(*call) <= Some(now),
            _ => false,
        };
        let due = self.queue.iter().filter(|(_, effect)| is_due(effect));
        let keys: Vec<_> = due.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(effect) = self.queue.remove(&key) {
                self.take_effect(effect);
            }
        }
        self.said.fresh_ms = self.elapsed_ms();
    }

    /// How long the wall clock has been past all that it showed before it stepped back: what waits for
    /// a time on it waits longer until then.
    pub fn caught_up_ms(&self) -> u64 {
        u64::try_from(self.now().since(self.latest).as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall clock steps. What may only come until some time on it comes before it is past.
    pub fn jump(&mut self, by_ms: i64) {
        self.note(None, || format!("the clock steps by {by_ms} ms"));
        self.count(Happening::ClockStep);
        self.latest = self.latest();
        self.offset_ms += by_ms;
        self.compare_clocks();
        let now = self.now();
        for effect in self.take_calls(|inner, call| inner.must_apply_until(call) <= Some(now)) {
            self.take_effect(effect);
        }
        self.land_writes(now);
        self.disturb("the clock stepped");
        self.jumped.notify_waiters();
    }

    /// How long this server has lasted, in milliseconds.
    pub fn life_lasts_ms(&self) -> u64 {
        self.elapsed_ms() - self.life_began_ms
    }

    /// A provider shows sweeps nothing of what it has, for a while.
    pub fn forget(&mut self) {
        let until_ms = self.elapsed_ms() + self.chance.between(60_000, 180_000);
        // The one that most sandboxes are at.
        self.clouds[0].forgets_until_ms = until_ms;
        self.count(Happening::Forgetting);
        self.note(None, || format!("the first provider forgets all until {until_ms} ms"));
    }

    /// A provider cannot be reached for a while, or the store takes nothing.
    pub fn outage(&mut self) {
        let until_ms = self.elapsed_ms() + self.chance.between(1_000, 120_000);
        let which = usize::try_from(self.chance.below(self.clouds.len() as u64 + 1));
        match self.clouds.get_mut(which.expect("an index")) {
            Some(cloud) => cloud.down_until_ms = until_ms,
            None => self.store_down_until_ms = until_ms,
        }
        self.note(None, || format!("an outage until {until_ms} ms"));
        self.count(Happening::Outage);
    }

    /// A provider cannot be reached for so long that nothing asked before can still take effect when
    /// it is back.
    pub fn absence(&mut self) {
        let at = usize::try_from(self.chance.below(self.clouds.len() as u64)).expect("an index");
        let lasts_ms = self.chance.between(300_000, 2_400_000);
        let until_ms = self.elapsed_ms() + lasts_ms;
        self.clouds[at].down_until_ms = until_ms;
        if self.chance.permille(600) {
            self.waits_ms = Some(lasts_ms);
        }
        self.note(None, || format!("provider {at} is away until {until_ms} ms"));
        self.count(Happening::Absence);
    }

    /// How long it takes until the next server begins.
    pub fn downtime(&mut self) -> Duration {
        if !self.weather.absences || self.violation.is_some() || !self.chance.permille(500) {
            return Duration::ZERO;
        }
        self.count(Happening::Downtime);
        Duration::from_millis(self.chance.between(300_000, 2_400_000))
    }

    /// The promise is broken: the history ends here.
    pub fn violate(&mut self, home: Option<HomeId>, what: impl Into<String>) {
        if self.violation.is_none() {
            let what = what.into();
            self.note(home, || format!("VIOLATION: {what}"));
            self.violation = Some(Violation { home, what });
            self.alive = None;
            self.over.notify_one();
        }
    }

    /// Writes a line of the trace, if one is kept.
    pub fn note(&mut self, home: Option<HomeId>, what: impl FnOnce() -> String) {
        let at_ms = self.elapsed_ms();
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LEN_MAX {
                trace.pop_front();
            }
            trace.push_back(TraceLine { at_ms, home, what: what() });
        }
    }

    /// The last lines of the trace that concern this home or the whole world.
    pub fn trace_of(&self, home: Option<HomeId>, lines_max: usize) -> String {
        let Some(trace) = &self.trace else { return String::new() };
        let concerns =
            |line: &&TraceLine| home.is_none() || line.home.is_none() || line.home == home;
        let lines: Vec<String> = trace
            .iter()
            .filter(concerns)
            .map(|line| {
                let (seconds, ms) = (line.at_ms / 1000, line.at_ms % 1000);
                let home = line.home.map_or_else(String::new, |home| format!("home {home}: "));
                format!("{seconds:>6}.{ms:03}  {home}{}", line.what)
            })
            .collect();
        lines[lines.len().saturating_sub(lines_max)..].join("\n")
    }
}

/// One server process, as the world sees it.
pub struct ServerLife {
    world: Arc<World>,
    number: u64,
}

impl ServerLife {
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Whether the world still listens.
    pub fn is_alive(&self) -> bool {
        self.world.with(|inner| inner.alive == Some(self.number))
    }

    /// The server does something that the world can see; false if it is dead.
    pub fn step(&self) -> bool {
        self.world.with(|inner| {
            if inner.alive == Some(self.number) {
                inner.step();
            }
            inner.alive == Some(self.number)
        })
    }

    /// Time goes by between two parts of the server: mostly none, sometimes milliseconds.
    pub async fn pause(&self) {
        let ms = self.world.with(|inner| match inner.chance.below(10) {
            0..6 => 0,
            6..9 => inner.chance.between(1, 4),
            _ => inner.chance.between(5, 40),
        });
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    /// Something takes its time; it never ends if the server does.
    pub async fn takes_time(&self) {
        let ms = self.world.with(|inner| match inner.chance.below(10) {
            0..7 => inner.chance.below(50),
            7..9 => inner.chance.between(50, 5_000),
            _ => inner.chance.between(5_000, 60_000),
        });
        tokio::time::sleep(Duration::from_millis(ms)).await;
        if !self.step() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the polled task is put off once.
    pub fn lets_others_go_first(&self) -> bool {
        self.world.with(|inner| {
            let jitter = inner.weather.jitter;
            inner.chance.permille(jitter)
        })
    }

    /// An occasion for an actor to panic. The panic is quiet: it must not fill the output.
    pub fn may_panic(&self) {
        let panics = self.world.with(|inner| {
            let panics = inner.alive == Some(self.number) && inner.panic_in == Some(0);
            inner.panic_in = inner.panic_in.and_then(|left| left.checked_sub(1));
            if panics {
                inner.count(Happening::Panic);
                inner.actor_ends("an actor panics");
            }
            panics
        });
        if panics {
            resume_unwind(Box::new("the simulation lets an actor panic"));
        }
    }
}
