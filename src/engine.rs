//! How events become work, and the argument why there is exactly one sandbox for an issue.
//!
//! 1. **One actor for a home.** `registry` keeps one handle for a home; a ticket removes only
//!    its own activation; senders are counted under the map's guard, so that an actor ends only
//!    when nobody is about to speak to it.
//! 2. **Steps are synchronous.** The `actor` puts each event through
//!    [`step`](crate::issue::step::step) at once; nothing interleaves. The `executor` holds one
//!    slot for a home until the provider call really ended, also when the actor is gone.
//! 3. **Commit, then speak.** Replies, published changes and provider calls leave only once the
//!    commit that led to them is durable, in order. A commit that fails drops the actor; the next
//!    event builds it again from the store.
//! 4. **Record before act.** What a provider is asked is durable before it is asked, so that a
//!    crash in between is followed by a look, not by a second create.
//! 5. **One home for an issue.** The `directory` finds it by any of its names; where two turn out to
//!    be one issue, `merge` lets one stay, and nothing is begun any more in the other.
//! 6. **The database is the last wall.** Two activations of one home, should they ever exist,
//!    cannot both commit: each write names the version it follows.

mod actor;
mod actors;
mod admission;
mod alarm;
pub mod api;
mod breaker;
mod busy;
mod directory;
mod environment;
mod executor;
mod fanout;
mod fast_create;
mod figures;
pub mod handle;
mod holds;
mod identity;
mod mailbox;
mod merge;
mod provider_events;
mod providers;
mod publication;
mod reconciler;
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
mod tests;

pub use admission::Quotas;
pub use api::{
    Change, Commanded, Delivered, DeliveredStatus, EngineError, EnsureIssue, Ensured, IssueKey,
    Publisher, SandboxRef, WaitFor, Waited, Work,
};
pub use breaker::{BreakerState, BreakerView};
pub use busy::AtWork;
pub use executor::CleanupCounts;
pub use figures::Figures;
pub use handle::Engine;
pub use reconciler::view::{
    DriftItem, DriftKind, DriftView, ObjectSide, ProviderSweeps, RecordSide, Remedy,
};
pub use retention::Retention;
pub use spawner::{Spawner, Threads};
pub use start::EngineParts;
