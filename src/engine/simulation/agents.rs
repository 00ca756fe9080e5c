//! Agents in the world: processes in its sandboxes, which read what they are given, keep their session in a
//! file, say things, ask models, and end by themselves, by a signal, or with their sandbox.

mod checks;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::counts::Happening;
use super::world::{SimEffect, WorldState};
use crate::agents::{AgentEvent, TextPart, TurnEnd};
use crate::runs::GoingRuns;
use crate::sandbox::{
    Offset, OutputStream, ProcessEvent, ProcessExit, ProcessId, ProcessSpec, Signal, Target,
    WorkError,
};
use crate::types::{ExternalId, HomeId, ObjectState, Phase, RunId, SandboxId};

/// How many events of a process wait for a reader: more than one ever prints.
const EVENTS_MAX: usize = 64;
/// How long a server may take until it follows an agent again that outlived the last one, in milliseconds.
const TAKE_OVER_MS_MAX: u64 = 120_000;

/// Everything about agents that outlives a server.
#[derive(Default)]
pub struct SimAgents {
    processes: BTreeMap<u64, WorldProcess>,
    /// The files in the workspaces of objects.
    files: BTreeMap<ExternalId, BTreeMap<String, Bytes>>,
    /// Runs that may begin: in which sandbox, and with how many messages.
    pub verified: BTreeMap<RunId, (SandboxId, u32)>,
    /// The session of each home.
    sessions: BTreeMap<HomeId, String>,
    /// The runs that the server knows to go on.
    pub going: Option<Arc<GoingRuns>>,
    /// When the server began, in milliseconds of the history.
    pub begun_ms: u64,
    /// Where journals and copies of sessions are, made when the first server begins.
    pub dir: Option<tempfile::TempDir>,
}

/// A process of an agent.
struct WorldProcess {
    home: HomeId,
    run: RunId,
    cloud: usize,
    target: Target,
    prompt: String,
    session_file: String,
    tag: Option<String>,
    output: Vec<u8>,
    state: AgentLife,
    /// It ends by SIGKILL alone.
    is_stubborn: bool,
    /// What it is going to do, and after how many milliseconds. A new plan has a new number.
    acts: VecDeque<(u64, AgentAct)>,
    plan: u64,
    readers: Vec<mpsc::Sender<ProcessEvent>>,
    waiting: Vec<oneshot::Sender<Result<ProcessExit, WorkError>>>,
    /// Since when it is to end, in milliseconds of the history.
    unwanted_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentLife {
    Runs,
    Ended(i32),
    /// Its sandbox went down under it.
    Gone,
}

/// One thing that an agent does.
#[derive(Debug)]
enum AgentAct {
    /// It writes what it was given into its session.
    Begin,
    Print(AgentEvent),
    AskModel,
    Exit(i32),
}

fn turn_ended(end: TurnEnd, status: Option<u16>, text: &str) -> AgentAct {
    AgentAct::Print(AgentEvent::TurnEnded { end, status, text: text.into(), denied: 0 })
}

impl SimAgents {
    /// Forgets the session of a home whose issue GitHub deleted: its next agent gets another session.
    pub fn forget_session(&mut self, home: HomeId) {
        self.sessions.remove(&home);
    }
}

impl WorldState {
    /// Whether a call on a process goes wrong.
    pub fn call_on_agent_fails(&mut self) -> bool {
        let rate = self.weather.runs.as_ref().map_or(0, |runs| runs.faults);
        self.weather.strikes(&mut self.chance, rate)
    }

    fn is_up(&self, cloud: usize, target: &Target) -> bool {
        self.clouds[cloud].objects.iter().map(|one| &one.object).any(|object| {
            object.external_id == target.external_id
                && object.state == ObjectState::Running
                && object.labels.as_ref().is_some_and(|it| it.sandbox == target.expected)
        })
    }

