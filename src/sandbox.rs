//! The port to what really makes sandboxes, and the contract that every provider keeps.
//!
//! One adapter type implements three traits, by who calls them: [`Lifecycle`] (the engine),
//! [`Workspace`] and [`Processes`] (the edge). [`Descriptor`] says at the start what it can do; what
//! it does not declare is refused before it is asked.
//!
//! # Expected flow
//! The engine records a step, then calls; at most one of `create`, `start`, `stop`, `delete` and
//! `find` is under way for a home at any moment. `exec` and the file calls run beside them.
//!
//! # Guarantees a provider gives
//! - **Ownership.** Every object carries [`Labels`]. `create` under an existing name returns that
//!   object only when it carries the *same sandbox id*, completing it if it is half made;
//!   otherwise it answers [`ProviderError::Present`] with what is there and changes nothing.
//!   `start`, `stop`, `delete`, and every call of [`Workspace`] and [`Processes`] take an external
//!   id and the sandbox id expected on it, and check it: a delete never hits a successor of the same name.
//! - **Absence.** [`ProviderError::Absent`] and an empty `find` mean: the provider was reached and
//!   does not have it. An object that is being destroyed still counts as present. What could not
//!   be reached or understood is [`ProviderError::Unavailable`]; what there is no room for is
//!   [`ProviderError::Exhausted`].
//! - **Deadline and settle.** A lifecycle call gives up at its deadline; dropping its future gives
//!   up too. What it asked for may still come into effect until the deadline plus
//!   [`Descriptor::late_effect_window`], and not later.
//! - **Uniqueness.** [`Uniqueness::EnforcedNames`] promises that no two objects of one name exist,
//!   also when two creates run at once.
//!
//! # Assumptions a provider may make
//! Names and labels have the forms of [`crate::types`]; futures are polled on a tokio runtime
//! where blocking for milliseconds is allowed but not for longer.

mod arrivals;
mod capacity;
mod command_defaults;
mod command_pipes;
pub(crate) mod confined;
pub mod daytona;
mod descriptor;
mod descriptors;
pub mod docker;
mod egress;
mod errors;
mod events;
mod exec;
mod files;
mod given;
mod kept_output;
mod kind;
mod lifecycle;
mod limits;
pub mod local;
mod objects;
mod ports;
mod process;
mod processes;
mod reach;
mod sessions;
pub mod simulated;
mod stored_network;
mod stored_workload;
mod terminal;
mod terminal_device;
mod terminal_pair;
mod tree_page;
mod walk;
mod workspace;

use std::sync::Arc;

pub use arrivals::Arrivals;
pub use capacity::{Capacity, DiskRoom};
pub use descriptor::{
    Capability, Descriptor, Enforcement, Enforcements, Isolation, LimitKind, Uniqueness,
};
pub use egress::{Egress, EgressResult};
pub use errors::{ProviderError, WorkError};
pub use events::{EventSender, Notice, ObjectChange, ProviderEvent, ProviderEvents};
pub use exec::{ExecEvent, ExecInput, ExecRequest, Execution, exec_by_spawn};
pub use files::{
    ChunkReceiver, FileContent, FileEntry, FileKind, FileListing, FilePart, LEFT_OUT_NAME,
    WorkspacePath, Written,
};
pub use given::GivenProgram;
pub use kind::{
    OpenContext, OpenFailure, OpenedProvider, ProviderKind, ReloadSettings, ReloadedSettings,
};
use lifecycle::by_deadline;
pub use lifecycle::{CreateSpec, Health, Lifecycle, ObjectKey, TargetCall};
pub use limits::{LimitEffect, LimitEvent, LimitsInForce};
pub use objects::{Labels, Object, Target};
pub use ports::{HttpAccess, PortAccess, Stream};
pub use process::{
    Offset, OutputStream, Overflow, ProcessEvent, ProcessExit, ProcessId, ProcessOutput,
    ProcessSpec, Signal, StdinMode,
};
pub use processes::{ENDED_KEPT, OUTPUT_KEPT_MAX, Processes, REREAD_LEN, STDIN_CHUNK_MAX};
pub use terminal::{
    Terminal, TerminalControl, TerminalEvent, TerminalRequest, TerminalSignal, TerminalSize,
};
pub use tree_page::{InTree, TreePage, TreePageAsk, by_parts, levels_below};
pub use walk::{TreeEntry, WALK_ENTRIES_MAX, WalkedTree};
pub use workspace::{LIST_ENTRIES_MAX, Workspace};

/// One provider: its three traits, and what it declared at its start.
#[derive(Clone)]
pub struct Provider {
    /// What it declared.
    pub descriptor: Arc<Descriptor>,
    /// Its objects.
    pub lifecycle: Arc<dyn Lifecycle>,
    /// The files in them.
    pub workspace: Arc<dyn Workspace>,
    /// The commands in them.
    pub processes: Arc<dyn Processes>,
}

impl<P: Lifecycle + Workspace + Processes> From<Arc<P>> for Provider {
    fn from(adapter: Arc<P>) -> Self {
        Self {
            descriptor: Arc::new(adapter.descriptor()),
            lifecycle: Arc::clone(&adapter) as _,
            workspace: Arc::clone(&adapter) as _,
            processes: adapter,
        }
    }
}
