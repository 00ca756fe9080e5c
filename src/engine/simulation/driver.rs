//! What happens to the server, one thing after another: deliveries, callers, passivation, panics,
//! crashes, outages, steps of the clock.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::hooks::SimHooks;
use super::people::context;
use super::provider::SimProvider;
use super::runs;
use super::spawner::SimSpawner;
use super::store::SimStore;
use super::time::{SimClock, SimIds};
use super::world::{ServerLife, WorldState};
use super::writer::SimGitHubWriter;
use crate::engine::registry::Registry;
use crate::engine::{Change, Engine, EngineParts, GithubParts, Publisher, Retention};
use crate::git::LatePublisher;
use crate::github::messages::OutgoingTexts;
use crate::runs::RunPublisher;
use crate::types::{AccountName, Cause, Timestamp};

struct Listener(Arc<ServerLife>);

impl Publisher for Listener {
    fn publish(&self, change: Arc<Change>) {
        if self.0.step() {
            self.0.world().with(|inner| inner.check_published(&change));
            self.0.may_panic();
        }
    }
}

pub fn account() -> AccountName {
    AccountName::default_account()
}

/// Another tenant, to which GitHub does not speak.
pub fn second_account() -> AccountName {
    AccountName::trusted("second")
}

pub fn cause() -> Cause {
    Cause::Service("simulation")
}

/// The pause between two sweeps of a provider.
pub const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// One life of the server. Returns whether the history is at its end.
pub async fn live(life: Arc<ServerLife>) -> bool {
    let (weather, clouds) = life.world().with(|inner| (inner.weather.clone(), inner.clouds.len()));
    let providers = (0..clouds).map(|cloud| {
        let provider = SimProvider { life: Arc::clone(&life), cloud };
        (weather.providers[cloud].name.clone(), Arc::new(provider) as _)
    });
    let store = Arc::new(SimStore::open(Arc::clone(&life)));
    let github = weather.said.as_ref().map(|_| GithubParts {
        api: Arc::new(SimGitHubWriter::new(&life, &store)),
        outbox: Arc::clone(&store) as _,
        checkouts: Arc::clone(&store) as _,
        publisher: LatePublisher::default(),
        working_label: "at work".into(),
        context: context().into(),
        runs: Arc::clone(&store) as _,
        live: Arc::new(()),
        texts: OutgoingTexts::default().into(),
    });
    let listener: Arc<dyn Publisher> = Arc::new(Listener(Arc::clone(&life)));
    let (publisher, changes) = match &weather.runs {
        Some(_) => {
            let (publisher, changes) = RunPublisher::new(listener);
            (Arc::new(publisher) as _, Some(changes))
        }
        None => (listener, None),
    };
    let started = Engine::start(EngineParts {
        github,
        retention: Retention::default(),
        store: Arc::clone(&store) as _,
        clock: Arc::new(SimClock(Arc::clone(&life))),
        ids: Arc::new(SimIds(Arc::clone(&life))),
        rules: weather.rules(),
        templates: weather.templates().into_iter().map(|t| (t.name.clone(), t)).collect(),
        providers: providers.collect(),
        quotas: weather.quotas,
        creates_in_flight: weather.creates_in_flight,
        publisher,
        spawner: Arc::new(SimSpawner(Arc::clone(&life))),
        reconcile: Some(SWEEP_PERIOD),
    })
    .await;
    // A server that cannot start ends, and its supervisor starts it again.
    let Ok(engine) = started else {
        tokio::time::sleep(Duration::from_secs(1)).await;
        return false;
    };
    engine.set_hooks(Arc::new(SimHooks(Arc::clone(&life))));
    if let Some(changes) = changes {
        runs::begin(&life, &engine, &store, changes);
    }
    let server = SimServer { life, is_waiting: Rc::default(), engine };
    if weather.passivation {
        server.passivate_all_the_time();
    }
    while let Some(act) = server.life.world().with(WorldState::next_act) {
        if let Some(pause) = act.pause {
            tokio::time::sleep(pause).await;
        }
        if server.act(act.what).await {
            return false;
        }
    }
    server.come_to_rest().await;
    true
}

/// What happens next, and after how long.
struct Next {
    pause: Option<Duration>,
    what: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    GitHub,
    Redeliver,
    Ensure,
    Burst,
    Command,
    Force,
    Work,
    Wait,
    Passivate,
    Panic,
    Jump,
    Outage,
    Absence,
    Forget,
    Impersonate,
    Outsider,
    StaleAnswer,
    StaleObservation,
    Hold,
    Release,
    People,
    Talk,
    Crash,
    Restart,
}

impl WorldState {
    /// The account of a caller.
    pub fn any_account(&mut self) -> AccountName {
        if self.weather.accounts && self.chance.permille(400) {
            second_account()
        } else {
            account()
        }
    }

