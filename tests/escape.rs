//! The escape suite: what a hostile program tries from inside of a sandbox, one row for each, and
//! exactly what must come of it.
//!
//! The attempts are made by a program of our own (`escape/inside/`), which is compiled here and put
//! into a workspace through the files API. After each of them a neighbour and the server still
//! answer, the host is as it was, and in the end nothing of the sandbox is left. The whole suite
//! runs once more as an ordinary user, for whom this machine can enforce less: what it can't is
//! said by the provider, and the rows follow what it says.
#![cfg(target_os = "linux")]

#[path = "common/local.rs"]
mod common;
#[path = "escape/exhaustion.rs"]
mod exhaustion;
#[path = "escape/files.rs"]
mod files;
#[path = "escape/kernel.rs"]
mod kernel;
#[path = "escape/namespaces.rs"]
mod namespaces;
#[path = "escape/ordinary.rs"]
mod ordinary;
#[path = "escape/processes.rs"]
mod processes;
#[path = "escape/sockets.rs"]
mod sockets;
#[path = "escape/world.rs"]
mod world;
