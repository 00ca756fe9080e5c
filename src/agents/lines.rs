//! Splits a process's output into lines, in bounded memory.

use super::bounds::LINE_BYTES_MAX;

/// Puts the pieces of an output together to lines. Of a line that is too long for a reader, it keeps one
/// byte more than a reader parses.
#[derive(Debug, Default)]
pub struct LineSplitter {
    held: Vec<u8>,
}

impl LineSplitter {
    /// Takes the next piece in and passes every line on that ends in it, without its line feed.
    pub fn push(&mut self, piece: &[u8], mut line: impl FnMut(&[u8])) {
        let mut rest = piece;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (head, tail) = (&rest[..at], &rest[at + 1..]);
            if self.held.is_empty() {
                line(head);
            } else {
                self.hold(head);
                line(&self.held);
                self.held.clear();
                self.held.shrink_to(64 * 1024);
            }
            rest = tail;
        }
        self.hold(rest);
    }

    /// The line that the output ends in without a line feed, if there is one.
    pub fn finish(&mut self, line: impl FnOnce(&[u8])) {
        if !self.held.is_empty() {
            line(&self.held);
        }
        self.held = Vec::new();
    }

    /// How many bytes of a line are held that has not ended. A reader that must be able to begin again
    /// begins so many bytes earlier; a line longer than [`LINE_BYTES_MAX`] counts as that long.
    pub fn held_len(&self) -> usize {
        self.held.len()
    }

    fn hold(&mut self, bytes: &[u8]) {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.held.len());
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            splitter.push(piece, |line| lines.push(line.to_vec()));
        }
        splitter.finish(|line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_is_whole() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let lines = split(&[&long, &long, b"x\nnext\n"]);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [LINE_BYTES_MAX + 1, 4]);
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(200))]
        #[test]
        fn no_bytes_are_lost_however_they_are_split(
            text in "[a-c\n]{0,30}",
            at in prop::collection::vec(0_usize..31, 0..4),
        ) {
            let mut at: Vec<usize> = at.into_iter().map(|at| at.min(text.len())).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &text.as_bytes()[w[0]..w[1]]).collect();
            let mut expected: Vec<&str> = text.split('\n').collect();
            if expected.last() == Some(&"") {
                expected.pop();
            }
            let lines = split(&pieces);
            prop_assert_eq!(lines, expected.iter().map(|l| l.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }
}
