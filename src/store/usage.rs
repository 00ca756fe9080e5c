//! The port to what models cost: reserved before a request goes out, settled when it ended.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::{CommitError, StoreError};
use crate::models::budget::{BudgetUsedUp, BudgetUses};
use crate::types::{
    AccountName, HomeId, ModelBudgets, Money, Repository, RunId, SandboxId, Timestamp, Tokens,
};

/// A request to a model, as its store numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelRequestId(pub i64);

/// A request that is about to go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewModelRequest {
    /// The run that it belongs to.
    pub run: RunId,
    /// The home of that run's issue.
    pub home: HomeId,
    /// The sandbox that it came from.
    pub sandbox: SandboxId,
    /// Who pays.
    pub account: AccountName,
    /// The issue's repository, if known.
    pub repository: Option<Repository>,
    /// The model.
    pub model: String,
    /// When.
    pub begun_at: Timestamp,
    /// What it costs at most.
    pub worst: Money,
    /// What its input costs by estimate.
    pub input_cost: Money,
}

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// It is made.
    Granted(ModelRequestId),
    /// It may fit once a request in flight is settled.
    Waits,
    /// A budget is spent.
    UsedUp(BudgetUsedUp),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledRequest {
    /// The status of the model's answer; 0 if there was none.
    pub status: u16,
    /// How long it took.
    pub duration: Duration,
    /// What it used.
    pub tokens: Tokens,
    /// What it cost.
    pub cost: Money,
}

/// What several requests used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSum {
    /// How many requests.
    pub requests: u64,
    /// How many tokens.
    pub tokens: Tokens,
    /// What they cost.
    pub cost: Money,
}

/// What sums are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageBy {
    /// Each run.
    Run,
    /// Each issue.
    Issue,
    /// Each repository.
    Repository,
    /// Each account.
    Account,
    /// Each model.
    Model,
    /// Each day (UTC).
    Day,
}

impl UsageBy {
    /// Those that people ask for.
    pub const LISTED: [Self; 5] =
        [Self::Issue, Self::Repository, Self::Account, Self::Model, Self::Day];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Issue => "issue",
            Self::Repository => "repository",
            Self::Account => "account",
            Self::Model => "model",
            Self::Day => "day",
        }
    }
}

/// What a sum is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageKey {
    /// A run.
    Run(RunId),
    /// An issue.
    Issue(HomeId),
    /// A repository, or all issues whose repository is not known.
    Repository(Option<Repository>),
    /// An account.
    Account(AccountName),
    /// A model.
    Model(String),
    /// The day that begins here.
    Day(Timestamp),
}

/// Which sums are asked for. What is `None` is not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageAsk {
    /// A sum for each of these.
    pub by: UsageBy,
    /// Of this run alone.
    pub run: Option<RunId>,
    /// Of this issue alone.
    pub home: Option<HomeId>,
    /// Of this account alone.
    pub account: Option<AccountName>,
    /// Of requests of the day of this time, and of later days.
    pub since: Option<Timestamp>,
    /// At most so many.
    pub limit: usize,
}

impl UsageAsk {
    /// All that was ever used, at most 1,000 sums.
    pub const fn all(by: UsageBy) -> Self {
        Self { by, run: None, home: None, account: None, since: None, limit: 1_000 }
    }
}

/// What models cost. Durable and fenced as everything else in the store.
///
/// # Guarantees
/// - A reservation is judged and made in one transaction: two requests never get the same cent
///   ([`judge`](crate::models::budget::judge)).
/// - A request is settled once. What is settled again, or by a server whose epoch is over, changes
///   nothing.
/// - What a server left open when it ended counts as spent at its worst case, until
///   [`UsageStore::settle_abandoned`] settles it.
#[async_trait]
pub trait UsageStore: Send + Sync + 'static {
    /// Reserves a request's worst case, if it fits.
    ///
    /// # Errors
    /// [`CommitError`], never about a delivery or an alias.
    async fn reserve_request(
        &self,
        request: NewModelRequest,
        budgets: ModelBudgets,
    ) -> Result<Reserved, CommitError>;

    /// Settles a request. Handed in when this is called; dropping the future does not take it back.
    fn settle_request(
        &self,
        id: ModelRequestId,
        settled: SettledRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>>;

    /// Settles what was begun before this time by an earlier server, at what its input cost; and
    /// what this server began an hour before this time. Says how many.
    ///
    /// # Errors
    /// As for [`UsageStore::reserve_request`].
    async fn settle_abandoned(&self, before: Timestamp) -> Result<u64, CommitError>;

    /// What is gone of the budgets of a run of a home of an account at this time.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn budget_uses(
        &self,
        run: RunId,
        home: HomeId,
        account: &AccountName,
        now: Timestamp,
    ) -> Result<BudgetUses, StoreError>;

    /// Sums of what was settled: the dearest first, days in their order.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage(&self, ask: UsageAsk) -> Result<Vec<(UsageKey, UsageSum)>, StoreError>;

    /// Removes at most `limit` settled requests that began before this time; their sums stay. Says how
    /// many went.
    ///
    /// # Errors
    /// As for [`UsageStore::reserve_request`].
    async fn prune_requests(&self, before: Timestamp, limit: usize) -> Result<u64, CommitError>;
}
