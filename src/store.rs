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
//! Durability and fencing hold for everything that writes, not for [`Store::commit`] alone.
//!
//! # Assumptions a store may make
//! One server process writes at a time (several replicas, each fenced by leases, come with
//! PostgreSQL); home numbers come from [`Store::next_home`].

pub mod access;
pub mod checkout;
pub mod conversation;
mod delivery;
mod effect;
pub mod github;
mod orphan;
pub mod pulls;
pub mod recovered;
pub mod report;
mod rows;
pub mod session;
pub mod sqlite;
pub mod sync;
pub mod usage;
pub mod waiting;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

pub use delivery::{
    DELIVERIES_KEPT_MIN, DeliveryFilter, DeliveryListRow, DeliveryRow, DeliveryState,
    InstructionRow, PENDING_TRIES_MAX, PendingRow, TimelineListRow,
};
pub use effect::{EffectDelay, EffectId, EffectRow, NewEffect};
pub use orphan::Orphan;

use crate::conversation::ConversationRows;
use crate::issue::{EffectKind, FanOut, Instruction, Issue, Scope};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, ExternalId, Hold, HoldScope, HomeId, InstanceId,
    IssueId, IssueNumber, Phase, ProviderName, Repository, Sandbox, SandboxId, TemplateName,
    TimelineEntry, Timestamp,
};

