//! Parts of the words for an agent that GitHub does not show to people, such as HTML comments.
//!
//! They never reach the agent. That there were some is for people to know: such parts are how a stranger
//! gives orders that a maintainer does not see.

use crate::github::text::{HiddenParts, cleaned};
use crate::issue::Instruction;

use super::edits::LatestWords;
use super::news::IssueNote;

/// Why no work begins with `github.hidden = "refuse"`.
pub(super) const REFUSED: &str =
    "the words for the agent have hidden parts, and github.hidden is \"refuse\"";

/// What to say of the hidden parts, if there are any.
pub(super) fn note(words: &LatestWords, is_refused: bool) -> Option<IssueNote> {
    let instructions = || words.text.iter().chain(&words.request);
    let mut hidden = HiddenParts::default();
    for text in instructions().flat_map(texts) {
        hidden.add(cleaned(text).hidden);
    }
    let as_of = instructions().map(|words| words.as_of).max()?;
    let result = if is_refused {
        "no work begins; take them out, then ask again"
    } else {
        "the agent does not get them"
    };
    let text =
        format!("the words for the agent have hidden parts ({}); {result}", hidden.in_words()?);
    Some(IssueNote { kind: "hidden_parts", as_of, text })
}

/// The texts of an instruction that people wrote.
fn texts(instruction: &Instruction) -> impl Iterator<Item = &str> {
    instruction.title.as_deref().into_iter().chain([instruction.text.as_str()])
}
