//! Fast mode: the provider is asked for a create while its record is still being written.
//!
//! [`certainty`] says when a new home may be created like this. [`begin`](begin::begin) hands the
//! [`record`] in and asks the provider; [`call`] makes the create, and undoes it if the record is
//! refused; [`reply`] keeps the caller's reply until both are done.

pub(super) mod begin;
pub(super) mod call;
pub(super) mod certainty;
pub(super) mod record;
pub(super) mod reply;
