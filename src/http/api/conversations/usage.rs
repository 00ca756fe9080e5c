//! What runs used of models.

use std::collections::HashMap;

use super::wire::UsageBody;
use crate::http::Shared;
use crate::http::error::ApiError;
use crate::store::usage::{UsageAsk, UsageBy, UsageKey, UsageSum};
use crate::types::{HomeId, Money, RunId, Sandbox};

/// How many runs of an issue are summed up one by one.
const RUNS_MAX: usize = 1_000;

/// What the runs of an issue used.
pub struct RunUsage {
    runs: HashMap<RunId, UsageBody>,
    all: UsageBody,
}

impl RunUsage {
    /// What the runs of a home used.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn of_home(shared: &Shared, home: HomeId) -> Result<Self, ApiError> {
        let store = &shared.edge.runs.usage;
        let ask = |by| UsageAsk { home: Some(home), limit: RUNS_MAX, ..UsageAsk::all(by) };
        let by_run = store.usage(ask(UsageBy::Run)).await?;
        let of_run = |(key, sum): &(UsageKey, UsageSum)| match key {
            UsageKey::Run(run) => Some((*run, UsageBody::from(sum))),
            _ => None,
        };
        let runs = by_run.iter().filter_map(of_run).collect();
        let issue = store.usage(ask(UsageBy::Issue)).await?;
        let all = issue.first().map(|(_, sum)| UsageBody::from(sum)).unwrap_or_default();
        Ok(Self { runs, all })
    }

    /// What this run used.
    pub fn of(&self, run: RunId) -> UsageBody {
        self.runs.get(&run).copied().unwrap_or_default()
    }

    /// What all of them used.
    pub const fn all(&self) -> UsageBody {
        self.all
    }
}

/// What one run of a home used.
///
/// # Errors
/// If the store cannot be read.
pub async fn of_run(shared: &Shared, home: HomeId, run: RunId) -> Result<UsageBody, ApiError> {
    Ok(UsageBody::from(&sum_of_run(shared, home, run).await?))
}

async fn sum_of_run(shared: &Shared, home: HomeId, run: RunId) -> Result<UsageSum, ApiError> {
    let all = UsageAsk::all(UsageBy::Run);
    let ask = UsageAsk { home: Some(home), run: Some(run), limit: 1, ..all };
    let sums = shared.edge.runs.usage.usage(ask).await?;
    Ok(sums.first().map(|(_, sum)| *sum).unwrap_or_default())
}

/// What the runs cost that the agents of sandboxes are at, or were at last.
pub struct RunCosts(HashMap<RunId, Money>);

impl RunCosts {
    /// Those of these sandboxes.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn of(
        shared: &Shared,
        sandboxes: impl IntoIterator<Item = &Sandbox>,
    ) -> Result<Self, ApiError> {
        let mut costs = HashMap::new();
        for sandbox in sandboxes {
            if let Some(agent) = &sandbox.agent {
                let sum = sum_of_run(shared, sandbox.home, agent.run).await?;
                costs.insert(agent.run, sum.cost);
            }
        }
        Ok(Self(costs))
    }

    /// What the run of a sandbox's agent cost; `None` if it has none.
    pub fn of_sandbox(&self, sandbox: &Sandbox) -> Option<Money> {
        self.0.get(&sandbox.agent.as_ref()?.run).copied()
    }
}
