//! Untrusted text on a page: control characters are written out, and long texts are cut.

use std::borrow::Cow;

use crate::types::inert;

/// Longest text that is shown, in characters. GitHub's titles have at most 256, but senders can
/// ignore that limit.
const SHOWN_LEN_MAX: usize = 600;

/// The text in its shown form.
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
