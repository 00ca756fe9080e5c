//! issuebox gives every GitHub issue exactly one sandbox in which a coding agent works.
//!
//! This is the table of contents. Read it top to bottom; each layer knows only those above it.
//! ARCHITECTURE.md tells the same as a story, with the invariants and two walkthroughs.

// L0 vocabulary: what things are called.
pub mod clock;
pub mod config;
#[cfg(test)]
mod fuzz;
mod sabotage;
pub mod telemetry;
pub mod types;

// L1 heart: the lifecycle of one issue, pure.
pub mod issue;

// L2 ports: what the engine needs of the world, as contracts. L3 adapters live below them.
pub mod github;
pub mod logs;
pub mod sandbox;
pub mod store;
// How sandboxes reach the network: a proxy that checks every address it connects to.
pub mod egress;

// L4 engine: one actor for an issue; what is recorded is done, what is done was recorded.
pub mod engine;

// L5 edge: everything that is spoken over HTTP.
pub mod http;

// L6 assembly: from a configuration to a running server.
pub mod app;

// L7 command: what people type.
pub mod cli;
