//! The lifecycle of one issue's sandbox, decided in one pure function.
//!
//! [`step`](step::step) takes the state of an issue, one event and its context, and returns a
//! [`Commit`]: the new state, timeline entries, a reply, at most one call to the provider, and
//! effects for the outbox. It does no IO and has no clock, so every row of the lifecycle can be
//! tested as a table.
//!
//! ```text
//!            ensure                    answer: up
//!  absent ───────────► creating ─────────────────────► running
//!    ▲                   │ tries used up                │    ▲
//!    │                   ▼                         stop │    │ up
//!    │                failed ◄── stopping, starting     ▼    │
//!    │                   │        (tries used up)   stopping │
//!    │            delete │                              │    │
//!    │                   ▼                         down ▼    │
//!    └──────────────  deleting ◄── from every phase  stopped ──► starting
//!      look: absent
//! ```
//!
//! # Invariants
//! - At most one provider call is in flight ([`Step::Asked`]); its answer names its attempt, and
//!   any other answer changes nothing.
//! - Generations and attempts only grow; a new generation begins only after the provider no
//!   longer has the last one.
//! - *failed* is left by `retry` and `delete` alone, and never by making a second sandbox.
//! - An accepted delete ends absent: nothing cancels it, nothing turns it into *failed*.
//! - After a create that may still land, absence is not concluded before
//!   [`Record::may_land_until`].

pub mod acts;
pub mod commit;
pub mod effect;
pub mod event;
mod facts;
pub mod instruction;
mod restored;
pub mod state;
pub mod step;

pub use commit::{Commit, DeliveryResult, ProviderCall, Reply};
pub use effect::{
    Cleanup, CleanupAction, CommentAnswer, Effect, EffectKind, EffectQueue, GithubEffect, ReactTo,
};
pub use event::{
    CallAnswer, Command, Denial, DenialKind, FanOut, GithubRules, IssueDelivery, IssueEvent,
    IssueName, Rules, Scope, ScopeEvent, StepContext, StepRules,
};
pub use instruction::{Instruction, InstructionExcerpt};
pub use restored::restored;
pub use state::{
    Dated, Facts, Healing, Issue, IssueState, PendingStart, Record, SandboxPlan, Step, StoppedBy,
    Verb,
};
