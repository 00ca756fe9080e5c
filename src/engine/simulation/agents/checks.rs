//! What must be true of agents: how one begins, how long it lives, and what the journal has of it.

use super::super::counts::Happening;
use super::super::talk::words;
use super::super::world::WorldState;
use super::{AgentLife, WorldProcess};
use crate::conversation::Run;
use crate::runs::process_tag;
use crate::sandbox::Target;
use crate::types::{HomeId, Phase, RunId, RunState};

/// How long a process may live on whose run is not in progress, or whose issue is held, in milliseconds:
/// three ways of asking it to end, and what is slow on the way.
const UNWANTED_MS_MAX: u64 = 120_000;
/// How much longer if the clock steps back meanwhile.
const CLOCK_STEP_MS_MAX: u64 = 300_000;

/// What a run's prompt ends with, unless it goes on.
fn mark(run: RunId) -> String {
    format!("(run {run})")
}

/// Whether an attempt of the run was recorded before: while its call was on the way to the sandbox, a
/// forced deletion forgot that, or the provider said that it has it no more.
fn was_recorded(run: &Run, target: &Target, is_forgotten: bool) -> bool {
    let was_interrupted =
        run.state == RunState::Interrupted && run.sandbox.as_ref() == Some(&target.expected);
    run.attempt > 0 && (is_forgotten || was_interrupted)
}

impl WorldState {
    /// An agent begins: it must be the only one of its home, recorded, verified, in the home's session, and be
    /// given the messages of its run. Returns the run.
    pub(super) fn check_start(
        &mut self,
        home: HomeId,
        target: &Target,
        prompt: &str,
        session: &str,
        known: Option<&str>,
        resumed: bool,
    ) -> Option<RunId> {
        let violated = |inner: &mut Self, what: String| -> Option<RunId> {
            inner.violate(Some(home), what);
            None
        };
        if let Some(what) = self.second_agent(home, target) {
            return violated(self, what);
        }
        let issue = self.rows.issues.get(&home);
        let conversation = issue.and_then(|issue| issue.conversation.as_deref().cloned());
        let conversation = conversation.unwrap_or_default();
        let recorded = conversation.run.clone().filter(|run| {
            run.state.has_process() && run.sandbox.as_ref() == Some(&target.expected)
        });
        let sandbox = issue.and_then(|issue| issue.state.record()).map(|record| &record.id);
        let is_forgotten = sandbox != Some(&target.expected);
        let Some(run) = recorded else {
            if conversation.run.as_ref().is_some_and(|run| was_recorded(run, target, is_forgotten))
            {
                return None;
            }
            return violated(
                self,
                format!("an agent begins before its record: {:?}", conversation.run),
            );
        };
        if self.agents.verified.remove(&run.id) != Some((target.expected.clone(), run.messages)) {
            return violated(self, format!("run {} begins before it was verified", run.id));
        }
        let first = self.agents.sessions.entry(home).or_insert_with(|| session.to_owned());
        let is_own = first.as_str() == session
            && conversation.session.is_some_and(|own| own.id.to_string() == session);
        if !is_own {
            let what = format!("run {} goes on with session {session}", run.id);
            return violated(self, what);
        }
        let is_kept = self.agents.dir.as_ref().is_some_and(|dir| {
            dir.path()
                .join("sessions")
                .join(home.to_string())
                .join("session")
                .join(session)
                .exists()
        });
        if resumed != known.is_some() || (is_kept && known.is_none()) {
            let there = known.is_some();
            let what =
                format!("the session's file: there {there}, kept {is_kept}, resumed {resumed}");
            return violated(self, what);
        }
        if let Some(what) = self.wrong_prompt(run.id, prompt, known.unwrap_or_default()) {
            return violated(self, what);
        }
        if resumed {
            self.count(Happening::ResumedSession);
        }
        if run.state == RunState::Cancelling {
            self.note(Some(home), || "its run is being cancelled".into());
        }
        Some(run.id)
    }

    /// An agent that works beside the one that begins. What a forced deletion forgot goes on until its object
    /// is gone.
    fn second_agent(&self, home: HomeId, target: &Target) -> Option<String> {
        let counts = |it: &WorldProcess| !self.weather.force || it.target == *target;
        let lives =
            |it: &&WorldProcess| it.home == home && it.state == AgentLife::Runs && counts(it);
        let other = self.agents.processes.values().find(lives)?;
        Some(format!("a second agent beside the one of run {}", other.run))
    }

