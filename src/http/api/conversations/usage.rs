//! What runs used of models.

use std::collections::HashMap;

use super::wire::UsageBody;
use crate::http::Shared;
use crate::http::error::ApiError;
use crate::store::usage::{UsageAsk, UsageBy, UsageKey, UsageSum};
use crate::types::{HomeId, RunId};

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

/// What one run used.
///
/// # Errors
/// If the store cannot be read.
pub async fn of_run(shared: &Shared, run: RunId) -> Result<UsageBody, ApiError> {
    let ask = UsageAsk { run: Some(run), limit: 1, ..UsageAsk::all(UsageBy::Run) };
    let sums = shared.edge.runs.usage.usage(ask).await?;
    Ok(sums.first().map(|(_, sum)| UsageBody::from(sum)).unwrap_or_default())
}
