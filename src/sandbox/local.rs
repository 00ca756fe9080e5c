//! Sandboxes on this machine: Linux namespaces, an unprivileged user of their own, a workspace.

mod frame;
mod listing;
mod packet;
mod remove;
