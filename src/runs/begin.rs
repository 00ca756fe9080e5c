//! From the order to begin a run to the record that says that it is running: everything that it may wait
//! for stands here.

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::worker::RunWorker;
use super::{AgentWorkplace, RunParts};
use crate::conversation::{AgentSession, Run, RunEvent, RunOrder, RunRefusal, RunReply, RunWait};
use crate::engine::EngineError;
use crate::sabotage::{Bug, on};
use crate::types::{AccountName, HomeId};

/// A run whose process may be started.
pub(super) struct BegunRun {
    pub run: Run,
    pub session: AgentSession,
    pub workplace: AgentWorkplace,
    /// Its place among those that go on at the same time. One that an earlier server began has one only if
    /// one is free: it goes on all the same.
    pub _place: Option<OwnedSemaphorePermit>,
}

impl RunWorker {
    /// Waits until a run may begin, and records that it does. `None` if it may not now: the next change
    /// of its issue orders it again.
    pub(super) async fn begin(
        &self,
        home: HomeId,
        account: &AccountName,
        order: &RunOrder,
    ) -> Option<BegunRun> {
        let workplace = match on(Bug::RunBeforeVerification) {
            true => AgentWorkplace::default(),
            false => self.workplace(home, order).await?,
        };
        let RunParts { engine, .. } = self.parts.as_ref();
        let mut holds = engine.holds_changed();
        loop {
            let place = self.place(home, order).await?;
            holds.mark_seen();
            // A message that joined meanwhile is not verified: the order that came with it verifies again.
            match engine.run_event(home, RunEvent::Begin(order.run, order.messages)).await {
                Ok(RunReply::Begun(run, session)) => {
                    return Some(BegunRun { run: *run, session, workplace, _place: Some(place) });
                }
                Err(EngineError::RunRefused(RunRefusal::Held(_))) => {
                    // It begins when the hold is released; until then another run may have the place.
                    drop(place);
                    holds.changed().await;
                }
                // What is in the way changes the order, if it ever does.
                Ok(_) | Err(EngineError::RunRefused(_) | EngineError::ShuttingDown) => return None,
                Err(error) => {
                    tracing::warn!(home = home.0, account = %account, run = %order.run, %error,
                        "cannot record that a run begins; trying again");
                    self.pause().await;
                }
            }
        }
    }

    /// Waits until the issue is verified and checked out.
    async fn workplace(&self, home: HomeId, order: &RunOrder) -> Option<AgentWorkplace> {
        let (sender, mut waits) = mpsc::unbounded_channel();
        let waits_for = move |wait: RunWait, reason: String| drop(sender.send((wait, reason)));
        let ready = self.parts.gate.ready(home, order, &waits_for);
        tokio::pin!(ready);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut ready => break result,
                Some((wait, reason)) = waits.recv() => {
                    self.report(home, RunEvent::Waits(order.run, wait, reason)).await;
                }
            }
        };
        match result {
            Ok(workplace) => Some(workplace),
            Err(reason) => {
                let waits = RunEvent::Waits(order.run, RunWait::Verification, reason);
                self.report(home, waits).await;
                None
            }
        }
    }

    /// Waits for a place.
    async fn place(&self, home: HomeId, order: &RunOrder) -> Option<OwnedSemaphorePermit> {
        let places = &self.parts.places;
        if let Ok(place) = std::sync::Arc::clone(places).try_acquire_owned() {
            return Some(place);
        }
        let reason = "as many runs go on as quota.runs allows".to_owned();
        self.report(home, RunEvent::Waits(order.run, RunWait::Place, reason)).await;
        std::sync::Arc::clone(places).acquire_owned().await.ok()
    }

    pub(super) async fn pause(&self) {
        let clock = &self.parts.clock;
        clock.sleep_until(clock.now().after(std::time::Duration::from_secs(1))).await;
    }
}
