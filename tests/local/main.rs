//! The `local` provider on this machine's kernel: the rights of a sandbox, and what is left after
//! kills. Every test makes real sandboxes; `common/local.rs` says what happens on machines that
//! can't.
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
mod given;
mod isolation;
mod life;
mod limits;
mod models;
mod network;
mod own_uids;
mod ports;
mod processes;
mod seccomp;
mod terminal;
mod tools;
mod uploads;
mod warm;
mod watched;
mod ways;
mod workload;
