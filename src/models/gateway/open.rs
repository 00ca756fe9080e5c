//! A request that is paid for: from its reservation until it is settled, however it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::super::budget::BudgetUsedUp;
use super::super::figures::ModelFigures;
use super::super::refusal::ModelRefusal;
use super::super::usage::{UsageReader, UsageSource};
use super::super::{ModelActivity, RunOf, RunningRun};
use crate::sabotage::{Bug, on};
use crate::store::usage::{ModelRequestId, NewModelRequest, Reserved, SettledRequest, UsageStore};
use crate::types::{ModelBudgets, Money, TokenPrice, Tokens};

/// How long a request waits for those in flight, which may leave enough of the budget. Agents give up
/// after some minutes.
const FIT_WAIT: Duration = Duration::from_secs(240);
/// How often it looks although no request of this server was settled: one that was left open may
/// have been settled by time.
const FIT_PAUSE: Duration = Duration::from_secs(5);

/// Where requests are reserved and settled.
#[derive(Clone)]
pub struct RequestLedger {
    /// What is durable of them.
    pub store: Arc<dyn UsageStore>,
    /// Hears of them.
    pub runs: Arc<dyn RunOf>,
    /// Counts them.
    pub figures: Arc<ModelFigures>,
    /// Wakes requests that wait for others.
    pub settled: Arc<Notify>,
}

impl RequestLedger {
    /// Reserves a request's worst case; waits while others may leave enough.
    ///
    /// # Errors
    /// [`ModelRefusal::Budget`], [`ModelRefusal::Busy`], [`ModelRefusal::NotRecorded`].
    pub async fn open(
        &self,
        run: RunningRun,
        request: NewModelRequest,
        budgets: ModelBudgets,
        price: TokenPrice,
        input_estimate: u64,
        is_stream: bool,
    ) -> Result<OpenModelRequest, ModelRefusal> {
        let give_up_at = Instant::now() + FIT_WAIT;
        let id = loop {
            let settled = self.settled.notified();
            let reserved = self.store.reserve_request(request.clone(), budgets).await;
            match reserved {
                Ok(Reserved::Granted(id)) => break id,
                Ok(Reserved::UsedUp(used_up)) => return Err(self.over_budget(&run, used_up)),
                Ok(Reserved::Waits) if Instant::now() > give_up_at => {
                    return Err(ModelRefusal::Busy);
                }
                // Woken or not, the reservation is tried again.
                Ok(Reserved::Waits) => drop(timeout(FIT_PAUSE, settled).await),
                Err(error) => {
                    tracing::error!(%error, "cannot reserve a request to a model");
                    return Err(ModelRefusal::NotRecorded);
                }
            }
        };
        self.runs.activity(&run, ModelActivity::Asked);
        Ok(OpenModelRequest {
            ledger: self.clone(),
            runtime: Handle::current(),
            id,
            run,
            model: request.model,
            price,
            worst: request.worst,
            input_estimate,
            is_stream,
            begun: Instant::now(),
            seen: SeenAnswer::NotSent,
        })
    }

    fn over_budget(&self, run: &RunningRun, used_up: BudgetUsedUp) -> ModelRefusal {
        let refusal = ModelRefusal::Budget(used_up);
        self.runs.activity(run, ModelActivity::Refused(refusal.clone()));
        refusal
    }
}

/// What was seen of a request's answer.
pub enum SeenAnswer {
    /// The model does not have the request.
    NotSent,
    /// It may have it, and there was no answer.
    Sent,
    /// It answered with an error, which costs nothing.
    Failed(u16),
    /// It answers.
    Answered(u16, Box<UsageReader>),
}

/// A request that is reserved. Dropping it settles it with what was seen.
pub struct OpenModelRequest {
    ledger: RequestLedger,
    runtime: Handle,
    id: ModelRequestId,
    run: RunningRun,
    model: String,
    price: TokenPrice,
    worst: Money,
    input_estimate: u64,
    is_stream: bool,
    begun: Instant,
    /// What was seen of its answer.
    pub seen: SeenAnswer,
}

impl OpenModelRequest {
    /// Reads on in its answer.
    pub fn read(&mut self, chunk: &[u8]) {
        if let SeenAnswer::Answered(_, reader) = &mut self.seen {
            reader.push(chunk);
        }
    }

