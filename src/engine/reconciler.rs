//! Sweeps: what providers list, sent as observations to the actors, which alone decide.

pub(super) mod compare;