    /// Chooses what happens next; `None` once it is to become calm.
    fn next_act(&mut self) -> Option<Next> {
        self.actions_left = self.actions_left.checked_sub(1)?;
        let pause = match self.chance.below(10) {
            0..4 => None,
            4..7 => Some(self.chance.between(1, 60)),
            7..9 => Some(self.chance.between(100, 8_000)),
            _ => Some(self.chance.between(8_000, 120_000)),
        };
        let pause = self.waits_ms.take().or(pause);
        let weather = &self.weather;
        let only = |on: bool, weight: u64| if on { weight } else { 0 };
        let weights = [
            (Act::GitHub, 10),
            (Act::Redeliver, 3),
            (Act::Ensure, only(weather.callers, 7)),
            (Act::Burst, only(weather.callers, if weather.hasty { 20 } else { 3 })),
            (Act::Command, only(weather.callers, 7)),
            (Act::Work, only(weather.callers, 1)),
            (Act::Wait, only(weather.callers, 1)),
            (Act::Passivate, 3),
            (Act::Panic, only(weather.panics, 4)),
            (Act::Jump, only(weather.jumps, 1)),
            (Act::Outage, only(weather.outages, 2)),
            (Act::Forget, only(weather.forgetful, 4)),
            (Act::Outsider, only(weather.outsiders, 4)),
            (Act::StaleAnswer, 2),
            (Act::StaleObservation, 2),
            (Act::Hold, only(weather.holds, 4)),
            (Act::Release, only(weather.holds, 4)),
            (Act::Crash, only(weather.crashes, 4)),
            (Act::Restart, only(weather.crashes, 1)),
            (Act::Impersonate, only(weather.impostors, 4)),
            (Act::Force, only(weather.force, 8)),
            (Act::Absence, only(weather.absences, 4)),
            (Act::People, weather.said.as_ref().map_or(0, |said| said.people)),
            (Act::Talk, weather.runs.as_ref().map_or(0, |runs| runs.people)),
        ];
        let all = weights.iter().map(|(_, weight)| weight).sum();
        let mut left = self.chance.below(all);
        let chosen = weights.iter().find(|(_, weight)| match left.checked_sub(*weight) {
            Some(less) => {
                left = less;
                false
            }
            None => true,
        });
        let what = chosen.expect("one of them has a weight").0;
        Some(Next { pause: pause.map(Duration::from_millis), what })
    }
}

/// A running server and what is done to it.
pub struct SimServer {
    pub life: Arc<ServerLife>,
    /// Whether a caller waits for a change. One at a time: the order in which several are woken is
    /// not ours to choose.
    pub is_waiting: Rc<Cell<bool>>,
    pub engine: Engine,
}

impl SimServer {
    pub fn with<T>(&self, f: impl FnOnce(&mut WorldState) -> T) -> T {
        self.life.world().with(f)
    }

    /// Lets one thing happen; true if it ended the server.
    async fn act(&self, act: Act) -> bool {
        match act {
            Act::GitHub => {
                for delivery in self.with(WorldState::github_acts) {
                    let copies = self.with(|inner| match inner.chance.below(10) {
                        // Lost on its way.
                        0 => 0,
                        1..8 => 1,
                        _ => inner.chance.between(2, 4),
                    });
                    (0..copies).for_each(|_| self.deliver(delivery));
                }
            }
            Act::Redeliver => {
                let (any, count) = self.with(|inner| {
                    let count = inner.github.deliveries.len() as u64;
                    (inner.chance.below(count), count)
                });
                if count > 0 {
                    self.deliver(usize::try_from(any).expect("an index"));
                }
            }
            Act::Ensure => self.ensure(None),
            Act::Burst => {
                // Many at once, about one issue, perhaps while its actor panics.
                let (number, times) = self.with(|inner| {
                    if inner.weather.panics && inner.chance.permille(500) {
                        inner.panic_in = Some(inner.chance.below(6));
                    }
                    let number = inner.chance.between(1, inner.weather.issues);
                    (number, inner.chance.between(3, 8))
                });
                (0..times).for_each(|_| self.ensure(Some(number)));
            }
            Act::Command => self.command(),
            Act::Force => self.force(),
            Act::Work => self.work(),
            Act::Wait => self.wait(),
            Act::Passivate => registry(&self.engine).passivate_idle(END_OF_TIME),
            Act::Panic => self.with(|inner| inner.panic_in = Some(inner.chance.below(12))),
            Act::Jump => self.with(|inner| {
                let by = match inner.chance.below(3) {
                    0 => -i64::try_from(inner.chance.between(1, 300_000)).expect("it fits"),
                    _ => i64::try_from(inner.chance.between(1, 7_200_000)).expect("it fits"),
                };
                inner.jump(by);
            }),
            Act::Outage => self.with(WorldState::outage),
            Act::Absence => self.absence(),
            Act::Forget => self.with(WorldState::forget),
            Act::Impersonate => self.with(WorldState::impersonate),
            Act::Outsider => self.with(WorldState::outsider),
            Act::StaleAnswer => self.stale_answer(),
            Act::StaleObservation => self.stale_observation(),
            Act::People => self.people(),
            Act::Talk => self.talk(),
            Act::Hold => self.hold(),
            Act::Release => self.release(),
            Act::Crash => self.with(|inner| inner.crash_in = Some(inner.chance.below(60))),
            Act::Restart => {
                let left = self.engine.stop(Duration::from_secs(5)).await;
                self.with(|inner| {
                    inner.kill(if left > 0 { "stopped in haste" } else { "stopped" })
                });
                return true;
            }
        }
        false
    }

    fn passivate_all_the_time(&self) {
        let (life, engine) = (Arc::clone(&self.life), self.engine.clone());
        self.life.spawn(async move {
            while !life.world().with(|inner| inner.weather.calm) {
                registry(&engine).passivate_idle(END_OF_TIME);
                let pause = life.world().with(|inner| inner.chance.between(1, 400));
                // At any time, and just when an answer comes.
                let pause = tokio::time::sleep(Duration::from_millis(pause));
                tokio::select! {
                    biased;
                    () = life.world().stirred() => {}
                    () = pause => {}
                }
            }
        });
    }
}

/// Later than any clock shows.
const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(i64::MAX);

fn registry(engine: &Engine) -> &Registry {
    &engine.parts.registry
}
