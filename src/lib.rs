//! issuebox gives every GitHub issue exactly one sandbox in which a coding agent works.
//!
//! This is the table of contents. Read it top to bottom; each layer knows only those above it.
//! ARCHITECTURE.md has the argument, a glossary and two walkthroughs, docs/ the rest.

// L0 vocabulary: types and services that every layer uses.
pub mod clock;
pub mod config;
#[cfg(test)]
mod fuzz;
mod sabotage;
pub mod telemetry;
pub mod types;
pub mod web_socket;

// L1 core: the lifecycle of one issue, as a pure state machine.
pub mod issue;
// What is said to the agent about one issue, and its runs: the second one, in the same steps.
pub mod conversation;
// Coding agents' command lines: how they are started, read, judged and refused. Pure.
pub mod agents;

// L2 ports: the interfaces that the engine uses. L3 adapters implement them.
pub mod git;
pub mod github;
pub mod logs;
// The gateway to the models: keys, budgets, prices, and what was used.
pub mod models;
pub mod sandbox;
pub mod store;
// Who may do what: tokens and accounts.
pub mod access;
// The proxy through which sandboxes reach the network; it checks every address.
pub mod egress;

// L4 engine: one actor per issue, which records each action before it is carried out.
pub mod engine;
// The repository in each sandbox, on a branch of its own.
pub mod checkout;
// The steps that templates have carried out in their sandboxes at certain moments.
pub mod hooks;
// Runs of agents: their processes in sandboxes, what those print, and how they end.
pub mod runs;
// GitHub is asked before a sandbox is made: is the issue open, and may who asked for it do so?
pub mod verification;
// The way of deliveries from GitHub to the engine.
pub mod intake;
// The workspace in an object storage, in versions.
pub mod sync;
// One issue's sandbox as one value, for programs that use the library.
pub mod issue_sandbox;

// L5 edge: the HTTP API, the dashboard and the webhook endpoint.
pub mod http;

// L6 assembly: builds a running server from a configuration.
pub mod app;

// L7 command: the command line.
pub mod cli;
