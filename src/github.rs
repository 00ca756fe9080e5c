//! The port to GitHub: what comes from there, read without trust and without IO, and what is asked
//! and done there.
//!
//! [`webhook`] turns a delivery (headers and raw bytes) into what it says of one issue and what
//! it may do; [`comment`] reads commands out of comments; [`policy`] says who and what may
//! trigger; [`fixtures`] holds deliveries in the shape of real ones. [`api`] is the port to GitHub's
//! API; [`registration`] makes a GitHub App for it. [`text`] makes texts safe in both directions, [`task`] puts together what an agent is given,
//! [`BranchPattern`](crate::types::BranchPattern) names its branch, and [`messages`] has every sentence that is said on an issue.
//!
//! # Guarantees
//! What reads deliveries is pure: the same bytes under the same policy always mean the same. Nothing
//! panics on any input, and nothing of a payload is believed before its signature was checked.

pub mod api;
pub mod checks;
pub mod client;
pub mod comment;
pub mod fixtures;
pub mod gateway;
pub mod messages;
pub mod model;
pub mod permissions;
pub mod policy;
pub mod push;
pub mod registration;
pub mod sign_in;
pub mod task;
pub mod text;
pub mod webhook;