/// What is durable. See the [module](self) for the contract.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The epoch that opening began.
    fn epoch(&self) -> Epoch;

    /// Which installation this store belongs to; made once.
    fn instance(&self) -> InstanceId;

    /// A home number that was never handed out before, by this process or an earlier one, whether
    /// it was stored or not: an object at a provider may carry the number of a home whose first
    /// commit was lost.
    fn next_home(&self) -> HomeId;

    /// From now on [`Store::next_home`] hands out no number at or below this one, also after a
    /// restart: a backup that was restored may be older than the objects at the providers.
    ///
    /// # Errors
    /// [`CommitError::Failed`] for a number above [`HOMES_RESERVED_MAX`], which no home can have.
    async fn reserve_homes(&self, above: HomeId) -> Result<(), CommitError>;

    /// Hands a write in, without waiting: the order of calls is the order of application. The
    /// future says how it ended; dropping it does not take the write back.
    fn commit(&self, write: Write) -> BoxFuture<'static, Result<(), CommitError>>;

    /// The current state of a home; `None` if it was never stored.
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

    /// The earliest `due_at` of all; `None` if nothing is due ever.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Homes with a live sandbox after `after`, by home, at most `limit`: the pages of a start. One
    /// that cannot be read is left out, is among [`Store::troubles`], and is an error of
    /// [`Store::load`]: it holds up its own issue alone.
    async fn live(&self, after: Option<HomeId>, limit: usize) -> Result<Vec<Issue>, StoreError>;

    /// A sandbox by its id, also a deleted one.
    async fn sandbox(
        &self,
        account: &AccountName,
        id: &SandboxId,
    ) -> Result<Option<Sandbox>, StoreError>;

    /// The newest sandbox of a home, also a deleted one.
    async fn newest_sandbox(&self, home: HomeId) -> Result<Option<Sandbox>, StoreError>;

    /// Sandboxes of an account, newest first (by `created_at`, then id). One that cannot be read is
    /// left out, as of [`Store::live`], and counted.
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
    ) -> Result<Page<TimelineListRow>, StoreError>;

    /// Homes of issues that something around them concerns, live or not, after `after`, by home,
    /// at most `limit`.
    async fn homes(
        &self,
        scope: &Scope,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError>;

    /// Homes with a sandbox at this provider that is in a transitional phase or failed, in the order
    /// of homes from behind `after`, at most `limit`.
    async fn unsettled_at(
        &self,
        provider: &ProviderName,
        after: Option<HomeId>,
        limit: usize,
    ) -> Result<Vec<HomeId>, StoreError>;

    /// Pending starts behind the first `skip`, at most `limit`, in a fair order: the longest waiting of each repository,
    /// then the second of each, and so on; within a round the longest waiting first. Issues of no
    /// known repository take turns as one.
    async fn pending_starts(
        &self,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<PendingStartRow>, StoreError>;

    /// Which of these sandboxes are known to be deleted.
    async fn deleted(&self, ids: &[SandboxId]) -> Result<HashSet<SandboxId>, StoreError>;

    /// Deliveries, newest first (by when they were stored).
    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        page: &PageAsk,
    ) -> Result<Page<DeliveryListRow>, StoreError>;

    /// Instructions of a home whose number is greater than `after`, oldest first, at most `limit`.
    async fn instructions(
        &self,
        home: HomeId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<InstructionRow>, StoreError>;

    /// Effects of the outbox that are due at `now`: the earliest due first, then the oldest, at most
    /// `limit`. Of each home and kind only the first one in the order of recording counts; the
    /// others wait for it.
    async fn effects(&self, now: Timestamp, limit: usize) -> Result<Vec<EffectRow>, StoreError>;

    /// When [`Store::effects`] gives the next one that is not due at `now`; `None` if there is none.
    async fn next_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;

    /// How many effects are in the outbox, by kind (kinds without any left out).
    async fn effect_counts(&self) -> Result<Vec<(EffectKind, u64)>, StoreError>;

    /// Removes an effect from the outbox. No harm when this version of it is not there.
    async fn finish_effect(&self, id: EffectId) -> Result<(), CommitError>;

    /// Tries an effect again later. No harm when this version of it is not there.
    async fn delay_effect(&self, id: EffectId, delay: EffectDelay) -> Result<(), CommitError>;

    /// Stores a delivery that is still to be applied to one issue after the other.
    ///
    /// # Errors
    /// [`CommitError::DuplicateDelivery`] if its GUID is stored, in whatever state; all others
    /// as for a write.
    async fn put_pending(&self, fan_out: FanOut) -> Result<(), CommitError>;

    /// Deliveries that are still to be applied, in the order in which they were stored, at most
    /// `limit`.
    async fn pending(&self, limit: usize) -> Result<Vec<PendingRow>, StoreError>;

    /// A pending delivery is applied to every home up to this one. Never goes back; no harm if
    /// the delivery is not pending.
    async fn advance_pending(&self, id: &DeliveryId, done_to: HomeId) -> Result<(), CommitError>;

    /// A pending delivery is done, with what came of it. No harm if it is not pending.
    async fn finish_pending(
        &self,
        id: &DeliveryId,
        applied: bool,
        reason: String,
    ) -> Result<(), CommitError>;

    /// A try to apply a pending delivery failed. The [`PENDING_TRIES_MAX`]th sets it aside, with
    /// this error as its reason. No harm if it is not pending.
    async fn fail_pending(&self, id: &DeliveryId, error: String) -> Result<(), CommitError>;

    /// Everything that is held, by kind and name.
    async fn holds(&self) -> Result<Vec<Hold>, StoreError>;

    /// Puts holds on, all or none, each in place of one with the same scope.
    async fn put_holds(&self, holds: Vec<Hold>) -> Result<(), CommitError>;

    /// Releases a hold; whether there was one.
    async fn remove_hold(&self, scope: &HoldScope) -> Result<bool, CommitError>;

    /// Objects that a sweep saw without a record, by provider and external id.
    async fn orphans(&self) -> Result<Vec<Orphan>, StoreError>;

    /// Keeps these. One that is kept already keeps its `first_seen_at`.
    async fn put_orphans(&self, orphans: Vec<Orphan>) -> Result<(), CommitError>;

    /// Forgets these; no harm if there are none.
    async fn remove_orphans(&self, keys: &[(ProviderName, ExternalId)]) -> Result<(), CommitError>;

    /// Who each provider said it is, by provider.
    async fn identities(&self) -> Result<Vec<(ProviderName, String)>, StoreError>;

    /// Keeps who a provider says it is, in place of what was kept.
    async fn put_identity(
        &self,
        provider: &ProviderName,
        identity: &str,
    ) -> Result<(), CommitError>;

    /// Removes what is too old, in small bites between which other writes have their turn; says
    /// how many rows went. Fewer than asked for: nothing is left to remove.
    ///
    /// Never removes pending deliveries, nor those younger than [`DELIVERIES_KEPT_MIN`].
    async fn prune(&self, ask: PruneAsk) -> Result<u64, CommitError>;

    /// How many live sandboxes of an account are in each phase (phases without any left out).
    async fn counts(&self, account: &AccountName) -> Result<Vec<(Phase, u64)>, StoreError>;

    /// Whether writes can be made durable now; `Err` says why not. It answers behind every write
    /// that was handed in before: what is read after it shows them.
    async fn check(&self) -> Result<(), StoreError>;

    /// What is known to be wrong with the store's files since it was opened, each once. What keeps
    /// everything from being stored comes first. Nothing for a store without files.
    fn troubles(&self) -> Vec<StoreError> {
        Vec::new()
    }
}

/// One step of one issue, to be made durable.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// The state after the step, its `version` one more than before; `None` if the step only
    /// records a delivery that changed nothing.
    pub issue: Option<Issue>,
    /// Names that from now on belong to the home; refused if one belongs to another.
    pub aliases: Vec<Alias>,
    /// Names that from now on belong to the home although another may have had them: those of a
    /// repository that was made again under an old name.
    pub taken_over: Vec<Alias>,
    /// The home of the same account that every name of `issue` belongs to from now on, also those
    /// of this write: the two are the same issue.
    pub names_go_to: Option<HomeId>,
    /// The sandbox that this step confirmed absent; kept as history.
    pub ended: Option<Sandbox>,
    /// What happened, if something did.
    pub timeline: Vec<TimelineEntry>,
    /// The delivery that led here.
    pub delivery: Option<DeliveryRow>,
    /// The words for the agent that this delivery brought. Instructions of an issue that is deleted
    /// on GitHub are removed, those of a home that gives way go behind the other one's.
    pub instruction: Option<Instruction>,
    /// What was said to the agent, and the runs that changed. It is kept and removed as instructions
    /// are.
    pub said: ConversationRows,
    /// What is to be done outside of the issues' states: it comes into the outbox. An effect of the
    /// same home, kind and key that is there is replaced, unless it is the same. A write of nothing
    /// else follows no version.
    pub effects: Vec<NewEffect>,
    /// The home of an issue whose conversation was unlocked: effects that are held until then are due.
    pub unlocked: Option<HomeId>,
}

