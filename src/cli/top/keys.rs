//! Decodes keys from the bytes of a terminal in raw mode.

/// A key that the view uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C: in raw mode it is a byte, not a signal.
    Interrupt,
}

/// The keys in one read. Unknown sequences are skipped as a whole. A lone escape at the end is the
/// Escape key, because terminals send a sequence in one piece.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars().peekable();
    let mut keys = Vec::new();
    while let Some(c) = chars.next() {
        let key = match c {
            '\u{1b}' => match chars.next_if(|next| matches!(next, '[' | 'O')) {
                None => Some(Key::Escape),
                Some(_) => match chars.find(|c| matches!(c, '@'..='~')) {
                    Some('A') => Some(Key::Up),
                    Some('B') => Some(Key::Down),
                    Some(_) | None => None,
                },
            },
            '\r' | '\n' => Some(Key::Enter),
            '\u{8}' | '\u{7f}' => Some(Key::Backspace),
            '\u{3}' => Some(Key::Interrupt),
            c if c.is_control() => None,
            c => Some(Key::Char(c)),
        };
        keys.extend(key);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::Key::*;
    use super::*;

    #[test]
    fn bytes_become_keys() {
        for (bytes, expected) in [
            (&b"qj"[..], &[Char('q'), Char('j')][..]),
            (b"\x1b[A\x1bOB", &[Up, Down]),
            (b"\x1b", &[Escape]),
            (b"\x1b[5~\x1b[1;5Ck", &[Char('k')]),
            (b"\x1b[", &[]),
            (b"\r\x7f\x08\x03", &[Enter, Backspace, Backspace, Interrupt]),
            (b"\x00\x1a", &[]),
            ("ü\u{9b}".as_bytes(), &[Char('ü')]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }
}