    /// An agent is started in a sandbox.
    pub fn spawn_agent(
        &mut self,
        cloud: usize,
        target: Target,
        spec: &ProcessSpec,
    ) -> Result<ProcessId, WorkError> {
        if !self.is_up(cloud, &target) {
            return Err(WorkError::NotRunning);
        }
        if self.call_on_agent_fails() {
            return Err(WorkError::CannotStart("no room".into()));
        }
        let env = |name: &str| {
            let found = spec.env.iter().find(|(it, _)| it == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let files = self.agents.files.entry(target.external_id.clone()).or_default();
        let prompt =
            spec.command.get(3).and_then(|path| files.get(path)).cloned().unwrap_or_default();
        let prompt = String::from_utf8_lossy(&prompt).into_owned();
        let session_file = env("ISSUEBOX_SESSION_FILE");
        let session = files.get(&session_file).cloned();
        let home = self.ledger.home_of(&target.expected).expect("a call made it");
        let resumed = env("ISSUEBOX_RESUMED") == "1";
        let known = session.as_deref().map(|text| String::from_utf8_lossy(text).into_owned());
        let run = self.check_start(
            home,
            &target,
            &prompt,
            &env("ISSUEBOX_SESSION"),
            known.as_deref(),
            resumed,
        );
        let number = self.fresh();
        self.note(Some(home), || {
            format!("agent {number} of run {run:?} begins in {}", target.external_id)
        });
        let Some(run) = run else { return Err(WorkError::CannotStart("the history ends".into())) };
        let (acts, is_stubborn) = self.plan_of_agent();
        let id = ProcessId { sandbox: target.expected.clone(), number };
        let process = WorldProcess {
            home,
            run,
            cloud,
            target,
            prompt,
            session_file,
            tag: spec.tag.clone(),
            output: Vec::new(),
            state: AgentLife::Runs,
            is_stubborn,
            acts,
            plan: 0,
            readers: Vec::new(),
            waiting: Vec::new(),
            unwanted_ms: None,
        };
        self.agents.processes.insert(number, process);
        self.next_act_of(number);
        if self.call_on_agent_fails() {
            return Err(WorkError::Broken("the answer was lost".into()));
        }
        Ok(id)
    }

    /// The newest agent that was started with a tag.
    pub fn tagged_agent(
        &mut self,
        cloud: usize,
        target: &Target,
        tag: &str,
    ) -> Result<Option<ProcessId>, WorkError> {
        if !self.is_up(cloud, target) {
            return Err(WorkError::NotRunning);
        }
        if self.call_on_agent_fails() {
            return Err(WorkError::Broken("the connection was lost".into()));
        }
        let is_it = |it: &&WorldProcess| {
            it.target == *target && it.tag.as_deref() == Some(tag) && it.state != AgentLife::Gone
        };
        let found = self.agents.processes.iter().filter(|(_, it)| is_it(it)).max_by_key(|it| *it.0);
        let found = found.map(|(number, it)| (*number, it.state));
        if found.is_some_and(|(_, state)| state == AgentLife::Runs) {
            self.count(Happening::FoundAgain);
        }
        let sandbox = &target.expected;
        Ok(found.map(|(number, _)| ProcessId { sandbox: sandbox.clone(), number }))
    }

    /// What an agent is going to do, and whether only SIGKILL ends it before.
    fn plan_of_agent(&mut self) -> (VecDeque<(u64, AgentAct)>, bool) {
        let mut acts = VecDeque::from([(self.chance.below(3_000), AgentAct::Begin)]);
        for _ in 0..self.chance.below(4) {
            let pause = self.chance.between(10, 30_000);
            let says =
                AgentEvent::Text { text: "so far".into(), part: TextPart::Whole, parent: None };
            let says = AgentAct::Print(says);
            acts.push_back((
                pause,
                if self.chance.permille(500) { says } else { AgentAct::AskModel },
            ));
        }
        let (calm, last) = (self.weather.calm, self.chance.between(10, 60_000));
        let end = match self.chance.below(if calm { 12 } else { 20 }) {
            0..9 => {
                acts.push_back((last, turn_ended(TurnEnd::Completed, None, "it is done")));
                AgentAct::Exit(0)
            }
            9 => AgentAct::Exit(1),
            10 => AgentAct::Exit(137),
            11 => AgentAct::Exit(0),
            12..15 => {
                acts.push_back((last, turn_ended(TurnEnd::ModelFailed, Some(529), "overloaded")));
                AgentAct::Exit(1)
            }
            15 => {
                acts.push_back((last, turn_ended(TurnEnd::ModelFailed, Some(402), "no more")));
                AgentAct::Exit(1)
            }
            // Longer than a run may be quiet.
            _ => {
                acts.push_back((3_600_000, AgentAct::AskModel));
                AgentAct::Exit(0)
            }
        };
        acts.push_back((self.chance.below(2_000), end));
        (acts, self.chance.permille(200))
    }

    fn next_act_of(&mut self, number: u64) {
        let Some(process) = self.agents.processes.get(&number) else { return };
        if let (AgentLife::Runs, Some((pause, _))) = (process.state, process.acts.front()) {
            let (pause, plan) = (*pause, process.plan);
            self.after(pause, SimEffect::AgentActs(number, plan));
        }
    }

    /// An agent does what it does next.
    pub fn agent_acts(&mut self, number: u64, plan: u64) {
        let Some(process) = self.agents.processes.get_mut(&number) else { return };
        if process.state != AgentLife::Runs || process.plan != plan {
            return;
        }
        let Some((_, act)) = process.acts.pop_front() else { return };
        let home = process.home;
        match act {
            AgentAct::Begin => {
                let (object, path) =
                    (process.target.external_id.clone(), process.session_file.clone());
                let text = process.prompt.clone();
                let files = self.agents.files.entry(object).or_default();
                let before =
                    files.get(&path).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let now = before.unwrap_or_default() + &text + "\n";
                files.insert(path, Bytes::from(now));
            }
            AgentAct::Print(event) => self.agent_prints(number, &event),
            AgentAct::AskModel => self.agent_asks_model(number),
            AgentAct::Exit(code) => self.agent_ends(number, code),
        }
        self.note(Some(home), || format!("agent {number} acts"));
        self.next_act_of(number);
    }

    fn agent_prints(&mut self, number: u64, event: &AgentEvent) {
        let is_cut = self.call_on_agent_fails();
        let process = self.agents.processes.get_mut(&number).expect("it acts");
        let from = Offset(process.output.len() as u64);
        let mut line = serde_json::to_vec(event).expect("an event");
        line.push(b'\n');
        process.output.extend_from_slice(&line);
        let bytes = Bytes::from(line);
        process.readers.retain(|reader| {
            let stream = OutputStream::Stdout;
            reader.try_send(ProcessEvent::Output { from, stream, bytes: bytes.clone() }).is_ok()
        });
        if is_cut {
            process.readers.clear();
            self.count(Happening::CutOutput);
        }
    }

    /// The gateway for models is asked by an agent: it must know the run, if that goes on. The process of one
    /// that was interrupted, because its sandbox seemed to be gone, may still be there.
    fn agent_asks_model(&mut self, number: u64) {
        let process = &self.agents.processes[&number];
        let (home, run) = (process.home, process.run);
        let Some(going) = self.agents.going.clone().filter(|_| self.alive.is_some()) else {
            return;
        };
        let known = going.known(&process.target.expected).map(|known| known.run);
        let issue = self.rows.issues.get(&home);
        let up = issue.filter(|issue| issue.state.phase() == Some(Phase::Running));
        let current = up.and_then(|issue| issue.conversation.as_ref()?.run.as_ref());
        let goes_on = current.is_some_and(|it| it.id == run && it.state.has_process());
        // One that a server has not taken over yet waits for that.
        let waits = self.elapsed_ms() < self.agents.begun_ms + TAKE_OVER_MS_MAX;
        if known != Some(run) && !(known.is_none() && (waits || !goes_on)) {
            self.violate(Some(home), format!("run {run} asks a model and counts as {known:?}"));
        }
    }

    fn agent_ends(&mut self, number: u64, code: i32) {
        let Some(process) = self.agents.processes.get_mut(&number) else { return };
        let exit = ProcessExit { code, timed_out: false };
        process.state = AgentLife::Ended(code);
        for reader in process.readers.drain(..) {
            // A reader may be gone.
            drop(reader.try_send(ProcessEvent::Exit(exit)));
        }
        process.waiting.drain(..).for_each(|waits| drop(waits.send(Ok(exit))));
        let home = process.home;
        self.note(Some(home), || format!("agent {number} ends with {code}"));
    }

    /// Processes end with their sandboxes, and files go with what is removed.
    pub fn end_agents_of_what_is_down(&mut self) {
        if self.agents.processes.is_empty() {
            return;
        }
        let runs = self.agents.processes.iter().filter(|(_, it)| it.state == AgentLife::Runs);
        let down =
            runs.filter(|(_, it)| !self.is_up(it.cloud, &it.target)).map(|(number, _)| *number);
        for number in down.collect::<Vec<_>>() {
            let process = self.agents.processes.get_mut(&number).expect("it is there");
            process.state = AgentLife::Gone;
            process.readers.clear();
            process.waiting.drain(..).for_each(|it| drop(it.send(Err(WorkError::NotRunning))));
            let home = process.home;
            self.note(Some(home), || format!("agent {number} ends with its sandbox"));
        }
        let objects = self.clouds.iter().flat_map(|cloud| &cloud.objects);
        let there: Vec<_> = objects.map(|one| &one.object.external_id).collect();
        self.agents.files.retain(|id, _| there.contains(&id));
    }

    fn process(&mut self, id: &ProcessId) -> Result<&mut WorldProcess, WorkError> {
        let process = self.agents.processes.get_mut(&id.number).ok_or(WorkError::NoSuchProcess)?;
        match process.state {
            AgentLife::Gone => Err(WorkError::NotRunning),
            AgentLife::Runs | AgentLife::Ended(_) => Ok(process),
        }
    }

    /// A server follows a process's output.
    pub fn attach_to_agent(
        &mut self,
        id: &ProcessId,
        from: Offset,
    ) -> Result<mpsc::Receiver<ProcessEvent>, WorkError> {
        if self.call_on_agent_fails() {
            return Err(WorkError::Broken("the connection was lost".into()));
        }
        let process = self.process(id)?;
        let size = process.output.len() as u64;
        let at = usize::try_from(from.0).expect("it is small");
        let rest = process.output.get(at..).ok_or(WorkError::OutOfRange { size })?;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let (stream, bytes) = (OutputStream::Stdout, Bytes::copy_from_slice(rest));
        if !bytes.is_empty() {
            sender.try_send(ProcessEvent::Output { from, stream, bytes }).expect("there is room");
        }
        match process.state {
            AgentLife::Ended(code) => {
                let exit = ProcessExit { code, timed_out: false };
                sender.try_send(ProcessEvent::Exit(exit)).expect("there is room");
            }
            AgentLife::Runs | AgentLife::Gone => process.readers.push(sender),
        }
        Ok(events)
    }

    /// A server waits for a process's end.
    pub fn wait_for_agent(
        &mut self,
        id: &ProcessId,
    ) -> Result<oneshot::Receiver<Result<ProcessExit, WorkError>>, WorkError> {
        if self.call_on_agent_fails() {
            return Err(WorkError::Broken("the connection was lost".into()));
        }
        let process = self.process(id)?;
        let (sender, answer) = oneshot::channel();
        match process.state {
            AgentLife::Ended(code) => {
                sender.send(Ok(ProcessExit { code, timed_out: false })).expect("it is received");
            }
            AgentLife::Runs | AgentLife::Gone => process.waiting.push(sender),
        }
        Ok(answer)
    }

    /// A signal reaches an agent.
    pub fn signal_agent(&mut self, id: &ProcessId, signal: Signal) -> Result<(), WorkError> {
        if self.call_on_agent_fails() {
            return Err(WorkError::Broken("the connection was lost".into()));
        }
        let (ends_well, pause) = (self.chance.permille(200), self.chance.below(6_000));
        let process = self.process(id)?;
        if process.state != AgentLife::Runs {
            return Ok(());
        }
        let home = process.home;
        if signal == Signal::Kill {
            self.count(Happening::KilledAgent);
            self.agent_ends(id.number, 137);
        } else if !process.is_stubborn {
            process.plan += 1;
            let done = turn_ended(TurnEnd::Completed, None, "it was done");
            process.acts = match ends_well {
                true => [(pause, done), (0, AgentAct::Exit(0))].into(),
                false => [(pause, AgentAct::Exit(143))].into(),
            };
            self.next_act_of(id.number);
        }
        self.note(Some(home), || format!("agent {} is signalled {signal:?}", id.number));
        Ok(())
    }

    /// A short command of the server runs in a sandbox: its exit code and output.
    pub fn exec_in(
        &mut self,
        cloud: usize,
        target: &Target,
        command: &[String],
        input: Bytes,
    ) -> Result<(i32, Bytes), WorkError> {
        if !self.is_up(cloud, target) {
            return Err(WorkError::NotRunning);
        }
        let files = self.agents.files.entry(target.external_id.clone()).or_default();
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let nothing = Bytes::new;
        match words.as_slice() {
            ["/bin/sh", "-c", script, _] if script.contains(".gitignore") => Ok((0, nothing())),
            ["/bin/sh", "-c", script, path] if script.contains("cat > \"$0\"") => {
                files.insert((*path).to_owned(), input);
                Ok((0, nothing()))
            }
            ["/bin/sh", "-c", script, path] if script.contains("exec cat \"$0\"") => {
                Ok(files.get(*path).map_or((3, nothing()), |content| (0, content.clone())))
            }
            ["/bin/sh", "-c", script, root, directory, name_end, _]
                if script.contains("for f in") =>
            {
                let below =
                    files.keys().filter_map(|path| path.strip_prefix(root)?.strip_prefix('/'));
                let found =
                    below.filter(|path| path.starts_with(directory) && path.ends_with(name_end));
                Ok((0, Bytes::from(found.map(|path| format!("{path}\n")).collect::<String>())))
            }
            ["/bin/grep", "-qF", "--", text, path] => {
                let content =
                    files.get(*path).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                Ok((i32::from(!content.is_some_and(|content| content.contains(text))), nothing()))
            }
            _ => {
                self.violate(
                    None,
                    format!("a command that no sandbox of the world knows: {words:?}"),
                );
                Err(WorkError::CommandNotFound(words.concat()))
            }
        }
    }

    /// The server is gone: what it had verified counts no more.
    pub fn crash_runs(&mut self) {
        self.agents.verified.clear();
        self.agents.going = None;
        self.end_agents_of_what_is_down();
    }
}
