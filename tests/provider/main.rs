//! The providers: the contract that every one of them keeps, and what the simulated one does
//! besides.

mod contract;
#[path = "../common/local.rs"]
mod local;
#[path = "../common/provider_suite.rs"]
mod provider_suite;
mod simulated;
