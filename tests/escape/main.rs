//! The escape suite: attempts of a hostile program inside of a sandbox, one per row, each with its
//! exact expected result.
//!
//! Our own program (`escape/inside/`) makes the attempts; it is compiled here and uploaded into a
//! workspace. After each attempt a neighbour and the server still answer, and the host is
//! unchanged; in the end nothing of the sandbox is left. The whole suite runs once more as an
//! ordinary user, for whom this machine enforces fewer limits: the provider reports which, and the
//! rows follow its report.
//!
//! This is a binary of its own because it starts itself again as that user and runs every test, and
//! because the attempts use up what the machine has.
#![cfg(target_os = "linux")]

#[path = "../common/local.rs"]
mod common;
mod counters;
mod exhaustion;
mod files;
mod kernel;
mod namespaces;
mod ordinary;
mod processes;
mod sockets;
mod world;
