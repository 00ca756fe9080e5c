//! Makes text from others safe for a terminal or a log line.

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
    fn ordinary_text_is_unchanged() {
        let text = "Überschrift \"mit\" 漢字 and a tab-free \\n";
        assert!(matches!(inert(text), Cow::Borrowed(same) if same == text));
    }
}
