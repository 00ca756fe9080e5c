//! Fast mode: the provider is asked for a create while its record is still being written.
//!
//! `record` is that record, `call` makes the create and undoes it if the record is refused, and
//! `reply` keeps the caller's reply until both are done. The [`directory`](super::directory) says
//! when a new home may be created like this.

pub(super) mod call;
pub(super) mod record;
pub(super) mod reply;
