//! Goes on with the process of a run that an earlier server started, where the sandbox outlived that
//! server.
//!
//! The process is found by its run, read from its first byte that is kept, and what is in the journal
//! already is not written there again. A dialogue is not taken over, since what was said in it is not
//! known any more: its process is killed and the run goes on with another one, as after its sandbox went
//! down.

use std::sync::Arc;

use tokio::sync::watch;

use super::begin::BegunRun;
use super::prepare::process_tag;
use super::process::{Bench, StartedProcess};
use super::worker::RunWorker;
use super::{AgentWorkplace, RunParts};
use crate::agents::Interrupt;
use crate::conversation::{Run, RunEnd, RunEvent, RunOrder};
use crate::sabotage::{Bug, on};
use crate::sandbox::{Offset, ProcessId, Signal, WorkError};
use crate::types::{AccountName, HomeId, RunId};

/// How many attempts before one are looked for. A run is interrupted fewer times in a row before a person is
/// asked.
const FORMER_MAX: u32 = 16;

impl RunWorker {
    /// Goes on with this attempt of a run, and reports how it ended.
    pub(super) async fn take_over(
        &self,
        home: HomeId,
        account: &AccountName,
        (run, attempt): (RunId, u32),
        orders: &mut watch::Receiver<Option<RunOrder>>,
    ) {
        let (bench, begun, process) = match self.taken_over(home, account, (run, attempt)).await {
            Ok(taken_over) => taken_over,
            Err(end) => return self.report(home, RunEvent::Ended(run, attempt, end)).await,
        };
        let end = self.run_agent(&bench, &begun, Some(process), orders).await;
        self.report(home, RunEvent::Ended(run, attempt, end)).await;
        self.after_run(account, &bench).await;
    }

    /// Finds the process of this attempt, and what it is read with.
    async fn taken_over(
        &self,
        home: HomeId,
        account: &AccountName,
        attempt: (RunId, u32),
    ) -> Result<(Bench, BegunRun, StartedProcess), RunEnd> {
        let begun = self.recorded(home, attempt).await?;
        let bench = self.bench(home, account, &begun).await?;
        let id = self.find(&bench, bench.attempt).await?.ok_or(RunEnd::Lost)?;
        if bench.agent.adapter.interrupt() == Interrupt::Dialogue {
            self.kill(&bench, &id).await?;
            return Err(RunEnd::Lost);
        }
        let journaled = match self.parts.journals.read_of(home, id.number).await {
            Ok(journaled) => journaled,
            Err(error) => {
                self.kill(&bench, &id).await?;
                return Err(RunEnd::Failed(error.to_string()));
            }
        };
        let journaled = if on(Bug::OutputWrittenAgain) { Offset(0) } else { journaled };
        tracing::info!(home = home.0, run = %bench.run, process = %id, "an agent that works on is followed again");
        let (session, started_at) = (begun.session.id, begun.run.since);
        let process = StartedProcess { id, talk: None, session, journaled, started_at };
        Ok((bench, begun, process))
    }

    /// A run as it is recorded.
    async fn recorded(
        &self,
        home: HomeId,
        (run, attempt): (RunId, u32),
    ) -> Result<BegunRun, RunEnd> {
        let RunParts { places, .. } = self.parts.as_ref();
        let issue = self.load(home).await?;
        let conversation = issue.and_then(|issue| issue.conversation).ok_or(RunEnd::Lost)?;
        let is_meant = |it: &Run| it.id == run && it.attempt == attempt;
        let run = conversation.run.clone().filter(is_meant).ok_or(RunEnd::Lost)?;
        let session = conversation.session.clone().ok_or(RunEnd::Lost)?;
        let place = Arc::clone(places).try_acquire_owned().ok();
        Ok(BegunRun { run, session, workplace: AgentWorkplace::default(), _place: place })
    }

    /// Kills what the attempts before this one left, if its sandbox did not go down in between. Several
    /// may have: each may have been lost before it ended the one before.
    pub(super) async fn end_former(&self, bench: &Bench) -> Result<(), RunEnd> {
        for former in bench.attempt.saturating_sub(FORMER_MAX).max(1)..bench.attempt {
            if let Some(id) = self.find(bench, former).await? {
                self.kill(bench, &id).await?;
            }
        }
        Ok(())
    }

    /// The process of an attempt, if its sandbox knows one.
    pub(super) async fn find(
        &self,
        bench: &Bench,
        attempt: u32,
    ) -> Result<Option<ProcessId>, RunEnd> {
        let tag = process_tag(bench.run, attempt);
        loop {
            let (processes, target) = (&bench.inside.processes, bench.inside.target.clone());
            match processes.tagged(target, &tag).await {
                Ok(found) => return Ok(found),
                Err(WorkError::Broken(_)) => self.pause().await,
                Err(_) => return Err(RunEnd::Lost),
            }
        }
    }

    /// Kills a process, and waits for its end.
    async fn kill(&self, bench: &Bench, id: &ProcessId) -> Result<(), RunEnd> {
        let (processes, target) = (&bench.inside.processes, &bench.inside.target);
        loop {
            let killed = processes.signal(target.clone(), id.clone(), Signal::Kill).await;
            let ended = match killed {
                Ok(()) => processes.wait(target.clone(), id.clone()).await.map(drop),
                error => error,
            };
            match ended {
                Ok(()) => return Ok(()),
                Err(WorkError::Broken(_)) => self.pause().await,
                Err(_) => return Err(RunEnd::Lost),
            }
        }
    }
}
