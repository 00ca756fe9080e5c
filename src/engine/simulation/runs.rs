//! The worker of runs as one server has it: the real one, over the world's sandboxes, with a verification that
//! takes its time and may speak against a run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc, watch};

use super::chance::Chance;
use super::counts::Happening;
use super::store::SimStore;
use super::time::SimClock;
use super::world::{ServerLife, WorldState};
use crate::clock::Clock;
use crate::config::AgentProgram;
use crate::conversation::{RunOrder, RunWait};
use crate::engine::Engine;
use crate::github::task::Task;
use crate::runs::journal::Journals;
use crate::runs::{
    AgentPrograms, AgentWorkplace, GoingRuns, RunChange, RunGate, RunParts, RunWorker,
    SessionCopies,
};
use crate::sandbox::{
    Capability, ExecEvent, ExecRequest, Execution, Offset, PortAccess, ProcessExit, ProcessId,
    ProcessOutput, ProcessSpec, Processes, Signal, Target, Terminal, TerminalRequest, WorkError,
};
use crate::store::conversation::ConversationStore;
use crate::types::{AgentName, AgentWorkload, HomeId, PublishMode, WhileRunning};

/// Why a run waits whose issue GitHub spoke against.
pub const SPOKE_AGAINST: &str = "GitHub spoke against it";

/// What it is like for agents to work.
#[derive(Clone, Debug)]
pub struct RunWeather {
    /// Calls on processes that go wrong.
    pub faults: u64,
    /// Verifications that speak against a run.
    pub refusals: u64,
    /// How many runs may go on at the same time; 0 for no bound.
    pub places: usize,
    pub while_running: WhileRunning,
    /// How often people say something, beside what else happens.
    pub people: u64,
}

impl RunWeather {
    /// What it is like in a history of this seed, if agents work in it. Only some histories have them: the
    /// others keep what they were before there was this.
    pub fn of(seed: u64) -> Option<Self> {
        if seed % 6 != 4 {
            return None;
        }
        let mut chance = Chance::new(seed ^ 0xa6e2);
        Some(Self {
            faults: *chance.pick(&[0, 0, 50, 200]),
            refusals: *chance.pick(&[0, 50, 200]),
            places: *chance.pick(&[0, 1, 2]),
            while_running: *chance.pick(&WhileRunning::ALL),
            people: chance.between(6, 30),
        })
    }

    /// The agent of the templates.
    pub fn agent(&self) -> AgentWorkload {
        AgentWorkload {
            name: agent_name(),
            model: None,
            run_time_max: Duration::from_secs(300),
            quiet_time_max: Duration::from_secs(90),
            turns_max: None,
            while_running: self.while_running,
            instructions: String::new(),
        }
    }
}

fn agent_name() -> AgentName {
    AgentName::trusted("worker")
}

/// Begins to carry runs out in one life of the server.
pub fn begin(
    life: &Arc<ServerLife>,
    engine: &Engine,
    store: &Arc<SimStore>,
    changes: mpsc::UnboundedReceiver<RunChange>,
) {
    let clock: Arc<dyn Clock> = Arc::new(SimClock(Arc::clone(life)));
    let going = Arc::new(GoingRuns::new(Arc::clone(&clock)));
    let (weather, dir) = life.world().with(|inner| {
        inner.agents.going = Some(Arc::clone(&going));
        inner.agents.begun_ms = inner.elapsed_ms();
        let make = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = inner.agents.dir.get_or_insert_with(|| make().expect("a directory"));
        (inner.weather.clone(), dir.path().to_owned())
    });
    let runs = weather.runs.expect("agents work");
    let processes = weather.providers.iter().enumerate().map(|(cloud, provider)| {
        let life = Arc::clone(life);
        (provider.name.clone(), Arc::new(WorldProcesses { life, cloud }) as Arc<dyn Processes>)
    });
    // Any file that is there: it is started in the world alone.
    let program = AgentProgram::new("command", Some("/bin/sh".into()));
    let rows = Arc::clone(store) as Arc<dyn ConversationStore>;
    let tasks = Arc::clone(life);
    let worker = RunWorker::new(RunParts {
        hooks: None,
        engine: engine.clone(),
        store: Arc::clone(store) as _,
        journals: Arc::new(Journals::new(
            dir.join("journals"),
            Arc::clone(&rows),
            Arc::clone(&clock),
        )),
        rows,
        processes: processes.collect::<HashMap<_, _>>(),
        programs: AgentPrograms::find(&BTreeMap::from([(agent_name(), program)]), ""),
        gate: Arc::new(SimGate { life: Arc::clone(life) }),
        sessions: SessionCopies::new(dir.join("sessions")),
        going,
        places: Arc::new(Semaphore::new(if runs.places == 0 { 100 } else { runs.places })),
        publish: PublishMode::default(),
        spawn: Arc::new(move |task| tasks.spawn(task)),
        clock,
    });
    let (server, ended) = watch::channel(false);
    life.spawn(async move {
        // It never ends but with its life.
        let _server = server;
        worker.run(changes, ended).await;
    });
}

