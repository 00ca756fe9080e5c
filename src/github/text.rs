//! Texts in and out: what people wrote, made safe for an agent, and what an agent wrote, made safe
//! for GitHub.
//!
//! # Guarantees
//! - [`cleaned`] removes everything that GitHub does not show to people, and counts it.
//! - What [`public_text`] returns contains no HTML, no image and no command, links only to the
//!   repository's own host, and notifies, closes and references nothing.
//! - A text that contains a secret of the server in any of its encodings is never returned.
//!
//! # What is accepted
//! GitHub reads Markdown by its own parser. Where that differs from the one here, a part may be
//! taken for visible that is not.

mod incoming;
mod outgoing;
mod secrets;

pub use incoming::{CleanedText, HiddenParts, cleaned};
pub use outgoing::{OutgoingRules, PUBLIC_TEXT_LEN_MAX, PublicText, public_text};
pub use secrets::{KnownSecrets, SecretFound};

pub(super) use outgoing::{code, one_line, plain};

#[cfg(test)]
mod tests;
