//! What the tests of the HTTP surface share: a whole server on a free port, over a store and a
//! provider whose every move a test decides.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub mod document;
pub mod inside;
pub mod provider;
pub mod server;
pub mod server_rules;
pub mod socket;
pub mod store;
