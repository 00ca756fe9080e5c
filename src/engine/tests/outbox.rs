//! The adapters behind what is said on issues, for tests that run them in a world of their own.

pub(in crate::engine) use crate::github::client::WriteQueues;
pub(in crate::engine) use crate::store::sqlite::OutboxInMemory;