    /// Reports that the run's agent is made to end.
    pub fn report(&self, refusal: &ModelRefusal) {
        self.ledger.runs.activity(&self.run, ModelActivity::Refused(refusal.clone()));
    }

    fn end(&self) -> SettledRequest {
        let input = Tokens { input: self.input_estimate, ..Tokens::default() };
        let (status, tokens, cost) = match &self.seen {
            SeenAnswer::NotSent => (0, Tokens::default(), Money::ZERO),
            SeenAnswer::Failed(status) => (*status, Tokens::default(), Money::ZERO),
            SeenAnswer::Sent if self.is_stream => (0, input, self.price.cost(&input)),
            // The model may have written all of it.
            SeenAnswer::Sent => (0, input, self.worst),
            SeenAnswer::Answered(status, reader) => {
                let used = reader.finish(self.input_estimate);
                let cost = match used.source {
                    UsageSource::Reported => used.cost(&self.price),
                    UsageSource::Estimated if self.is_stream => used.cost(&self.price),
                    UsageSource::Estimated | UsageSource::Unreadable => self.worst,
                };
                (*status, used.tokens, cost)
            }
        };
        SettledRequest { status, duration: self.begun.elapsed(), tokens, cost }
    }
}

impl Drop for OpenModelRequest {
    fn drop(&mut self) {
        if on(Bug::ReservationKept) {
            return;
        }
        let settled = self.end();
        let RequestLedger { store, runs, figures, settled: wakes } = self.ledger.clone();
        figures.count(&self.model, &settled);
        let SettledRequest { tokens, cost, .. } = settled;
        let run = self.run.clone();
        // It is handed in now, before whatever comes next; only its end is waited for elsewhere.
        let settling = store.settle_request(self.id, settled);
        self.runtime.spawn(async move {
            if let Err(error) = settling.await {
                // It counts at its worst case until it is settled by time.
                tracing::error!(%error, "cannot settle a request to a model");
            }
            runs.activity(&run, ModelActivity::Settled { tokens, cost });
            wakes.notify_waiters();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sabotage::with;
    use crate::store::sqlite::SqliteStore;
    use crate::types::{AccountName, HomeId, RunId, SandboxId, Timestamp};

    struct NoRuns;

    #[async_trait::async_trait]
    impl RunOf for NoRuns {
        async fn run_of(&self, _sandbox: &SandboxId) -> Option<RunningRun> {
            None
        }

        fn activity(&self, _run: &RunningRun, _activity: ModelActivity) {}
    }

    /// What becomes of the second of two requests, each of which may cost the whole budget, once the
    /// first one has ended without being sent.
    async fn second_of_two() -> Reserved {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(SqliteStore::open(dir.path()).expect("opens"));
        let run = RunId::parse("019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e").expect("an id");
        let worst = Money::from_dollars(1.0).expect("an amount");
        let budgets = ModelBudgets { run: worst, ..ModelBudgets::default() };
        let request = NewModelRequest {
            run,
            home: HomeId(1),
            sandbox: SandboxId::trusted("s1"),
            account: AccountName::default_account(),
            repository: None,
            model: "model".into(),
            begun_at: Timestamp::from_unix_ms(0),
            worst,
            input_cost: Money::ZERO,
        };
        let ledger = RequestLedger {
            store: Arc::clone(&store) as _,
            runs: Arc::new(NoRuns),
            figures: Arc::default(),
            settled: Arc::default(),
        };
        let (account, price) = (AccountName::default_account(), TokenPrice::default());
        let of = RunningRun { run, home: HomeId(1), account, repository: None, may_fetch: false };
        let opened = ledger.open(of, request.clone(), budgets, price, 0, true).await;
        drop(opened.unwrap_or_else(|refusal| panic!("{refusal:?}")));
        store.reserve_request(request, budgets).await.expect("writes")
    }

    #[test]
    fn a_request_that_ended_gives_back_what_it_reserved() {
        let second = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(second_of_two())
        };
        assert!(matches!(second(), Reserved::Granted(_)));
        let kept = with(Bug::ReservationKept, second);
        assert_eq!(kept, Reserved::Waits, "the bug is noticed");
    }
}
