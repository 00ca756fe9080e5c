//! One process of a run: it is started, read to its end, and ended where it must be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::RunParts;
use super::begin::BegunRun;
use super::dialogue::Talk;
use super::follow::{Following, Heard};
use super::going::Going;
use super::inside::Inside;
use super::journal::OutputPlace;
use super::live::LiveWords;
use super::prepare::PreparedProcess;
use super::program::KnownAgent;
use super::watch::{EndCause, ProcessEnding, RunBounds};
use super::worker::RunWorker;
use crate::agents::{
    AgentEvent, AgentExit, LineReader, LineSplitter, RunOutcome, RunReport, SessionStart,
};
use crate::clock::Clock;
use crate::conversation::{Run, RunEnd, RunEvent, RunOrder, RunOrderKind};
use crate::engine::Work;
use crate::issue::Issue;
use crate::models::RunningRun;
use crate::models::refusal::ModelRefusal;
use crate::sandbox::{Offset, OutputStream, ProcessExit, ProcessId, Signal, WorkError};
use crate::types::{
    AccountName, AgentWorkload, HomeId, NetworkKind, RunId, SessionId, Timestamp, beginning,
};

/// How long output is still read after the process has ended: a child of it may hold it open.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// How often that wait begins again while its output cannot be connected to.
const DRAINS_MAX: u32 = 60;
/// Longest summary that is kept, in characters.
const SUMMARY_LEN_MAX: usize = crate::agents::prompt::SUMMARY_CHARS_MAX;

/// A process that runs, or did.
pub(super) struct StartedProcess {
    pub id: ProcessId,
    /// What is said with it; `None` if it only reads its input.
    pub talk: Option<Talk>,
    /// The session that it begins or goes on with.
    pub session: SessionId,
    /// Up to where its output is in the journal.
    pub journaled: Offset,
    /// When it was started.
    pub started_at: Timestamp,
}

/// What a run is carried out with, once it is known.
pub(super) struct Bench {
    pub home: HomeId,
    pub run: RunId,
    pub attempt: u32,
    /// Keeps the sandbox from being idle.
    _work: Work,
    pub inside: Inside,
    pub agent: KnownAgent,
    pub workload: AgentWorkload,
    pub issue: Issue,
    pub going: Going,
}

impl RunWorker {
    /// Carries out a run that is recorded as running, and reports how it ended.
    pub(super) async fn execute(
        &self,
        home: HomeId,
        account: &AccountName,
        begun: BegunRun,
        orders: &mut watch::Receiver<Option<RunOrder>>,
    ) {
        let (run, attempt) = (begun.run.id, begun.run.attempt);
        let work = async {
            let bench = self.bench(home, account, &begun).await?;
            self.before_run(account, &bench).await;
            Ok(bench)
        };
        let bench = match while_wanted(orders, &begun.run, work).await {
            Ok(bench) => bench,
            Err(end) => return self.report(home, RunEvent::Ended(run, attempt, end)).await,
        };
        let end = self.run_agent(&bench, &begun, None, orders).await;
        self.report(home, RunEvent::Ended(run, attempt, end)).await;
        self.after_run(account, &bench).await;
    }

    /// Finds what the run needs.
    pub(super) async fn bench(
        &self,
        home: HomeId,
        account: &AccountName,
        begun: &BegunRun,
    ) -> Result<Bench, RunEnd> {
        let RunParts { processes, programs, going, .. } = self.parts.as_ref();
        let sandbox = begun.run.sandbox.clone().ok_or(RunEnd::Lost)?;
        let agent = programs.get(&begun.run.agent);
        let agent = agent.map_err(|error| RunEnd::Failed(error.to_string()))?;
        let issue = self.load(home).await?.ok_or(RunEnd::Lost)?;
        let of_template =
            issue.state.record().and_then(|record| record.template.workload.agent.clone());
        // A message can name an agent although the template has none.
        let workload = of_template.unwrap_or_else(|| AgentWorkload::usual(begun.run.agent.clone()));
        let work = self.work(account, &sandbox).await?;
        let processes = processes.get(&work.sandbox.provider).map(Arc::clone);
        let processes = processes.ok_or_else(|| {
            RunEnd::Failed(format!("the provider {} runs no agents", work.sandbox.provider))
        })?;
        let inside = Inside { processes, target: work.target.clone() };
        let network = issue.state.record().map(|record| record.template.network.kind());
        let going = going.begin(
            sandbox,
            RunningRun {
                run: begun.run.id,
                home,
                account: account.clone(),
                repository: issue.facts.repository.clone(),
                may_fetch: matches!(network, Some(NetworkKind::Full | NetworkKind::Host)),
            },
        );
        let (run, attempt) = (begun.run.id, begun.run.attempt);
        Ok(Bench { home, run, attempt, _work: work, inside, agent, workload, issue, going })
    }

