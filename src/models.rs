//! The gateway for models: the only way from a sandbox to a model. It holds the keys, counts, refuses.
//!
//! What can be decided without IO is in modules of its own: prices, budgets, what a request asks for
//! and what an answer used.

pub mod budget;
pub mod prices;
pub mod refusal;
pub mod request;
mod scan;
pub mod usage;

/// The form of a model's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelApi {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
}
