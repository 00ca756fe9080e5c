//! What happens to the server: deliveries, callers, passivation, panics, crashes, steps of the
//! clock, and people who lay hands on objects; then calm, in which all must come to rest.

use std::sync::Arc;
use std::time::Duration;

use super::spawner::SimSpawner;
use super::store::{SimStore, instance};
use super::time::{SimClock, SimIds};
use super::world::{Inner, Life};
use crate::engine::actor::Message;
use crate::engine::registry::Registry;
use crate::engine::{
    Change, Engine, EngineError, EngineParts, EnsureIssue, Publisher, Quotas, Retention,
    SandboxRef, WaitFor,
};
use crate::issue::event::{Answer, Done, Trouble};
use crate::issue::{Command, IssueEvent};
use crate::sandbox::{Labels, Object};
use crate::types::{
    AccountName, Attempt, Cause, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode,
    ObjectName, ObjectState, Outcome, Phase, Sandbox, SandboxId, TemplateName, Timestamp,
};

use super::objects::SimObject;
use super::provider::{SimProvider, is_ours};

/// How long calm may take to bring everything to rest.
const REST_TIME_MAX: Duration = Duration::from_secs(6 * 3600);
/// How often it is looked whether everything is at rest.
const REST_PAUSE: Duration = Duration::from_secs(10);

struct Listener(Arc<Life>);

impl Publisher for Listener {
    fn publish(&self, change: Arc<Change>) {
        if self.0.step() {
            self.0.world().with(|inner| inner.check_published(&change));
            self.0.may_panic();
        }
    }
}

fn account() -> AccountName {
    AccountName::default_account()
}

fn cause() -> Cause {
    Cause::Service("simulation")
}