    /// Runs the agent, a second time if it has not the session that was expected. `started` is its process
    /// if there is one already.
    pub(super) async fn run_agent(
        &self,
        bench: &Bench,
        begun: &BegunRun,
        mut started: Option<StartedProcess>,
        orders: &mut watch::Receiver<Option<RunOrder>>,
    ) -> RunEnd {
        let adapter = bench.agent.adapter;
        let mut session = begun.session.id;
        // Whether the session's file is there, once that is known otherwise than by looking.
        let mut is_there = None;
        for _ in 0..2 {
            let process = match started.take() {
                Some(process) => process,
                None => {
                    let is_there = is_there.take();
                    let prepared = async {
                        self.end_former(bench).await?;
                        self.prepare(bench, begun, session, is_there).await
                    };
                    let prepared = match while_wanted(orders, &begun.run, prepared).await {
                        Ok(prepared) => prepared,
                        Err(end) => return end,
                    };
                    match self.start(bench, prepared).await {
                        Ok(process) => process,
                        Err(end) => return end,
                    }
                }
            };
            let (outcome, report) = match self.read_process(bench, process, orders).await {
                Ok(ended) => ended,
                Err(end) => return end,
            };
            if let Some(chosen) = report.session_id().filter(|_| adapter.chooses_session()) {
                session = chosen;
            }
            let RunParts { sessions, .. } = self.parts.as_ref();
            if let Err(reason) = sessions.keep(&bench.inside, bench.home, adapter, &session).await {
                tracing::warn!(home = bench.home.0, run = %bench.run, reason,
                    "cannot copy an agent's session out of its sandbox; the next generation begins without it");
            }
            match outcome {
                RunOutcome::SessionMissing => is_there = Some(None),
                RunOutcome::SessionTaken => is_there = Some(Some(String::new())),
                RunOutcome::Succeeded { summary } => {
                    return RunEnd::Succeeded(beginning(&summary, SUMMARY_LEN_MAX));
                }
                RunOutcome::OverBudget { words } => return RunEnd::OverBudget(words),
                RunOutcome::Failed { reason, is_transient } => {
                    return failed(reason, is_transient, bench.going.run.refused());
                }
                RunOutcome::Interrupted => {
                    return RunEnd::Failed("a signal ended the agent".to_owned());
                }
                RunOutcome::Lost { reason } => return RunEnd::Failed(reason),
            }
        }
        RunEnd::Failed("the agent neither begins nor resumes its session".to_owned())
    }

    /// Starts a process.
    async fn start(
        &self,
        bench: &Bench,
        prepared: PreparedProcess,
    ) -> Result<StartedProcess, RunEnd> {
        let PreparedProcess { spec, dialogue, session } = prepared;
        let (processes, target) = (&bench.inside.processes, &bench.inside.target);
        let id = match processes.spawn(target.clone(), spec).await {
            Ok(id) => id,
            Err(WorkError::NotRunning) => return Err(RunEnd::Lost),
            Err(WorkError::CommandNotFound(words) | WorkError::CannotStart(words)) => {
                let reason = format!("the agent's program could not be started: {words}");
                return Err(RunEnd::Failed(reason));
            }
            // The answer may be lost of a process that was started.
            Err(WorkError::Broken(words)) => {
                self.find(bench, bench.attempt).await?.ok_or(RunEnd::Failed(words))?
            }
            Err(error) => return Err(RunEnd::Failed(error.to_string())),
        };
        let talk = dialogue.map(|dialogue| Talk::new(dialogue, &bench.inside, &id));
        let (SessionStart::New(session) | SessionStart::Resume(session)) = session;
        let started_at = self.parts.clock.now();
        Ok(StartedProcess { id, talk, session, journaled: Offset(0), started_at })
    }

