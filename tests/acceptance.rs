//! What must hold of the whole program, seen by running it: the real binary under `serve`, asked
//! over HTTP, counted at its provider, killed and started again.
//!
//! What takes long, walks `/proc` or makes real sandboxes is ignored here and run by `.ci/run`
//! (`cargo test --test acceptance -- --include-ignored`).

#[path = "acceptance/crash.rs"]
mod crash;
#[path = "acceptance/crash_local.rs"]
mod crash_local;
#[path = "acceptance/drift.rs"]
mod drift;
#[path = "acceptance/ensure.rs"]
mod ensure;
#[path = "acceptance/flood.rs"]
mod flood;
#[path = "acceptance/host_disk.rs"]
mod host_disk;
#[path = "acceptance/limits.rs"]
mod limits;
#[path = "acceptance/network.rs"]
mod network;
#[path = "acceptance/order.rs"]
mod order;
#[path = "common/process.rs"]
mod process;
#[path = "acceptance/processes.rs"]
mod processes;
#[path = "acceptance/refusals.rs"]
mod refusals;
#[path = "acceptance/rotation.rs"]
mod rotation;
#[path = "acceptance/shutdown.rs"]
mod shutdown;
#[path = "acceptance/startup.rs"]
mod startup;
#[path = "common/story.rs"]
mod story;
#[path = "acceptance/watch.rs"]
mod watch;
#[path = "acceptance/work.rs"]
mod work;
