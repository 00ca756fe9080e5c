//! The `local` provider against this machine's kernel: what a sandbox can and can't do, and what
//! is left when something is killed. Every test makes real sandboxes; see `common/local.rs` for
//! what happens where that is not possible.
//!
//! This is a binary of its own because one test starts it again as an ordinary user and runs every
//! test that is not ignored.

mod commands;
#[path = "../common/local.rs"]
mod common;
mod damaged;
mod detection;
mod disk;
mod files;
mod git;
mod isolation;
mod life;
mod limits;
mod network;
mod ports;
mod seccomp;
mod terminal;
mod tools;
mod uploads;
mod warm;
mod watched;
mod workload;
