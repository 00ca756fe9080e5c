//! How events become work, and the argument why there is exactly one sandbox for an issue.
//!
//! 1. **One actor for a home.** The `registry` keeps one handle for a home. A ticket removes only its
//!    own activation. Senders are counted under the map's guard, so that an actor ends only when no
//!    sender is about to send to it.
//! 2. **Steps are synchronous.** The `actor` puts each event through
//!    [`step`](crate::issue::step::step) at once; nothing interleaves. The `executor` holds one slot
//!    for a home until the provider call really ended, also when the actor is gone.
//! 3. **Commit, then speak.** Replies, published changes and provider calls leave only once the
//!    commit that led to them is durable, in order. A commit that fails drops the actor; the next
//!    event builds it again from the store.
//! 4. **Record before act.** A provider call is durable before it is made, so that a crash in between
//!    is followed by a look, not by a second create.
//! 5. **One home for an issue.** The `directory` finds it by any of its names. If two homes turn out
//!    to be one issue, `merge` lets one stay, and nothing more is begun in the other.
//! 6. **The database is the last wall.** Two activations of one home, should they ever exist,
//!    cannot both commit: each write names the version it follows.
//!
//! Parts know only parts below them, and no part knows all: `environment` and `providers` are at the
//! bottom, then the leaves (`busy`, `alarm`, `admission`, `directory`, …), the `executor`, the `actor`
//! with its `registry`, `actors` that callers use, the loops (`scheduler`, `reconciler`, `fanout`, …),
//! and the `handle` on top. `tests/documents/tidy.rs` checks that they form no circle.

mod actor;
mod actors;
mod admission;
mod alarm;
pub mod api;
mod breaker;
mod busy;
mod directory;
mod effect_end;
mod effects;
mod environment;
mod executor;
mod fanout;
mod fast_create;
mod figures;
mod github_effects;
pub mod handle;
mod holds;
mod hooks;
mod identity;
mod mailbox;
mod merge;
mod provider_events;
mod providers;
mod publication;
mod reconciler;
mod recovery;
mod registry;
mod restart_backoff;
mod retention;
mod scheduler;
pub mod spawner;
mod start;
mod wait;

#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod tests;

pub use admission::{HoldsWatch, Quotas};
pub use api::{
    Change, Commanded, Delivered, DeliveredStatus, EngineError, EnsureIssue, Ensured, IssueKey,
    Publisher, SandboxRef, WaitFor, Waited, Work,
};
pub use breaker::{BreakerState, BreakerView};
pub use busy::AtWork;
pub use effects::EffectCounts;
pub use executor::CleanupCounts;
pub use figures::Figures;
pub use github_effects::GithubParts;
pub use handle::{Engine, WeakEngine};
pub use hooks::{HookedSandbox, LifecycleHooks};
pub use reconciler::view::{
    DriftItem, DriftKind, DriftView, ObjectSide, ProviderSweeps, RecordSide, Remedy,
};
pub use retention::Retention;
pub use spawner::{Spawner, Threads};
pub use start::EngineParts;
