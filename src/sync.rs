//! A sandbox's workspace in an object storage, in versions.
//!
//! ```text
//! {prefix}/{account}/{sandbox}/v1764627998-1/.sandbox-state    the manifest of a version
//! {prefix}/{account}/{sandbox}/objects/ab/cdef…                a content, by its SHA-256
//! {prefix}/{account}/{sandbox}/damaged/abcdef…                 a mark: a reader found it missing or damaged
//! ```
//!
//! # Guarantees
//! - **A version is whole or not there.** Its manifest is written last. What kills a push leaves the
//!   last whole version, and contents that the next push uses.
//! - **A content is stored once.** A push stores what the sandbox's earlier versions do not have.
//! - **A lost content heals.** Who finds one missing or damaged marks it. The next push then looks for
//!   each content that it relies on, and stores again what is not there as it should be.
//! - **Versions past retention go**, and contents that no version names; the module `collect` says what never
//!   does.
//! - **Memory is bounded**: all decoded manifests together, and contents on their way.
//! - **Links are never followed**, and no path of a manifest leads out of the workspace.
//! - **One sync of a sandbox at a time**; the next one waits.
//! - Credentials stay in the server: it moves the bytes.
//!
//! # Races it accepts
//! Commands may run meanwhile. A file that changes while it is read is stored as it was read, and
//! read again by the next push. A version is no snapshot of one moment.

mod archive;
mod background;
mod cache;
mod collect;
mod error;
mod ignored;
mod manifest;
mod open;
mod plan;
mod pull;
mod push;
mod read;
mod retention;
mod storage;
mod turns;
mod view;
mod worker;

pub use background::SyncsInBackground;
pub use collect::Collected;
pub use error::SyncError;
pub use ignored::COLD_START_MARK;
pub use open::OpenStorage;
pub use read::SyncPlace;
pub use retention::SyncRetention;
pub use turns::Turns;
pub use view::{SyncedTree, SyncedVersion, SyncedVersions};
pub use worker::{SyncOrder, SyncSubject, SyncWorker, Synced};

/// Files, contents and deletions of one sync that are under way at once.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests;
