//! What must hold of the whole program, seen by running it: the real binary under `serve`, asked
//! over HTTP, looked at in a browser, counted at its provider, killed and started again.
//!
//! What takes long, walks `/proc`, makes real sandboxes or needs Chromium or Docker is ignored here
//! and run by `.ci/run` (`cargo test --test acceptance -- --include-ignored`).

#[path = "../common/agent.rs"]
mod agent;
mod agent_place;
mod agent_rules;
mod agent_storm;
mod agents;
mod asking;
mod browser;
mod button;
mod checkout;
#[path = "../common/chromium.rs"]
mod chromium;
mod connected;
mod container_agent;
mod container_demo;
mod container_life;
mod container_place;
mod container_pull;
mod container_remote;
mod container_storm;
mod crash;
mod crash_local;
mod data;
mod deploy;
mod docker;
mod drift;
#[path = "../common/docker.rs"]
mod engine;
mod ensure;
mod flood;
mod hooks;
mod host_disk;
mod image;
mod label_to_pull;
mod limits;
mod missed;
mod network;
mod order;
mod own_engine;
mod permission;
#[path = "../common/process.rs"]
mod process;
mod processes;
mod pull;
mod refusals;
mod registry;
mod repositories;
mod repository_file;
mod review;
mod rotation;
mod said;
mod shutdown;
mod startup;
#[path = "../common/story.rs"]
mod story;
mod sync;
mod talk;
mod traces;
mod watch;
mod work;
mod workload;
