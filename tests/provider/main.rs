//! The providers: the contract that every one of them keeps (a file for each part of the port), and
//! what the simulated one does besides.
//!
//! Each test of the contract is a function over a [`Subject`](subject::Subject), named in a
//! `contract!` list, and runs for every provider as a test of its own.

#[path = "../common/docker.rs"]
mod docker;
#[path = "../common/local.rs"]
mod local;
#[macro_use]
mod subject;
mod capabilities;
mod commands;
mod container_options;
mod containers;
mod daytona;
mod detached;
mod files;
mod lifecycle;
mod links;
mod ownership;
mod ports;
mod prepared;
#[path = "../common/process.rs"]
mod process;
mod simulated;
mod terminal;