impl Write {
    /// The homes whose effects are due that were held until an unlock.
    pub fn unlocks(&self) -> impl Iterator<Item = HomeId> {
        // An issue that is deleted is never unlocked: what waits for that is given up.
        let deleted = self.issue.as_ref().filter(|issue| issue.facts.deleted);
        // A home that others give way to may not have heard of what they did.
        let homes = [self.unlocked, self.names_go_to, deleted.map(|issue| issue.home)];
        homes.into_iter().flatten()
    }
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
    pub by_number: Option<NumberedHome>,
}

/// The home that a repository and number belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedHome {
    /// Which.
    pub home: HomeId,
    /// GitHub's numeric id of the repository that had this name when the home was given it: one
    /// that is made again under the same name has another. `None` if it was not known.
    pub repository_id: Option<u64>,
}

/// A pending start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingStartRow {
    /// Whose.
    pub home: HomeId,
    /// The account of the home.
    pub account: AccountName,
    /// The issue's repository in its [folded](Repository::folded) form, if known.
    pub repository: Option<String>,
    /// Since when it waits.
    pub since: Timestamp,
}

/// The highest number that homes can be reserved up to. Counting never comes this far, so a number
/// above it was not given by any store.
pub const HOMES_RESERVED_MAX: HomeId = HomeId(1 << 53);

/// What [`Store::prune`] may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneAsk {
    /// What time it is.
    pub now: Timestamp,
    /// Deliveries that arrived before this; `None` keeps all.
    pub deliveries_before: Option<Timestamp>,
    /// Rows of timelines from before this; `None` keeps all.
    pub timeline_before: Option<Timestamp>,
    /// Sandboxes that were deleted before this; `None` keeps all.
    pub deleted_before: Option<Timestamp>,
    /// How many rows at most.
    pub limit: usize,
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
    /// The database is damaged; nothing was stored.
    #[error("{}", damaged(path, what))]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong, and with what of it.
        what: String,
    },
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
    /// The database, or a row of it, is not what was written.
    #[error("{}", damaged(path, what))]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong, and with what of it.
        what: String,
    },
    /// A file of the store was removed or replaced: what would be written has no name.
    #[error(
        "{path} {how} while the server runs, so nothing can be stored; put it back, or stop the \
         server, restore the records with `issuebox --data {dir} restore FILE`, and start it again",
        path = path.display(), dir = directory_of(path).display()
    )]
    Replaced {
        /// Which file.
        path: PathBuf,
        /// What was done to it.
        how: &'static str,
    },
    /// The store failed; for the log.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// What a damage is, and the way out.
fn damaged(path: &Path, what: &str) -> String {
    format!(
        "the database {} is damaged: {what}; stop the server and restore a backup with `issuebox \
         --data {} restore FILE`",
        path.display(),
        directory_of(path).display()
    )
}

/// The directory that a database is in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
    /// Made from this template.
    pub template: Option<TemplateName>,
    /// With this external id.
    pub external_id: Option<ExternalId>,
    /// Whose name, issue title, repository or id contains this text, whatever its case.
    pub text: Option<String>,
    /// Deleted ones too.
    pub include_deleted: bool,
    /// Deleted ones alone; then there must be no phase.
    pub only_deleted: bool,
}

impl SandboxFilter {
    /// Whether a live sandbox matches, whatever its phase, as the lists of a store decide it.
    pub fn matches_but_for_phase(&self, sandbox: &Sandbox) -> bool {
        let Self { phase: _, provider, repository, home, template, external_id, text, .. } = self;
        provider.as_ref().is_none_or(|one| *one == sandbox.provider)
            && repository.as_ref().is_none_or(|one| {
                sandbox.repository.as_ref().is_some_and(|of| of.folded() == one.folded())
            })
            && home.is_none_or(|home| home == sandbox.home)
            && template.as_ref().is_none_or(|one| *one == sandbox.template)
            && external_id.as_ref().is_none_or(|one| sandbox.external_id.as_ref() == Some(one))
            && text.as_ref().is_none_or(|text| {
                let Sandbox { name, issue_title, repository, id, .. } = sandbox;
                let title = issue_title.as_deref();
                rows::search_text(name, title, repository.as_ref(), id)
                    .contains(&text.to_lowercase())
            })
    }
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
