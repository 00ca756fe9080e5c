//! The model gateway over HTTP, between a client as in a sandbox and a double of the models' APIs.

mod budgets;
mod ends;
mod keys;
mod world;