    /// Reads a process to its end.
    async fn read_process(
        &self,
        bench: &Bench,
        process: StartedProcess,
        orders: &mut watch::Receiver<Option<RunOrder>>,
    ) -> Result<(RunOutcome, RunReport), RunEnd> {
        let adapter = bench.agent.adapter;
        let mut reading = Reading::new(self, bench, process);
        let exit = reading.read_all(orders).await;
        let Reading { report, ending, .. } = reading;
        let exit = match exit {
            Some(exit) => AgentExit::Code(exit.code),
            None => return Err(RunEnd::Lost),
        };
        let outcome = adapter.outcome(exit, &report);
        match (ending.map(|ending| ending.cause), &outcome) {
            (None | Some(EndCause::TurnOver), _) | (Some(_), RunOutcome::Succeeded { .. }) => {
                Ok((outcome, report))
            }
            (Some(EndCause::Cancelled), _) => Err(RunEnd::Cancelled),
            (Some(EndCause::Limit(reason)), _) => Err(RunEnd::Failed(reason)),
        }
    }
}

/// A run whose sandbox went down under a command of ours is lost; it failed otherwise.
pub(super) fn unless_down(reason: String) -> RunEnd {
    let words = WorkError::NotRunning.to_string();
    let is_down = reason == words || reason == "the sandbox went down";
    if is_down { RunEnd::Lost } else { RunEnd::Failed(reason) }
}

/// Whether an order means that the process of this attempt is to be there.
fn wants(order: &Option<RunOrder>, run: RunId, attempt: u32) -> bool {
    let is_ours = order.as_ref().filter(|order| order.run == run);
    match is_ours.map(|order| order.kind) {
        Some(RunOrderKind::End(ended)) => ended != attempt,
        Some(RunOrderKind::Begin(_) | RunOrderKind::Follow(_)) => true,
        // The sandbox goes down, or another run has the place.
        None => false,
    }
}

/// Does what comes before the process of a run, as long as that is to be started.
async fn while_wanted<T>(
    orders: &watch::Receiver<Option<RunOrder>>,
    run: &Run,
    work: impl Future<Output = Result<T, RunEnd>>,
) -> Result<T, RunEnd> {
    let mut orders = orders.clone();
    tokio::select! {
        biased;
        // An error means that the worker ends, and this with it.
        _ = orders.wait_for(|order| !wants(order, run.id, run.attempt)) => Err(RunEnd::Cancelled),
        done = work => done,
    }
}

/// A process while it is read.
pub(super) struct Reading<'a> {
    pub worker: &'a RunWorker,
    pub bench: &'a Bench,
    id: ProcessId,
    /// Reads its lines, if there is no dialogue.
    pub reader: Box<dyn LineReader>,
    pub talk: Option<Talk>,
    /// The session that it begins or goes on with.
    pub session: SessionId,
    lines: LineSplitter,
    /// Up to where its output is in the journal: what comes before is read for what it says of the process.
    journaled: Offset,
    /// Up to where its output was read, and where the line ends that is being read.
    read: Offset,
    line_end: Offset,
    started_at: Timestamp,
    pub report: RunReport,
    pub ending: Option<ProcessEnding>,
    /// Whether it was reported that something came of it.
    pub has_progressed: bool,
    live: LiveWords,
}

impl<'a> Reading<'a> {
    fn new(worker: &'a RunWorker, bench: &'a Bench, process: StartedProcess) -> Self {
        let StartedProcess { id, talk, session, journaled, started_at } = process;
        Self {
            worker,
            bench,
            id,
            reader: bench.agent.adapter.reader(),
            talk,
            session,
            lines: LineSplitter::default(),
            journaled,
            read: Offset(0),
            line_end: Offset(0),
            started_at,
            report: RunReport::default(),
            ending: None,
            has_progressed: false,
            live: LiveWords::new(),
        }
    }

