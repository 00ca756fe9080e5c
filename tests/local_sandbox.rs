//! The `local` provider against this machine's kernel: what a sandbox can and can't do, and what
//! is left when something is killed. Every test makes real sandboxes; see `common/local.rs` for
//! what happens where that is not possible.

#[path = "local_sandbox/commands.rs"]
mod commands;
#[path = "common/local.rs"]
mod common;
#[path = "local_sandbox/damaged.rs"]
mod damaged;
#[path = "local_sandbox/detection.rs"]
mod detection;
#[path = "local_sandbox/disk.rs"]
mod disk;
#[path = "local_sandbox/files.rs"]
mod files;
#[path = "local_sandbox/git.rs"]
mod git;
#[path = "local_sandbox/isolation.rs"]
mod isolation;
#[path = "local_sandbox/life.rs"]
mod life;
#[path = "local_sandbox/limits.rs"]
mod limits;
#[path = "local_sandbox/network.rs"]
mod network;
#[path = "local_sandbox/ports.rs"]
mod ports;
#[path = "local_sandbox/seccomp.rs"]
mod seccomp;
#[path = "local_sandbox/terminal.rs"]
mod terminal;
#[path = "local_sandbox/tools.rs"]
mod tools;
#[path = "local_sandbox/uploads.rs"]
mod uploads;
#[path = "local_sandbox/warm.rs"]
mod warm;
#[path = "local_sandbox/watched.rs"]
mod watched;
