//! The port to what is durable, and the contract that every store keeps.
//!
//! # Guarantees a store gives
//! - **Atomicity.** A [`Write`] is applied whole or not at all, and independently of the others
//!   that are written at the same time: the refusal of one never undoes another.
//! - **Order.** Writes of one home are applied in the order in which [`Store::commit`] was called.
//!   A write whose `issue.version` does not directly follow the stored one is refused.
//! - **Durability.** When the future of [`Store::commit`] resolves with success, the write
//!   survives the loss of the process and of the machine's power.
//! - **Fencing.** Opening a store begins a new [`Epoch`]; every write of an older one is refused.
//! - **Uniqueness.** An alias belongs to one home of an account, a delivery GUID is stored once,
//!   a home has one row of current state: at most one live sandbox for each home.
//!
//! # Assumptions a store may make
//! One server process writes at a time (several replicas, each fenced by leases, come with
//! PostgreSQL); home numbers come from [`Store::next_home`].

pub mod sqlite;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::issue::Issue;
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, ExternalId, HomeId, InstanceId, IssueId, IssueNumber,
    Phase, ProviderName, Repository, Sandbox, SandboxId, TimelineEntry, Timestamp,
};

/// What is durable. See the [module](self) for the contract.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The epoch that opening began.
    fn epoch(&self) -> Epoch;

    /// Which installation this store belongs to; made once.
    fn instance(&self) -> InstanceId;

    /// A home number that was never handed out before, by this process or an earlier one that
    /// stored it.
    fn next_home(&self) -> HomeId;

    /// Hands a write in, without waiting: the order of calls is the order of application. The
    /// future says how it ended; dropping it does not take the write back.
    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>>;

    /// The current state of a home; `None` where it was never stored.
    ///
    /// # Errors
    /// [`StoreError`], as for all reads below.
    async fn load(&self, home: HomeId) -> Result<Option<Issue>, StoreError>;

    /// The home that an alias belongs to.
    async fn resolve(
        &self,
        account: &AccountName,
        alias: &Alias,
    ) -> Result<Option<HomeId>, StoreError>;

    /// What is known of a delivery and of the names of its issue: all that must be read before a
    /// delivery is taken in, as of one moment and at the price of one read.
    async fn look(&self, account: &AccountName, ask: LookAsk<'_>) -> Result<Look, StoreError>;

    /// What is stored of a delivery.
    async fn delivery(&self, id: &DeliveryId) -> Result<Option<DeliveryRow>, StoreError>;

    /// Homes whose `due_at` is at or before `now`, earliest first, at most `limit`.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<HomeId>, StoreError>;

    /// The earliest `due_at` of all; `None` where nothing is due ever.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Homes with a live sandbox after `after`, by home, at most `limit`: the pages of a start.
    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError>;

    /// A sandbox by its id, also a deleted one.
    async fn sandbox(
        &self,
        account: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError>;

    /// The newest sandbox of a home, also a deleted one.
    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError>;

    /// Sandboxes of an account, newest first (by `created_at`, then id).
    async fn sandboxes(
        &self,
        account: &AccountName,
        filter: &SandboxFilter,
        page: &PageAsk,
    ) -> Result<Page<Sandbox>, StoreError>;

    /// The timeline of a home, newest first.
    async fn timeline(
        &self,
        home: HomeId,
        page: &PageAsk,
    ) -> Result<Page<TimelineEntry>, StoreError>;

    /// How many live sandboxes of an account are in each phase (phases without any left out).
    async fn counts(&self, account: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError>;

    /// Whether writes can be made durable now; `Err` says why not.
    async fn check(&self) -> Result<(), StoreError>;
}

/// One step of one issue, to be made durable.
#[derive(Clone, Debug)]
pub struct Write {
    /// The state after the step, its `version` one more than before; `None` where the step only
    /// records a delivery that changed nothing.
    pub issue: Option<Issue>,
    /// Names that from now on belong to the home.
    pub aliases: Vec<Alias>,
    /// The sandbox that this step confirmed absent; kept as history.
    pub ended: Option<Sandbox>,
    /// What happened, where something did.
    pub timeline: Vec<TimelineEntry>,
    /// The delivery that led here.
    pub delivery: Option<DeliveryRow>,
}

/// What is kept of a delivery. Neither its body nor any secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Its GUID.
    pub id: DeliveryId,
    /// When it arrived.
    pub received_at: Timestamp,
    /// GitHub's event, such as `issues`.
    pub event: String,
    /// Its action, such as `labeled`; empty where it has none.
    pub action: String,
    /// The home it led to, where it led to one.
    pub home: Option<HomeId>,
    /// Whether it had an effect or was ignored.
    pub applied: bool,
    /// What came of it, in words.
    pub reason: String,
}

/// What [`Store::look`] is asked. What is `None` is not looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookAsk<'a> {
    /// A delivery, by its GUID.
    pub delivery: Option<&'a DeliveryId>,
    /// A home, by an issue id.
    pub issue: Option<&'a IssueId>,
    /// A home, by repository and number; whatever the repository's case.
    pub numbered: Option<(&'a Repository, IssueNumber)>,
}

/// What [`Store::look`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What is stored of the delivery.
    pub delivery: Option<DeliveryRow>,
    /// The home that the issue id belongs to.
    pub by_issue: Option<HomeId>,
    /// The home that the repository and number belong to.
    pub by_number: Option<HomeId>,
}

/// Why a write was not made durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The delivery's GUID is stored already; nothing of the write was applied.
    #[error("the delivery was processed before")]
    DuplicateDelivery,
    /// One of the aliases belongs to another home; nothing of the write was applied.
    #[error("the name belongs to another issue")]
    AliasTaken,
    /// The stored version is not the one that this write follows, or the epoch is over.
    #[error("another writer was there before")]
    Fenced,
    /// Too many writes are waiting; nothing was stored.
    #[error("the store is overloaded")]
    Overloaded,
    /// The store failed; nothing was stored.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The page's cursor is not one that this store gave.
    #[error("the cursor is not valid")]
    BadCursor,
    /// The store failed; for the log.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Which sandboxes to list. Every given part must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// In this phase.
    pub phase: Option<Phase>,
    /// Of this provider.
    pub provider: Option<ProviderName>,
    /// Of this repository, whatever its case.
    pub repository: Option<Repository>,
    /// Of the home with this alias.
    pub home: Option<HomeId>,
    /// With this external id.
    pub external_id: Option<ExternalId>,
    /// Whose name, issue title, repository or id contains this text, whatever its case.
    pub text: Option<String>,
    /// Deleted ones too.
    pub include_deleted: bool,
}

/// Which page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAsk {
    /// How many at most.
    pub limit: usize,
    /// The `next` of the page before, as it was given; `None` for the first.
    pub cursor: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins; `None` on the last. Opaque.
    pub next: Option<String>,
    /// How many there are on all pages.
    pub total: u64,
}