    /// Reads the process to its end, and ends it where the conversation or a bound wants that. `None` if
    /// the sandbox went down under it.
    async fn read_all(
        &mut self,
        orders: &mut watch::Receiver<Option<RunOrder>>,
    ) -> Option<ProcessExit> {
        let RunParts { clock, engine, .. } = self.worker.parts.as_ref();
        let bounds = RunBounds {
            run_time_max: self.bench.workload.run_time_max,
            quiet_time_max: self.bench.workload.quiet_time_max,
            started_at: self.started_at,
        };
        let mut holds = engine.holds_changed();
        let mut following =
            Following::new(self.bench.inside.clone(), Arc::clone(clock), self.id.clone());
        let (mut exit, mut drained_at): (Option<ProcessExit>, Option<Timestamp>) = (None, None);
        let mut drains = DRAINS_MAX;
        self.speak().await;
        loop {
            let order = orders.borrow_and_update().clone();
            self.obey(&order);
            self.hear(&order).await;
            self.send_due().await;
            self.show_due().await;
            let due = [self.live.due(), self.ending.as_ref().map(|ending| ending.due), drained_at];
            // A process that ends or has ended is bound by that alone.
            let is_bounded = self.ending.is_none() && exit.is_none();
            let active_at = self.active_at();
            let wake = bounds.wake(is_bounded, active_at, due.into_iter().flatten());
            tokio::select! {
                biased;
                heard = following.next() => match heard {
                    Heard::Output(from, stream, bytes) => self.take(from, stream, &bytes).await,
                    Heard::Gap(from, to) => self.gap(from, to).await,
                    Heard::Exited(ended) => {
                        exit = Some(ended);
                        drained_at = Some(clock.now().after(DRAIN_WAIT));
                    }
                    Heard::Ended(ended) => {
                        exit = Some(ended);
                        break;
                    }
                    Heard::Gone => break,
                },
                changed = orders.changed() => changed.ok()?,
                () = holds.changed() => self.ask_held().await,
                () = sleep_until(clock, wake) => {}
            }
            if drained_at.is_some_and(|at| at <= clock.now()) {
                // What it wrote is read first where the connection was lost.
                if drains == 0 || following.is_drained(DRAIN_WAIT) {
                    break;
                }
                drains -= 1;
                drained_at = Some(clock.now().after(DRAIN_WAIT));
            }
            if self.ending.is_none()
                && exit.is_none()
                && let Some(reason) = bounds.passed(self.active_at(), clock.now())
            {
                self.end(EndCause::Limit(reason));
            }
        }
        let mut last = Vec::new();
        self.lines.finish(|line| last.push(line.to_vec()));
        self.line_end = self.read;
        for line in last {
            self.line(&line).await;
        }
        exit
    }

    /// Whether what is read now is not in the journal. Nothing is if nothing was read, as when a dialogue
    /// begins.
    fn is_new(&self) -> bool {
        self.journaled == Offset(0) || self.line_end > self.journaled
    }

    /// Does what the conversation orders.
    fn obey(&mut self, order: &Option<RunOrder>) {
        if !wants(order, self.bench.run, self.bench.attempt) && self.ending.is_none() {
            self.end(EndCause::Cancelled);
        }
    }

    /// When it was last active. It is not quiet while a person is asked.
    fn active_at(&self) -> Timestamp {
        match self.waits_for_person() {
            true => self.worker.parts.clock.now(),
            false => self.bench.going.run.active_at(),
        }
    }

    pub(super) fn end(&mut self, cause: EndCause) {
        self.interrupt();
        let interrupt = self.bench.agent.adapter.interrupt();
        self.ending = Some(ProcessEnding::new(cause, interrupt, self.worker.parts.clock.now()));
    }

    async fn send_due(&mut self) {
        let now = self.worker.parts.clock.now();
        let Some(signal) = self.ending.as_mut().and_then(|ending| ending.due(now)) else { return };
        let Inside { processes, target } = &self.bench.inside;
        // One that is gone needs no signal; one that cannot be reached is tried again.
        let _ = processes.signal(target.clone(), self.id.clone(), signal).await;
        if signal == Signal::Kill {
            tracing::warn!(run = %self.bench.run, "an agent that did not end was killed");
        }
    }

    /// A hold was put on or released: a run whose issue is held is cancelled.
    async fn ask_held(&mut self) {
        let Bench { home, run, issue, .. } = self.bench;
        if let Some(reason) = self.worker.parts.engine.hold_on(issue) {
            self.worker.report(*home, RunEvent::Cancel(Some(*run), reason)).await;
        }
    }

