//! Text of others, made safe to show on a terminal or in a line of the log.

use std::borrow::Cow;

/// Writes what could act instead of being read as escapes: control characters (also the escape
/// that begins a terminal's commands), line separators, and marks that turn the direction of
/// writing, with which one text can look like another.
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

fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_written_as_an_escape() {
        assert_eq!(inert("a\nb\x1b[31m\u{9b}\u{202e}c"), "a\\nb\\u{1b}[31m\\u{9b}\\u{202e}c");
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        let text = "Überschrift \"mit\" 漢字 and a tab-free \\n";
        assert!(matches!(inert(text), Cow::Borrowed(same) if same == text));
    }
}
