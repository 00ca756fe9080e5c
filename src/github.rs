//! The port to GitHub: what comes from there, read without trust and without IO.
//!
//! [`comment`] reads commands out of comments.
//!
//! # Guarantees
//! Everything here is pure. Nothing panics on any input.

pub mod comment;
