//! Makes text from others safe for a terminal, a log line or a page, and shortens it.

use std::borrow::Cow;

/// Escapes control characters (including the one that starts a terminal's commands), line separators,
/// and marks for the direction of writing, which can make one text look like another.
pub fn inert(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The same, but line feeds and tabs stay.
pub fn inert_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if acts(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// The text, or its first `len_max` characters and `…`.
pub fn beginning(text: &str, len_max: usize) -> String {
    match text.char_indices().nth(len_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The number of bytes at the end that begin a UTF-8 character and do not end it; at most 3. What
/// cannot become a character does not count.
pub fn unfinished_len(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let is_first = |at: &usize| bytes[*at] & 0xc0 != 0x80;
    let Some(at) = (from..bytes.len()).rev().find(is_first) else { return 0 };
    let tail = &bytes[at..];
    let begins = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if begins { tail.len() } else { 0 }
}

/// Whether a terminal, or a reader of the line, takes this character for more than text.
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_direction_marks_are_escaped() {
        assert_eq!(inert("a\nb\x1b[31m\u{9b}\u{202e}c"), "a\\nb\\u{1b}[31m\\u{9b}\\u{202e}c");
    }

    #[test]
    fn lines_and_tabs_stay_where_lines_are_wanted() {
        let acting = "a\tb\n\u{1b}[31mc\r\u{202e}";
        assert_eq!(inert_lines(acting), "a\tb\n\\u{1b}[31mc\\r\\u{202e}");
    }

    #[test]
    fn a_beginning_is_cut_between_characters() {
        assert_eq!(beginning("äöü", 3), "äöü");
        assert_eq!(beginning("äöü", 2), "äö…");
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        let text = "Überschrift \"mit\" 漢字 and a tab-free \\n";
        assert!(matches!(inert(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn a_character_is_unfinished_until_its_last_byte() {
        for c in ["a", "ä", "€", "🎉"] {
            for len in 1..=c.len() {
                let text = [&b"\xffx"[..], &c.as_bytes()[..len]].concat();
                let expected = if len < c.len() { len } else { 0 };
                assert_eq!(unfinished_len(&text), expected, "{c} {len}");
            }
        }
        for never in [&b""[..], b"\xff", b"\x80\x80\x80\x80", b"\xc0", b"\xe0\x80", b"\xf5\x80"] {
            assert_eq!(unfinished_len(never), 0, "{never:?}");
        }
    }
}
