//! Text of others on a page: what could act in it is written out, and what is too long is cut.

use std::borrow::Cow;

use crate::types::inert;

/// Characters of one text that are shown. GitHub's titles have 256 at most; a sender need not keep to
/// that, and a page must not become as large as a sender likes.
const SHOWN_LEN_MAX: usize = 600;

/// The text as it is shown.
pub fn shown(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_LEN_MAX) {
        None => inert(text),
        Some((end, _)) => Cow::Owned(format!("{}…", inert(&text[..end]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(shown("plain"), "plain");
        let long = shown(&"ä".repeat(1_000_000)).into_owned();
        assert_eq!(long.chars().count(), SHOWN_LEN_MAX + 1);
        assert!(long.ends_with('…') && shown("a\u{1b}b") == "a\\u{1b}b");
    }
}