    /// What is wrong with what an agent is given: it must be all messages of its run and no other, once.
    fn wrong_prompt(&self, run: RunId, prompt: &str, known: &str) -> Option<String> {
        let goes_on = prompt.ends_with("\n\nContinue.");
        let has_them = known.contains(&mark(run));
        if goes_on != has_them {
            let what =
                if goes_on { "is not given its messages" } else { "is given its messages again" };
            return Some(format!("run {run} {what}"));
        }
        if goes_on {
            return None;
        }
        let wrong = self
            .stored
            .talk
            .messages
            .iter()
            .find(|(_, row)| prompt.contains(words(row)) != (row.message.run == run));
        let wrong = wrong
            .map(|(_, row)| format!("of message {} for run {}", row.message.id, row.message.run));
        match wrong {
            Some(wrong) => Some(format!("run {run} is given the wrong messages: {wrong}")),
            None if !prompt.contains(&mark(run)) => {
                Some(format!("run {run} is given another's messages"))
            }
            None => None,
        }
    }

    /// An agent that still works, if there is one.
    pub fn live_agent(&self) -> Option<(Option<HomeId>, String)> {
        let mut all = self.agents.processes.iter();
        let (number, process) = all.find(|(_, it)| it.state == AgentLife::Runs)?;
        Some((Some(process.home), format!("agent {number} of run {} still works", process.run)))
    }

    /// No agent outlives its run, and none goes on long on an issue that is held.
    pub fn check_agents(&mut self) {
        if self.alive.is_none() {
            return;
        }
        let now = self.elapsed_ms();
        let unwanted = |process: &WorldProcess| {
            let Some(issue) = self.rows.issues.get(&process.home) else { return true };
            // A stop or a delete ends it, and is tried for as long as the provider is away.
            if matches!(
                issue.state.phase(),
                Some(Phase::Stopping | Phase::Deleting | Phase::Failed)
            ) {
                return false;
            }
            let sandbox = issue.state.record().map(|record| &record.id);
            if self.weather.force && sandbox != Some(&process.target.expected) {
                // A forced deletion forgot it: it goes with its object, which the reconciler deletes.
                return false;
            }
            let run = issue.conversation.as_ref().and_then(|one| one.run.as_ref());
            let run = run.filter(|run| run.id == process.run && run.state == RunState::Running);
            run.is_none() || self.is_held(issue, self.latest())
        };
        let live = self.agents.processes.iter().filter(|(_, it)| it.state == AgentLife::Runs);
        let unwanted: Vec<(u64, bool)> = live.map(|(number, it)| (*number, unwanted(it))).collect();
        let bound = UNWANTED_MS_MAX + if self.weather.jumps { CLOCK_STEP_MS_MAX } else { 0 };
        let away = self.clouds.iter().map(|cloud| cloud.down_until_ms.max(cloud.forgets_until_ms));
        let disturbed = self.disturbed_ms().max(away.max().unwrap_or(0));
        let mut too_long = None;
        for (number, is_unwanted) in unwanted {
            let process = self.agents.processes.get_mut(&number).expect("it lives");
            let since = process.unwanted_ms.filter(|_| is_unwanted).or(is_unwanted.then_some(now));
            process.unwanted_ms = since;
            if since.is_some_and(|since| now.saturating_sub(since.max(disturbed)) > bound) {
                too_long = Some((process.home, process.run));
            }
        }
        if let Some((home, run)) = too_long {
            self.violate(Some(home), format!("an agent outlives its run {run}"));
        }
    }

    /// At rest: no line of an agent is twice in the journal, none is out of order, and of one whose run
    /// succeeded none is missing.
    pub fn check_journals(&mut self) {
        let Some(dir) = self.agents.dir.as_ref().map(|dir| dir.path().join("journals")) else {
            return;
        };
        let wrong = self.agents.processes.iter().find_map(|(number, process)| {
            let WorldProcess { home, run, output, .. } = process;
            // One whose issue was deleted has none any more.
            let journal = std::fs::read(dir.join(format!("{home}.jsonl"))).ok()?;
            let written = places_in(&journal, *number);
            let printed = ends_of_lines(output);
            let stored = &self.stored.talk.runs.get(run)?.run;
            // Of an attempt before, which seemed to be lost, the end is not heard.
            let is_last = process.tag == Some(process_tag(*run, stored.attempt));
            let succeeded = is_last && stored.state == RunState::Succeeded;
            let fits = match succeeded {
                true => written == printed,
                false => printed.starts_with(&written),
            };
            (!fits).then(|| {
                let what = format!("the journal has the lines of agent {number} of run {run} at {written:?}, not {printed:?}");
                (*home, what)
            })
        });
        if let Some((home, what)) = wrong {
            self.violate(Some(home), what);
        }
    }
}

/// Where the lines of a process end that are in a journal.
fn places_in(journal: &[u8], process: u64) -> Vec<u64> {
    let lines = journal.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let own = lines.filter(|line| line["process"].as_u64() == Some(process));
    own.filter_map(|line| line["offset"].as_u64()).collect()
}

/// Where the lines of an output end.
fn ends_of_lines(output: &[u8]) -> Vec<u64> {
    let ends = output.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at as u64 + 1).collect()
}
