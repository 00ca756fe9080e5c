//! The escape suite: what a hostile program tries from inside of a sandbox, one row for each, and
//! exactly what must come of it.
//!
//! The attempts are made by a program of our own (`escape/inside/`), which is compiled here and put
//! into a workspace through the files API. After each of them a neighbour and the server still
//! answer, the host is as it was, and in the end nothing of the sandbox is left. The whole suite
//! runs once more as an ordinary user, for whom this machine can enforce less: what it can't is
//! said by the provider, and the rows follow what it says.
//!
//! This is a binary of its own because it starts itself again as that user and runs every test, and
//! because the attempts use up what the machine has.
#![cfg(target_os = "linux")]

#[path = "../common/local.rs"]
mod common;
mod exhaustion;
mod files;
mod kernel;
mod namespaces;
mod ordinary;
mod processes;
mod sockets;
mod world;
