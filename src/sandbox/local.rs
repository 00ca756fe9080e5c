//! Sandboxes on this machine: Linux namespaces, an unprivileged user of their own, a workspace.

mod frame;
mod inside;
mod listing;
mod packet;
mod remove;

pub use inside::run_hidden_command;
