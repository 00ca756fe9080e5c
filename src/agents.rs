//! Agents: how their command lines are started, read, judged and refused. No IO.

pub mod refusal;