    async fn take(&mut self, from: Offset, stream: OutputStream, bytes: &[u8]) {
        self.bench.going.run.touch(self.worker.parts.clock.now());
        // What a gap has left of it before its place in the journal begins inside of a line.
        let known = usize::try_from(self.read.0.saturating_sub(from.0)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(known..).filter(|bytes| !bytes.is_empty()) else { return };
        let from = Offset(from.0 + known as u64);
        self.read = Offset(from.0 + bytes.len() as u64);
        match stream {
            OutputStream::Stderr => self.report.read_stderr(bytes),
            OutputStream::Stdout => {
                let behind = |at| Offset(from.0 + at as u64 + 1);
                let mut ends = memchr::memchr_iter(b'\n', bytes).map(behind);
                let mut lines = Vec::new();
                self.lines.push(bytes, |line| lines.push((line.to_vec(), ends.next())));
                for (line, end) in lines {
                    self.line_end = end.unwrap_or(self.read);
                    self.line(&line).await;
                }
            }
        }
    }

    /// Has the issue show what the agent does, when it is time.
    async fn show_due(&mut self) {
        let RunParts { clock, engine, .. } = self.worker.parts.as_ref();
        let (now, facts) = (clock.now(), &self.bench.issue.facts);
        let is_placed = facts.repository_id.is_some() && facts.number.is_some();
        if self.live.due().is_none_or(|at| at > now) {
            return;
        }
        self.live.shown(now);
        if !is_placed {
            return;
        }
        if let Err(error) = engine.show_progress(self.bench.home).await {
            tracing::warn!(home = self.bench.home.0, %error,
                "cannot have the status comment show what an agent does");
        }
    }

    async fn gap(&mut self, from: Offset, to: Offset) {
        self.lines = LineSplitter::default();
        // Those in the journal are not missing.
        let missing = to.0.saturating_sub(from.max(self.journaled).0);
        self.read = to.max(self.journaled);
        self.line_end = self.read;
        if missing > 0 {
            let words = format!("{missing} bytes of output are missing");
            self.emit(vec![AgentEvent::note(&words)]).await;
        }
    }

    async fn line(&mut self, line: &[u8]) {
        let events = self.read_line(line);
        self.emit(events).await;
        self.speak().await;
    }

    pub(super) async fn emit(&mut self, events: Vec<AgentEvent>) {
        let Bench { home, run, attempt, .. } = self.bench;
        let mut names_session = false;
        for event in &events {
            self.report.read(event);
            names_session |= matches!(event, AgentEvent::Started { .. });
            if event.is_progress() && !self.has_progressed {
                self.has_progressed = true;
                names_session = true;
                self.worker.report(*home, RunEvent::Progressed(*run, *attempt)).await;
            }
        }
        if names_session {
            self.keep_session_name().await;
        }
        if self.live.take(&events) {
            self.bench.going.run.does(self.live.doing.clone());
        }
        let chooses = self.bench.agent.adapter.chooses_session();
        let started = events.iter().any(|event| matches!(event, AgentEvent::Started { .. }));
        if let Some(session) = self.report.session_id().filter(|_| chooses && started) {
            self.worker.report(*home, RunEvent::InSession(*run, *attempt, session)).await;
        }
        if self.is_new() {
            let at = OutputPlace { process: self.id.number, read: self.line_end };
            self.worker.parts.journals.printed(*home, *run, at, &events).await;
        }
    }
}

/// Sleeps; for ever if there is no time to wake.
async fn sleep_until(clock: &Arc<dyn Clock>, wake: Option<Timestamp>) {
    match wake {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// How a run ends whose agent failed. If that was because the gateway refused a request, its words say why:
/// agents shorten them, or put others in their place.
fn failed(reason: String, is_transient: bool, refused: Option<ModelRefusal>) -> RunEnd {
    let until = match refused {
        Some(ModelRefusal::Wait(until)) => Some(until),
        Some(_) | None => None,
    };
    let reason = refused.map_or(reason, |refusal| refusal.to_string());
    match is_transient {
        true => RunEnd::Unavailable(reason, until),
        false => RunEnd::Failed(reason),
    }
}