/// One life of the server. Returns whether the history is at its end.
pub async fn live(life: Arc<Life>) -> bool {
    let (weather, clouds) = life.world().with(|inner| (inner.weather.clone(), inner.clouds.len()));
    let providers = (0..clouds).map(|cloud| {
        let provider = SimProvider { life: Arc::clone(&life), cloud };
        (weather.providers[cloud].name.clone(), Arc::new(provider) as _)
    });
    let started = Engine::start(EngineParts {
        retention: Retention::default(),
        store: Arc::new(SimStore::open(Arc::clone(&life))),
        clock: Arc::new(SimClock(Arc::clone(&life))),
        ids: Arc::new(SimIds(Arc::clone(&life))),
        rules: weather.rules(),
        templates: weather.templates().into_iter().map(|t| (t.name.clone(), t)).collect(),
        providers: providers.collect(),
        quotas: Quotas::default(),
        creates_in_flight: 0,
        publisher: Arc::new(Listener(Arc::clone(&life))),
        spawner: Arc::new(SimSpawner(Arc::clone(&life))),
        reconcile: None,
    })
    .await;
    // A server that cannot start ends, and whoever watches over it starts it again.
    let Ok(engine) = started else {
        tokio::time::sleep(Duration::from_secs(1)).await;
        return false;
    };
    let server = Server { life, engine };
    if weather.passivation {
        server.passivate_all_the_time();
    }
    while let Some(act) = server.life.world().with(Inner::next_act) {
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
    Command,
    Work,
    Wait,
    Passivate,
    Panic,
    Jump,
    Outsider,
    StaleAnswer,
    Crash,
    Restart,
}

impl Inner {
    /// Chooses what happens next; `None` once it is to become calm.
    fn next_act(&mut self) -> Option<Next> {
        self.actions_left = self.actions_left.checked_sub(1)?;
        let pause = match self.chance.below(10) {
            0..4 => None,
            4..7 => Some(self.chance.between(1, 60)),
            7..9 => Some(self.chance.between(100, 8_000)),
            _ => Some(self.chance.between(8_000, 120_000)),
        };
        let weather = &self.weather;
        let only = |on: bool, weight: u64| if on { weight } else { 0 };
        let weights = [
            (Act::GitHub, 10),
            (Act::Redeliver, 3),
            (Act::Ensure, only(weather.callers, 7)),
            (Act::Command, only(weather.callers, 7)),
            (Act::Work, only(weather.callers, 1)),
            (Act::Wait, only(weather.callers, 1)),
            (Act::Passivate, 3),
            (Act::Panic, only(weather.panics, 4)),
            (Act::Jump, only(weather.jumps, 1)),
            (Act::Outsider, only(weather.outsiders, 4)),
            (Act::StaleAnswer, 2),
            (Act::Crash, only(weather.crashes, 4)),
            (Act::Restart, only(weather.crashes, 1)),
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
struct Server {
    life: Arc<Life>,
    engine: Engine,
}

impl Server {
    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        self.life.world().with(f)
    }

    /// Lets one thing happen; true where it ended the server.
    async fn act(&self, act: Act) -> bool {
        match act {
            Act::GitHub => {
                for delivery in self.with(Inner::github_acts) {
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
            Act::Ensure => self.ensure(),
            Act::Command => self.command(),
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
            Act::Outsider => self.with(Inner::outsider),
            Act::StaleAnswer => self.stale_answer(),
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
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
    }

    /// A client speaks, and its answer is judged, unless the server is dead by then.
    fn client<T: 'static>(
        &self,
        ask: impl Future<Output = Result<T, EngineError>> + 'static,
        judge: impl FnOnce(&mut Inner, &Result<T, EngineError>) + 'static,
    ) {
        let life = Arc::clone(&self.life);
        let patience = self.with(|inner| {
            let goes_away = !inner.weather.calm && inner.chance.permille(50);
            goes_away.then(|| Duration::from_millis(inner.chance.between(1, 200)))
        });
        self.life.spawn(async move {
            let patience = patience.unwrap_or(Duration::from_secs(86_400));
            let Ok(answer) = tokio::time::timeout(patience, ask).await else { return };
            if !life.step() {
                return;
            }
            life.world().with(|inner| {
                if let Err(EngineError::StoreFailed(why)) = &answer
                    && !inner.is_aftermath()
                {
                    inner.violate(None, format!("a caller was refused for nothing: {why}"));
                }
                judge(inner, &answer);
            });
        });
    }

    fn deliver(&self, delivery: usize) {
        let engine = self.engine.clone();
        let nudge = self.with(|inner| inner.github.deliveries[delivery].nudge.clone());
        let (life, id) = (Arc::clone(&self.life), nudge.delivery.clone());
        let ask = async move {
            life.pause().await;
            engine.deliver(&account(), nudge).await
        };
        self.client(ask, move |inner, answer| {
            inner.note(None, || format!("{id} is answered: {answer:?}"));
            if answer.is_ok() {
                inner.github.deliveries[delivery].acknowledged = true;
                inner.check_acknowledged(&id);
            }
        });
    }

    fn ensure(&self) {
        let engine = self.engine.clone();
        let ask = self.with(|inner| {
            let number = inner.chance.between(1, inner.weather.issues);
            let template = inner.chance.permille(200).then(|| TemplateName::trusted("other"));
            let issue = inner.github.key(&mut inner.chance, number);
            inner.note(None, || format!("ensure {issue:?}"));
            EnsureIssue { issue, template, mode: None, title: None, cause: cause() }
        });
        let ask = async move { engine.ensure(&account(), ask).await };
        self.client(ask, |inner, answer| {
            inner.note(None, || match answer {
                Ok(ensured) => format!("ensured: {} {}", ensured.outcome, ensured.sandbox.id),
                Err(error) => format!("ensure failed: {error}"),
            });
            if let Ok(ensured) = answer {
                inner.check_told(&ensured.sandbox);
                if ensured.outcome == Outcome::Created
                    && ensured.sandbox.phase != Some(Phase::Creating)
                {
                    inner.violate(Some(ensured.sandbox.home), "created and not being created");
                }
            }
        });
    }

    /// A sandbox that a caller may mean: mostly one that lives.
    fn any_sandbox(&self) -> Option<Sandbox> {
        self.with(|inner| {
            let live = inner.rows.issues.values().filter_map(crate::issue::Issue::sandbox);
            let mut all: Vec<_> = live.collect();
            if inner.chance.permille(150) {
                all.extend(inner.rows.history.iter().cloned());
            }
            (!all.is_empty()).then(|| inner.chance.pick(&all).clone())
        })
    }

    fn command(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let engine = self.engine.clone();
        let command = self.with(|inner| {
            *inner.chance.pick(&[
                Command::Stop,
                Command::Start,
                Command::Retry,
                Command::Delete,
                Command::Delete,
            ])
        });
        self.with(|inner| {
            inner.note(Some(sandbox.home), || format!("command {command:?} {}", sandbox.id));
        });
        let meant = SandboxRef::Id(sandbox.id.clone());
        let ask = async move { engine.command(&account(), &meant, command, cause()).await };
        self.client(ask, move |inner, answer| {
            inner.note(Some(sandbox.home), || match answer {
                Ok(commanded) => format!("commanded: {:?}", commanded.sandbox.phase),
                Err(error) => format!("command failed: {error:?}"),
            });
            if let Ok(commanded) = answer
                && command == Command::Delete
            {
                inner.check_deleted(&commanded.sandbox);
            }
        });
    }

    fn work(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let engine = self.engine.clone();
        let meant = SandboxRef::Id(sandbox.id.clone());
        let ask =
            async move { engine.work(&account(), &meant, cause(), Duration::from_secs(20)).await };
        self.client(ask, |inner, answer| {
            if let Ok(work) = answer {
                inner.check_told(&work.sandbox);
            }
        });
    }

    fn wait(&self) {
        let Some(sandbox) = self.any_sandbox() else { return };
        let engine = self.engine.clone();
        let until = self.with(|inner| {
            *inner.chance.pick(&[WaitFor::Settled, WaitFor::Absent, WaitFor::Phase(Phase::Running)])
        });
        let meant = SandboxRef::Name(sandbox.name.clone());
        let ask =
            async move { engine.wait(&account(), &meant, until, Duration::from_secs(60)).await };
        self.client(ask, |_, _| {});
    }

    /// An answer comes once more, long after its call.
    fn stale_answer(&self) {
        let stale = self.with(|inner| {
            let stale = |issue: &crate::issue::Issue| {
                let record = issue.state.record()?;
                let older = record.attempt.0.checked_sub(1).filter(|older| *older > 0)?;
                Some((issue.home, record.id.clone(), older))
            };
            let all: Vec<_> = inner.rows.issues.values().filter_map(stale).collect();
            if all.is_empty() {
                return None;
            }
            let (home, sandbox, newest) = inner.chance.pick(&all).clone();
            let attempt = Attempt(u32::try_from(inner.chance.below(newest.into())).ok()? + 1);
            let result = match inner.chance.below(5) {
                0 => Ok(Done::Seen(Vec::new())),
                1 => Ok(Done::Down),
                2 => Ok(Done::Removing),
                3 => Err(Trouble::Absent),
                _ => Err(Trouble::Broken("long ago".into())),
            };
            inner.note(Some(home), || format!("a stale answer to attempt {}", attempt.0));
            Some((home, Answer { sandbox, attempt, result }))
        });
        let Some((home, answer)) = stale else { return };
        let core = self.engine.core_arc();
        self.life.spawn(async move {
            let message = || Message::Event {
                event: Box::new(IssueEvent::Answered(answer.clone())),
                reply: None,
                held: None,
            };
            core.registry.send(&core, home, message).await;
        });
    }

    /// No fault strikes any more: what was acknowledged must be done, and nothing left over.
    async fn come_to_rest(&self) {
        self.with(|inner| {
            inner.weather.calm = true;
            (inner.crash_in, inner.panic_in) = (None, None);
            inner.disturb("calm");
        });
        self.rest("everything comes to rest").await;
        self.with(Inner::check_rest);
        let live = self.with(|inner| {
            let live = inner.rows.issues.values().filter_map(crate::issue::Issue::sandbox);
            live.map(|sandbox| sandbox.id).collect::<Vec<_>>()
        });
        for id in live {
            let (account, meant) = (account(), SandboxRef::Id(id.clone()));
            let delete = self.engine.command(&account, &meant, Command::Delete, cause());
            if let Err(error) = delete.await {
                self.with(|inner| inner.violate(None, format!("{id} cannot be deleted: {error}")));
            }
        }
        self.rest("everything is deleted").await;
        self.with(Inner::check_nothing_left);
    }

    async fn rest(&self, what: &str) {
        let begin = tokio::time::Instant::now();
        loop {
            for delivery in self.with(|inner| inner.missing()) {
                self.deliver(delivery);
            }
            tokio::time::sleep(REST_PAUSE).await;
            let (rests, unrest) = self.with(|inner| {
                let unrest = inner.unrest();
                (unrest.is_none(), unrest)
            });
            if rests {
                return;
            }
            if begin.elapsed() > REST_TIME_MAX {
                let (home, why) = unrest.expect("it is not at rest");
                self.with(|inner| inner.violate(home, format!("never: {what}: {why}")));
                return;
            }
        }
    }
}

/// Later than any clock shows.
const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(i64::MAX);

fn registry(engine: &Engine) -> &Registry {
    &engine.core().registry
}

impl Inner {
    /// What is not at rest, where something is not.
    fn unrest(&self) -> Option<(Option<HomeId>, String)> {
        if let Some(at) = self.missing().first() {
            let guid = &self.github.deliveries[*at].nudge.delivery;
            return Some((None, format!("{guid} is not acknowledged")));
        }
        let under_way = |issue: &&crate::issue::Issue| issue.state.step().is_some();
        if let Some(issue) = self.rows.issues.values().find(under_way) {
            let phase = issue.state.phase();
            return Some((Some(issue.home), format!("it is still in {phase:?}")));
        }
        (!self.is_quiet()).then(|| (None, "something is still going to happen".into()))
    }

    /// At rest: everything acknowledged is there, one object for each live record and none else.
    fn check_rest(&mut self) {
        let acknowledged: Vec<_> =
            self.github.deliveries.iter().map(|d| d.nudge.delivery.clone()).collect();
        for guid in acknowledged {
            self.check_acknowledged(&guid);
        }
        let objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        let objects: Vec<Object> =
            objects.filter(|object| object.ours).map(|o| o.object.clone()).collect();
        for object in objects {
            let labels = object.labels.as_ref().expect("what a call makes has labels");
            let issue = self.rows.issues.get(&labels.home);
            let record = issue.and_then(|issue| issue.state.record());
            if record.is_none_or(|record| record.id != labels.sandbox) {
                let what = format!("{} of {} is an orphan", object.external_id, labels.sandbox);
                self.violate(Some(labels.home), what);
            }
        }
        if !self.weather.outsiders {
            self.check_present();
        }
        if !self.weather.callers {
            self.check_truth();
        }
    }

    /// Where nobody laid hands on objects: what is recorded as up or down is there.
    fn check_present(&mut self) {
        let lost = self.rows.issues.values().find_map(|issue| {
            let (Some(Phase::Running | Phase::Stopped), Some(id)) =
                (issue.state.phase(), issue.state.external_id())
            else {
                return None;
            };
            let mut objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
            let there = objects.any(|object| object.object.external_id == *id);
            (!there).then(|| (issue.home, format!("{id} is recorded and not there")))
        });
        if let Some((home, what)) = lost {
            self.violate(Some(home), what);
        }
    }

    /// Where only GitHub spoke: what it says last is what came of it.
    fn check_truth(&mut self) {
        let wrong = self.rows.issues.values().find_map(|issue| {
            let number = self.github.issue_of(&issue.facts.issue_id)?;
            let truth = &self.github.issues[usize::try_from(number).ok()? - 1];
            let phase = issue.state.phase();
            let up = phase == Some(Phase::Running);
            let fits = if truth.deleted {
                true
            } else if !truth.open {
                !up
            } else if truth.labelled {
                issue.generation == Generation(0) || phase.is_some()
            } else {
                true
            };
            (!fits)
                .then(|| (issue.home, format!("issue {number} is not as GitHub says: {phase:?}")))
        });
        if let Some((home, what)) = wrong {
            self.violate(Some(home), what);
        }
    }

    /// Everything was deleted: no object of ours is left, and everybody else's is.
    fn check_nothing_left(&mut self) {
        let objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        let left = objects.filter(|object| object.ours).map(|o| o.object.clone()).next();
        if let Some(object) = left {
            let home = object.labels.map(|labels| labels.home);
            self.violate(home, format!("{} is left over", object.external_id));
        }
    }

    /// Somebody lays hands on objects, or makes some.
    fn outsider(&mut self) {
        let cloud = usize::try_from(self.chance.below(self.clouds.len() as u64)).expect("an index");
        let count = self.clouds[cloud].objects.len() as u64;
        let any = usize::try_from(self.chance.below(count)).expect("an index");
        match self.chance.below(6) {
            0 if count > 0 => {
                let object = self.clouds[cloud].objects.remove(any).object;
                self.note(None, || format!("somebody removes {}", object.external_id));
            }
            1 if count > 0 => {
                let object = &mut self.clouds[cloud].objects[any].object;
                if object.state == ObjectState::Running {
                    object.state = ObjectState::Stopped;
                }
                let id = object.external_id.clone();
                self.note(None, || format!("somebody stops {id}"));
            }
            2 if count > 0 => self.clouds[cloud].objects.retain(|object| object.ours),
            _ => self.outsider_makes(cloud),
        }
    }

    /// Somebody makes an object under a name of ours: without labels, with another installation's,
    /// or with labels of ours that a copy brought back.
    fn outsider_makes(&mut self, cloud: usize) {
        let homes: Vec<(HomeId, IssueId, u32)> = self
            .rows
            .issues
            .values()
            .map(|issue| (issue.home, issue.facts.issue_id.clone(), issue.generation.0))
            .collect();
        if homes.is_empty() {
            return;
        }
        let (home, issue, generation) = self.chance.pick(&homes).clone();
        let number = self.fresh();
        let labels = |inner: &mut Self, instance: InstanceId| Labels {
            instance,
            account: account(),
            home,
            issue: issue.clone(),
            sandbox: SandboxId::trusted(format!("theirs-{number}")),
            generation: Generation(
                u32::try_from(inner.chance.below(u64::from(generation) + 2)).expect("it is small"),
            ),
            mode: Mode::Strong,
        };
        let labels = match self.chance.below(3) {
            0 => None,
            1 => Some(labels(self, InstanceId::trusted("another"))),
            _ => Some(labels(self, instance())),
        };
        let name = ObjectName::for_home(&account(), home, &issue.sandbox_name());
        let objects = &self.clouds[cloud].objects;
        if self.clouds[cloud].rules.names_enforced && objects.iter().any(|o| o.object.name == name)
        {
            return;
        }
        let external_id = ExternalId::trusted(format!("theirs-{number}"));
        let state = ObjectState::Running;
        let object = Object { external_id, name, labels, state };
        if is_ours(&object)
            && let Some(labels) = &object.labels
        {
            self.ledger.belongs(labels.sandbox.clone(), home);
        }
        self.note(Some(home), || {
            format!("somebody makes {} {:?}", object.external_id, object.labels)
        });
        self.clouds[cloud].objects.push(SimObject { object, ours: false });
    }
}