/// Verification and checkout.
struct SimGate {
    life: Arc<ServerLife>,
}

#[async_trait]
impl RunGate for SimGate {
    async fn ready(
        &self,
        home: HomeId,
        order: &RunOrder,
        waits: &(dyn Fn(RunWait, String) + Send + Sync),
    ) -> Result<AgentWorkplace, String> {
        let world = self.life.world();
        if world.with(|inner| inner.chance.permille(300)) {
            waits(RunWait::Verification, "GitHub does not answer".into());
        }
        self.life.takes_time().await;
        let is_refused = world.with(|inner| {
            let rate = inner.weather.runs.as_ref().map_or(0, |runs| runs.refusals);
            inner.weather.strikes(&mut inner.chance, rate)
        });
        if is_refused {
            world.with(|inner| inner.count(Happening::RefusedVerification));
            return Err(SPOKE_AGAINST.into());
        }
        if world.with(|inner| inner.chance.permille(300)) {
            waits(RunWait::Checkout, "it is cloned".into());
            self.life.takes_time().await;
        }
        world.with(|inner| {
            inner.note(Some(home), || format!("verified: run {} of {}", order.run, order.messages));
            let verified = (order.sandbox.clone(), order.messages);
            inner.agents.verified.insert(order.run, verified);
        });
        Ok(AgentWorkplace::default())
    }

    async fn task(&self, _: HomeId) -> Result<Option<Task>, String> {
        self.life.takes_time().await;
        let is_away = self.life.world().with(WorldState::call_on_agent_fails);
        if is_away { Err("GitHub is away".into()) } else { Ok(None) }
    }
}

/// A client of the processes in the sandboxes of one of the world's providers.
struct WorldProcesses {
    life: Arc<ServerLife>,
    cloud: usize,
}

impl WorldProcesses {
    /// On the way to the sandbox, or back; it never arrives if the server is gone.
    async fn travel(&self) {
        self.life.pause().await;
        if !self.life.step() {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Processes for WorldProcesses {
    async fn spawn(&self, target: Target, spec: ProcessSpec) -> Result<ProcessId, WorkError> {
        self.travel().await;
        let begun = self.life.world().with(|inner| inner.spawn_agent(self.cloud, target, &spec));
        self.travel().await;
        begun
    }

    async fn tagged(&self, target: Target, tag: &str) -> Result<Option<ProcessId>, WorkError> {
        self.travel().await;
        let found = self.life.world().with(|inner| inner.tagged_agent(self.cloud, &target, tag));
        self.travel().await;
        found
    }

    async fn attach(
        &self,
        _: Target,
        id: ProcessId,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError> {
        self.travel().await;
        let events = self.life.world().with(|inner| inner.attach_to_agent(&id, from))?;
        Ok(ProcessOutput { events })
    }

    async fn write_stdin(&self, _: Target, _: ProcessId, _: Bytes) -> Result<(), WorkError> {
        Err(WorkError::StdinClosed)
    }

    async fn close_stdin(&self, _: Target, _: ProcessId) -> Result<(), WorkError> {
        Ok(())
    }

    async fn signal(&self, _: Target, id: ProcessId, signal: Signal) -> Result<(), WorkError> {
        self.travel().await;
        self.life.world().with(|inner| inner.signal_agent(&id, signal))
    }

    async fn wait(&self, _: Target, id: ProcessId) -> Result<ProcessExit, WorkError> {
        self.travel().await;
        let answer = self.life.world().with(|inner| inner.wait_for_agent(&id))?;
        let answer = answer.await.unwrap_or(Err(WorkError::NotRunning));
        self.travel().await;
        answer
    }

    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError> {
        self.travel().await;
        let (sender, events) = mpsc::channel(4);
        let (life, cloud) = (Arc::clone(&self.life), self.cloud);
        let ExecRequest { command, mut stdin, .. } = request;
        self.life.spawn(async move {
            let mut input = BytesMut::new();
            while let Some(piece) = stdin.next().await {
                input.extend_from_slice(&piece);
            }
            life.pause().await;
            if !life.step() {
                return;
            }
            let done =
                life.world().with(|inner| inner.exec_in(cloud, &target, &command, input.freeze()));
            // One whose sandbox went down ends without a word.
            let Ok((code, output)) = done else { return };
            life.pause().await;
            if !output.is_empty() {
                drop(sender.send(ExecEvent::Stdout(output)).await);
            }
            drop(sender.send(ExecEvent::Exit { code, timed_out: false }).await);
        });
        Ok(Execution { events })
    }

    async fn terminal(&self, _: Target, _: TerminalRequest) -> Result<Terminal, WorkError> {
        Err(WorkError::Unsupported(Capability::Terminal))
    }

    async fn port(&self, _: Target, _: u16) -> Result<PortAccess, WorkError> {
        Err(WorkError::Unsupported(Capability::Ports))
    }
}
