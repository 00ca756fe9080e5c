//! The HTTP surface against a whole server in this process, over a store and a provider whose
//! every move a test decides: the API, the pages, the webhooks, and that the served description
//! says what the server does.

mod access;
mod access_pages;
mod app_setup;
mod asking;
mod before_work;
mod capabilities;
#[path = "../common/mod.rs"]
mod common;
mod conversations;
mod deliveries;
mod drift;
mod edge;
mod events;
mod examples;
#[path = "../common/github_examples.rs"]
mod github_examples;
mod github_login;
mod holds;
mod issue_sandbox;
mod logs;
mod openapi;
mod page;
mod pages;
mod permission;
mod ports;
#[path = "../common/process.rs"]
mod process;
mod readers;
mod repositories;
mod sandboxes;
mod server;
mod streams;
mod syncs;
mod talk;
mod templates;
mod terminal;
mod verification;
mod webhooks;
mod work;
