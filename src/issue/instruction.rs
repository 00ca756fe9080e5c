//! What a person asked for in words: the text that a trigger brings for the agent.

use crate::types::Timestamp;

/// Longest text that is kept, in bytes, the marker included. GitHub's own limit is 65,536
/// characters, which are at most twice as many bytes in nearly every language.
pub const TEXT_BYTES_MAX: usize = 128 * 1024;

/// What stands at the end of a text that was longer than [`TEXT_BYTES_MAX`].
pub const TRUNCATED: &str = "\n\n[truncated by issuebox: the text was longer than 128 KiB]";

/// The words of one trigger, and who wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Where the text was written.
    pub source: InstructionSource,
    /// Who wrote the text; `None` when GitHub names no author.
    pub author: Option<GithubUser>,
    /// Who caused the trigger, such as the person who put the label on.
    pub sender: Option<GithubUser>,
    /// When the comment or issue was last updated: how new the text is.
    pub as_of: Timestamp,
    /// The issue's title, or the name of a check; `None` for a comment and a review.
    pub title: Option<String>,
    /// The text: an issue's body, or what follows the command in a comment. At most
    /// [`TEXT_BYTES_MAX`] bytes, ends with [`TRUNCATED`] when it was cut.
    pub text: String,
}

/// Longest beginning of a text that a timeline shows, in characters.
pub const EXCERPT_LEN_MAX: usize = 500;

/// An [`Instruction`] with as much of its text as a timeline shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionExcerpt {
    /// The instruction; its text has at most [`EXCERPT_LEN_MAX`] characters.
    pub instruction: Instruction,
    /// Whether the text goes on.
    pub is_cut: bool,
}

impl InstructionExcerpt {
    /// The beginning of an instruction.
    pub fn of(instruction: &Instruction) -> Self {
        let Instruction { source, author, sender, as_of, title, text } = instruction;
        let end = text.char_indices().nth(EXCERPT_LEN_MAX).map(|(end, _)| end);
        let instruction = Instruction {
            source: *source,
            author: author.clone(),
            sender: sender.clone(),
            as_of: *as_of,
            title: title.clone(),
            text: text[..end.unwrap_or(text.len())].to_owned(),
        };
        Self { instruction, is_cut: end.is_some() }
    }
}

/// Where the text of an [`Instruction`] was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSource {
    /// In the issue itself.
    Issue,
    /// In the comment with this id, behind a command.
    Comment(u64),
    /// In the comment with this id, which has no command.
    PlainComment(u64),
    /// In a review of a pull request.
    Review {
        /// Its id.
        id: u64,
        /// The number of the pull request.
        pull: u32,
    },
    /// In the output of the check with this id, which failed.
    Check(u64),
}

/// An account of GitHub, as a payload names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubUser {
    /// Its numeric id, which never changes.
    pub id: u64,
    /// Its name when the payload was sent.
    pub login: String,
}

/// Bounds a text to [`TEXT_BYTES_MAX`] bytes: a longer one is cut between two characters and ends
/// with [`TRUNCATED`].
pub fn bounded(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT_BYTES_MAX - TRUNCATED.len());
    format!("{}{TRUNCATED}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_the_beginning_and_says_whether_there_is_more() {
        let of = |text: &str| {
            InstructionExcerpt::of(&Instruction {
                source: InstructionSource::Issue,
                author: None,
                sender: None,
                as_of: Timestamp::from_unix_ms(0),
                title: None,
                text: text.into(),
            })
        };
        for character in ["a", "ä", "\u{1F600}"] {
            let fits = character.repeat(EXCERPT_LEN_MAX);
            let whole = of(&fits);
            assert_eq!((whole.instruction.text.as_str(), whole.is_cut), (fits.as_str(), false));
            let cut = of(&character.repeat(EXCERPT_LEN_MAX + 1));
            assert_eq!((cut.instruction.text.as_str(), cut.is_cut), (fits.as_str(), true));
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        assert_eq!(bounded(""), "");
        for text in ["a".repeat(TEXT_BYTES_MAX), "ä".repeat(TEXT_BYTES_MAX / 2)] {
            assert_eq!(bounded(&text), text, "it just fits");
        }
        for (first, character) in [("", "a"), ("", "ä"), ("x", "ä"), ("", "\u{1F600}")] {
            let text = format!("{first}{}", character.repeat(TEXT_BYTES_MAX + 1));
            let cut = bounded(&text);
            let kept = cut.strip_suffix(TRUNCATED).expect("it ends with the marker");
            assert!(text.starts_with(kept), "the beginning is kept");
            let len = cut.len();
            assert!((TEXT_BYTES_MAX - 3..=TEXT_BYTES_MAX).contains(&len), "{character}: {len}");
        }
    }
}
