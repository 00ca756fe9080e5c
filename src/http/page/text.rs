//! Untrusted text on a page: control characters are written out, and long texts are cut.

use std::borrow::Cow;

use crate::types::{inert, inert_lines};

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

/// A text of several lines in its shown form, at most so many characters of it: what acts in it is written
/// out, but for line feeds and tabs.
pub fn shown_lines(text: &str, len_max: usize) -> String {
    let (text, left_out) = match text.char_indices().nth(len_max) {
        None => (text, 0),
        Some((end, _)) => (&text[..end], text.len() - end),
    };
    let mut shown = inert_lines(text);
    if left_out > 0 {
        shown.push_str(&format!("… ({left_out} more bytes are not shown)"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_and_the_rest_is_written_out_and_cut() {
        assert_eq!(shown_lines("a\n\tb\u{1b}[2J\u{202e}", 100), "a\n\tb\\u{1b}[2J\\u{202e}");
        assert_eq!(shown_lines("äöü", 2), "äö… (2 more bytes are not shown)");
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(shown("plain"), "plain");
        let long = shown(&"ä".repeat(1_000_000)).into_owned();
        assert_eq!(long.chars().count(), SHOWN_LEN_MAX + 1);
        assert!(long.ends_with('…') && shown("a\u{1b}b") == "a\\u{1b}b");
    }
}
